"""What reconcile, usage sources and replays ask of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from worker.models import InboxBooked, OverdueBatch, StaleEnded, UnpricedWorked, Waiting
    from worker.traffic import Ask, Decision
    from worker.usage import OverdueRequest, SourceAnswer, SourceFault, ToldUsage


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
