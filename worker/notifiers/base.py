"""What every channel shares: rendering, the time limit, and which causes are worth a retry."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from worker.clock import monotonic_seconds
from worker.errors import QuotaWorkerError
from worker.models import Delivery, FailureCause
from worker.notifiers.connection import why_not_connected
from worker.rendering import RenderingError
from worker.resolving import CURE as SLOW_DNS
from worker.resolving import watched_lookups

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from worker.models import Digest, OutboxMessage, SendRate
    from worker.ports.delivery import Pace
    from worker.rendering import Renderer

# A cause that is not here is permanent: the same message would fail the same way.
RETRYABLE_CAUSES: Final = frozenset(
    {
        FailureCause.TIMEOUT,
        FailureCause.UNREACHABLE,
        FailureCause.RATE_LIMITED,
        FailureCause.SERVER_ERROR,
        FailureCause.UNKNOWN_ANSWER,
        FailureCause.COMMAND_FAILED,
        FailureCause.WORKER_LOST,
    }
)
# What a name that isn't resolved in time may end in.
SLOW: Final = frozenset({FailureCause.TIMEOUT, FailureCause.UNREACHABLE})


class SendFailedError(QuotaWorkerError):
    """A message was not sent: its cause says why.

    `cure`: what to do, where it isn't the same for every such failure of this kind of channel.
    """

    def __init__(self, cause: FailureCause, detail: str, cure: str = "") -> None:
        super().__init__(detail)
        self.cause = cause
        self.cure = cure


def failed(cause: FailureCause, detail: str, cure: str = "") -> Delivery:
    """The answer for a failure; whether to try again follows from the cause alone."""
    return Delivery(
        delivered=False,
        retryable=cause in RETRYABLE_CAUSES,
        cause=cause,
        detail=detail,
        cure=cure,
    )


class BaseNotifier(ABC):
    """Renders, sends, and answers. A channel adds `deliver`, and what a digest needs.

    `channel` is the kind as configured, `family` the name of its templates. No detail
    holds an address, a secret, or what the other side wrote.
    """

    channel: str
    family: str
    rate: SendRate | None = None
    bot: str | None = None
    digest_over: int | None = None

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    async def send(
        self, message: OutboxMessage, timeout_seconds: float, pace: Pace | None = None
    ) -> Delivery:
        """Render and send one message within the time limit; failures are answers.

        After a timeout it is unknown whether the message went out: it may come twice.
        """
        return await _answered(self.deliver(message, pace or _unpaced), timeout_seconds)

    async def send_digest(self, digest: Digest, timeout_seconds: float) -> Delivery:
        """Render and send several messages in one request, as `send`."""
        return await _answered(self.deliver_digest(digest), timeout_seconds)

    def warm_up(self) -> None:
        """Load what sending needs, so that requests go out when they are granted."""
        self._renderer.warm_up()

    def fit(self, messages: Sequence[OutboxMessage]) -> int:
        """How many of them, from the first, one request holds; at least 1."""
        low, high = 1, len(messages)
        while low < high:
            middle = (low + high + 1) // 2
            if self.digest_fits(messages[:middle]):
                low = middle
            else:
                high = middle - 1
        return low

    @abstractmethod
    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:
        """Send, or raise SendFailedError. Returns only when the other side confirmed.

        Await `pace` before each request but the first.
        """

    async def deliver_digest(self, digest: Digest) -> None:
        """Send a digest in one request, as `deliver`. For channels with `digest_over`."""
        raise NotImplementedError(f"{self.channel} collects no messages ({digest.dedupe_key})")

    def digest_fits(self, messages: Sequence[OutboxMessage]) -> bool:
        """Whether the digest of these is within the service's limit of size."""
        raise NotImplementedError(f"{self.channel} collects no messages ({len(messages)})")

    async def close(self) -> None:
        """Release what `deliver` opened. Idempotent."""
        return

    def part(self, message: OutboxMessage, part: str) -> str:
        """One rendered part of the message, from this channel's templates."""
        return self._renderer.render(message, self.family, part)

    def digest_part(self, messages: Sequence[OutboxMessage], part: str) -> str:
        """One rendered part of a digest, from this channel's templates."""
        return self._renderer.render_digest(messages, self.family, part)


def bot_of(*identity: str) -> str:
    """A name for the bot behind an address: the same for the same, and nothing of it shows."""
    import hashlib

    return "bot-" + hashlib.sha256("\x1f".join(identity).encode()).hexdigest()[:24]


async def _unpaced() -> None:
    """For those who send without a limit."""


async def _answered(sending: Coroutine[None, None, None], timeout_seconds: float) -> Delivery:
    """Await the sending within the limit; whatever it raises for a cause is an answer."""
    started = monotonic_seconds()
    try:
        with watched_lookups() as lookups:
            async with asyncio.timeout(timeout_seconds):
                await sending
    except TimeoutError:
        delivery = failed(FailureCause.TIMEOUT, f"no answer within {timeout_seconds:g} s")
    except SendFailedError as error:
        delivery = failed(error.cause, str(error), error.cure)
    except RenderingError as error:
        delivery = failed(FailureCause.NOT_RENDERED, str(error))
    except OSError as error:
        delivery = failed(FailureCause.UNREACHABLE, *why_not_connected(error))
    else:
        return Delivery(delivered=True)
    if lookups.is_unresolved and delivery.cause in SLOW:
        # nothing went out
        words = lookups.words(min(timeout_seconds, monotonic_seconds() - started))
        return failed(FailureCause.UNREACHABLE, words, SLOW_DNS)
    return delivery
