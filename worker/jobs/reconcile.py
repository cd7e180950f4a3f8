"""Reconcile: what callers left behind is booked, batch by batch, until none is left.

Order: usage that waits in the inbox (so that it comes before the policy), usage that the
configured sources know, reservations whose time ran out, direct writes of legacy programs,
usage that waited for its price, the mirror of the buckets. Each batch is one transaction of
the ledger's own; none is held across batches. Safe beside itself and beside gateways;
idempotent.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.errors import (
    DatabaseError,
    DatabaseUnreachableError,
    LockTimeoutError,
    SerializationError,
)
from worker.jobs.context import JobCounts
from worker.jobs.expiry import MARGIN_SECONDS, expire_overdue
from worker.jobs.usage_sources import AskedTally, ask_sources
from worker.settings import WAIT_MINUTES_MAX
from worker.usage import SourcesNotSet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.jobs.context import JobContext

BATCH_ROWS = 1000
# A batch that met a locked row, or a deadlock, is tried again smaller, so that what lies
# before that row still gets through; then it waits for the next tick.
RETRY_ROWS = (BATCH_ROWS, 100, 10)
RETRY_WAIT_SECONDS = 0.2
# The mirror looks at every bucket to find those that moved, whatever the batch's size.
MIRROR_ROWS_EACH = 100
# So long after the last asking a process without sources takes it that others have them.
ASKED_WITHIN_HOURS = 24
NOT_SET = (
    SourcesNotSet(
        f"usage sources were asked in the last {ASKED_WITHIN_HOURS} hours, and this process has "
        f"none: what is overdue for less than {WAIT_MINUTES_MAX} minutes is left to those that do",
        "call quota-worker with the schedule's configuration (--config, or its variables); if the "
        f"sources were taken out, this ends {ASKED_WITHIN_HOURS} hours after the last asking",
    ),
)
# A bound, not a target: a tick's deadline comes first (1,000,000 rows are 1,000 batches).
MAX_BATCHES = 20_000


@dataclass(frozen=True, slots=True)
class ReconcileCounts(JobCounts):
    """What one pass did; in a dry run the first three alone, each counted to ``BATCH_ROWS``."""

    overdue: int = 0
    inbox_waiting: int = 0
    priceable: int = 0
    expired_estimate: int = 0
    expired_partial: int = 0
    expired_release: int = 0
    inbox_booked: int = 0
    inbox_refused: int = 0
    source_asked: int = 0
    source_settled: int = 0
    source_set_aside: int = 0
    source_failed: int = 0
    legacy_booked: int = 0
    priced: int = 0
    buckets_mirrored: int = 0
    lock_timeouts: int = 0


class _Drain:
    """Repeats one kind of batch until it finds nothing, the deadline or a lock."""

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx
        self.leftover = False
        self.lock_timeouts = 0
        self.errors: list[DatabaseError] = []

    async def run(self, batch: Callable[[int], Awaitable[int]]) -> int:
        """Sum of the batches' counts; a batch answers how many rows it worked off.

        A refusal by the database ends this kind of batch and is kept in ``errors``, so
        that a fault of one kind doesn't keep the others from being worked off.
        """
        try:
            return await self._until_done(batch)
        except DatabaseUnreachableError:
            raise
        except DatabaseError as error:
            self.errors.append(error)
            return 0

    async def expire(self, wait_seconds: int) -> dict[str, int]:
        """End what is overdue; how many by policy."""
        tally = await expire_overdue(self._ctx, wait_seconds)
        self.leftover |= tally.leftover
        self.lock_timeouts += tally.lock_timeouts
        self.errors += tally.errors
        return tally.ended

    async def ask(self) -> AskedTally:
        """Ask the usage sources; a refusal by the ledger's database as of ``run``."""
        tally = AskedTally()
        try:
            await ask_sources(self._ctx, tally)
        except (LockTimeoutError, SerializationError):
            # what wasn't asked waits for the next tick
            tally.lock_timeouts += 1
        except DatabaseUnreachableError:
            raise
        except DatabaseError as error:
            self.errors.append(error)
        self.lock_timeouts += tally.lock_timeouts
        return tally

    async def lacks_sources(self) -> bool:
        """Whether what is overdue should be left to sources that this process knows nothing of.

        It may lack the schedule's configuration: typed by hand, or in another crontab.
        """
        if self._ctx.ports.asking is not None:
            return False
        try:
            return await self._ctx.ports.outlook.others_ask(ASKED_WITHIN_HOURS, self._ctx.now)
        except DatabaseUnreachableError:
            raise
        except DatabaseError as error:
            self.errors.append(error)
            return True

    async def _until_done(self, batch: Callable[[int], Awaitable[int]]) -> int:
        total = 0
        for _ in range(MAX_BATCHES):
            if self._ctx.deadline.reached(MARGIN_SECONDS):
                self.leftover = True
                return total
            done = await self._attempt(batch)
            if done is None:
                self.leftover = True
                return total
            if done == 0:
                return total
            total += done
        self.leftover = True
        return total

    async def _attempt(self, batch: Callable[[int], Awaitable[int]]) -> int | None:
        """One batch, smaller at each retry; None when its rows stay locked."""
        for attempt, rows in enumerate(RETRY_ROWS):
            try:
                return await batch(rows)
            except (LockTimeoutError, SerializationError) as error:
                # a deadlock's victim waits as well: the other went on
                self.lock_timeouts += isinstance(error, LockTimeoutError)
                await asyncio.sleep(RETRY_WAIT_SECONDS * (attempt + 1))
        return None


