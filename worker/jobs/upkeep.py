"""upkeep: removes rows by age that nobody needs any more, batch by batch.

Each batch is one transaction of the ledger's own and remembers where it stopped, so that a
run that ends early, or dies, is taken up by the next. What may go and why: docs/upkeep.md.
Safe beside itself and beside gateways; idempotent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from worker.errors import DatabaseError, DatabaseUnreachableError, LockTimeoutError
from worker.jobs.context import JobCounts

if TYPE_CHECKING:
    from worker.jobs.context import JobContext

# The tenants of a batch are locked until its commit. At least 300: quota_upkeep refuses less.
BATCH_ROWS: Final = 500
# A dry run counts no further, in each table.
COUNT_ROWS: Final = 10_000
# Gateways share the disk and the processor: it rests so many times as long as a batch took.
REST_TIMES: Final = 3
REST_SECONDS_MAX: Final = 0.2
# Of a tick's 240 s and of five minutes: what is left is taken up by the next tick.
RUN_SECONDS: Final = 90.0
MARGIN_SECONDS: Final = 5.0
# A bound, not a target: the seconds end first.
MAX_BATCHES: Final = 100_000


class Swept(NamedTuple):
    """A table, the count that its rows go to, and the setting that says how long they stay."""

    table: str
    counted: str
    keeps: str


TABLES: Final = (
    Swept("quota_outbox", "messages", "message_days"),
    Swept("quota_warn_log", "alerts", "alert_days"),
    Swept("job_runs", "runs", "run_days"),
    Swept("quota_source_asks", "notes", "request_days"),
    Swept("quota_source_faults", "notes", "request_days"),
    Swept("quota_missing_told", "notes", "note_days"),
    Swept("quota_watch_told", "notes", "note_days"),
    Swept("quota_paces", "notes", "note_days"),
    Swept("quota_day_parts", "notes", "request_days"),
    Swept("quota_refusal_counts", "refusals", "request_days"),
    Swept("quota_usage_inbox", "inbox", "request_days"),
    # the largest last
    Swept("quota_reservations", "requests", "request_days"),
)


@dataclass(frozen=True, slots=True)
class UpkeepCounts(JobCounts):
    """Rows removed, in a dry run those that would be, each table's counted to ``COUNT_ROWS``."""

    requests: int = 0
    inbox: int = 0
    refusals: int = 0
    messages: int = 0
    alerts: int = 0
    runs: int = 0
    notes: int = 0


async def run(ctx: JobContext) -> UpkeepCounts:
    """One pass over all tables; what the database refuses of one is raised after the others."""
    upkeep = ctx.ports.upkeep
    ends_at = ctx.monotonic() + RUN_SECONDS
    counts: Counter[str] = Counter()
    errors: list[DatabaseError] = []
    leftover = False
    if upkeep.off:
        return UpkeepCounts()
    for one in TABLES:
        try:
            if ctx.dry_run:
                counts[one.counted] += await upkeep.count(one.table, one.keeps, COUNT_ROWS, ctx.now)
                continue
            removed, done = await _sweep(ctx, one, ends_at)
        except DatabaseUnreachableError:
            raise
        except DatabaseError as error:
            errors.append(error)
        else:
            counts[one.counted] += removed
            leftover |= not done
    if errors:
        raise errors[0]
    return UpkeepCounts(
        leftover=leftover,
        requests=counts["requests"],
        inbox=counts["inbox"],
        refusals=counts["refusals"],
        messages=counts["messages"],
        alerts=counts["alerts"],
        runs=counts["runs"],
        notes=counts["notes"],
    )


async def _sweep(ctx: JobContext, one: Swept, ends_at: float) -> tuple[int, bool]:
    """How many rows of a table were removed, and whether its end was reached."""
    total = 0
    for _ in range(MAX_BATCHES):
        began = ctx.monotonic()
        if began >= ends_at or ctx.deadline.reached(MARGIN_SECONDS):
            return total, False
        try:
            batch = await ctx.ports.upkeep.remove(one.table, one.keeps, BATCH_ROWS, ctx.now)
        except LockTimeoutError:
            return total, False
        total += batch.removed
        if batch.done:
            return total, True
        if batch.removed:
            await ctx.sleep(min(REST_TIMES * (ctx.monotonic() - began), REST_SECONDS_MAX))
    return total, False
