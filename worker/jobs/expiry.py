"""Reconcile's expiry: the few of an ordinary tick in one call, a backlog in small batches.

For a backlog it looks where many overdue reservations lie, then ends them. A look takes no
locks and orders what it finds by department and tenant, so that a batch locks few tenants for
a few milliseconds and writes few counters: a gateway's requests hardly wait, and a backlog of
any size goes at an even rate in even memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from worker.errors import (
    DatabaseError,
    DatabaseUnreachableError,
    LockTimeoutError,
    SerializationError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.jobs.context import JobContext
    from worker.models import StaleEnded

LOOK_ROWS = 50_000
BATCH_ROWS = 100
# A bound, not a target: a tick's deadline comes first.
MAX_LOOKS = 1_000
MAX_ERRORS = 10
# No batch begins with less time than this left; each waits for a lock 2 s at most.
MARGIN_SECONDS = 5.0


@dataclass(slots=True)
class ExpiryTally:
    """What one pass ended, by policy; ``leftover``: some are left for the next tick."""

    ended: dict[str, int] = field(
        default_factory=lambda: {"estimate": 0, "partial": 0, "release": 0}
    )
    lock_timeouts: int = 0
    leftover: bool = False
    errors: list[DatabaseError] = field(default_factory=list)

    def add(self, groups: Sequence[StaleEnded]) -> None:
        """What one batch ended."""
        for group in groups:
            self.ended[group.policy] += group.ended

    @property
    def total(self) -> int:
        """How many ended."""
        return sum(self.ended.values())


async def expire_overdue(ctx: JobContext, wait_seconds: int) -> ExpiryTally:
    """End what has been overdue for ``wait_seconds``, until none is left or the deadline comes.

    A batch that the database refuses is kept in ``errors`` and the others go on; raises
    DatabaseUnreachableError alone.
    """
    tally = ExpiryTally()
    try:
        for _ in range(MAX_LOOKS):
            if not await _look_and_end(ctx, wait_seconds, tally):
                return tally
    except DatabaseUnreachableError:
        raise
    except DatabaseError as error:
        tally.errors.append(error)
    tally.leftover = True
    return tally


async def _look_and_end(ctx: JobContext, wait_seconds: int, tally: ExpiryTally) -> bool:
    """One look and its batches; False when another look is of no use."""
    found = await ctx.ports.expiry.find_overdue(LOOK_ROWS, BATCH_ROWS, ctx.now, wait_seconds)
    rows, before = sum(batch.rows for batch in found), tally.total
    if wait_seconds == 0 and rows <= BATCH_ROWS and await _end_few(ctx, tally):
        tally.leftover |= tally.total - before < rows
        return False
    busy: list[str] = []
    for places in [batch.places for batch in found]:
        if _should_stop(ctx, tally):
            return False
        if not await _end(ctx, places, wait_seconds, tally, wait=False):
            busy.append(places)
    # Batches whose tenants are all locked by others come again after the rest, and wait then;
    # the first that waits in vain is the run's last: a stuck tenant may have many.
    for places in busy:
        if tally.lock_timeouts or _should_stop(ctx, tally):
            break
        await _end(ctx, places, wait_seconds, tally, wait=True)
    ended = tally.total - before
    if ended > 0 and (rows == LOOK_ROWS or (ended < rows and not tally.lock_timeouts)):
        return True
    # all that there was; or what is left for locks, faults, or another worker's pace
    tally.leftover |= ended < rows
    return False


async def _end_few(ctx: JobContext, tally: ExpiryTally) -> bool:
    """What an ordinary tick finds, in one call, asked even where a look found nothing.

    False: it met a lock or a deadlock, and the batches are to be tried.
    """
    if _should_stop(ctx, tally):
        return True
    try:
        tally.add(await ctx.ports.expiry.expire_stale(BATCH_ROWS, ctx.now))
    except (LockTimeoutError, SerializationError) as error:
        tally.lock_timeouts += isinstance(error, LockTimeoutError)
        return False
    return True


async def _end(
    ctx: JobContext, places: str, wait_seconds: int, tally: ExpiryTally, *, wait: bool
) -> bool:
    """One batch, one transaction; False when nothing ended, for the locks of others or as it is."""
    try:
        groups = await ctx.ports.expiry.expire_places(places, ctx.now, wait_seconds, wait=wait)
    except (LockTimeoutError, SerializationError) as error:
        tally.lock_timeouts += isinstance(error, LockTimeoutError)
        return False
    except DatabaseUnreachableError:
        raise
    except DatabaseError as error:
        tally.errors.append(error)
        return True
    tally.add(groups)
    return bool(groups)


def _should_stop(ctx: JobContext, tally: ExpiryTally) -> bool:
    if ctx.deadline.reached(MARGIN_SECONDS) or len(tally.errors) >= MAX_ERRORS:
        tally.leftover = True
        return True
    return False
