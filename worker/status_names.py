"""Finds a name by the form in which alerts show it, made harmless. Pure.

Chats have full-width twins of what they would read, and the number of what is hidden: whoever
copies the next step out of one has that form.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from worker.untrusted import for_card_title, for_chat_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN_MAX_LETTERS: Final = 1_000
_FORMS: Final = (visible, for_chat_text, for_card_title)
# What stands in for another character.
_TWINS: Final = {"＠": "@", "＜": "<", "］": "]", "：": ":", "␠": " ", "␡": "\x7f"} | {  # noqa: RUF001  on purpose
    chr(0x2400 + code): chr(code) for code in range(1, 0x20)
}
_PART: Final = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|.", re.DOTALL)
_SPECIAL: Final = frozenset(".^$*+?()[]{}|\\")
_SURROGATES: Final = range(0xD800, 0xE000)
_CODE_MAX: Final = 0x10FFFF


def pattern_of(shown: str) -> str | None:
    """PostgreSQL's regular expression of what may be shown so; None: nothing but itself is."""
    parts = _PART.findall(shown[: SHOWN_MAX_LETTERS + 1])
    hidden = [_hidden(part) for part in parts]
    if len(shown) > SHOWN_MAX_LETTERS or not any(hidden):
        return None
    choices = (
        f"(?:{_literal(part)}|{_literal(other)})" if other else _literal(part)
        for part, other in zip(parts, hidden, strict=True)
    )
    return f"^{''.join(choices)}$"


def shown_as(shown: str, names: Iterable[str]) -> list[str]:
    """Those of the names that an alert shows so, by themselves or inside a command's quotes."""
    return [
        name
        for name in names
        if any(shown in {form(name), form(f"'{name}'")[1:-1]} for form in _FORMS)
    ]


def as_argument(name: str) -> str:
    """The name as one word of a shell's command line, what is hidden in it by its number."""
    if visible(name) == name:
        return shlex.quote(name)
    return f"$'{''.join(map(_escaped, name))}'"


def as_operand(name: str) -> str:
    """As `as_argument`, where an option would be read, too: `-- --help`."""
    return f"-- {as_argument(name)}" if name.startswith("-") else as_argument(name)


def _escaped(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    seen = visible(f"'{character}'")[1:-1] == character
    return character if seen else f"\\U{ord(character):08x}"


def _hidden(part: str) -> str | None:
    """The character that may be behind a part of the text."""
    if len(part) == 1:
        return _TWINS.get(part)
    code = int(part.strip("\\uU"), 16)
    return chr(code) if 0 < code <= _CODE_MAX and code not in _SURROGATES else None


def _literal(text: str) -> str:
    return "".join(f"\\{one}" if one in _SPECIAL else one for one in text)
