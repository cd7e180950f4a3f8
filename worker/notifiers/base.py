"""What every channel shares: rendering, the time limit, and which causes are worth a retry."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from worker.errors import QuotaWorkerError
from worker.models import Delivery, FailureCause
from worker.rendering import RenderingError

if TYPE_CHECKING:
    from worker.models import OutboxMessage, SendRate
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


class SendFailedError(QuotaWorkerError):
    """A message was not sent: its cause says why."""

    def __init__(self, cause: FailureCause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


def failed(cause: FailureCause, detail: str) -> Delivery:
    """The answer for a failure; whether to try again follows from the cause alone."""
    return Delivery(
        delivered=False, retryable=cause in RETRYABLE_CAUSES, cause=cause, detail=detail
    )


class BaseNotifier(ABC):
    """Renders, sends, and answers. A channel adds `deliver` and raises SendFailedError.

    No detail holds an address, a secret, or what the other side wrote.
    """

    channel: str
    rate: SendRate | None = None

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    async def send(self, message: OutboxMessage, timeout_seconds: float) -> Delivery:
        """Render and send one message within the time limit; failures are answers.

        After a timeout it is unknown whether the message went out: it may come twice.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.deliver(message)
        except TimeoutError:
            return failed(FailureCause.TIMEOUT, f"no answer within {timeout_seconds:g} s")
        except SendFailedError as error:
            return failed(error.cause, str(error))
        except RenderingError as error:
            return failed(FailureCause.NOT_RENDERED, str(error))
        except OSError as error:
            return failed(FailureCause.UNREACHABLE, type(error).__name__)
        return Delivery(delivered=True)

    @abstractmethod
    async def deliver(self, message: OutboxMessage) -> None:
        """Send, or raise SendFailedError. Returns only when the other side confirmed."""

    async def close(self) -> None:
        """Release what `deliver` opened. Idempotent."""
        return

    def part(self, message: OutboxMessage, part: str) -> str:
        """One rendered part of the message, from this channel's templates."""
        return self._renderer.render(message, self.channel, part)
