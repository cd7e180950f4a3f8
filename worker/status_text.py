"""Aligned text for terminals: columns by display width, names made harmless.

A CJK character takes two cells, a combining mark none. Names are untrusted: control
characters, line breaks, escape sequences, and marks that turn the direction of text are
shown as escapes, so that no name can forge a line or move the cursor.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NAME_CELLS = 40
COLUMN_GAP = "  "
# Cc control, Cf format (bidi marks, zero-width), Cs surrogates, Co private, Cn unassigned,
# Zl and Zp line and paragraph separators
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """The text with every character that is invisible or acts on a terminal escaped."""
    return "".join(
        character if unicodedata.category(character) not in _HIDDEN else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def cells(text: str) -> int:
    """How many terminal cells the text takes."""
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) == "Me":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clipped(text: str, limit: int = MAX_NAME_CELLS) -> str:
    """At most ``limit`` cells, ending in … when cut; never half a wide character."""
    if cells(text) <= limit:
        return text
    kept, used = [], 0
    for character in text:
        used += _cells_of(character)
        if used > limit - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int]) -> str:
    """Lines of columns, each as wide as its widest cell; ``right`` columns end flush.

    The cells must have gone through ``visible``. No spaces at a line's end.
    """
    lines = [header, *rows]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(header))]
    text = []
    for line in lines:
        padded = []
        for column, value in enumerate(line):
            space = " " * (widths[column] - cells(value))
            padded.append(space + value if column in right else value + space)
        text.append(COLUMN_GAP.join(padded).rstrip())
    return "\n".join(text)
