"""What jobs ask of the outside world: Protocols of at most six methods each.

``now`` goes to SQL as ``p_now``: None means the database's clock. Each method of a
database port is one transaction of its own, and idempotent unless it says otherwise.
Errors are those of ``worker.errors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date, datetime

    from worker.models import (
        Claim,
        CrossingCounts,
        Delivery,
        Digest,
        FailedAttempt,
        InboxBooked,
        JobRun,
        JobSchedule,
        MissingTold,
        MonthRolled,
        OutboxMessage,
        OverdueBatch,
        ReportDue,
        ReportsBuilt,
        SendRate,
        StaleEnded,
        TickLease,
        UnpricedWorked,
        Waiting,
    )
    from worker.traffic import Ask, Decision
    from worker.usage import OverdueRequest, SourceAnswer, SourceFault, ToldUsage


class Pace(Protocol):
    """Waits until the channel's rate allows one more request."""

    async def __call__(self) -> None:
        """Return when it may go out."""


class Expiry(Protocol):
    """What reconcile needs to end reservations whose time ran out."""

    async def expire_stale(self, limit: int, now: datetime | None) -> Sequence[StaleEnded]:
        """End the oldest, at most ``limit``, by their tenants' policies."""

    async def find_overdue(
        self, limit: int, batch_rows: int, now: datetime | None, wait_seconds: int
    ) -> Sequence[OverdueBatch]:
        """The oldest, at most ``limit``, overdue for ``wait_seconds``; in batches by tenant."""

    async def expire_places(
        self, places: str, now: datetime | None, wait_seconds: int, *, wait: bool
    ) -> Sequence[StaleEnded]:
        """End one batch by its tenants' policies.

        Tenants that others have locked are left out; if all are, ``wait`` for one.
        """


class Ledger(Protocol):
    """What else reconcile needs of the ledger."""

    async def book_legacy(self, limit: int, now: datetime | None) -> int:
        """Fold in at most ``limit`` direct writes of legacy programs; returns how many."""

    async def mirror_buckets(self, limit: int, now: datetime | None) -> int:
        """Bring at most ``limit`` rows of ``rate_buckets`` up to date; returns how many."""

    async def book_inbox(self, limit: int, now: datetime | None) -> InboxBooked:
        """Settle at most ``limit`` rows of the usage inbox, oldest first."""

    async def price_unpriced(self, limit: int, now: datetime | None) -> UnpricedWorked:
        """Price at most ``limit`` requests whose price is known by now."""


class Outlook(Protocol):
    """What reconcile asks about its work without doing it."""

    async def waiting(self, limit: int, now: datetime | None) -> Waiting:
        """How much a run would find, each counted to ``limit``."""

    async def others_ask(self, hours: int, now: datetime | None) -> bool:
        """Whether something is overdue, and sources were asked within the last ``hours``."""


class SourceLedger(Protocol):
    """What asking usage sources needs of the ledger."""

    async def begin(self, now: datetime | None) -> datetime:
        """Clear what earlier runs noted; the time at which this one begins."""

    async def due(
        self,
        since: datetime,
        before: datetime | None,
        limit: int,
        now: datetime | None,
        *,
        again: bool,
    ) -> Sequence[OverdueRequest]:
        """At most ``limit`` overdue reservations to ask for next; changes nothing.

        Those never asked for, newest first, from ``before`` on; with ``again`` those asked
        for before ``since``, the longest ago first.
        """

    async def note_asked(self, requests: Sequence[OverdueRequest], now: datetime | None) -> None:
        """Note that these were asked for, and have no usage so far."""

    async def settle(
        self, source: str, usages: Sequence[ToldUsage], now: datetime | None, *, keep: bool
    ) -> Sequence[str]:
        """Settle at most 1,000 usages; their outcomes, in order.

        Beyond the contract's: ``overtaken``, usage came from elsewhere meanwhile; ``locked``,
        nothing was done, call again; with ``keep`` that is ``kept``: it stands in the inbox.
        """

    async def set_aside(
        self, source: str, faults: Sequence[SourceFault], now: datetime | None
    ) -> None:
        """Keep at most 1,000 faults by name."""

    async def take_slot(self, source: str, per_second: int, wait_seconds: float) -> float | None:
        """The seconds until one request may go out; None: more than ``wait_seconds``.

        Counted over all workers, in real time. Not idempotent: each grant counts.
        """


