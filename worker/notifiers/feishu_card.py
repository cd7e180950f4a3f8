"""Feishu's interactive card (JSON 2.0) out of a message's text, and a custom bot's request. Pure.

A card of version 2.0 is refused for any property that the vendor doesn't know: only what
its pages document is used here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

BODY_MAX_BYTES: Final = 20_000
# Of 200; header, note and keyword count, too.
ELEMENTS_MAX: Final = 150
# What a custom bot's request has around its card: type, timestamp, signature.
_ENVELOPE_BYTES: Final = 200
# " (1/99)" after the title, and a comma or two.
_SPARE_BYTES: Final = 40
# From the worst on.
_COLOURS: Final = {
    "exhausted": "red",
    "protected": "carmine",
    "downgrade": "orange",
    "warning": "yellow",
    "available": "green",
}
# A line's label, before a colon of either width that is none of a time's. Names can't make
# one: in card markdown their colons are entities.
_LABEL: Final = re.compile(r"[^:\uff1a&*<]{0,59}[^:\uff1a&*<\d\s](?=[:\uff1a])")
_ITEM: Final = re.compile(r"\d{1,6}\. ", re.ASCII)
_GREY: Final = ("<font color='grey'>", "</font>")


def sign(secret: str, timestamp_seconds: int) -> str:
    """Feishu's signature: the key is timestamp and secret, the message is empty."""
    key = f"{timestamp_seconds}\n{secret}".encode()
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode("ascii")


def worst(severities: Iterable[str]) -> str:
    """The most severe of them, which colours a digest."""
    ranks = {severity: rank for rank, severity in enumerate(_COLOURS)}
    return min(severities, key=lambda one: ranks.get(one, len(ranks)))


def card_bodies(
    *,
    title: str,
    markdown: str,
    severity: str,
    keyword: str | None,
    secret: str | None,
    timestamp_seconds: int,
) -> list[bytes]:
    """A custom bot's requests, each under 20,000 bytes; several only for a very long text."""
    bodies = []
    for card in cards(
        title=title,
        markdown=markdown,
        severity=severity,
        keyword=keyword,
        max_bytes=BODY_MAX_BYTES - _ENVELOPE_BYTES,
    ):
        body: dict[str, Any] = {"msg_type": "interactive", "card": card}
        if secret:
            body["timestamp"] = str(timestamp_seconds)
            body["sign"] = sign(secret, timestamp_seconds)
        bodies.append(json.dumps(body, ensure_ascii=False).encode())
    return bodies


