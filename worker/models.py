"""Frozen values that pass between the rooms. No behaviour beyond small derived facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date, datetime
    from decimal import Decimal


@dataclass(frozen=True, slots=True)
class StaleEnded:
    """One stale reservation that ``quota_expire_stale`` ended.

    ``cost_nanos`` is what stays charged, ``policy`` one of estimate, partial, release.
    """

    tenant_id: str
    policy: str
    ended: int
    in_tokens: int
    out_tokens: int
    cost_nanos: Decimal


@dataclass(frozen=True, slots=True)
class InboxBooked:
    """One batch of the usage inbox: rows taken, booked by outcome, refused."""

    taken: int
    booked: int
    refused: int


@dataclass(frozen=True, slots=True)
class MonthRolled:
    """What one ``quota_roll_month`` call did to one billing month (its first day)."""

    month: date
    rows: int
    closed: bool


@dataclass(frozen=True, slots=True)
class JobSchedule:
    """A job's slot length; ``always`` makes it due whatever ran before in its slot."""

    job: str
    interval_seconds: int
    always: bool


@dataclass(frozen=True, slots=True)
class JobRun:
    """How a job ended: ``done``, ``unfinished`` (work is left) or ``failed``.

    ``error`` is one line without any secret, None unless failed.
    """

    job: str
    outcome: str
    counts: dict[str, int]
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TickLease:
    """A granted lease: its fence rises with every grant, its end is database time."""

    owner: str
    fence: int
    expires_at: datetime
    due_jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CrossingCounts:
    """One pass of the soft-warn decision: crossings logged, told, superseded."""

    crossings: int
    messages: int
    superseded: int
    rearmed: int


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A claimed message: held until the lease of ``lease_token`` ends.

    ``facts`` is the JSON text it is rendered from; ``attempt`` counts from 1;
    ``dedupe_key`` (at most 50 characters) is the same at each attempt;
    ``is_fallback``: it tells that another message could not be delivered.
    """

    message_id: int
    lease_token: str
    kind: str
    channel: str
    severity: str
    locale: str
    facts: str
    attempt: int
    dedupe_key: str
    created_at: datetime
    is_fallback: bool = False


class FailureCause(StrEnum):
    """Why an attempt failed: the closed set of ``quota_outbox_failure``, and a metric's label."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    BAD_SIGNATURE = "bad_signature"
    KEYWORD_MISSING = "keyword_missing"
    BOT_REMOVED = "bot_removed"
    ADDRESS_REFUSED = "address_refused"
    TOO_LARGE = "too_large"
    REJECTED = "rejected"
    UNKNOWN_ANSWER = "unknown_answer"
    COMMAND_MISSING = "command_missing"
    COMMAND_FAILED = "command_failed"
    NOT_CONFIGURED = "not_configured"
    NOT_RENDERED = "not_rendered"
    WORKER_LOST = "worker_lost"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A notifier's answer: sent, or failed with a cause and whether trying again may help.

    ``cause`` is None exactly when delivered. ``detail`` is one plain line without any
    secret, for the operator.
    """

    delivered: bool
    retryable: bool = False
    cause: FailureCause | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """What became of a message after a failed attempt.

    ``outcome`` is retry (due again after ``wait_seconds``), dead, or lost (another holds
    its lease); ``told``: a dead message was handed to the fallback channel.
    """

    outcome: str
    wait_seconds: float = 0.0
    told: bool = False


@dataclass(frozen=True, slots=True)
class SendRate:
    """The most requests that one bot may get, over all workers."""

    per_second: int
    per_minute: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for admission: who, under which id, and its estimate."""

    tenant_id: str
    request_id: str
    in_tokens: int
    out_tokens: int
    cost_nanos: int
    model: str | None = None
    app: str | None = None
    priority: str = "normal"


@dataclass(frozen=True, slots=True)
class Decision:
    """What ``quota_reserve`` answered, as far as replayed traffic needs it."""

    allowed: bool
    reason: str
    observed_reason: str | None
    replayed: bool
    tier: str
    model: str | None


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


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The status of a deployment: ``subjects`` counts all rows, ``rows`` are the worst.

    ``outbox`` is (state, how many); ``failed_jobs`` are those whose latest run failed.
    """

    at: datetime
    billing_zone: str
    currency: str
    subjects: int
    rows: tuple[StatusRow, ...]
    last_tick_at: datetime | None
    failed_jobs: tuple[str, ...]
    outbox: tuple[tuple[str, int], ...]
