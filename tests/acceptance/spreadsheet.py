"""A month's report recomputed as a controller would in a spreadsheet: from lines, by sums and quotients.

Written from docs/roi.md alone; nothing of worker/ is used. A figure is a Fraction, or the reason
why there is none. `report` has the shape of the report's JSON, all of it but the suggestions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MILLION, NANOS = 10**6, 10**9
AMOUNTS = (
    *("completions", "input_tokens", "cached_in_tokens", "output_tokens", "cost_nanos"),
    *("stale_count", "stale_cost_nanos", "released_count", "unpriced_count"),
    *("downgraded_count", "downgraded_tokens"),
)
# what is kept of a month for the reports of later ones, and of departments side by side
KEPT = ("completions", "input_tokens", "output_tokens", "cost_nanos", "stale_count", "stale_cost_nanos")  # fmt: skip
BEFORE = {
    "no_outcomes": "no_outcomes_before",
    "outcome_zero": "nothing_before",
    "no_usage": "nothing_before",
    "no_cost": "nothing_before",
}
Cells = dict[str, int]
Figure = Fraction | str


@dataclass(frozen=True)
class Line:
    """A charge: in which month it was booked, of which it is, and whose. "": it has no such label."""

    booked: date
    day: date
    department: str
    environment: str
    tenant: str
    model: str
    app: str
    cells: Cells

    @property
    def belongs(self) -> date:
        return self.day.replace(day=1)


@dataclass(frozen=True)
class Allowance:
    """A budget with what was topped up; None: no limit."""

    tokens: int | None = None
    cents: int | None = None
    more_tokens: int = 0
    more_cents: int = 0


@dataclass
class Book:
    """All sheets. ``names``: of every department; budgets by (month, department, environment)."""

    zone: str
    currency: str
    names: dict[str, str]
    recorded: list[date]
    lines: list[Line] = field(default_factory=list)
    budgets: dict[tuple[date, str, str], Allowance] = field(default_factory=dict)
    outcomes: dict[tuple[date, str], dict[str, Fraction]] = field(default_factory=dict)

    def own(self, month: date, department: str | None) -> list[Line]:
        return [one for one in self._of(month, department) if one.belongs == month]

    def adjustments(self, month: date, department: str | None) -> list[Line]:
        return [one for one in self._of(month, department) if one.belongs != month]

    def _of(self, month: date, department: str | None) -> Iterator[Line]:
        for one in self.lines:
            if one.booked == month and department in {None, one.department}:
                yield one

    def imported(self, month: date, department: str | None) -> dict[str, Fraction]:
        found: dict[str, Fraction] = {}
        for (when, of), values in self.outcomes.items():
            if when == month and department in {None, of}:
                for metric, value in values.items():
                    found[metric] = found.get(metric, Fraction(0)) + value
        return found


def sumif(lines: Iterable[Line], names: tuple[str, ...] = AMOUNTS) -> Cells:
    """All amounts' sums; those that aren't named are 0."""
    found = dict.fromkeys(AMOUNTS, 0)
    for line in lines:
        for name in names:
            found[name] += line.cells.get(name, 0)
    return found


def by(lines: Iterable[Line], label: str) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        found[getattr(line, label)].append(line)
    return dict(found)


def tokens(cells: Cells) -> int:
    return cells["input_tokens"] + cells["output_tokens"]


def quotient(dividend: Fraction | int, divisor: Fraction | int, otherwise: str) -> Figure:
    return Fraction(dividend) / Fraction(divisor) if divisor > 0 else otherwise


def change(now: Figure, before: Figure) -> Figure:
    if isinstance(now, str):
        return now
    if isinstance(before, str):
        return BEFORE.get(before, before)
    return quotient(now - before, before, "nothing_before")


def months_before(month: date, count: int) -> date:
    number = month.year * 12 + month.month - 1 - count
    return date(number // 12, number % 12 + 1, 1)


def cost_for_one(measure: str, cells: Cells, outcomes: dict[str, Fraction]) -> Figure:
    if measure == "":
        return quotient(cells["cost_nanos"] * MILLION, tokens(cells), "no_usage")
    if measure not in outcomes:
        return "no_outcomes"
    if not (cells["completions"] or tokens(cells) or cells["cost_nanos"]):
        return "no_usage"
    return quotient(cells["cost_nanos"], outcomes[measure], "outcome_zero")


def unit(metric: str, cells: Cells | None, outcomes: dict[str, Fraction], missing: str) -> Any:
    value = outcomes.get(metric)
    found: dict[str, Figure] = {"value": "no_outcomes" if value is None else value}
    if cells is None:
        return found | dict.fromkeys(
            ("cost_per_one", "per_million_tokens", "per_cost_unit"), missing
        )
    found["cost_per_one"] = cost_for_one(metric, cells, outcomes)
    found["per_million_tokens"] = found["per_cost_unit"] = "no_outcomes"
    if value is not None:
        found["per_million_tokens"] = quotient(value * MILLION, tokens(cells), "no_usage")
        used = cells["completions"] or tokens(cells) or cells["cost_nanos"]
        found["per_cost_unit"] = (
            quotient(value * NANOS, cells["cost_nanos"], "no_cost") if used else "no_usage"
        )
    return found