async def run(ctx: JobContext) -> ReconcileCounts:
    """One pass; a kind of batch that the database refuses is raised after the others ran."""
    ledger = ctx.ports.ledger
    drain = _Drain(ctx)
    if ctx.dry_run:
        found = await ctx.ports.outlook.waiting(BATCH_ROWS, ctx.now)
        not_set = NOT_SET if await drain.lacks_sources() else ()
        return ReconcileCounts(
            overdue=found.overdue,
            inbox_waiting=found.inbox,
            priceable=found.priceable,
            failures=not_set,
        )

    inbox = {"booked": 0, "refused": 0}

    async def book_inbox(rows: int) -> int:
        batch = await ledger.book_inbox(rows, ctx.now)
        inbox["booked"] += batch.booked
        inbox["refused"] += batch.refused
        return batch.taken

    async def book_legacy(rows: int) -> int:
        return await ledger.book_legacy(rows, ctx.now)

    priced = 0

    async def price(rows: int) -> int:
        nonlocal priced
        batch = await ledger.price_unpriced(rows, ctx.now)
        priced += batch.priced
        return batch.worked

    async def mirror(rows: int) -> int:
        return await ledger.mirror_buckets(rows * MIRROR_ROWS_EACH, ctx.now)

    await drain.run(book_inbox)
    told = await drain.ask()
    asking, not_set = ctx.ports.asking, NOT_SET if await drain.lacks_sources() else ()
    # those that are overdue for less wait for the sources' answer, here or in another process
    wait_seconds = 60 * WAIT_MINUTES_MAX if not_set else 0
    expired = await drain.expire(wait_seconds if asking is None else asking.wait_seconds)
    legacy = await drain.run(book_legacy)
    await drain.run(price)
    mirrored = await drain.run(mirror)
    if drain.errors:
        raise drain.errors[0]
    return ReconcileCounts(
        leftover=drain.leftover,
        expired_estimate=expired["estimate"],
        expired_partial=expired["partial"],
        expired_release=expired["release"],
        inbox_booked=inbox["booked"],
        inbox_refused=inbox["refused"],
        source_asked=told.asked,
        source_settled=told.settled,
        source_set_aside=told.set_aside,
        source_failed=told.failed,
        failures=(*told.failures(), *not_set),
        legacy_booked=legacy,
        priced=priced,
        buckets_mirrored=mirrored,
        lock_timeouts=drain.lock_timeouts,
    )