def cards(
    *,
    title: str,
    markdown: str,
    severity: str,
    keyword: str | None = None,
    max_bytes: int,
    as_text: bool = False,
) -> list[dict[str, Any]]:
    """The text laid out in cards, each of whose JSON is at most `max_bytes`.

    `title` and `markdown` are escaped already. A line is an element with its label in
    bold, a run of numbered lines is one list, the last line (what to do next) a grey note
    below a rule. The bot's keyword is added where the title lacks it. Nothing is left out:
    a long text goes on in the next card. `as_text`: the JSON is itself put into a JSON
    string, and measured so.
    """
    sizes = _Sizes(as_text=as_text)
    room = max_bytes - sizes.of(_card("", [], severity, keyword)) - _SPARE_BYTES
    title = sizes.shortened(title, room // 4)
    room -= sizes.inside(title)
    layout = _Layout(sizes, room)
    lines = [line for line in markdown.split("\n") if line.strip()]
    for number, line in enumerate(lines, start=1):
        if number == len(lines) > 1:
            layout.note(line)
        elif _ITEM.match(line):
            layout.item(line)
        else:
            layout.line(_with_label(line))
    total = len(layout.cards)
    return [
        _card(title if total == 1 else f"{title} ({number}/{total})", elements, severity, keyword)
        for number, elements in enumerate(layout.cards, start=1)
    ]


def _card(
    title: str, elements: list[dict[str, Any]], severity: str, keyword: str | None
) -> dict[str, Any]:
    if keyword and keyword not in title:
        word = {"tag": "plain_text", "content": keyword, "text_size": "notation"}
        elements = [*elements, {"tag": "div", "text": word | {"text_color": "grey"}}]
    return {
        "schema": "2.0",
        "header": {
            "title": {"tag": "plain_text", "content": title},
            "template": _COLOURS.get(severity, "grey"),
        },
        "body": {"elements": elements},
    }


def _with_label(line: str) -> str:
    """The asterisks close before the colon: after it they need a space, and Chinese has none."""
    label = _LABEL.match(line)
    return line if label is None else f"**{label[0]}**{line[label.end() :]}"


class _Sizes:
    """Bytes of UTF-8 in the request."""

    def __init__(self, *, as_text: bool) -> None:
        self._as_text = as_text

    def of(self, value: object) -> int:
        """The size of a value's JSON."""
        text = json.dumps(value, ensure_ascii=False)
        if self._as_text:
            return len(json.dumps(text, ensure_ascii=False).encode()) - 2
        return len(text.encode())

    def inside(self, text: str) -> int:
        """The size of a text in a JSON string, without its quotes."""
        return self.of(text) - self.of("")

    def cut(self, line: str, max_bytes: int) -> list[str]:
        """The line in parts of at most `max_bytes`; an entity stays whole."""
        if self.inside(line) <= max_bytes:
            return [line]
        parts: list[str] = []
        sizes: dict[str, int] = {}
        start = size = place = 0
        while place < len(line):
            entity = line.startswith(("&#", "&sim;"), place)
            end = line.find(";", place) + 1 if entity else place + 1
            token = line[place:end]
            if token not in sizes:
                sizes[token] = self.inside(token)
            token_size = sizes[token]
            if size + token_size > max_bytes:
                parts.append(line[start:place])
                start, size = place, 0
            size += token_size
            place = end
        parts.append(line[start:])
        return parts

    def shortened(self, title: str, max_bytes: int) -> str:
        """A title that leaves room for the text; the text says everything again."""
        return title if self.inside(title) <= max_bytes else self.cut(title, max_bytes)[0] + "…"


class _Layout:
    """Fills cards with elements; a card that is full is followed by another."""

    def __init__(self, sizes: _Sizes, room: int) -> None:
        self._sizes = sizes
        self._room = room
        self._size = 0
        self._in_list = False
        self.cards: list[list[dict[str, Any]]] = [[]]
        # what is left for a text beside the largest element that holds one
        rule, note = _note("")
        self._text_room = room - sizes.of(rule) - sizes.of(note) - _SPARE_BYTES

    def line(self, text: str) -> None:
        for part in self._sizes.cut(text, self._text_room):
            self._add({"tag": "markdown", "content": part})

    def item(self, text: str) -> None:
        """A further line of the list before it, where there is one."""
        for part in self._sizes.cut(text, self._text_room):
            more = self._sizes.inside(f"\n{part}")
            if self._in_list and self._size + more <= self._room:
                self.cards[-1][-1]["content"] += f"\n{part}"
                self._size += more
            else:
                self._add({"tag": "markdown", "content": part})
                self._in_list = True

    def note(self, text: str) -> None:
        for part in self._sizes.cut(text, self._text_room):
            self._add(*_note(part))

    def _add(self, *elements: dict[str, Any]) -> None:
        size = sum(self._sizes.of(element) + len(", ") for element in elements)
        here = self.cards[-1]
        if here and (self._size + size > self._room or len(here) >= ELEMENTS_MAX):
            self.cards.append([])
            self._size = 0
        self.cards[-1].extend(elements)
        self._size += size
        self._in_list = False


def _note(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    before, after = _GREY
    return {"tag": "hr"}, {
        "tag": "markdown",
        "content": f"{before}{text}{after}",
        "text_size": "notation",
    }
