"""How deliver empties one channel's part of the outbox, beside the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from worker.errors import ConfigurationError, DatabaseError, DatabaseUnreachableError
from worker.models import Delivery, Digest, FailureCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from worker.jobs.context import JobContext
    from worker.models import Claim
    from worker.ports.delivery import Notifier

_T = TypeVar("_T")

LEASE_SECONDS = 60
# Below the lease, so that a message is never sent under a lease that is another's.
SEND_TIMEOUT_SECONDS = 20.0
MARGIN_SECONDS = SEND_TIMEOUT_SECONDS + 5.0
# What was sent is to be noted within the lease, whatever stands in the way for a moment.
RECORD_SECONDS = LEASE_SECONDS - SEND_TIMEOUT_SECONDS - 5.0
RECORD_TRIES = 20
RECORD_WAIT_SECONDS = 1.0
# The waits of 5 s and 30 s happen within the run, the longer ones between ticks.
RETRY_WITHIN_RUN_SECONDS = 30.0
# A bound, not a target: the deadline and the channels' rates come first.
MAX_MESSAGES_PER_CHANNEL = 100_000
# How long a channel with nothing to do leaves new messages lying while another works, or hangs.
LOOK_AGAIN_SECONDS = 1.0
# Waits are slept in pieces, so that a wish to stop is heard.
NAP_SECONDS = 0.5


@dataclass(slots=True)
class Tally:
    """What all channels did so far, in messages."""

    sent: int = 0
    retried: int = 0
    dead: int = 0
    untold: int = 0
    lost: int = 0
    leftover: bool = False
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(slots=True)
class DeliveryRun:
    """One run over all channels: when it began, what it did, and who is at work."""

    ctx: JobContext
    tally: Tally = field(default_factory=Tally)
    errors: list[Exception] = field(default_factory=list)
    busy: int = 0
    began: float = field(init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.began = self.ctx.monotonic()

    def now(self) -> datetime | None:
        """The job's time, moving on as the run does; None is the database's clock."""
        if self.ctx.now is None:
            return None
        return self.ctx.now + timedelta(seconds=self.ctx.monotonic() - self.began)

    def tell_others(self) -> None:
        """Wake the channels that wait for what others leave them."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def more(self, seen_dead: int) -> bool:
        """Wait, as one that has nothing to do, until there may be something for this channel.

        Which is so when a message died, for it may be told here, and while others are at work
        now and then, for new ones may be queued meanwhile. False when all channels have
        nothing to do.
        """
        self.busy -= 1
        self.tell_others()
        late = self.ctx.deadline.reached(MARGIN_SECONDS)
        try:
            async with asyncio.timeout(None if late else LOOK_AGAIN_SECONDS):
                while self.busy > 0 and self.tally.dead == seen_dead:
                    await self._changed.wait()
        except TimeoutError:
            return not self.ctx.deadline.reached(MARGIN_SECONDS)
        else:
            return self.tally.dead != seen_dead
        finally:
            self.busy += 1


async def drain(job: DeliveryRun, name: str) -> None:
    """One channel's turn. An error is kept for the run's end: the other channels go on."""
    try:
        await _Channel(job, name).drain()
    except Exception as error:  # noqa: BLE001  the loop's edge
        job.errors.append(error)
    finally:
        job.busy -= 1
        job.tell_others()


async def give_up(job: DeliveryRun, channel: str | None, detail: str) -> None:
    """Messages that can't be sent here are told elsewhere; None: those of unserved channels."""
    ctx = job.ctx
    for _ in range(MAX_MESSAGES_PER_CHANNEL):
        if ctx.deadline.reached(MARGIN_SECONDS):
            job.tally.leftover = True
            return
        claim = await ctx.ports.outbox.claim(channel, None, LEASE_SECONDS, job.now())
        if claim is None:
            return
        await _settle(job, claim, _given_up(FailureCause.NOT_CONFIGURED, detail))


async def _settle(job: DeliveryRun, claim: Claim, answer: Delivery) -> float | None:
    """Record an answer; the seconds until the messages are due again, None when they aren't."""
    outbox, tally = job.ctx.ports.outbox, job.tally
    if answer.delivered:
        sent = await _recorded(job, lambda: outbox.finish(claim, job.now()))
        tally.sent += sent
        tally.lost += len(claim.messages) - sent
        return None
    attempt = await _recorded(job, lambda: outbox.fail(claim, answer, job.now()))
    tally.retried += attempt.retried
    tally.dead += attempt.dead
    tally.untold += attempt.untold
    tally.lost += attempt.lost
    if attempt.dead:
        job.tell_others()
    failed = attempt.retried + attempt.dead
    if failed and answer.cause is not None:
        tally.failures[claim.messages[0].channel, str(answer.cause)] += failed
    return attempt.wait_seconds if attempt.retried else None


async def _recorded(job: DeliveryRun, record: Callable[[], Awaitable[_T]]) -> _T:
    """Write down how a request ended, again while that may help: it can't be taken back.

    Twice does no harm: only the lease's holder changes anything, and only once.
    """
    try:
        async with asyncio.timeout(RECORD_SECONDS):
            for _ in range(RECORD_TRIES):
                try:
                    return await record()
                except DatabaseError as error:
                    if not error.retryable:
                        raise
                await job.ctx.sleep(RECORD_WAIT_SECONDS)
            return await record()
    except TimeoutError:
        raise DatabaseUnreachableError(
            "the database did not take down what was sent: it is sent again"
        ) from None


