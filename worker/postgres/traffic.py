"""The ledger's functions as a gateway calls them, for replays: port ``Traffic``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.postgres.errors import translated
from worker.traffic import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries
    from worker.traffic import Ask


class PostgresTraffic:
    """``Traffic``: the calls a gateway makes, for replays."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def reserve(self, ask: Ask, now: datetime | None) -> Decision:
        """Ask for admission of one request."""
        with translated():
            row = await self._pool.fetchrow(
                self._queries["reserve"],
                ask.tenant_id,
                ask.request_id,
                ask.in_tokens,
                ask.out_tokens,
                ask.cost_nanos,
                ask.model,
                ask.app,
                ask.priority,
                now,
            )
        if row is None:
            raise RuntimeError("quota_reserve returned no row")
        return Decision(
            row["allowed"],
            row["reason"],
            row["observed_reason"],
            row["replayed"],
            row["tier"],
            row["model"],
        )

    async def progress(self, ask: Ask, out_tokens: int, now: datetime | None) -> str:
        """Tell how much was streamed; returns the outcome."""
        with translated():
            outcome: str = await self._pool.fetchval(
                self._queries["progress"], ask.tenant_id, ask.request_id, out_tokens, now
            )
        return outcome

    async def settle(
        self, ask: Ask, in_tokens: int, out_tokens: int, cost_nanos: int, now: datetime | None
    ) -> str:
        """Post the usage; returns the outcome."""
        return await self._end("settle", ask, (in_tokens, out_tokens, cost_nanos), now)

    async def release(
        self, ask: Ask, in_tokens: int, out_tokens: int, cost_nanos: int, now: datetime | None
    ) -> str:
        """Give up, stating what was consumed; returns the outcome."""
        return await self._end("release", ask, (in_tokens, out_tokens, cost_nanos), now)

    async def missing_tenants(self, tenants: Sequence[str]) -> Sequence[str]:
        """Those of ``tenants`` that have no limits, sorted."""
        with translated():
            rows = await self._pool.fetch(self._queries["missing_tenants"], list(tenants))
        return [row["tenant_id"] for row in rows]

    async def create_tenants(self, tenants: Sequence[str]) -> None:
        """Add tenants with the default limits; those that exist stay as they are."""
        with translated():
            await self._pool.execute(self._queries["create_tenants"], list(tenants))

    async def lanes(self, tenants: Sequence[str]) -> dict[str, str]:
        """Which pool each tenant shares with others: its department's, else its own."""
        with translated():
            rows = await self._pool.fetch(self._queries["lanes"], list(tenants))
        return {row["tenant_id"]: row["lane"] for row in rows}

    async def _end(
        self, query: str, ask: Ask, amounts: tuple[int, int, int], now: datetime | None
    ) -> str:
        with translated():
            outcome: str = await self._pool.fetchval(
                self._queries[query], ask.tenant_id, ask.request_id, *amounts, now
            )
        return outcome
