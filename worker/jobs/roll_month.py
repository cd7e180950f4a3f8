"""Roll-up: the totals of every open billing month, recomputed; months past grace close.

One transaction per month, set-wise in SQL. Idempotent: run once, ten times, in two
processes or after weeks of silence, what is stored equals a full recomputation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.errors import LockTimeoutError
from worker.jobs.context import JobCounts

if TYPE_CHECKING:
    from worker.jobs.context import JobContext

# More open months than this (50 years) is no backlog but a wrong date.
MAX_MONTHS = 600
MARGIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RollCounts(JobCounts):
    """Months looked at and closed, rows of totals written or changed."""

    months: int = 0
    closed: int = 0
    rows: int = 0


async def run(ctx: JobContext) -> RollCounts:
    """One pass over the open months, oldest first."""
    months = await ctx.ports.months.months_to_roll(ctx.now)
    if ctx.dry_run:
        return RollCounts(months=len(months))
    rolled = closed = rows = 0
    leftover = len(months) > MAX_MONTHS
    for month in months[:MAX_MONTHS]:
        if ctx.deadline.reached(MARGIN_SECONDS):
            leftover = True
            break
        try:
            result = await ctx.ports.months.roll(month, ctx.now)
        except LockTimeoutError:
            # another process rolls this month right now
            leftover = True
            continue
        rolled += 1
        rows += result.rows
        closed += result.closed
    return RollCounts(leftover=leftover, months=rolled, closed=closed, rows=rows)
