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
    from worker.models import ReportDue, ReportFault

BATCH_REPORTS = 100  # one look at the database each
MAX_BATCHES = 1_000
MARGIN_SECONDS = 20.0
FAULTS_TOLD = 20  # in the log, the first


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
    due = built = messages = 0
    faults: list[ReportFault] = []
    after: ReportDue | None = None
    leftover = True
    for _ in range(MAX_BATCHES):
        if ctx.deadline.reached(MARGIN_SECONDS):
            break
        found = await reports.due(BATCH_REPORTS, after, ctx.now)
        if not found:
            leftover = False
            break
        month = found[0].month
        batch = list(takewhile(lambda one: one.month == month, found))  # noqa: B023  used at once
        done = await reports.build(month, [one.department_id for one in batch], ctx.now)
        due += len(batch)
        built += done.built
        messages += done.messages
        faults += done.faults
        after = batch[-1]
    return ReportCounts(
        leftover=leftover,
        failed=len(faults),
        failures=tuple(faults[:FAULTS_TOLD]),
        due=due,
        built=built,
        messages=messages,
    )
