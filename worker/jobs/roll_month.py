"""Roll-up: the totals of every open billing month, recomputed; months past grace close.

One transaction per month, set-wise in SQL. Idempotent: run once, ten times, in two
processes or after weeks of silence, what is stored equals a full recomputation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.errors import LockTimeoutError, SerializationError
from worker.jobs.context import JobCounts

if TYPE_CHECKING:
    from datetime import date

    from worker.jobs.context import JobContext

LEGACY_ROWS = 1000
LEGACY_BATCHES_MAX = 100
# More open months than this (50 years) is no backlog but a wrong date.
MAX_MONTHS = 600
MARGIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RollCounts(JobCounts):
    """Months looked at and closed, rows of totals changed, changes of closed months booked.

    ``closed_early``, ``held_back``: months, as of ``MonthRolled``.
    """

    months: int = 0
    closed: int = 0
    rows: int = 0
    adjustments: int = 0
    closed_early: int = 0
    held_back: int = 0


async def run(ctx: JobContext) -> RollCounts:
    """One pass over the open months, oldest first."""
    if ctx.dry_run:
        return RollCounts(months=len(await ctx.ports.months.months_to_roll(ctx.now)))
    rolled = closed = rows = adjustments = closed_early = held_back = 0
    leftover = False
    try:
        adjustments = await ctx.ports.months.book_adjustments(ctx.now)
    except (LockTimeoutError, SerializationError):
        # one of the months is just being closed; or a deadlock's victim: the next tick does it
        leftover = True
    months = await ctx.ports.months.months_to_roll(ctx.now)
    leftover = leftover or len(months) > MAX_MONTHS
    for month in months[:MAX_MONTHS]:
        if ctx.deadline.reached(MARGIN_SECONDS):
            leftover = True
            break
        try:
            await _book_legacy(ctx, month)
            result = await ctx.ports.months.roll(month, ctx.now)
        except (LockTimeoutError, SerializationError):
            # another process rolls this month right now, or the other of a deadlock went on
            leftover = True
            continue
        rolled += 1
        rows += result.rows
        closed += result.closed
        closed_early += result.closed_early
        held_back += result.held_back
    return RollCounts(
        leftover=leftover,
        months=rolled,
        closed=closed,
        rows=rows,
        adjustments=adjustments,
        closed_early=closed_early,
        held_back=held_back,
    )


async def _book_legacy(ctx: JobContext, month: date) -> None:
    """Fold in direct writes of a month that is due to close; what stays is an adjustment later."""
    for _ in range(LEGACY_BATCHES_MAX):
        if ctx.deadline.reached(MARGIN_SECONDS):
            return
        if await ctx.ports.months.book_legacy(month, LEGACY_ROWS, ctx.now) == 0:
            return