class UsageSource(Protocol):
    """One configured source. Never raises for a failed asking: it answers."""

    @property
    def name(self) -> str:
        """The source's name in the configuration."""

    @property
    def batch_size(self) -> int:
        """How many requests one asking is given at most."""

    async def ask(
        self, requests: Sequence[OverdueRequest], seconds_left: Callable[[], float]
    ) -> SourceAnswer:
        """Ask for the requests' usage, for at most as long as ``seconds_left`` says.

        Raises only what the ledger's database raises when a slot is asked for.
        """

    async def close(self) -> None:
        """Release what asking opened. Idempotent."""


class Traffic(Protocol):
    """What a gateway asks of the ledger, for replays. Outcomes are the contract's words."""

    async def reserve(self, ask: Ask, now: datetime | None) -> Decision:
        """Ask for admission of one request."""

    async def progress(self, ask: Ask, out_tokens: int, now: datetime | None) -> str:
        """Tell how much was streamed; returns the outcome."""

    async def settle(
        self, ask: Ask, in_tokens: int, out_tokens: int, cost_nanos: int, now: datetime | None
    ) -> str:
        """Post the usage; returns the outcome."""

    async def release(
        self, ask: Ask, in_tokens: int, out_tokens: int, cost_nanos: int, now: datetime | None
    ) -> str:
        """Give up, stating what was consumed; returns the outcome."""

    async def missing_tenants(self, tenants: Sequence[str]) -> Sequence[str]:
        """Those of ``tenants`` that have no limits, sorted."""

    async def create_tenants(self, tenants: Sequence[str]) -> None:
        """Add tenants with the default limits; those that exist stay as they are."""


class Months(Protocol):
    """What roll_month needs."""

    async def months_to_roll(self, now: datetime | None) -> Sequence[date]:
        """First days of the months that have usage and aren't closed, oldest first."""

    async def book_adjustments(self, now: datetime | None) -> int:
        """Book what changed in closed months in an open one; returns how many changes."""

    async def book_legacy(self, month: date, limit: int, now: datetime | None) -> int:
        """Fold in at most ``limit`` direct writes of a month that is due to close."""

    async def roll(self, month: date, now: datetime | None) -> MonthRolled:
        """Recompute one open month's totals, closing it when its grace is over."""


class Warnings(Protocol):
    """What soft_warn needs: finding crossings and writing log and outbox rows."""

    async def decide(self, limit: int, now: datetime | None) -> CrossingCounts:
        """Log the untold crossings of at most ``limit`` subjects, with their messages."""

    async def count_untold(self, now: datetime | None) -> int:
        """How many crossings ``decide`` would log now; changes nothing."""


class Diagnosis(Protocol):
    """What diagnose needs: finding groups of requests without usage, and telling them."""

    async def tell_missing(self, limit: int, now: datetime | None) -> MissingTold:
        """Tell at most ``limit`` untold groups in one message, written with the note of it."""

    async def count_untold(self, now: datetime | None) -> int:
        """How many groups ``tell_missing`` would tell now; changes nothing."""


class RoiReports(Protocol):
    """What roi_report needs: the reports of closed months, and their mails."""

    async def count_due(self, now: datetime | None) -> int:
        """How many reports are to be built; changes nothing."""

    async def due(
        self, limit: int, after: ReportDue | None, now: datetime | None
    ) -> Sequence[ReportDue]:
        """At most ``limit`` of them in order, those behind ``after``."""

    async def build(
        self, month: date, departments: Sequence[str], now: datetime | None
    ) -> ReportsBuilt:
        """Build these of one month, each stored with its mails in one transaction."""


