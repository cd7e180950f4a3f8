"""deliver: takes messages from the outbox and hands them to their channels.

Each channel is worked on by itself, so that one that hangs holds up no other. A message
is leased in one transaction, sent with none open, and finished in another; so a crash
anywhere leaves it to be sent again once its lease is over. At-least-once: a request
without an answer may have arrived.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from worker.clock import monotonic_seconds
from worker.jobs.context import JobCounts
from worker.models import Delivery, FailureCause

if TYPE_CHECKING:
    from datetime import datetime

    from worker.jobs.context import JobContext
    from worker.models import OutboxMessage
    from worker.ports import Notifier

LEASE_SECONDS = 60
# Below the lease, so that a message is never sent under a lease that is another's.
SEND_TIMEOUT_SECONDS = 20.0
MARGIN_SECONDS = SEND_TIMEOUT_SECONDS + 5.0
# The waits of 5 s and 30 s happen within the run, the longer ones between ticks.
RETRY_WITHIN_RUN_SECONDS = 30.0
# A bound, not a target: the deadline and the channels' rates come first.
MAX_MESSAGES_PER_CHANNEL = 100_000
# Waits are slept in pieces, so that a wish to stop is heard.
NAP_SECONDS = 0.5
FALLBACK_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class DeliverCounts(JobCounts):
    """What one run did, over all channels; in a dry run ``due`` alone.

    ``dead``: given up; those that no channel could be told are in ``failed``, too.
    ``lost``: finished too late, another worker has them.
    """

    due: int = 0
    sent: int = 0
    retried: int = 0
    dead: int = 0
    lost: int = 0


@dataclass(slots=True)
class _Tally:
    sent: int = 0
    retried: int = 0
    dead: int = 0
    untold: int = 0
    lost: int = 0
    leftover: bool = False


@dataclass(slots=True)
class _Run:
    """One run's state: when it began, and when something that failed is due again."""

    ctx: JobContext
    tally: _Tally = field(default_factory=_Tally)
    began: float = field(default_factory=monotonic_seconds)

    def now(self) -> datetime | None:
        """The job's time, moving on as the run does; None is the database's clock."""
        if self.ctx.now is None:
            return None
        return self.ctx.now + timedelta(seconds=monotonic_seconds() - self.began)


async def run(ctx: JobContext) -> DeliverCounts:
    """Send what is due on every channel until nothing is left or the deadline comes.

    Raises what the database raises; what was leased then is sent after its lease.
    """
    job = _Run(ctx)
    due = await ctx.ports.outbox.count_due(ctx.now)
    if ctx.dry_run or due == 0:
        return DeliverCounts(due=due)
    try:
        await _abandoned(job)
        # A fallback may be told on a channel whose turn is over: another round, once for
        # each link of the chain. Console is the last one even where it isn't configured.
        names = dict.fromkeys([*ctx.ports.channels.names, "console"])
        for _ in range(FALLBACK_ROUNDS):
            before = job.tally.dead
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(_Channel(job, name).drain())
            if job.tally.dead == before:
                break
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        await ctx.ports.channels.close()
    tally = job.tally
    return DeliverCounts(
        leftover=tally.leftover,
        failed=tally.untold,
        due=due,
        sent=tally.sent,
        retried=tally.retried,
        dead=tally.dead,
        lost=tally.lost,
    )


async def _abandoned(job: _Run) -> None:
    """Messages for channels that nobody serves any more: given up, told elsewhere."""
    ctx = job.ctx
    served = (*ctx.ports.channels.names, "console")
    for _ in range(MAX_MESSAGES_PER_CHANNEL):
        if ctx.deadline.reached(MARGIN_SECONDS):
            job.tally.leftover = True
            return
        message = await ctx.ports.outbox.claim(None, served, LEASE_SECONDS, job.now())
        if message is None:
            return
        answer = Delivery(
            delivered=False, cause=FailureCause.NOT_CONFIGURED, detail="no such channel here"
        )
        await _settle(job, message, answer)


async def _settle(job: _Run, message: OutboxMessage, answer: Delivery) -> float | None:
    """Record an answer; the seconds until the message is due again, None when it isn't."""
    outbox, tally = job.ctx.ports.outbox, job.tally
    if answer.delivered:
        if await outbox.finish(message, job.now()):
            tally.sent += 1
        else:
            tally.lost += 1
        return None
    fallback = job.ctx.ports.channels.fallback(message)
    attempt = await outbox.fail(message, answer, fallback, job.now())
    if attempt.outcome == "retry":
        tally.retried += 1
        return attempt.wait_seconds
    if attempt.outcome == "dead":
        tally.dead += 1
        tally.untold += not attempt.told
    else:
        tally.lost += 1
    return None


async def _sent(notifier: Notifier, message: OutboxMessage) -> Delivery:
    """The channel's answer; a fault of the channel's own code is one message's failure."""
    try:
        return await notifier.send(message, SEND_TIMEOUT_SECONDS)
    except Exception as error:  # noqa: BLE001  the loop's edge: the other messages go on
        # Its text may hold the address; and whether the message went out isn't known.
        return Delivery(
            delivered=False,
            retryable=True,
            cause=FailureCause.UNKNOWN_ANSWER,
            detail=f"internal error: {type(error).__name__}",
        )


class _Channel:
    """One channel's turn in one run."""

    def __init__(self, job: _Run, name: str) -> None:
        self._job = job
        self._name = name
        self._due_again: list[float] = []

    async def drain(self) -> None:
        """Send message after message until none is due, within this run's waits."""
        job = self._job
        notifier = job.ctx.ports.channels.notifier(self._name)
        for _ in range(MAX_MESSAGES_PER_CHANNEL):
            if job.ctx.deadline.reached(MARGIN_SECONDS):
                job.tally.leftover = True
                return
            if not await self._slot(notifier):
                return
            message = await job.ctx.ports.outbox.claim(self._name, (), LEASE_SECONDS, job.now())
            if message is None:
                if not await self._wait_for_retry():
                    return
                continue
            answer = await _sent(notifier, message)
            wait_seconds = await _settle(job, message, answer)
            if wait_seconds is not None and wait_seconds <= RETRY_WITHIN_RUN_SECONDS:
                self._due_again.append(monotonic_seconds() + wait_seconds)
        job.tally.leftover = True

    async def _slot(self, notifier: Notifier) -> bool:
        """Wait until the channel's rate allows one request; False when the deadline is nearer."""
        rate = notifier.rate
        ctx = self._job.ctx
        while rate is not None:
            wait_seconds = await ctx.ports.outbox.take_slot(self._name, rate)
            if wait_seconds <= 0:
                return True
            if ctx.deadline.reached(MARGIN_SECONDS + wait_seconds):
                self._job.tally.leftover = True
                return False
            await self._nap(wait_seconds)
        return True

    async def _wait_for_retry(self) -> bool:
        """Sleep until the next message that failed here is due; False when there is none."""
        if not self._due_again:
            return False
        self._due_again.sort()
        wait_seconds = max(0.0, self._due_again.pop(0) - monotonic_seconds()) + 0.05
        if self._job.ctx.deadline.reached(MARGIN_SECONDS + wait_seconds):
            self._job.tally.leftover = True
            return False
        await self._nap(wait_seconds)
        return True

    async def _nap(self, seconds: float) -> None:
        """Sleep, or wake early when the run is asked to stop."""
        until = monotonic_seconds() + seconds
        while not self._job.ctx.deadline.stopped:
            left = until - monotonic_seconds()
            if left <= 0:
                return
            await asyncio.sleep(min(left, NAP_SECONDS))
