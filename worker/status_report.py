"""The figures behind ``quota-worker status``: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date, datetime
    from decimal import Decimal


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One tenant or department with its worst dimension; costs in cents.

    No dimension, cap or pct: nothing is capped. ``bucket_*`` None for departments;
    ``bucket_tokens`` is what the bucket holds now.
    """

    kind: str
    subject: str
    environment: str
    department_id: str | None
    dimension: str | None
    used: Decimal | None
    cap: Decimal | None
    pct: Decimal | None
    tier: str | None
    enforce: str
    bucket_tokens: float | None
    bucket_capacity: float | None
    holds: int
    refusals: int
    resets_at: datetime | None
    day: SubjectDay | None = None


@dataclass(frozen=True, slots=True)
class SubjectDay:
    """A row's last 24 hours: ``hours`` are charges or holds by hour of admission, oldest first.

    In the unit of the row's dimension, tokens without one. ``observed``: requests let through
    under ``observe`` that would have been refused. ``expected_at``: when the cap is reached at
    the last hour's pace; None: not before the reset.
    """

    hours: tuple[Decimal, ...]
    observed: int
    expected_at: datetime | None


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A person's stop that is in force."""

    kind: str
    subject: str
    until: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class TickState:
    """How the latest tick went, by each job's latest run; ``last_at`` None: there was none.

    ``running``: one holds the lease. ``interrupted``: runs that nobody is at any more.
    ``late``: the next one is overdue by more than its interval.
    """

    last_at: datetime | None
    next_at: datetime | None
    late: bool
    running: bool
    failed: tuple[str, ...]
    unfinished: tuple[str, ...]
    interrupted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """Now, its billing day, its month's first day and the next month's, and the latest tick."""

    at: datetime
    today: date
    month: date
    next_month: date
    billing_zone: str
    currency: str
    tick: TickState


@dataclass(frozen=True, slots=True)
class HourRow:
    """One app, key and model within the last hour; None: the gateway named none.

    ``stale``: charged by the stale policy, as no usage came; ``observed``: let through under
    ``observe`` where they would have been refused.
    """

    app: str | None
    api_key: str | None
    model: str | None
    requests: int
    tokens: Decimal
    cost_nanos: Decimal
    stale: int
    observed: int


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """How often a subject's tenants were refused today for one reason."""

    reason: str
    refusals: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class SubjectDetail:
    """One row's subject looked at closely; most costly, most frequent first."""

    kind: str
    subject: str
    environment: str
    last_hour: tuple[HourRow, ...]
    refusals: tuple[RefusalRow, ...]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The status of a deployment: ``subjects`` counts all rows, ``rows`` are the worst.

    ``outbox`` is (state, how many), ``dead_acknowledged`` apart from ``dead``;
    ``waiting_since``: when the oldest message that still waits was made.
    ``details``: one for each row where one subject was asked for, else none.
    ``blocks``: those in force, which end last first, some at most.
    """

    at: datetime
    billing_zone: str
    currency: str
    subjects: int
    rows: tuple[StatusRow, ...]
    tick: TickState
    outbox: tuple[tuple[str, int], ...]
    waiting_since: datetime | None
    details: tuple[SubjectDetail, ...] = ()
    blocks: tuple[BlockRow, ...] = ()
