"""deliver: takes messages from the outbox and hands them to their channels.

Each channel is worked on by itself, so that one that hangs holds up no other. What one
request carries (a message, or a digest of many) is leased in one transaction, sent with
none open, and finished in another; so a crash anywhere leaves it to be sent again once
its lease is over, under the same id. At-least-once: a request without an answer may have
arrived.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from worker.errors import ConfigurationError
from worker.jobs.context import JobCounts
from worker.models import ChannelFailure, Delivery, Digest, FailureCause

if TYPE_CHECKING:
    from datetime import datetime

    from worker.jobs.context import JobContext
    from worker.models import Claim
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
    ``lost``: finished too late, another worker has them. ``failures``: each channel that failed.
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
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(slots=True)
class _Run:
    """One run's state: when it began, and what it did."""

    ctx: JobContext
    tally: _Tally = field(default_factory=_Tally)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.ctx.monotonic()

    def now(self) -> datetime | None:
        """The job's time, moving on as the run does; None is the database's clock."""
        if self.ctx.now is None:
            return None
        return self.ctx.now + timedelta(seconds=self.ctx.monotonic() - self.began)


async def run(ctx: JobContext) -> DeliverCounts:
    """Send what is due on every channel until nothing is left or the deadline comes.

    Raises what the database raises; what was leased then is sent after its lease.
    """
    job = _Run(ctx)
    due = await ctx.ports.outbox.count_due(ctx.now)
    if ctx.dry_run or due == 0:
        return DeliverCounts(due=due)
    try:
        await _give_up(job, None, "no such channel here")
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
        failures=tuple(
            ChannelFailure(channel, cause, messages)
            for (channel, cause), messages in sorted(tally.failures.items())
        ),
        due=due,
        sent=tally.sent,
        retried=tally.retried,
        dead=tally.dead,
        lost=tally.lost,
    )


async def _give_up(job: _Run, channel: str | None, detail: str) -> None:
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


async def _settle(job: _Run, claim: Claim, answer: Delivery) -> float | None:
    """Record an answer; the seconds until the messages are due again, None when they aren't."""
    outbox, tally = job.ctx.ports.outbox, job.tally
    if answer.delivered:
        sent = await outbox.finish(claim, job.now())
        tally.sent += sent
        tally.lost += len(claim.messages) - sent
        return None
    attempt = await outbox.fail(claim, answer, job.now())
    tally.retried += attempt.retried
    tally.dead += attempt.dead
    tally.untold += attempt.untold
    tally.lost += attempt.lost
    failed = attempt.retried + attempt.dead
    if failed and answer.cause is not None:
        tally.failures[claim.messages[0].channel, str(answer.cause)] += failed
    return attempt.wait_seconds if attempt.retried else None


def _given_up(cause: FailureCause, detail: str) -> Delivery:
    return Delivery(delivered=False, cause=cause, detail=detail)


class _Channel:
    """One channel's turn in one run."""

    def __init__(self, job: _Run, name: str) -> None:
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
            await _give_up(job, self._name, str(error))
            return
        for _ in range(MAX_MESSAGES_PER_CHANNEL):
            if job.ctx.deadline.reached(MARGIN_SECONDS):
                job.tally.leftover = True
                return
            if not await self._slot(notifier):
                return
            claim = await outbox.claim(self._name, notifier.digest_over, LEASE_SECONDS, job.now())
            if claim is None:
                if not await self._wait_for_retry():
                    return
                continue
            await self._deliver(notifier, claim)
        job.tally.leftover = True

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
            if not await self._slot(notifier):
                raise TimeoutError

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
        wait_seconds = max(0.0, self._due_again.pop(0) - self._job.ctx.monotonic()) + 0.05
        if self._job.ctx.deadline.reached(MARGIN_SECONDS + wait_seconds):
            self._job.tally.leftover = True
            return False
        await self._nap(wait_seconds)
        return True

    async def _nap(self, seconds: float) -> None:
        """Sleep, or wake early when the run is asked to stop."""
        ctx = self._job.ctx
        until = ctx.monotonic() + seconds
        while not ctx.deadline.stopped:
            left = until - ctx.monotonic()
            if left <= 0:
                return
            await ctx.sleep(min(left, NAP_SECONDS))
