"""The tick's lease, the record of runs, and the months: ports ``JobRuns`` and ``Months``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from worker.clock import utc_now
from worker.models import MonthRolled, TickLease
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date, datetime

    import asyncpg

    from worker.models import JobRun, JobSchedule
    from worker.postgres.queries import Queries

# A first roll and a closing read all requests of the month: minutes, with millions a day.
ROLL_SECONDS: Final = 1800.0


class PostgresJobRuns:
    """``JobRuns`` on ``sql/queries/jobs.sql``; each method one statement, one transaction."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def due(self, schedules: Sequence[JobSchedule], now: datetime | None) -> Sequence[str]:
        """The names of the jobs that are due, in the order given; changes nothing."""
        with translated():
            rows = await self._pool.fetch(self._queries["tick_due"], *_columns(schedules), now)
        return [row["job"] for row in rows]

    async def begin(
        self,
        owner: str,
        lease_seconds: int,
        schedules: Sequence[JobSchedule],
        now: datetime | None,
        *,
        may_idle: bool = False,
    ) -> TickLease | None:
        """Take the lease and open a run of each due job; None when another tick has it."""
        with translated():
            row = await self._pool.fetchrow(
                self._queries["tick_begin"],
                owner,
                lease_seconds,
                *_columns(schedules),
                now,
                may_idle,
            )
        if row is None or not row["granted"]:
            return None
        return TickLease(owner, row["fence"], row["lease_until"], tuple(row["due"]), row["idle"])

    async def renew(self, lease: TickLease, lease_seconds: int) -> bool:
        """Prolong the lease; False when a later tick took it."""
        with translated():
            renewed = await self._pool.fetchval(
                self._queries["tick_renew"], lease.fence, lease_seconds
            )
        return bool(renewed)

    async def record(
        self,
        lease: TickLease,
        runs: Sequence[JobRun],
        *,
        release: bool,
        now: datetime | None,
        idle: bool = False,
    ) -> int:
        """Write how jobs ended, give the lease back if ``release``; returns how many."""
        written = [
            {
                "job": run.job,
                "outcome": run.outcome,
                "counts": run.counts,
                "error": run.error,
                "seconds": run.seconds,
            }
            for run in runs
        ]
        # JSON can carry a NUL in an error's text, jsonb can't
        document = json.dumps(written).replace("\\u0000", "\\ufffd")
        with translated():
            count: int = await self._pool.fetchval(
                self._queries["tick_record"], lease.fence, document, release, now, idle
            )
        return count


class PostgresMonths:
    """``Months`` on ``sql/queries/jobs.sql``; each roll is one transaction."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        queries: Queries,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """``clock``: this machine's, aware; what closes by the clock must be over by it, too."""
        self._pool = pool
        self._queries = queries
        self._clock = clock

    async def months_to_roll(self, now: datetime | None) -> Sequence[date]:
        """First days of the months that have usage and aren't closed, oldest first."""
        with translated():
            rows = await self._pool.fetch(self._queries["months_to_roll"], now)
        return [row["month"] for row in rows]

    async def book_adjustments(self, now: datetime | None) -> int:
        """Book what changed in closed months in an open one; returns how many changes."""
        with translated():
            booked: int = await self._pool.fetchval(self._queries["book_adjustments"], now)
        return booked

    async def book_legacy(self, month: date, limit: int, now: datetime | None) -> int:
        """Fold in at most ``limit`` direct writes of a month that is due to close."""
        with translated():
            booked: int = await self._pool.fetchval(
                self._queries["book_legacy_month"], month, limit, now
            )
        return booked

    async def roll(self, month: date, now: datetime | None) -> MonthRolled:
        """Recompute one open month's totals, closing it when its grace is over."""
        with translated():
            row = await self._pool.fetchrow(
                self._queries["roll_month"], month, now, self._clock(), timeout=ROLL_SECONDS
            )
        if row is None:
            raise RuntimeError("quota_roll_month returned no row")
        return MonthRolled(month, *row.values())


def _columns(schedules: Sequence[JobSchedule]) -> tuple[list[str], list[int], list[bool]]:
    return (
        [schedule.job for schedule in schedules],
        [schedule.interval_seconds for schedule in schedules],
        [schedule.always for schedule in schedules],
    )
