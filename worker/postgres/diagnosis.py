"""The port ``Diagnosis``, and the read behind ``estimates``, on sql/queries/diagnosis.sql."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.models import MissingTold
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from datetime import datetime

    import asyncpg

    from worker.estimates_report import EstimatesAsked, EstimatesReport
    from worker.postgres.queries import Queries
    from worker.settings import DiagnosisSettings

ALL_ROWS = 2_147_483_647


class PostgresDiagnosis:
    """Tells which requests come without usage; `routes` says whom, as quota_route reads it."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        queries: Queries,
        routes: str,
        settings: DiagnosisSettings,
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._routes = routes
        self._settings = settings

    async def tell_missing(self, limit: int, now: datetime | None) -> MissingTold:
        """Tell at most ``limit`` groups in one message; none where it is switched off."""
        if self._settings.off:
            return MissingTold(0, 0)
        with translated():
            row = await self._pool.fetchrow(
                self._queries["diagnose"],
                now,
                self._routes,
                self._settings.missing_pct,
                self._settings.min_requests,
                limit,
            )
        if row is None:
            raise RuntimeError("quota_diagnose returned no row")
        return MissingTold(row["groups"], row["messages"])

    async def count_untold(self, now: datetime | None) -> int:
        """How many groups ``tell_missing`` would tell now; changes nothing."""
        if self._settings.off:
            return 0
        with translated():
            count: int | None = await self._pool.fetchval(
                self._queries["count_missing_untold"],
                now,
                self._settings.missing_pct,
                self._settings.min_requests,
            )
        return count or 0


class PostgresEstimates:
    """How far estimates lie from usage; one read, changes nothing."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def report(self, asked: EstimatesAsked) -> EstimatesReport:
        """The worst groups first, at most ``asked.top`` of them."""
        from worker.estimates_report import FEWEST, EstimateRow, EstimatesReport

        with translated():
            rows = await self._pool.fetch(
                self._queries["estimates"],
                asked.days,
                asked.model,
                asked.by,
                FEWEST,
                asked.top or ALL_ROWS,
            )
        return EstimatesReport(
            asked=asked,
            groups=rows[0]["groups"] if rows else 0,
            rows=tuple(EstimateRow(*list(row.values())[:-1]) for row in rows),
        )
