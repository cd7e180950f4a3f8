"""What a report shows: frozen values, exact, without a word of any language.

Costs are whole nanos of the billing currency where they are amounts; a Figure's unit stands
with its name. Shares and changes are fractions: 0.25 is 25 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from worker.roi.figures import ASKED_NOT_KEPT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date
    from decimal import Decimal
    from fractions import Fraction

    from worker.roi.facts import Amounts, Department
    from worker.roi.figures import Figure


class LineKind(StrEnum):
    """What a line of a split stands for."""

    NAMED = "named"
    UNNAMED = "unnamed"  # no model, app or department was named
    OTHERS = "others"  # all that are not among the first, in one line


@dataclass(frozen=True, slots=True)
class SplitLine:
    """One line; ``key`` is the id ("" unless NAMED), ``name`` what people call it.

    ``members``: how many are summed, 1 unless OTHERS. Shares are of all lines.
    """

    kind: LineKind
    key: str
    name: str
    members: int
    amounts: Amounts
    cost_share: Figure
    token_share: Figure


@dataclass(frozen=True, slots=True)
class Split:
    """The month's own usage by one label: lines by cost, the greatest first, then the rest.

    UNNAMED stands last but for OTHERS. The sum of the lines is ``total``, to the nano.
    ``every``: all lines, none summed up as OTHERS, for a table that has room.
    """

    lines: tuple[SplitLine, ...]
    every: tuple[SplitLine, ...]
    total: Amounts


@dataclass(frozen=True, slots=True)
class Splits:
    """The same usage, split in several ways; ``departments`` is None in a department's report."""

    apps: Split
    models: Split
    environments: Split
    tenants: Split
    departments: Split | None


class LedgerKind(StrEnum):
    """Of what a line of the ledger's total is."""

    DEPARTMENTS = "departments"  # the month's own usage, of tenants with a department
    WITHOUT_DEPARTMENT = "without_department"  # of tenants without one; only in the report of all
    ADJUSTMENT = "adjustment"  # of an earlier month, booked in this one


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """A line of the ledger's total; ``belongs_to``: the month that it is of."""

    kind: LedgerKind
    belongs_to: date
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Ledger:
    """The month as the ledger has it: the lines add up to ``total``, to the nano.

    ``own``: without adjustments of earlier months. Unpriced usage is in the lines with a guessed
    cost; ``unpriced_share`` is its share of the month's own completions. ``unpriced_cost_nanos``:
    that cost, or where ``unpriced_at_most`` that of all uses which have such requests.
    """

    lines: tuple[LedgerLine, ...]
    own: Amounts
    adjustments: Amounts
    total: Amounts
    unpriced_count: int
    unpriced_share: Figure
    unpriced_cost_nanos: int = 0
    unpriced_at_most: bool = False


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """A month of the trend; amounts are None where the month is not recorded.

    ``units``: each of the report's metrics in that month.
    """

    month: date
    own: Amounts | None
    adjustments: Amounts | None
    units: Mapping[str, UnitFigures]


@dataclass(frozen=True, slots=True)
class Changes:
    """The month's own usage against the month before: (now - before) / before."""

    completions: Figure
    tokens: Figure
    cost: Figure
    before: Amounts | None


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """An environment's month against its budget and top-ups.

    In the report of all: the sums over the departments that have that budget, how many they
    are, and what they used. None: no budget, so no limit.
    """

    environment: str
    tokens_used: int
    tokens_allowed: int | None
    tokens_share: Figure
    cost_used_nanos: int
    cost_allowed_nanos: int | None
    cost_share: Figure
    topup_tokens: int
    topup_cost_nanos: int
    departments_with_tokens: int
    departments_with_cost: int


@dataclass(frozen=True, slots=True)
class UnitFigures:
    """What one month's usage cost against one outcome; cost in nanos of the billing currency.

    ``value``: the outcome. ``cost_per_one``: nanos for one. ``per_million_tokens``: outcome for
    a million tokens. ``per_cost_unit``: outcome for one unit of the billing currency.
    """

    value: Figure
    cost_per_one: Figure
    per_million_tokens: Figure
    per_cost_unit: Figure


@dataclass(frozen=True, slots=True)
class MetricFigures:
    """A metric: this month, the month before, and the changes."""

    metric: str
    now: UnitFigures
    before: UnitFigures
    change: UnitFigures


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the month's own usage. Downgrades: what didn't go to the model that was asked for.

    ``stale_count_share`` of completions, ``stale_cost_share`` of cost, ``downgraded_token_share``
    of tokens, ``released_share`` of completions and released requests together,
    ``cached_share`` of input tokens. ``downgraded_saving``: in nanos; why there is none.
    """

    stale_count: int
    stale_cost_nanos: int
    stale_count_share: Figure
    stale_cost_share: Figure
    released_count: int
    released_share: Figure
    downgraded_count: int
    downgraded_tokens: int
    downgraded_token_share: Figure
    cached_share: Figure
    downgraded_saving: Figure = ASKED_NOT_KEPT


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A day: its own tokens and cost, and the month's up to its end."""

    day: date
    tokens: int
    cost_nanos: int
    tokens_so_far: int
    cost_nanos_so_far: int


