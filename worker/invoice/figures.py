"""What both sides are counted in: frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date, datetime

INPUT: Final = "input"
CACHED: Final = "cached"
OUTPUT: Final = "output"
COST: Final = "cost"
TOKENS: Final = "tokens"  # input and output together
MEASURES: Final = (COST, INPUT, CACHED, OUTPUT, TOKENS)


@dataclass(frozen=True, slots=True)
class Figures:
    """Tokens, and nanos of the billing currency. Cached input tokens are part of the input.

    Of an invoice that tells of TOKENS alone, ``in_tokens`` are all of them.
    """

    in_tokens: int = 0
    cached_in_tokens: int = 0
    out_tokens: int = 0
    cost_nanos: int = 0

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.in_tokens + other.in_tokens,
            self.cached_in_tokens + other.cached_in_tokens,
            self.out_tokens + other.out_tokens,
            self.cost_nanos + other.cost_nanos,
        )

    def __sub__(self, other: Figures) -> Figures:
        return Figures(
            self.in_tokens - other.in_tokens,
            self.cached_in_tokens - other.cached_in_tokens,
            self.out_tokens - other.out_tokens,
            self.cost_nanos - other.cost_nanos,
        )

    def of(self, measure: str) -> int:
        """One of them by name: INPUT, CACHED, OUTPUT, COST, or TOKENS, input and output."""
        return {
            INPUT: self.in_tokens,
            CACHED: self.cached_in_tokens,
            OUTPUT: self.out_tokens,
            COST: self.cost_nanos,
            TOKENS: self.in_tokens + self.out_tokens,
        }[measure]


NOTHING: Final = Figures()


def total(figures: Iterable[Figures]) -> Figures:
    """Their sum."""
    result = NOTHING
    for one in figures:
        result += one
    return result


@dataclass(frozen=True, slots=True)
class Part:
    """How many requests, and their figures."""

    requests: int = 0
    figures: Figures = NOTHING

    def __add__(self, other: Part) -> Part:
        return Part(self.requests + other.requests, self.figures + other.figures)


PARTS: Final = ("stale", "unreserved", "unpriced", "held", "dropped")


@dataclass(frozen=True, slots=True)
class LedgerCell:
    """One day and model of the ledger, as it was answered; "": none was named.

    ``charged`` is posted; of it ``stale`` by estimate, as no usage came, ``unreserved`` without
    a reservation, ``unpriced`` with a cost in proportion. Not in it: ``held`` by open requests,
    and ``dropped``, the estimates of those that the stale policy charged nothing for.
    """

    day: date
    model: str
    charged: Part
    stale: Part = Part()
    unreserved: Part = Part()
    unpriced: Part = Part()
    held: Part = Part()
    dropped: Part = Part()

    def __add__(self, other: LedgerCell) -> LedgerCell:
        parts = {name: getattr(self, name) + getattr(other, name) for name in PARTS}
        return LedgerCell(self.day, self.model, self.charged + other.charged, **parts)


@dataclass(frozen=True, slots=True)
class LedgerMonth:
    """One month of the ledger by day and model, and what has no model.

    ``cells``: by billing day, or by the days of ``days_zone`` where that isn't None. ``own``:
    charged by billing days, which is the sum of all unless the days are of another zone; None:
    it is. ``legacy``: charges without a request. ``unlisted``: what the days' counters have
    beyond them, of requests that are no longer remembered. Both have no times, and so stay on
    their billing days. ``times``: charged by the half hour of admission (aware), from two days
    before the month to two days after it.
    """

    month: date
    zone: str
    currency: str
    cells: tuple[LedgerCell, ...]
    legacy: Mapping[date, Figures] = field(default_factory=dict)
    unlisted: Mapping[date, Figures] = field(default_factory=dict)
    times: tuple[tuple[datetime, Figures], ...] = ()
    days_zone: str | None = None
    own: Figures | None = None
