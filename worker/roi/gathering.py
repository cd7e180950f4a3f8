"""Parts and days, read once and summed by what a report splits them by."""

from __future__ import annotations

import operator
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from worker.periods import month_of
from worker.roi.checks import check_department, check_whole
from worker.roi.facts import AMOUNT_NAMES, NOTHING, Amounts, values

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping
    from datetime import date

    from worker.roi.facts import Day, Facts, Part

K = TypeVar("K", bound="Hashable")
G = TypeVar("G", bound="Hashable")


@dataclass(frozen=True, slots=True)
class Gathered:
    """The month's own usage and its adjustments, summed; memory is by distinct keys, not parts.

    ``uses``: own, by (environment, model, app). ``owners``: own, by (department, environment,
    tenant). Both add up to ``own``. ``adjustments``: by the month that they belong to.
    ``days``: by (environment, day).
    """

    own: Amounts
    uses: Mapping[tuple[str, str, str], Amounts]
    owners: Mapping[tuple[str, str, str], Amounts]
    adjustments: Mapping[date, Amounts]
    days: Mapping[tuple[str, date], Amounts]


class Sums(defaultdict[K, list[int]]):
    """Sums by key; a list each, as a frozen value for each addition costs ten times as much."""

    def __init__(self) -> None:
        super().__init__(lambda: [0] * len(AMOUNT_NAMES))

    def add(self, key: K, amounts: Amounts) -> None:
        """Adds to the key's sum."""
        row = self[key]
        row[:] = map(operator.add, row, values(amounts))

    def frozen(self) -> dict[K, Amounts]:
        """The sums so far; raises ValueError where something that is no int was added."""
        result = {key: Amounts(*row) for key, row in self.items()}
        for amounts in result.values():
            check_whole(amounts)
        return result


class Gathering:
    """Sums up a report's parts and days, added one after another, so that nobody holds them all.

    Raises ValueError for one that isn't the report's.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._uses: Sums[tuple[str, str, str]] = Sums()
        self._owners: Sums[tuple[str, str, str]] = Sums()
        self._adjustments: Sums[date] = Sums()
        self._days: Sums[tuple[str, date]] = Sums()

    def add_part(self, part: Part) -> None:
        """Adds it to the month's own, or to the adjustments."""
        month = self._facts.month
        check_department(self._facts, part.department_id)
        if part.belongs_to == month:
            self._uses.add((part.environment, part.model, part.app), part.amounts)
            self._owners.add((part.department_id, part.environment, part.tenant_id), part.amounts)
        elif part.belongs_to < month and part.belongs_to == month_of(part.belongs_to):
            self._adjustments.add(part.belongs_to, part.amounts)
        else:
            raise ValueError(f"nothing of {month:%Y-%m} can belong to {part.belongs_to}")

    def add_day(self, day: Day) -> None:
        """Adds it to the curve."""
        if month_of(day.day) != self._facts.month:
            raise ValueError(f"{day.day} lies outside of {self._facts.month:%Y-%m}")
        self._days.add((day.environment, day.day), day.amounts)

    def gathered(self) -> Gathered:
        """What was added so far."""
        uses = self._uses.frozen()
        return Gathered(
            total(uses.values()),
            uses,
            self._owners.frozen(),
            self._adjustments.frozen(),
            self._days.frozen(),
        )


def gather(facts: Facts) -> Gathered:
    """Reads the facts' parts and days, once each; raises ValueError for one that isn't theirs."""
    gathering = Gathering(facts)
    for part in facts.parts:
        gathering.add_part(part)
    for day in facts.days:
        gathering.add_day(day)
    return gathering.gathered()


def total(many: Iterable[Amounts]) -> Amounts:
    """Their sum."""
    rows = list(zip(*map(values, many), strict=True))
    return Amounts(*map(sum, rows)) if rows else NOTHING


def grouped(sums: Mapping[K, Amounts], group: Callable[[K], G]) -> dict[G, Amounts]:
    """The same sums by another key that each key has."""
    result: Sums[G] = Sums()
    for key, amounts in sums.items():
        result.add(group(key), amounts)
    return result.frozen()
