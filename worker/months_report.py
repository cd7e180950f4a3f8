"""The figures behind ``quota-worker months``: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import date, datetime
    from zoneinfo import ZoneInfo

# How long after its end a month closes: the default of quota_roll_month.
GRACE_HOURS: Final = 72


@dataclass(frozen=True, slots=True)
class MonthRow:
    """A billing month. Counts and tokens are its own; costs whole nanos of the billing currency.

    ``adjustments``: rows of earlier, closed months that this one has, with their tokens and cost.
    ``open_requests`` keep the month from closing. ``rolled_at`` None: never rolled.
    ``closed_early``: when it was closed its grace was not over by the database's clock.
    """

    month: date
    ends_at: datetime
    rolled_at: datetime | None
    closed_at: datetime | None
    completions: int
    input_tokens: int
    output_tokens: int
    cost_nanos: int
    tenants: int
    departments: int
    adjustments: int
    adjusted_tokens: int
    adjusted_cost_nanos: int
    open_requests: int
    closed_early: bool = False


@dataclass(frozen=True, slots=True)
class MonthsReport:
    """The latest month first; ``now`` is the database's, aware."""

    now: datetime
    zone: ZoneInfo
    currency: str
    rows: tuple[MonthRow, ...]
