"""Frozen values that pass between the rooms. No behaviour beyond small derived facts.

What every tick needs is a NamedTuple: making a dataclass at import costs several times as
much, and a tick with nothing to do is mostly imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import date, datetime

    from worker.usage import SourceFailure, SourcesNotSet


class OverdueBatch(NamedTuple):
    """Overdue reservations that end together: ``places`` is the database's own word for where."""

    places: str
    rows: int


class StaleEnded(NamedTuple):
    """A tenant's stale reservations that ended by one policy.

    ``cost_nanos`` is what stays charged, ``policy`` one of estimate, partial, release.
    """

    tenant_id: str
    policy: str
    ended: int
    in_tokens: int
    out_tokens: int
    cost_nanos: int


class InboxBooked(NamedTuple):
    """One batch of the usage inbox: rows taken, booked by outcome, refused."""

    taken: int
    booked: int
    refused: int


class UnpricedWorked(NamedTuple):
    """One batch of what waits for a price: rows worked off, and how many of them got theirs."""

    worked: int
    priced: int


class MonthRolled(NamedTuple):
    """What one ``quota_roll_month`` call did to one billing month (its first day).

    ``closed_early``: before its grace is over by the database's clock. ``held_back``: it is over
    by that clock and not by this machine's, so the month stays open.
    """

    month: date
    rows: int
    closed: bool
    closed_early: bool
    held_back: bool


class JobSchedule(NamedTuple):
    """A job's slot length; ``always`` makes it due whatever ran before in its slot."""

    job: str
    interval_seconds: int
    always: bool


class ChannelFailure(NamedTuple):
    """How often in one run messages couldn't be sent on a channel for one cause."""

    channel: str
    cause: str
    messages: int


class ReportFault(NamedTuple):
    """A report that can't be built, '' of all, and why."""

    month: str
    department: str
    fault: str


class JobRun(NamedTuple):
    """How a job ended: ``done``, ``unfinished`` (work is left) or ``failed``.

    ``error`` is one line without any secret, None unless failed; ``failures`` are for the log;
    ``would``: of a dry run, what would be told or sent, a line each.
    """

    job: str
    outcome: str
    counts: dict[str, int]
    seconds: float
    error: str | None = None
    failures: tuple[ChannelFailure | SourceFailure | SourcesNotSet | ReportFault, ...] = ()
    would: tuple[str, ...] = ()


class UntoldCrossing(NamedTuple):
    """A threshold in percent of a subject's cap that is passed and not yet told."""

    subject_kind: str
    subject: str
    environment: str
    dimension: str
    period_kind: str
    threshold: int


class Waiting(NamedTuple):
    """What a run of reconcile would find; ``priceable``: those whose price is known by now."""

    overdue: int
    inbox: int
    priceable: int


class TickLease(NamedTuple):
    """A granted lease: its fence rises with every grant, its end is database time.

    ``idle``: no due job would find anything, so they are written as done already, and the
    lease is free again.
    """

    owner: str
    fence: int
    expires_at: datetime
    due_jobs: tuple[str, ...]
    idle: bool = False


class CrossingCounts(NamedTuple):
    """One pass of the soft-warn decision: crossings logged, told, superseded."""

    crossings: int
    messages: int
    superseded: int
    rearmed: int


class MissingTold(NamedTuple):
    """One pass of the diagnosis: groups told to come without usage, in how many messages."""

    groups: int
    messages: int


class PacesNoted(NamedTuple):
    """One call of the noting: complete hours, and the paces in them, one for each app and key."""

    hours: int
    paces: int


class WatchTold(NamedTuple):
    """One pass of the watch: burning caps, apps and keys that run away, in how many messages."""

    burns: int
    runaways: int
    messages: int


class UpkeepBatch(NamedTuple):
    """One batch of upkeep in one table; ``done``: the table's end was reached."""

    removed: int
    done: bool


class ReportDue(NamedTuple):
    """A closed month's report that is to be built; ``department_id`` '': of all."""

    month: date
    department_id: str


class ReportsBuilt(NamedTuple):
    """One batch of reports: new revisions, mails queued, and what could not be built, and why."""

    built: int
    messages: int
    faults: tuple[ReportFault, ...] = ()


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A claimed message: held until its lease ends.

    ``facts`` is the JSON text it is rendered from; ``attempt`` counts from 1;
    ``dedupe_key`` (at most 50 characters) is the same at each attempt;
    ``recipient`` is the address where the channel serves many, such as e-mail;
    ``is_fallback``: it tells that another message could not be delivered.
    """

    message_id: int
    kind: str
    channel: str
    severity: str
    locale: str
    facts: str
    attempt: int
    dedupe_key: str
    created_at: datetime
    is_fallback: bool = False
    recipient: str | None = None


class Claim(NamedTuple):
    """What one lease holds: a message, or several for one digest, the most urgent first.

    ``digest_key``: they go out as the digest of this id, again. ``overdue``: their
    workers were lost for 24 hours, so they are given up unsent.
    """

    messages: tuple[OutboxMessage, ...]
    lease_token: str
    digest_key: str | None = None
    overdue: bool = False

    @property
    def message_ids(self) -> list[int]:
        """The messages' ids."""
        return [message.message_id for message in self.messages]


class Digest(NamedTuple):
    """Several messages of one channel, recipient and language, for one request.

    ``messages`` is never empty, the most urgent first; ``dedupe_key`` (at most 50
    characters) is the same at each attempt, whatever became of the members since.
    """

    messages: tuple[OutboxMessage, ...]
    dedupe_key: str


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
    RECIPIENT_REFUSED = "recipient_refused"
    LOGIN_REFUSED = "login_refused"
    NO_PERMISSION = "no_permission"
    CONTENT_REFUSED = "content_refused"
    WORKER_LOST = "worker_lost"


class Delivery(NamedTuple):
    """A notifier's answer: sent, or failed with a cause and whether trying again may help.

    ``cause`` is None exactly when delivered. ``detail`` is one plain line without any
    secret, for the operator; ``cure`` what to do, where the cause alone doesn't say.
    """

    delivered: bool
    retryable: bool = False
    cause: FailureCause | None = None
    detail: str = ""
    cure: str = ""


class FailedAttempt(NamedTuple):
    """What became of the messages of a failed request, how many each.

    ``retried``: due again after ``wait_seconds``; ``dead``: given up, of them ``untold``
    on no other channel; ``lost``: another holds their lease.
    """

    retried: int = 0
    dead: int = 0
    untold: int = 0
    lost: int = 0
    wait_seconds: float = 0.0


class SendRate(NamedTuple):
    """The most requests that one bot may get, over all workers."""

    per_second: int
    per_minute: int