@dataclass(frozen=True, slots=True)
class Curve:
    """An environment's days, from the first on. Caps: the month's budget with top-ups, or None.

    ``even_*``: the cap over the month's days, what a day may take if all take the same.
    ``rest``: the environment's own usage less that of the days: NOTHING, or the ledger's days
    and totals were not of one moment.
    """

    environment: str
    points: tuple[CurvePoint, ...]
    cost_cap_nanos: int | None
    token_cap: int | None
    even_cost_nanos: Figure
    even_tokens: Figure
    rest: Amounts


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a department stands in one measure: cost per one of a metric; "" is a million tokens.

    ``rank`` 1 is the lowest cost; equals share a rank; None where it has no figure. ``of``:
    departments that have one. ``own``, ``median``: nanos. ``to_median``: (own - median) / median.
    """

    measure: str
    rank: int | None
    of: int
    own: Figure
    median: Figure
    to_median: Figure


@dataclass(frozen=True, slots=True)
class Improvement:
    """How far a department's unit cost fell: (before - now) / before; below 0: it rose.

    ``now``, ``before``: nanos for one of the measure. Equals share a rank.
    """

    rank: int
    department_id: str
    name: str
    now: Fraction
    before: Fraction
    improvement: Fraction


@dataclass(frozen=True, slots=True)
class Incentives:
    """Who improved a measure's unit cost most, the first first; ``of``: how many have a rank.

    ``too_few``: how many have both months, but too little in one of them. ``own``: the report's
    department, wherever it ranks; None where it has no rank. ``every``: in the report of all.
    """

    measure: str
    lines: tuple[Improvement, ...]
    of: int
    own: Improvement | None
    every: tuple[Improvement, ...]
    too_few: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A department's place in a measure; without a figure it has none. ``own``: nanos for one.

    ``outcome``: of the measure's metric; Unknown in the measure of tokens, too.
    """

    rank: int | None
    department_id: str
    name: str
    amounts: Amounts
    outcome: Figure
    own: Figure


@dataclass(frozen=True, slots=True)
class Places:
    """Every department in one measure: by rank, then those without a figure, by id."""

    measure: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class AbovePeers:
    """A department well above the median in a measure; ``excess_nanos``: what it paid beyond it."""

    measure: str
    department_id: str
    name: str
    own: Fraction
    median: Fraction
    to_median: Fraction
    excess_nanos: Fraction


class SuggestionKind(StrEnum):
    """What a suggestion is about."""

    SHORT_ANSWERS = "short_answers"  # a dear model, used for short answers
    STALE = "stale"  # requests whose usage never came are charged by estimate
    TEST_IN_PRODUCTION = "test_in_production"  # an app or tenant called test, in production
    TEST_SHARE = "test_share"  # the test environment's share is large
    UNCACHED = "uncached"  # little of a large input is cached, though another app's is


class SavingKind(StrEnum):
    """What the saving is of."""

    COST = "cost"  # it would not have been spent
    COST_AT_MOST = "cost_at_most"  # an upper bound
    PRODUCTION_BUDGET = "production_budget"  # spent, but not from the production pool


class Unit(StrEnum):
    """What a number of a formula is in."""

    NANOS = "nanos"
    TOKENS = "tokens"
    COUNT = "count"
    SHARE = "share"
    PRICE = "price"  # nanos of the billing currency for a million tokens


@dataclass(frozen=True, slots=True)
class Number:
    """A number that a formula names."""

    name: str
    value: Fraction
    unit: Unit


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Something that would have saved ``saving_nanos``, as ``formula`` computes of ``numbers``.

    ``formula``: names of numbers, whole numbers, + - * / and brackets, nothing else; it gives
    nanos. ``app``, ``model``, ``tenant``: what it is about, "" where it isn't about one.
    ``other_model``, ``other_app``: the cheaper model; the app whose cached share was taken.
    """

    kind: SuggestionKind
    saving_kind: SavingKind
    saving_nanos: Fraction
    formula: str
    numbers: tuple[Number, ...]
    amounts: Amounts
    app: str = ""
    model: str = ""
    tenant: str = ""
    other_model: str = ""
    other_app: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """A month's report. ``provisional``: the month is not closed, so all may change.

    ``outcomes``: given as imported. ``standings``, ``incentives`` and ``above_peers``: one for
    each measure, cost per million tokens ("") first, then metrics by name. ``metrics_left_out``:
    metrics beyond the greatest number that is shown. ``places``: of every department and
    measure, in the report of all.
    """

    month: date
    zone: str
    currency: str
    provisional: bool
    department: Department | None
    ledger: Ledger
    changes: Changes
    trend: tuple[TrendPoint, ...]
    budgets: tuple[BudgetUse, ...]
    cost_per_million_tokens: Figure
    outcomes: dict[str, Decimal]
    metrics: tuple[MetricFigures, ...]
    splits: Splits
    shares: Shares
    curves: tuple[Curve, ...]
    standings: tuple[Standing, ...]
    incentives: tuple[Incentives, ...]
    above_peers: tuple[AbovePeers, ...]
    places: tuple[Places, ...]
    suggestions: tuple[Suggestion, ...]
    metrics_left_out: tuple[str, ...] = ()
