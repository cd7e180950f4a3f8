"""Aligned text for terminals: columns by display width, names made harmless.

A CJK character takes two cells, a combining mark none. Names are untrusted: control
characters, line breaks, escape sequences, and marks that turn the direction of text are
shown as escapes, so that no name can forge a line or move the cursor.
"""

from __future__ import annotations

import unicodedata
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_NAME_CELLS = 40
COLUMN_GAP = "  "
BLOCKS: Final = "▁▂▃▄▅▆▇█"
NOTHING: Final = "·"
STYLES: Final = {"head": "1", "alarm": "31", "warning": "33", "dim": "2"}
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
    return "\n".join(table_lines(header, rows, right))


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int]
) -> list[str]:
    """As ``table``, line by line: the header, then one for each row."""
    lines = [header, *rows]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(header))]
    text = []
    for line in lines:
        padded = []
        for column, value in enumerate(line):
            space = " " * (widths[column] - cells(value))
            padded.append(space + value if column in right else value + space)
        text.append(COLUMN_GAP.join(padded).rstrip())
    return text


def sparkline(values: Sequence[Decimal]) -> str:
    """One block per value, as high as its share of the greatest; a dot for none."""
    top = max(values, default=Decimal(0))
    if top <= 0:
        return NOTHING * len(values)
    steps = len(BLOCKS)
    return "".join(
        BLOCKS[min(int(value * steps / top), steps - 1)] if value > 0 else NOTHING
        for value in values
    )


class Palette:
    """Colours for a terminal; plain text where there is none, or NO_COLOR is set."""

    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured

    def paint(self, text: str, style: str | None) -> str:
        """The text in a style of STYLES; None: as it is."""
        if not self._coloured or style is None or not text:
            return text
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m"


def wants_colour(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal that shows colours, and nobody asked for none.

    NO_COLOR as of no-color.org: set to anything but nothing.
    """
    return (
        stream is not None
        and stream.isatty()
        and not environ.get("NO_COLOR")
        and environ.get("TERM") != "dumb"
    )
