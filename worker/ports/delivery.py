"""What delivery asks of the outbox and of the channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from worker.models import Claim, Delivery, Digest, FailedAttempt, OutboxMessage, SendRate


class Pace(Protocol):
    """Waits until the channel's rate allows one more request."""

    async def __call__(self) -> None:
        """Return when it may go out."""


class Outbox(Protocol):
    """What deliver needs; owned by the holder of each claim's lease token."""

    async def count_due(self, now: datetime | None) -> int:
        """How many messages wait to be sent now; changes nothing."""

    async def due(self, now: datetime | None) -> Sequence[tuple[str, int]]:
        """How many of them on each channel, by its name; changes nothing."""

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
