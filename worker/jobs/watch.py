"""watch: tells caps that fall soon at the present pace, and apps and keys that run away.

Notes first what was usual in the hours that are complete by now. What is found is told in one
SQL function, one transaction, exactly once whoever else runs it. Idempotent. Delivery is
another job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.errors import LockTimeoutError
from worker.jobs.context import JobCounts

if TYPE_CHECKING:
    from worker.jobs.context import JobContext

# A bound, not a target, of each: more at once wait for the next run.
MAX_TOLD = 1_000
HOURS_AT_ONCE = 24
# Hours of more than a week ago are never noted: a week by the day, and the call that finds none.
MAX_CALLS = 8
# A call reads a day of reservations; a pass one hour of them.
NOTE_MARGIN_SECONDS = 30.0
MARGIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WatchCounts(JobCounts):
    """What one run noted and told; in a dry run what it would tell, and no message.

    Hours in which nobody was admitted are no work: a tick that only notes them says nothing.
    """

    paces: int = 0
    burns: int = 0
    runaways: int = 0
    messages: int = 0


async def run(ctx: JobContext) -> WatchCounts:
    """One pass over the last hour. Raises what the database raises; nothing is left behind."""
    watch = ctx.ports.watch
    if ctx.dry_run:
        untold = await watch.count_untold(MAX_TOLD, ctx.now)
        return WatchCounts(burns=untold.burns, runaways=untold.runaways)
    paces = 0
    left = True
    try:
        for _ in range(MAX_CALLS):
            if ctx.deadline.reached(NOTE_MARGIN_SECONDS):
                break
            noted = await watch.note_hours(HOURS_AT_ONCE, ctx.now)
            paces += noted.paces
            if noted.hours < HOURS_AT_ONCE:
                left = False
                break
        # judged by half a history, what is usual could pass for a runaway
        if left or ctx.deadline.reached(MARGIN_SECONDS):
            return WatchCounts(leftover=True, paces=paces)
        told = await watch.tell(MAX_TOLD, ctx.now)
    except LockTimeoutError:
        # another process notes or tells right now
        return WatchCounts(leftover=True, paces=paces)
    return WatchCounts(
        leftover=MAX_TOLD in {told.burns, told.runaways},
        paces=paces,
        burns=told.burns,
        runaways=told.runaways,
        messages=told.messages,
    )
