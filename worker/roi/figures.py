"""Figures: exact fractions, or the reason why there is none.

Nothing is rounded before ``rounded``. A division takes a ``Positive`` divisor, which only
``positive`` makes, so that none is by zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Context, Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final, NewType

SHOWN_DIGITS: Final = 200  # no figure of amounts and outcomes within their bounds has as many
PLACES_MAX: Final = 12
TOKENS_PER_MILLION: Final = 1_000_000


class Reason(StrEnum):
    """Why a figure can't be computed: a closed set, each with words of its own in a report."""

    NO_USAGE = "no_usage"  # no tokens or completions in the month
    NO_COST = "no_cost"  # nothing was spent
    NO_OUTCOMES = "no_outcomes"  # the metric was not imported for the month
    OUTCOME_ZERO = "outcome_zero"  # imported, and 0
    NO_BUDGET = "no_budget"  # no limit is set
    NO_MONTH_BEFORE = "no_month_before"  # the month before is not recorded
    NOT_RECORDED = "not_recorded"  # that month of the trend is not recorded
    NOTHING_BEFORE = "nothing_before"  # recorded, but 0 is no base of a change
    NO_OUTCOMES_BEFORE = "no_outcomes_before"  # the metric was not imported for the month before
    NO_DEPARTMENT = "no_department"  # the report of all has no place among departments
    NO_PEERS = "no_peers"  # no other department has the figure
    ASKED_NOT_KEPT = "asked_not_kept"  # totals keep the model that answered, not the one asked for


@dataclass(frozen=True, slots=True)
class Known:
    """A figure's exact value."""

    value: Fraction
    reason: None = field(default=None, init=False)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A figure that can't be computed, and why."""

    reason: Reason
    value: None = field(default=None, init=False)


Figure = Known | Unknown
ASKED_NOT_KEPT: Final = Unknown(Reason.ASKED_NOT_KEPT)
# of the month before, where the reason stands beside figures of this one
_AS_BASE: Final = {
    Reason.NO_OUTCOMES: Reason.NO_OUTCOMES_BEFORE,
    Reason.OUTCOME_ZERO: Reason.NOTHING_BEFORE,
    Reason.NO_USAGE: Reason.NOTHING_BEFORE,
    Reason.NO_COST: Reason.NOTHING_BEFORE,
}
Positive = NewType("Positive", Fraction)


def known(value: Fraction | Decimal | int) -> Known:
    """A figure from a number, exactly."""
    return Known(Fraction(value))


def positive(value: Fraction | Decimal | int) -> Positive | None:
    """The number as a divisor; None if it isn't above 0."""
    exact = Fraction(value)
    return Positive(exact) if exact > 0 else None


def divide(dividend: Fraction | Decimal | int, divisor: Positive) -> Fraction:
    """The exact quotient."""
    return Fraction(dividend) / divisor


def ratio(
    dividend: Fraction | Decimal | int, divisor: Fraction | Decimal | int, otherwise: Reason
) -> Figure:
    """The exact quotient, or the reason where the divisor isn't above 0."""
    by = positive(divisor)
    return Unknown(otherwise) if by is None else Known(divide(dividend, by))


def change(now: Figure, before: Figure) -> Figure:
    """(now - before) / before: 0.25 is a quarter more; a base that isn't above 0 has no change."""
    if now.value is None:
        return now
    if before.value is None:
        return Unknown(_AS_BASE.get(before.reason, before.reason))
    return ratio(now.value - before.value, before.value, Reason.NOTHING_BEFORE)


def rounded(value: Fraction | int, places: int) -> Decimal:
    """To show: at most ``places`` (0 to 12) decimals, a half to the even neighbour.

    Raises decimal.InvalidOperation for a number of more than 200 digits.
    """
    if not 0 <= places <= PLACES_MAX:
        raise ValueError(f"places must be 0 to {PLACES_MAX}, not {places}")
    scaled = round(Fraction(value) * 10**places)  # Fraction rounds a half to even
    bounded = Context(prec=SHOWN_DIGITS, rounding=ROUND_HALF_EVEN)
    return bounded.scaleb(bounded.quantize(Decimal(scaled), Decimal(1)), -places)
