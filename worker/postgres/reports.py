"""Reads for people: who is hot. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.postgres.errors import translated
from worker.status_report import HourRow, RefusalRow, StatusReport, StatusRow, SubjectDetail

if TYPE_CHECKING:
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries

ALL_ROWS = 2_147_483_647


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
        with translated():
            rows = await self._pool.fetch(self._queries["status_rows"], top or ALL_ROWS, subject)
            deployment = await self._pool.fetchrow(self._queries["status_deployment"])
            outbox = await self._pool.fetch(self._queries["outbox_counts"])
        if deployment is None:
            raise RuntimeError("quota_settings has no row")
        return StatusReport(
            at=deployment["at"],
            billing_zone=deployment["billing_zone"],
            currency=deployment["currency"],
            subjects=rows[0]["subjects"] if rows else 0,
            rows=tuple(_row(row) for row in rows),
            last_tick_at=deployment["last_tick_at"],
            failed_jobs=tuple(deployment["failed_jobs"]),
            outbox=tuple((row["state"], row["messages"]) for row in outbox),
            details=tuple([await self._detail(row, deployment["at"]) for row in rows])
            if subject is not None
            else (),
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


def _row(row: asyncpg.Record) -> StatusRow:
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
    )
