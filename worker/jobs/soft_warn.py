"""soft_warn: finds who passed a threshold and writes the messages; delivery is another job.

All of it is decided in one SQL function, one transaction per batch of subjects, exactly
once whoever else runs it. Idempotent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.jobs.context import JobCounts

if TYPE_CHECKING:
    from worker.jobs.context import JobContext

BATCH_SUBJECTS = 10_000
# A bound, not a target: 1,000,000 subjects in one tick.
MAX_BATCHES = 100
MARGIN_SECONDS = 10.0
SHOWN_UNTOLD = 100  # of a dry run, by name


@dataclass(frozen=True, slots=True)
class SoftWarnCounts(JobCounts):
    """What one pass did; in a dry run ``untold`` alone: the crossings it would log."""

    crossings: int = 0
    messages: int = 0
    superseded: int = 0
    rearmed: int = 0
    untold: int = 0


async def run(ctx: JobContext) -> SoftWarnCounts:
    """Log and tell every untold crossing; leaves the rest when the deadline comes.

    Raises what the database raises; a batch that failed left nothing behind.
    """
    if ctx.dry_run:
        found = await ctx.ports.warnings.untold(SHOWN_UNTOLD, ctx.now)
        return SoftWarnCounts(
            untold=await ctx.ports.warnings.count_untold(ctx.now),
            would=tuple(
                f"tell {one.subject_kind} {one.subject} ({one.environment}): "
                f"{one.dimension} of the {one.period_kind} at {one.threshold} %"
                for one in found
            ),
        )
    crossings = messages = superseded = rearmed = 0
    for _ in range(MAX_BATCHES):
        if ctx.deadline.reached(MARGIN_SECONDS):
            break
        batch = await ctx.ports.warnings.decide(BATCH_SUBJECTS, ctx.now)
        crossings += batch.crossings
        messages += batch.messages
        superseded += batch.superseded
        rearmed += batch.rearmed
        # A full batch has at least one crossing per subject.
        if batch.crossings < BATCH_SUBJECTS:
            return SoftWarnCounts(
                crossings=crossings, messages=messages, superseded=superseded, rearmed=rearmed
            )
    return SoftWarnCounts(
        leftover=True,
        crossings=crossings,
        messages=messages,
        superseded=superseded,
        rearmed=rearmed,
    )
