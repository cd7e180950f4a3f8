"""What a report is computed from: frozen values, as the month's totals and outcomes have them.

Money is whole nanos of the billing currency, tokens are whole; cached input tokens are part of
the input. Outcomes and prices are Decimals. Amounts may be negative: corrections are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date
    from decimal import Decimal

PRODUCTION: Final = "production"
TEST: Final = "test"
UNNAMED: Final = ""  # a part's model, app or department where there is none


@dataclass(frozen=True, slots=True)
class Amounts:
    """What was used. Tokens are input and output; cached ones are part of the input.

    ``stale_*``: charged by estimate or partial, as no usage came. ``released_count``: requests
    that gave everything back, which are no completions. ``unpriced_count``: requests whose cost
    is a guess, as no price is known. ``downgraded_*``: answered by another model than asked.
    """

    completions: int = 0
    input_tokens: int = 0
    cached_in_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0
    stale_count: int = 0
    stale_cost_nanos: int = 0
    released_count: int = 0
    unpriced_count: int = 0
    downgraded_count: int = 0
    downgraded_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*map(sum, zip(values(self), values(other), strict=True)))

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(*(a - b for a, b in zip(values(self), values(other), strict=True)))


AMOUNT_NAMES: Final = tuple(one.name for one in fields(Amounts))
NOTHING: Final = Amounts()
values: Final = attrgetter(*AMOUNT_NAMES)  # all of an Amounts, in the order of its fields


@dataclass(frozen=True, slots=True)
class Department:
    """Whose report it is; ``name`` is the id where people gave none."""

    department_id: str
    name: str
    locale: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A row of quota_month_parts, or the sum of several that are alike in all of these labels.

    ``belongs_to``: the month itself, or the closed month that an adjustment is of.
    UNNAMED: no department; no model or app was named, or the charge had no request.
    """

    department_id: str
    environment: str
    tenant_id: str
    model: str
    app: str
    belongs_to: date
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Day:
    """A billing day of the month in one environment, adjustments of earlier months left out."""

    environment: str
    day: date
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Budget:
    """A department's budget in one environment, as it was in force; None: no limit."""

    department_id: str
    environment: str
    tokens: int | None
    cost_nanos: int | None
    topup_tokens: int = 0
    topup_cost_nanos: int = 0


@dataclass(frozen=True, slots=True)
class Month:
    """A month as it was told: its own usage, and the adjustments of earlier ones in its rows.

    ``outcomes``: by metric; a metric that is missing was not imported.
    """

    month: date
    own: Amounts
    adjustments: Amounts = NOTHING
    outcomes: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """A department's own usage and outcomes, of this month and of the one before.

    ``before`` None: the month before is not recorded.
    """

    department_id: str
    name: str
    now: Amounts
    before: Amounts | None
    outcomes_now: Mapping[str, Decimal] = field(default_factory=dict)
    outcomes_before: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens of a model cost, in the billing currency.

    ``cached_input`` None: cached input tokens cost what input costs.
    """

    model: str
    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report of one month is computed from.

    ``month``: its first day. ``department`` None: the report of all, for finance; ``names`` then
    has the departments' names by id. ``provisional``: the month is not closed. ``parts`` and
    ``days``: of the department, or of all; read once, in any order, so that they may come from a
    cursor. ``outcomes``: of the month by metric; one that is missing was not imported.
    ``history``: months before this one, any order, the last six matter; a month that is missing
    is not recorded, one without usage has NOTHING. ``peers``: every department, itself included.
    ``through``: the last day that has begun, where the month isn't over; None: its last.
    """

    month: date
    zone: str
    currency: str
    provisional: bool
    department: Department | None
    parts: Iterable[Part]
    days: Iterable[Day] = ()
    budgets: tuple[Budget, ...] = ()
    outcomes: Mapping[str, Decimal] = field(default_factory=dict)
    history: tuple[Month, ...] = ()
    peers: tuple[Peer, ...] = ()
    prices: tuple[Price, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    through: date | None = None
