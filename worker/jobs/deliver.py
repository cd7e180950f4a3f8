"""deliver: takes messages from the outbox and hands them to their channels.

Each channel is worked on by itself, so that one that hangs holds up no other. What one
request carries (a message, or a digest of many) is leased in one transaction, sent with
none open, and finished in another; so a crash anywhere leaves it to be sent again once
its lease is over, under the same id. At-least-once: a request without an answer may have
arrived.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.jobs.context import JobCounts
from worker.jobs.draining import DeliveryRun, drain, give_up
from worker.models import ChannelFailure

if TYPE_CHECKING:
    from worker.jobs.context import JobContext


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


async def run(ctx: JobContext) -> DeliverCounts:
    """Send what is due on every channel until nothing is left or the deadline comes.

    Raises what the database raises, when every channel has had its turn; what was leased
    then is sent after its lease.
    """
    due = await ctx.ports.outbox.count_due(ctx.now)
    if ctx.dry_run:
        waiting = await ctx.ports.outbox.due(ctx.now)
        return DeliverCounts(
            due=due, would=tuple(f"send {number} on {channel}" for channel, number in waiting)
        )
    if due == 0:
        return DeliverCounts()
    job = DeliveryRun(ctx)
    try:
        await give_up(job, None, "no such channel here")
        # Console is the last fallback even where it isn't configured.
        names = dict.fromkeys([*ctx.ports.channels.names, "console"])
        job.busy = len(names)
        await asyncio.gather(*(drain(job, name) for name in names))
    finally:
        await ctx.ports.channels.close()
    if job.errors:
        raise job.errors[0]
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
