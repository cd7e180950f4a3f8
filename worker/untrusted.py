"""Makes names that somebody else chose safe to show, each channel in its own way.

Nothing is dropped: what can't be shown as it is gets a visible stand-in, so that a name
can't ping a group, break a card, forge a line, or vanish. Pure.
"""

from __future__ import annotations

import html
import re
import unicodedata

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and symbols by category that fonts show as nothing.
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5")
_JOINERS = frozenset("\u200c\u200d")
_CONTROL_PICTURES = 0x2400
_C0_END = 0x20
_DELETE = 0x7F
_BMP_END = 0xFFFF

# Feishu's own table for card markdown; '&' first in effect, since one pass replaces all.
# ':' also stops emoji codes. Backslashes are no escape there.
_CARD_ENTITIES = {
    ord(character): f"&#{ord(character)};" for character in "&<>*_[]()#:+-!/\\\"'`$"
} | {ord("~"): "&sim;"}
_EMOJI_CODE = re.compile(r":(?=\w+:)")


def visible(text: str) -> str:
    """The text on one line, every character seen: controls as pictures, others by number.

    Spaces at either end are shown too, so that a name of spaces is a name.
    """
    shown = "".join(_seen(text, place) for place in range(len(text)))
    inner = shown.strip(" ")
    if len(inner) == len(shown):
        return shown
    left = len(shown) - len(shown.lstrip(" "))
    return "␠" * left + inner + "␠" * (len(shown) - left - len(inner))


def for_terminal(text: str) -> str:
    """For stderr: escape sequences and line breaks become visible."""
    return visible(text)


def for_chat_text(text: str) -> str:
    """For an im-bot, whose connector may read mentions, tags or links out of plain text.

    Full-width twins stand in for what begins one: they look alike and mean nothing.
    """
    return visible(text).replace("@", "\uff20").replace("<", "\uff1c").replace("](", "\uff3d(")


def for_card_title(text: str) -> str:
    """For a card's plain_text, where only emoji codes are still read."""
    return _EMOJI_CODE.sub("\uff1a", visible(text)).replace("<", "\uff1c")


def for_card_markdown(text: str) -> str:
    """For a card's markdown: Feishu's entity escapes."""
    return visible(text).translate(_CARD_ENTITIES)


def for_html(text: str) -> str:
    """For an e-mail's HTML, between tags or in a quoted attribute."""
    return html.escape(visible(text), quote=True)


def for_mail_subject(text: str) -> str:
    """For a header: one line, and nothing that is read as an encoded word of its own."""
    return visible(text).replace("=?", "\uff1d?")


def _seen(text: str, place: int) -> str:
    character = text[place]
    code = ord(character)
    if code < _C0_END:
        return chr(_CONTROL_PICTURES + code)
    if code == _DELETE:
        return "␡"
    if code < _DELETE:
        return character
    if character in _JOINERS and _joins(text, place):
        return character
    if unicodedata.category(character) in _HIDDEN_CATEGORIES or character in _BLANK:
        return f"\\u{code:04x}" if code <= _BMP_END else f"\\U{code:08x}"
    return character


def _joins(text: str, place: int) -> bool:
    """A joiner inside a script or an emoji belongs there; one inside plain ASCII hides."""
    return (
        0 < place < len(text) - 1
        and ord(text[place - 1]) > _DELETE
        and ord(text[place + 1]) > _DELETE
        and text[place + 1] not in _JOINERS
    )
