"""roi_report: builds the reports of closed months, and queues their mails.

Each report is stored with its mails in one transaction, once per department and month; where
outcomes were imported since, as a new revision if its figures changed. What was missed is
caught up once. Delivery is another job.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from worker.jobs.context import JobCounts

if TYPE_CHECKING:
    from worker.jobs.context import JobContext
    from worker.models import ReportDue

BATCH_REPORTS = 100  # one look at the database each
MAX_BATCHES = 1_000
MARGIN_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ReportCounts(JobCounts):
    """What one run did; in a dry run ``due`` alone. ``failed``: reports that can't be built."""

    due: int = 0
    built: int = 0
    messages: int = 0


async def run(ctx: JobContext) -> ReportCounts:
    """One pass over the reports that are due, the oldest month first."""
    reports = ctx.ports.reports
    if reports is None:
        return ReportCounts()
    if ctx.dry_run:
        return ReportCounts(due=await reports.count_due(ctx.now))
    due = built = messages = failed = 0
    after: ReportDue | None = None
    for _ in range(MAX_BATCHES):
        if ctx.deadline.reached(MARGIN_SECONDS):
            break
        found = await reports.due(BATCH_REPORTS, after, ctx.now)
        if not found:
            return ReportCounts(due=due, built=built, messages=messages, failed=failed)
        month = found[0].month
        batch = list(takewhile(lambda one: one.month == month, found))  # noqa: B023  used at once
        done = await reports.build(month, [one.department_id for one in batch], ctx.now)
        due += len(batch)
        built += done.built
        messages += done.messages
        failed += len(done.faults)
        after = batch[-1]
    return ReportCounts(leftover=True, due=due, built=built, messages=messages, failed=failed)