class Outbox(Protocol):
    """What deliver needs; owned by the holder of each claim's lease token."""

    async def count_due(self, now: datetime | None) -> int:
        """How many messages wait to be sent now; changes nothing."""

    async def take_slot(self, channel: str, rate: SendRate) -> float:
        """0.0 when one request may go out on the channel now, else seconds to wait.

        Counted over all workers, in real time. Not idempotent: each grant counts.
        """

    async def claim(
        self, channel: str | None, digest_over: int | None, lease_seconds: int, now: datetime | None
    ) -> Claim | None:
        """Lease what the channel should send next; no transaction stays open.

        Several messages where more than ``digest_over`` wait. ``channel`` None: one that
        has lain for over an hour on a channel that nobody serves.
        """

    async def keep(self, claim: Claim, count: int) -> str | None:
        """Keep the claim's first ``count`` for one request, and give the others back.

        Returns the request's id; None when another worker has some, or with ``count`` 0:
        nothing may be sent then.
        """

    async def finish(self, claim: Claim, now: datetime | None) -> int:
        """Mark as sent; how many: less when the lease was lost meanwhile."""

    async def fail(self, claim: Claim, delivery: Delivery, now: datetime | None) -> FailedAttempt:
        """Record a failed attempt: to be tried again, or dead and told on the fallbacks."""


class Notifier(Protocol):
    """One configured channel. Never raises for a failed send: it answers."""

    @property
    def rate(self) -> SendRate | None:
        """How fast the service may be asked; None where nothing limits it."""

    @property
    def bot(self) -> str | None:
        """Whose rate that is: channels with the same share it; None: this channel's own."""

    @property
    def digest_over(self) -> int | None:
        """With more than so many messages waiting they go out together; None: never."""

    def warm_up(self) -> None:
        """Load what sending needs, so that requests go out when they are granted."""

    async def send(
        self, message: OutboxMessage, timeout_seconds: float, pace: Pace | None = None
    ) -> Delivery:
        """Render and send one message within the time limit.

        Where it takes several requests, ``pace`` is awaited before each but the first.
        """

    def fit(self, messages: Sequence[OutboxMessage]) -> int:
        """How many of them, from the first, go into one request: at least 1."""

    async def send_digest(self, digest: Digest, timeout_seconds: float) -> Delivery:
        """Send as many messages as ``fit`` allowed, in one request."""


class Channels(Protocol):
    """The configured channels; each adapter is imported when first asked for."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every configured channel, at least ``console``."""

    def notifier(self, channel: str) -> Notifier:
        """The notifier of this channel; ``KeyError`` when none is configured."""

    async def close(self) -> None:
        """Release connections that notifiers opened. Idempotent."""


class JobRuns(Protocol):
    """The tick's lease and the record of each job's run. Lease times are real time."""

    async def due(self, schedules: Sequence[JobSchedule], now: datetime | None) -> Sequence[str]:
        """The names of the jobs that are due, in the order given; changes nothing."""

    async def begin(
        self,
        owner: str,
        lease_seconds: int,
        schedules: Sequence[JobSchedule],
        now: datetime | None,
        *,
        may_idle: bool = False,
    ) -> TickLease | None:
        """Take the lease and open a run of each due job; None when another tick has it.

        ``may_idle``: where it is certain that no job would find anything, the tick is
        written down as done at once (``TickLease.idle``).
        """

    async def renew(self, lease: TickLease, lease_seconds: int) -> bool:
        """Prolong the lease; False when a later tick took it."""

    async def record(
        self,
        lease: TickLease,
        runs: Sequence[JobRun],
        *,
        release: bool,
        now: datetime | None,
        idle: bool = False,
    ) -> int:
        """Write how jobs ended, give the lease back if ``release``; returns how many.

        Runs that a later tick took over are left to it. ``idle``: all jobs ran, and found
        nothing to do.
        """
