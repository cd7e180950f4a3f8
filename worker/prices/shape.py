"""Prices, rules and rates as rows of the database's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

STANDARD = "standard"
BATCH = "batch"
ALWAYS = "-infinity"
ALL_DAY = "00:00:00"
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens cost: a row of `quota_prices`, without its origin.

    `valid_from` is -infinity, a billing day (2026-11-01), or a time with its offset;
    `from_time` a time of day in UTC. `input` None: conditions that the table can't carry.
    """

    model: str
    currency: str
    input: Decimal | None
    cached_input: Decimal | None
    output: Decimal | None
    provider: str = ""
    processing: str = STANDARD
    valid_from: str = ALWAYS
    from_time: str = ALL_DAY
    input_above: int = 0

    def as_row(self) -> dict[str, Any]:
        """For JSON: amounts as exact text."""
        return {
            "model": self.model,
            "currency": self.currency,
            "input": _exact(self.input),
            "cached_input": _exact(self.cached_input),
            "output": _exact(self.output),
            "provider": self.provider,
            "processing": self.processing,
            "valid_from": self.valid_from,
            "from_time": self.from_time,
            "input_above": self.input_above,
        }


@dataclass(frozen=True, slots=True)
class Rule:
    """One clause of one of a place's parts: a row of `quota_price_rules`."""

    scope: str
    place: int
    part: int
    clause: int
    kind: str
    literal: str
    provider: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class Name:
    """Which model a spelt-out name means: a row of `quota_price_names`."""

    name: str
    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class Rate:
    """One unit of `currency` in the billing currency, from `valid_from` (a date) on."""

    currency: str
    valid_from: str
    rate: Decimal


@dataclass(frozen=True, slots=True)
class PackagePrices:
    """All that an installed version of the package knows and the tables can carry."""

    source: str
    prices: tuple[Price, ...]
    rules: tuple[Rule, ...]
    names: tuple[Name, ...]
    left_out: tuple[tuple[str, str], ...]  # provider/model, and why

    @property
    def models(self) -> int:
        """How many models have a price."""
        return len({(price.provider, price.model) for price in self.prices})


class RefusedFileError(UsageError):
    """The file is refused whole: nothing of it was loaded."""

    def __init__(self, name: str = "the file", faults: Sequence[str] = ()) -> None:
        self.faults = tuple(faults)
        count = f"{len(faults)} fault{'' if len(faults) == 1 else 's'}"
        super().__init__(f"{name}: {count}, so nothing of it was loaded")


def _exact(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")
