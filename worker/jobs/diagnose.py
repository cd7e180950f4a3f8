"""diagnose: finds groups of requests that come without usage, and writes the message that says so.

Found and told in one SQL function, one transaction, exactly once whoever else runs it; a
group that was told is left alone for a week. Idempotent. Delivery is another job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.errors import LockTimeoutError
from worker.jobs.context import JobCounts

if TYPE_CHECKING:
    from worker.jobs.context import JobContext

# A bound, not a target: more groups than this at once wait for the next run.
MAX_GROUPS = 10_000
# One pass reads a day of reservations: no run begins with less time than this left.
MARGIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class DiagnoseCounts(JobCounts):
    """What one run told; in a dry run ``untold`` alone: the groups that it would tell."""

    groups: int = 0
    messages: int = 0
    untold: int = 0


async def run(ctx: JobContext) -> DiagnoseCounts:
    """One pass over the last 24 hours. Raises what the database raises; nothing is left behind."""
    diagnosis = ctx.ports.diagnosis
    if ctx.dry_run:
        return DiagnoseCounts(untold=await diagnosis.count_untold(ctx.now))
    if ctx.deadline.reached(MARGIN_SECONDS):
        return DiagnoseCounts(leftover=True)
    try:
        told = await diagnosis.tell_missing(MAX_GROUPS, ctx.now)
    except LockTimeoutError:
        # another process tells these groups right now
        return DiagnoseCounts(leftover=True)
    return DiagnoseCounts(
        leftover=told.groups >= MAX_GROUPS, groups=told.groups, messages=told.messages
    )
