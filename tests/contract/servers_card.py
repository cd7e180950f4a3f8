"""What Feishu holds against a card of version 2.0, and how a person reads one.

The properties are those of the vendor's pages; any other is an error there, and here.
"""

from __future__ import annotations

import html
import re
from typing import Any

COLOURS = {"blue", "wathet", "turquoise", "green", "yellow", "orange", "red", "carmine"}
COLOURS |= {"violet", "purple", "indigo", "grey", "default"}
TEXT_SIZES = {"heading", "normal", "notation"} | {f"heading-{n}" for n in range(5)}
_PLACED = {"tag", "element_id", "margin"}
_ELEMENTS = {
    "markdown": _PLACED | {"content", "text_size", "text_align", "icon"},
    "hr": _PLACED,
    "div": _PLACED | {"text", "icon", "width"},
}
_PLAIN_TEXT = {"tag", "content", "text_size", "text_color", "text_align", "lines"}
_ELEMENTS_MAX = 200


def card_fault(card: Any) -> str | None:  # noqa: PLR0911  one for each fault
    """Why the vendor would refuse the card, None where it wouldn't."""
    if not isinstance(card, dict) or card.get("schema") != "2.0":
        return "no card of version 2.0"
    if extra := card.keys() - {"schema", "config", "card_link", "header", "body"}:
        return f"unknown property {extra}"
    header, body = card["header"], card["body"]
    if header.keys() - {"title", "subtitle", "text_tag_list", "template", "icon", "padding"}:
        return "unknown property of the header"
    if header["template"] not in COLOURS or header["title"].keys() != {"tag", "content"}:
        return "wrong header"
    if body.keys() != {"elements"}:
        return "unknown property of the body"
    for element in body["elements"]:
        if fault := _element_fault(element):
            return fault
    if sum(1 + ("text" in element) for element in body["elements"]) + 1 > _ELEMENTS_MAX:
        return "too many elements"
    return None


def _element_fault(element: dict[str, Any]) -> str | None:
    if element["tag"] not in _ELEMENTS:
        return f"tag {element['tag']} unsupported"
    if extra := element.keys() - _ELEMENTS[element["tag"]]:
        return f"unknown property {extra}"
    text = element.get("text", {})
    if text.keys() - _PLAIN_TEXT or text.get("text_color", "default") not in COLOURS:
        return "wrong text"
    for one in (element, text):
        if one.get("text_size", "normal") not in TEXT_SIZES:
            return "unknown text_size"
    return None


def raw_text(card: dict[str, Any]) -> str:
    """The markdown less what the layout put around it: labels in bold, the grey note."""
    return "\n".join(
        _bare(line)
        for element in card["body"]["elements"]
        if element["tag"] == "markdown"
        for line in element["content"].split("\n")
    )


def _bare(line: str) -> str:
    grey = re.fullmatch("<font color='grey'>(.*)</font>", line)
    if grey:
        return grey[1]
    return re.sub(r"^\*\*([^*&<]+)\*\*(?=[:\uff1a])", r"\1", line)


def shown_text(card: dict[str, Any]) -> str:
    """As a client shows it: entities are read."""
    return html.unescape(raw_text(card)).replace("\u223c", "~")
