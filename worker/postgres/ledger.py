"""The ledger's functions as reconcile calls them: port ``Ledger``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.models import InboxBooked, StaleEnded
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries


class PostgresLedger:
    """``Ledger`` on ``sql/queries/ledger.sql``; each method one statement, one transaction."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def expire_overdue(
        self, limit: int, now: datetime | None, wait_seconds: int = 0
    ) -> Sequence[StaleEnded]:
        """End at most ``limit`` overdue for ``wait_seconds``, by their tenants' policies."""
        with translated():
            if wait_seconds == 0:
                rows = await self._pool.fetch(self._queries["expire_stale"], limit, now)
            else:
                rows = await self._pool.fetch(
                    self._queries["expire_overdue"], limit, now, wait_seconds
                )
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

    async def price_unpriced(self, limit: int, now: datetime | None) -> int:
        """Price at most ``limit`` requests whose price is known by now; returns how many."""
        return await self._count("price_unpriced", limit, now)

    async def _count(self, query: str, limit: int, now: datetime | None) -> int:
        with translated():
            count: int | None = await self._pool.fetchval(self._queries[query], limit, now)
        return count or 0
