"""An invoice's costs in the billing currency, each day by its own rate. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING

from worker.errors import UsageError
from worker.invoice.figures import Figures
from worker.invoice.reading import PRECISION
from worker.money import NANOS_PER_UNIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from worker.invoice.reading import Tally


@dataclass(frozen=True, slots=True)
class Conversion:
    """What of the invoice was in another currency, and what it came to in nanos of ours."""

    currency: str
    amount: Decimal
    cost_nanos: int


@dataclass(frozen=True, slots=True)
class Invoice:
    """An invoice by day and model as written; "": none. Costs in the billing currency."""

    tally: Tally
    cells: dict[tuple[date, str], Figures]
    conversions: tuple[Conversion, ...] = ()


def convert(
    tally: Tally, currency: str, rates: Mapping[str, Sequence[tuple[date, Decimal]]]
) -> Invoice:
    """Costs as nanos of the billing currency, each day at the latest rate that had begun.

    ``rates``: by currency, ascending by the day from which they count. Rounded half up, once
    per day, model and currency. Raises UsageError for a day without a rate.
    """
    cells: dict[tuple[date, str], Figures] = {}
    amounts: dict[str, Decimal] = {}
    nanos: dict[str, int] = {}
    with localcontext() as context:
        context.prec = PRECISION
        for (day, model, of), one in tally.sums.items():
            rate = Decimal(1) if of == currency or not one.cost else _rate(rates, of, day, currency)
            cost = int((one.cost * rate * NANOS_PER_UNIT).to_integral_value(ROUND_HALF_UP))
            figures = Figures(one.in_tokens, one.cached, one.out_tokens, cost)
            cells[day, model] = cells.get((day, model), Figures()) + figures
            if of != currency and one.cost:
                amounts[of] = amounts.get(of, Decimal(0)) + one.cost
                nanos[of] = nanos.get(of, 0) + cost
    conversions = tuple(Conversion(of, amounts[of], nanos[of]) for of in sorted(amounts))
    return Invoice(tally, cells, conversions)


def foreign_currencies(tally: Tally, currency: str) -> list[str]:
    """The currencies that need a rate."""
    return sorted({of for (_, _, of), one in tally.sums.items() if of != currency and one.cost})


def _rate(
    rates: Mapping[str, Sequence[tuple[date, Decimal]]], of: str, day: date, currency: str
) -> Decimal:
    known = rates.get(of, ())
    place = bisect_right([start for start, _ in known], day)
    if not place:
        raise UsageError(
            f"the invoice has amounts in {of}, and there is no rate of {of} to {currency} for {day}"
            " or before: add one with quota-worker price rates load FILE.csv"
        )
    return known[place - 1][1]
