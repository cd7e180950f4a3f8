"""What a report's tables are made of: typed cells, which each form shows in its own way.

Text is of two kinds, alike in type: words of ours, and names that somebody else chose. Every
form makes all of it safe, so none has to know which is which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date
    from fractions import Fraction

    from worker.roi.figures import Reason


@dataclass(frozen=True, slots=True)
class Money:
    """Nanos of the billing currency; a Fraction where it was divided."""

    nanos: Fraction | int


@dataclass(frozen=True, slots=True)
class Count:
    """Tokens, requests, places: whole."""

    number: int


@dataclass(frozen=True, slots=True)
class Quantity:
    """An outcome, or one for something."""

    number: Fraction


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole: 0.25 is 25 %."""

    part: Fraction


@dataclass(frozen=True, slots=True)
class Change:
    """More or less than before: 0.25 is a quarter more."""

    part: Fraction


@dataclass(frozen=True, slots=True)
class MonthOf:
    """A month, by its first day."""

    first: date


@dataclass(frozen=True, slots=True)
class DayOf:
    """A day."""

    day: date


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a figure can't be told; ``metric`` is what was not imported, where it is that."""

    reason: Reason
    metric: str = ""


Cell = str | Money | Count | Quantity | Share | Change | MonthOf | DayOf | Missing | None


@dataclass(frozen=True, slots=True)
class Table:
    """One table, under its title.

    ``key``: the same in every language. The first column says what a row is of; the last
    ``totals`` rows are sums of those above. ``numbered``: rows that a chart shows by number.
    ``charts``: which charts show this table's numbers. ``notes`` stand below, and alone where
    there are no rows.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    totals: int = 0
    numbered: bool = False
    notes: tuple[str, ...] = ()
    charts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """A figure for those who read no further, and what it is to be seen against."""

    label: str
    value: Cell
    beside: tuple[str, Cell] | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A report in one language, before it takes a form. ``marks``: what must be read first."""

    title: str
    marks: tuple[str, ...]
    headlines: tuple[Headline, ...]
    tables: tuple[Table, ...]
    foot: tuple[str, ...]
