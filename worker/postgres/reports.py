"""Reads for people: who is hot. Changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from worker.postgres.errors import translated
from worker.status_report import (
    BlockRow,
    HourRow,
    RefusalRow,
    Standing,
    StatusReport,
    StatusRow,
    SubjectDay,
    SubjectDetail,
    TickState,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries

ALL_ROWS = 2_147_483_647
# The 24 hours of more rows would be the whole table's: nobody reads so many sparklines.
HOURS_MAX_ROWS: Final = 1_000
MAX_BLOCKS: Final = 1_000
# Cron's usual five minutes, as of the jobs' slots; a tick is late after twice as long.
TICK_SECONDS: Final = 300


class PostgresReports:
    """``sql/queries/status.sql``; one read each, no transaction across them."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def status(self, top: int | None, subject: str | None = None) -> StatusReport:
        """The ``top`` worst subjects (None: all), and how the worker itself is doing.

        ``subject``: only the tenant and the department of this name, with details; none has
        it: no rows.
        """
        standing = await self.standing()
        at = standing.at
        with translated():
            tenants = [subject] if subject is not None else await self._tenants(top, standing)
            rows = await self._rows(top, subject, standing, None, tenants)
            hours = await self._hours(rows, at)
            outbox = await self._pool.fetch(self._queries["outbox_counts"])
            waiting_since = await self._pool.fetchval(self._queries["outbox_oldest"])
            blocks = await self._pool.fetch(self._queries["status_blocks"], MAX_BLOCKS, subject, at)
        return StatusReport(
            at=at,
            billing_zone=standing.billing_zone,
            currency=standing.currency,
            subjects=rows[0]["subjects"] or len(rows) if rows else 0,
            rows=tuple(_row(row, day) for row, day in zip(rows, hours, strict=True)),
            tick=standing.tick,
            outbox=tuple((row["state"], row["messages"]) for row in outbox),
            waiting_since=waiting_since,
            details=tuple([await self._detail(row, at) for row in rows])
            if subject is not None
            else (),
            blocks=tuple(BlockRow(*row) for row in blocks),
        )

    async def standing(self) -> Standing:
        """The clock, the billing calendar, and how the latest tick went."""
        with translated():
            row = await self._pool.fetchrow(self._queries["status_deployment"])
        if row is None:
            raise RuntimeError("quota_settings has no row")
        return Standing(
            at=row["at"],
            today=row["today"],
            month=row["month"],
            next_month=row["next_month"],
            billing_zone=row["billing_zone"],
            currency=row["currency"],
            tick=_tick(row),
        )

    async def worst_tenants(self, top: int) -> tuple[StatusRow, ...]:
        """The ``top`` worst tenants alone, without their last 24 hours."""
        standing = await self.standing()
        with translated():
            tenants = await self._tenants(top, standing)
            rows = await self._rows(top, None, standing, "tenant", tenants)
        return tuple(_row(row, None) for row in rows)

    async def _rows(
        self,
        top: int | None,
        subject: str | None,
        standing: Standing,
        kind: str | None,
        tenants: list[str],
    ) -> list[asyncpg.Record]:
        return await self._pool.fetch(
            self._queries["status_rows"],
            top or ALL_ROWS,
            subject,
            standing.at,
            standing.today,
            standing.next_month,
            kind,
            tenants,
        )

    async def _tenants(self, top: int | None, standing: Standing) -> list[str]:
        """Among these are the ``top`` worst tenants: by their day, and by their month.

        Of the month only those are looked at that could come before the last of the day's.
        """
        limit = top or ALL_ROWS
        async with self._pool.acquire() as connection, connection.transaction(readonly=True):
            await connection.fetch(self._queries["status_memory"])
            by_day = await connection.fetch(
                self._queries["status_day_worst"], limit, standing.today
            )
            if len(by_day) < limit:
                return [row["tenant_id"] for row in by_day]  # all of them
            by_month = await connection.fetch(
                self._queries["status_month_worst"],
                limit,
                float(by_day[-1]["pct"] or 0),
                standing.month,
                standing.next_month,
            )
        return list({row["tenant_id"]: None for row in (*by_day, *by_month)})

    async def _hours(
        self, rows: Sequence[asyncpg.Record], at: datetime
    ) -> tuple[SubjectDay | None, ...]:
        """The last 24 hours of the rows, in order; of too many for one look, None each."""
        if len(rows) > HOURS_MAX_ROWS:
            return (None,) * len(rows)
        columns = [
            [row[name] for row in rows]
            for name in ("kind", "subject", "environment", "dimension", "used", "cap", "resets_at")
        ]
        found = await self._pool.fetch(self._queries["status_hours"], *columns, at)
        return tuple(
            SubjectDay(tuple(row["hours"]), row["observed"], row["expected_at"]) for row in found
        )

    async def similar_names(self, name: str) -> list[str]:
        """Tenants and departments whose names may be meant by ``name``, at most 5000."""
        with translated():
            rows = await self._pool.fetch(self._queries["similar_names"], name)
        return [row["name"] for row in rows]

    async def names_like(self, pattern: str) -> list[str]:
        """Tenants and departments whose names fit a regular expression, at most 50."""
        with translated():
            rows = await self._pool.fetch(self._queries["names_like"], pattern)
        return [row["name"] for row in rows]

    async def _detail(self, row: asyncpg.Record, at: datetime) -> SubjectDetail:
        key = (row["kind"], row["subject"], row["environment"], at)
        with translated():
            hour = await self._pool.fetch(self._queries["last_hour"], *key)
            refusals = await self._pool.fetch(self._queries["refusals_today"], *key)
        return SubjectDetail(
            kind=row["kind"],
            subject=row["subject"],
            environment=row["environment"],
            last_hour=tuple(HourRow(*one) for one in hour),
            refusals=tuple(RefusalRow(*one) for one in refusals),
        )


def _tick(deployment: asyncpg.Record) -> TickState:
    last_at: datetime | None = deployment["last_tick_at"]
    interval = timedelta(seconds=TICK_SECONDS)
    return TickState(
        last_at=last_at,
        next_at=None if last_at is None else last_at + interval,
        late=last_at is not None and deployment["at"] > last_at + 2 * interval,
        running=deployment["ticking"],
        failed=tuple(deployment["failed_jobs"]),
        unfinished=tuple(deployment["unfinished_jobs"]),
        interrupted=tuple(deployment["interrupted_jobs"]),
    )


def _row(row: asyncpg.Record, day: SubjectDay | None) -> StatusRow:
    return StatusRow(
        kind=row["kind"],
        subject=row["subject"],
        environment=row["environment"],
        department_id=row["department_id"],
        dimension=row["dimension"],
        used=row["used"],
        cap=row["cap"],
        pct=row["pct"],
        tier=row["tier"],
        enforce=row["enforce"],
        bucket_tokens=row["bucket_tokens"],
        bucket_capacity=row["bucket_capacity"],
        holds=row["holds"],
        refusals=row["refusals"],
        resets_at=row["resets_at"],
        day=day,
    )
