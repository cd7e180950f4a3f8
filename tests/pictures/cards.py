"""A Feishu card (JSON 2.0) as HTML that looks like the client's drawing of it.

Of the card's markdown it knows what we send: bold, grey, lists, and entities.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

# The client's header colours, by eye.
_HEADERS = {
    "red": "#f54a45",
    "carmine": "#dc2f90",
    "orange": "#ff8800",
    "yellow": "#ffc60a",
    "green": "#34c724",
    "grey": "#8f959e",
}
_SIZES = {"notation": "12px"}


def card_page(cards: list[dict[str, Any]]) -> str:
    """A page with the cards one below the other, as in a chat."""
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>'
        '<body style="margin:0;padding:12px;background:#eff0f1;font:14px/22px sans-serif">'
        + "".join(_card(card) for card in cards)
        + "</body></html>"
    )


def _card(card: dict[str, Any]) -> str:
    assert card["schema"] == "2.0"
    header = card["header"]
    colour = _HEADERS[header["template"]]
    return (
        '<div style="max-width:600px;margin:0 0 12px;border:1px solid #dee0e3;border-radius:8px;'
        'background:#fff;overflow:hidden;overflow-wrap:anywhere">'
        f'<div style="background:{colour};color:#fff;font-weight:600;font-size:16px;padding:12px">'
        f"{escape(header['title']['content'])}</div>"
        '<div style="padding:12px">'
        + "".join(_element(one) for one in card["body"]["elements"])
        + "</div></div>"
    )


def _element(element: dict[str, Any]) -> str:
    match element["tag"]:
        case "hr":
            return '<hr style="border:0;border-top:1px solid #dee0e3;margin:8px 0">'
        case "markdown":
            size = _SIZES.get(element.get("text_size", ""), "14px")
            lines = [_inline(line) for line in element["content"].split("\n")]
            return f'<div style="font-size:{size};margin:0 0 8px">{"<br>".join(lines)}</div>'
        case "div":
            return f'<div style="font-size:12px;color:#8f959e">{escape(element["text"]["content"])}</div>'
        case tag:
            raise AssertionError(f"a card's element that the look-alike doesn't know: {tag}")


def _inline(markdown: str) -> str:
    """Entities stay as they are: the browser reads them as the client does."""
    text = re.sub(r"&(?!#?\w+;)", "&amp;", markdown)
    text = re.sub(r"<(?!/?font\b)", "&lt;", text)
    text = text.replace("<font color='grey'>", '<span style="color:#8f959e">')
    text = text.replace("</font>", "</span>")
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
