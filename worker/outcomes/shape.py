"""What a file of outcomes is made of, whatever its format."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.status_text import clipped
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What keyboards for Chinese write, and the spaces that part groups of digits.
_WIDE: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | dict.fromkeys(
    (0x3000, 0xA0, 0x2009, 0x202F), " "
)
COLUMNS: Final = ("month", "department_id", "metric", "value")
MAX_ROWS: Final = 5_000_000
MAX_SHOWN_FAULTS: Final = 20
# What the report has figures of their own for; any other name is a metric, too.
USUAL_METRICS: Final = ("orders", "gmv")


class RefusedOutcomesError(UsageError):
    """Rows of the file are wrong, and nothing was imported."""

    # what it quotes are names to be looked for in the file
    redacted = False


@dataclass(frozen=True, slots=True)
class CellFault:
    """A cell whose value can't be known; ``text`` says why and what to do."""

    text: str


Cell = str | Decimal | date | CellFault


@dataclass(frozen=True, slots=True)
class Grid:
    """An open file: ``header``, then ``rows``, each with its number (lines and rows from 1).

    ``how`` says as what it was read; ``place`` names a row, or one of its cells (from 0), for
    people. Empty rows are left out. Reading on raises UsageError where the file is broken.
    """

    header: tuple[str, ...]
    rows: Iterator[tuple[int, list[Cell]]]
    how: str
    place: Callable[[int, int | None], str]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A department's value of a metric in a month (its first day); ``line`` as in the Grid."""

    line: int
    month: date
    department_id: str
    metric: str
    value: Decimal


@dataclass(frozen=True, slots=True)
class Import:
    """What an import did; ``removed``: values of its months and metrics that it no longer has."""

    import_id: int
    rows: int
    added: int
    changed: int
    unchanged: int
    removed: int


def plain(text: str) -> str:
    """Without spaces around it; full-width letters, digits and marks as ordinary ones."""
    return unicodedata.normalize("NFC", text.translate(_WIDE)).strip()


def shown(text: str) -> str:
    """A cell's text in quotes, harmless and not too long."""
    return f"'{clipped(visible(text))}'"
