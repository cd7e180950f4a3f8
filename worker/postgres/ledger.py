"""The ledger's functions as the worker calls them: reconcile's port and replayed traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.models import Decision, InboxBooked, StaleEnded
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from worker.models import Ask
    from worker.postgres.queries import Queries


class PostgresLedger:
    """``Ledger`` on ``sql/queries/ledger.sql``; each method one statement, one transaction."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def expire_stale(self, limit: int, now: datetime | None) -> Sequence[StaleEnded]:
        """End at most ``limit`` overdue reservations by their tenants' policies."""
        with translated():
            rows = await self._pool.fetch(self._queries["expire_stale"], limit, now)
        return [
            StaleEnded(
                row["tenant_id"],
                row["policy"],
                row["ended"],
                row["in_tokens"],
                row["out_tokens"],
                row["cost_nanos"],
            )
            for row in rows
        ]

    async def count_overdue(self, limit: int, now: datetime | None) -> int:
        """How many reservations are overdue, counted to at most ``limit``."""
        return await self._count("count_overdue", limit, now)

    async def book_legacy(self, limit: int, now: datetime | None) -> int:
        """Fold in at most ``limit`` direct writes of legacy programs; returns how many."""
        return await self._count("book_legacy", limit, now)

    async def mirror_buckets(self, limit: int, now: datetime | None) -> int:
        """Bring at most ``limit`` rows of ``rate_buckets`` up to date; returns how many."""
        return await self._count("mirror_buckets", limit, now)

    async def book_inbox(self, limit: int, now: datetime | None) -> InboxBooked:
        """Settle at most ``limit`` rows of the usage inbox, oldest first."""
        with translated():
            row = await self._pool.fetchrow(self._queries["book_inbox"], limit, now)
        if row is None:
            raise RuntimeError("quota_book_inbox returned no row")
        return InboxBooked(row["taken"], row["booked"], row["refused"])

    async def _count(self, query: str, limit: int, now: datetime | None) -> int:
        with translated():
            count: int | None = await self._pool.fetchval(self._queries[query], limit, now)
        return count or 0


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
