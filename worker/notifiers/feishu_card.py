"""A Feishu custom bot's request: signature, interactive card (JSON 2.0), size. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any, Final

BODY_MAX_BYTES: Final = 20_000
# What the signature, the keyword and the card's frame may take.
_FRAME_BYTES: Final = 2_000
_COLOURS: Final = {
    "exhausted": "red",
    "protected": "carmine",
    "downgrade": "orange",
    "warning": "yellow",
}


def sign(secret: str, timestamp_seconds: int) -> str:
    """Feishu's signature: the key is timestamp and secret, the message is empty."""
    key = f"{timestamp_seconds}\n{secret}".encode()
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode("ascii")


def card_bodies(
    *,
    title: str,
    markdown: str,
    severity: str,
    keyword: str | None,
    secret: str | None,
    timestamp_seconds: int,
) -> list[bytes]:
    """The requests' JSON, each under 20,000 bytes; more than one only for a very long text.

    `title` and `markdown` are escaped already. The bot's keyword is added where the
    title lacks it. Nothing is left out: a long text goes on in the next card.
    """
    room = BODY_MAX_BYTES - _FRAME_BYTES - _json_bytes(keyword or "")
    title = _shortened(title, room // 4)
    pieces = _pieces(markdown, room - _json_bytes(title))
    bodies = []
    for number, piece in enumerate(pieces, start=1):
        numbered = title if len(pieces) == 1 else f"{title} ({number}/{len(pieces)})"
        body = _request(numbered, piece, severity, keyword)
        if secret:
            body["timestamp"] = str(timestamp_seconds)
            body["sign"] = sign(secret, timestamp_seconds)
        bodies.append(json.dumps(body, ensure_ascii=False).encode())
    return bodies


def _request(title: str, markdown: str, severity: str, keyword: str | None) -> dict[str, Any]:
    elements: list[dict[str, Any]] = [{"tag": "markdown", "content": markdown}]
    if keyword and keyword not in title:
        elements.append({"tag": "div", "text": {"tag": "plain_text", "content": keyword}})
    return {
        "msg_type": "interactive",
        "card": {
            "schema": "2.0",
            "header": {
                "title": {"tag": "plain_text", "content": title},
                "template": _COLOURS.get(severity, "grey"),
            },
            "body": {"elements": elements},
        },
    }


def _pieces(markdown: str, max_bytes: int) -> list[str]:
    """Whole lines where they fit; a longer line is cut, never inside an entity."""
    pieces: list[str] = []
    lines: list[str] = []
    size = 0
    for line in (part for long in markdown.split("\n") for part in _cut(long, max_bytes)):
        line_size = _json_bytes(line) + 2  # the break is written as \n
        if lines and size + line_size > max_bytes:
            pieces.append("\n".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += line_size
    pieces.append("\n".join(lines))
    return pieces


def _cut(line: str, max_bytes: int) -> list[str]:
    """The line in parts whose JSON is at most `max_bytes`; an entity stays whole."""
    if _json_bytes(line) + 2 <= max_bytes:
        return [line]
    parts: list[str] = []
    start = size = place = 0
    while place < len(line):
        end = line.find(";", place) + 1 if line.startswith(("&#", "&sim;"), place) else place + 1
        token_size = _json_bytes(line[place:end])
        if size + token_size + 2 > max_bytes:
            parts.append(line[start:place])
            start, size = place, 0
        size += token_size
        place = end
    parts.append(line[start:])
    return parts


def _shortened(title: str, max_bytes: int) -> str:
    """A title that leaves room for the text; the text says everything again."""
    return title if _json_bytes(title) <= max_bytes else _cut(title, max_bytes)[0] + "…"


def _json_bytes(text: str) -> int:
    """The size of the text inside a JSON string, without its quotes."""
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2
