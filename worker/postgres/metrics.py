"""Reads for ``quota-worker metrics``. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.metrics_facts import (
    AlertFacts,
    BacklogFacts,
    ChannelFacts,
    JobFacts,
    MetricFacts,
    OpenFacts,
    PoolFacts,
    RequestFacts,
    UsedFacts,
)
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    import asyncpg

    from worker.postgres.queries import Queries
    from worker.postgres.reports import PostgresReports

# Series are bounded, whatever the names of departments, models and apps.
POOLS_MAX: Final = 1_000
NAMES_MAX: Final = 20


class PostgresMetrics:
    """``sql/queries/metrics.sql``, with the reads of ``status``; no transaction across them."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        queries: Queries,
        reports: PostgresReports,
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._reports = reports

    async def look(self, jobs: Sequence[str], top: int) -> MetricFacts:
        """The facts, with the ``top`` worst tenants (0: no pass over tenants' rows) and ``jobs``.

        Raises what reads raise, see `translated`.
        """
        standing = await self._reports.standing()
        at = standing.at
        pools = await self._rows("metric_departments", POOLS_MAX)
        (held,) = await self._rows("metric_open", at)
        (backlog,) = await self._rows("metric_backlog")
        tenants = await self._rows("metric_tenants")
        requests = await self._rows("metric_requests", at, NAMES_MAX)
        refusals = await self._rows("metric_refusals", standing.today)
        return MetricFacts(
            at=at,
            currency=standing.currency,
            tick=standing.tick,
            pools=tuple(PoolFacts(*tuple(row)[:-1]) for row in pools),
            pools_known=pools[0]["pools"] if pools else 0,
            tenants=tuple((row["enforce"], row["tenants"]) for row in tenants),
            worst=await self._reports.worst_tenants(top) if top else None,
            used=await self._used(standing.today) if top else None,
            open=OpenFacts(*held),
            requests=tuple(RequestFacts(*row) for row in requests),
            refusals=tuple((row["reason"], row["refusals"]) for row in refusals),
            alerts=tuple(AlertFacts(*row) for row in await self._rows("metric_alerts", at)),
            channels=tuple(ChannelFacts(*row) for row in await self._rows("metric_outbox")),
            jobs=tuple(JobFacts(*row) for row in await self._rows("metric_jobs", list(jobs), at)),
            backlog=BacklogFacts(*backlog),
        )

    async def _used(self, today: date) -> UsedFacts:
        (row,) = await self._rows("metric_used", today)
        return UsedFacts(*row)

    async def _rows(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        with translated():
            return await self._pool.fetch(self._queries[query], *arguments)
