"""What a corrected report says of the one that was sent before: each changed figure, old and new.

Figures have the names and values that revisions are kept with (worker/roi/revisions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from worker.report.cells import Count, Missing, Money, Quantity, Share, Table
from worker.roi.figures import Reason
from worker.roi.revisions import METRIC

if TYPE_CHECKING:
    from worker.report.cells import Cell
    from worker.report.detail import Build

_AMOUNTS: Final = {
    "completions": "completions",
    "input_tokens": "input",
    "output_tokens": "output",
    "cost_nanos": "cost",
    "stale_cost_nanos": "stale_cost",
    "adjusted_tokens": "adjusted_tokens",
    "adjusted_cost_nanos": "adjustments",
    "total_cost_nanos": "ledger",
    "cost_per_million_tokens": "cost_per_million",
}
_MONEY: Final = frozenset(
    one for one in _AMOUNTS if one.endswith(("cost_nanos", "cost_per_million_tokens"))
)
_BUDGETS: Final = {".budget_tokens_used": "budget_tokens", ".budget_cost_used": "budget_cost"}
_UNITS: Final = (".cost_per_one", ".per_million_tokens", ".per_cost_unit")


@dataclass(frozen=True, slots=True)
class Changed:
    """A figure's exact old and new value, or why there was or is none; None: not in that one."""

    figure: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Correction:
    """``revision``: which one this is, from 2 on."""

    revision: int
    changes: tuple[Changed, ...]


def correction_table(build: Build, correction: Correction) -> Table:
    """The changed figures, in short the first of them."""
    every = correction.changes
    shown = every if build.detail.whole else every[: 2 * build.detail.lines]
    rows = tuple(
        (_label(build, one.figure), _cell(one.figure, one.old), _cell(one.figure, one.new))
        for one in shown
    )
    return Table(
        key="changed",
        title=build.say("changed"),
        columns=build.columns("figure", "before", "now"),
        rows=rows,
        notes=build.short(len(every) - len(shown)),
    )


def _label(build: Build, figure: str) -> str:
    if figure in _AMOUNTS:
        return build.say(_AMOUNTS[figure])
    for ending, key in _BUDGETS.items():
        if figure.endswith(ending):
            name = build.name(build.reader.environment(figure.removesuffix(ending)))
            return f"{build.say('used_share')}: {build.say(key, environment=name)}"
    metric, ending = _split(figure)
    if ending == _UNITS[0]:
        return build.measure(metric)
    if ending == _UNITS[1]:
        return build.say("million", metric=build.metric(metric))
    if ending == _UNITS[2]:
        currency = build.summary.currency
        return build.say("unit", metric=build.metric(metric), currency=currency)
    return build.metric(metric)


def _split(figure: str) -> tuple[str, str]:
    """A metric's name, and which of its figures it is."""
    ending = next((one for one in _UNITS if figure.endswith(one)), "")
    return figure.removesuffix(ending).removeprefix(METRIC), ending


def _cell(figure: str, value: str | None) -> Cell:  # noqa: PLR0911  one line for each kind
    """The value in its figure's kind; what can't be read is shown as it stands."""
    if value is None:
        return None
    if value in set(Reason):
        return Missing(Reason(value), "" if figure in _AMOUNTS else _split(figure)[0])
    try:
        number = Fraction(value)
    except (ValueError, ZeroDivisionError):
        return value
    if figure in _MONEY or figure.endswith(_UNITS[0]):
        return Money(number)
    if figure.endswith(tuple(_BUDGETS)):
        return Share(number)
    if figure in _AMOUNTS and number.denominator == 1:
        return Count(int(number))
    return Quantity(number)