def _given_up(cause: FailureCause, detail: str) -> Delivery:
    return Delivery(delivered=False, cause=cause, detail=detail)


class _Channel:
    """One channel's turn in one run."""

    def __init__(self, job: DeliveryRun, name: str) -> None:
        self._job = job
        self._name = name
        self._due_again: list[float] = []

    async def drain(self) -> None:
        """Send request after request until nothing is due, within this run's waits."""
        job = self._job
        outbox = job.ctx.ports.outbox
        try:
            notifier = job.ctx.ports.channels.notifier(self._name)
        except ConfigurationError as error:  # what only the channel's own library knows
            await give_up(job, self._name, str(error))
            return
        for _ in range(MAX_MESSAGES_PER_CHANNEL):
            if job.ctx.deadline.reached(MARGIN_SECONDS):
                job.tally.leftover = True
                return
            dead = job.tally.dead
            claim = await outbox.claim(self._name, notifier.digest_over, LEASE_SECONDS, job.now())
            if claim is not None:
                more = await self._paced(notifier, claim)
            elif self._due_again:
                more = await self._wait_for_retry(dead)
            else:
                more = await job.more(dead)
            if not more:
                return
        job.tally.leftover = True

    async def _paced(self, notifier: Notifier, claim: Claim) -> bool:
        """Send what was claimed if its bot's rate allows a request now; else wait, without it.

        False when the deadline is nearer.
        """
        ctx = self._job.ctx
        notifier.warm_up()
        wait_seconds = await self._slot(notifier)
        if wait_seconds <= 0:
            await self._deliver(notifier, claim)
            return True
        # given back: a lease is for sending, not for waiting
        await ctx.ports.outbox.keep(claim, 0)
        if ctx.deadline.reached(MARGIN_SECONDS + wait_seconds):
            self._job.tally.leftover = True
            return False
        await self._nap(wait_seconds)
        return True

    async def _deliver(self, notifier: Notifier, claim: Claim) -> None:
        """Send what one claim holds and record how it went; what doesn't fit is given back."""
        job = self._job
        digest_key = claim.digest_key
        if claim.overdue:
            answer = _given_up(FailureCause.WORKER_LOST, "each worker that sent it was lost")
        elif digest_key is None and len(claim.messages) > 1:
            try:
                count = notifier.fit(claim.messages)
            except Exception as error:  # noqa: BLE001  the loop's edge: sent one by one instead
                answer = _given_up(FailureCause.NOT_RENDERED, type(error).__name__)
            else:
                digest_key = await job.ctx.ports.outbox.keep(claim, count)
                if digest_key is None:
                    job.tally.lost += count
                    return
                claim = claim._replace(messages=claim.messages[:count])
                answer = await self._sent(notifier, claim, digest_key)
        else:
            answer = await self._sent(notifier, claim, digest_key)
        wait_seconds = await _settle(job, claim, answer)
        if wait_seconds is not None and wait_seconds <= RETRY_WITHIN_RUN_SECONDS:
            self._due_again.append(job.ctx.monotonic() + wait_seconds)

    async def _sent(self, notifier: Notifier, claim: Claim, digest_key: str | None) -> Delivery:
        """The channel's answer; a fault of the channel's own code is one request's failure."""

        async def pace() -> None:
            while (wait_seconds := await self._slot(notifier)) > 0:
                await self._nap(wait_seconds)

        try:
            # a digest that fits only one message, or has only one left, keeps its own id
            if digest_key is not None and digest_key != claim.messages[0].dedupe_key:
                digest = Digest(claim.messages, digest_key)
                return await notifier.send_digest(digest, SEND_TIMEOUT_SECONDS)
            return await notifier.send(claim.messages[0], SEND_TIMEOUT_SECONDS, pace)
        except Exception as error:  # noqa: BLE001  the loop's edge: the other messages go on
            # Its text may hold the address; and whether the message went out isn't known.
            return Delivery(
                delivered=False,
                retryable=True,
                cause=FailureCause.UNKNOWN_ANSWER,
                detail=f"internal error: {type(error).__name__}",
            )

    async def _slot(self, notifier: Notifier) -> float:
        """0.0 when its bot's rate allows one request now, else seconds to wait."""
        if notifier.rate is None:
            return 0.0
        return await self._job.ctx.ports.outbox.take_slot(notifier.bot or self._name, notifier.rate)

    async def _wait_for_retry(self, dead: int) -> bool:
        """Sleep until the next message that failed here is due, or until more have died.

        False when the deadline is nearer.
        """
        ctx = self._job.ctx
        self._due_again.sort()
        due_at = self._due_again[0] + 0.05
        wait_seconds = max(0.0, due_at - ctx.monotonic())
        if ctx.deadline.reached(MARGIN_SECONDS + wait_seconds):
            self._job.tally.leftover = True
            return False
        await self._nap(wait_seconds, lambda: self._job.tally.dead != dead)
        if ctx.monotonic() >= due_at:
            self._due_again.pop(0)
        return True

    async def _nap(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Sleep, or wake early when the run is asked to stop or there is ``enough``."""
        ctx = self._job.ctx
        until = ctx.monotonic() + seconds
        while not ctx.deadline.stopped and not enough():
            left = until - ctx.monotonic()
            if left <= 0:
                return
            await ctx.sleep(min(left, NAP_SECONDS))
