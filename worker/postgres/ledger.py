"""The ledger's functions as reconcile calls them: ports ``Ledger`` and ``Expiry``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.models import InboxBooked, OverdueBatch, StaleEnded, UnpricedWorked, Waiting
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries


class PostgresLedger:
    """``Ledger`` and ``Expiry`` on ``sql/queries/ledger.sql``; each method one transaction."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def expire_stale(self, limit: int, now: datetime | None) -> Sequence[StaleEnded]:
        """End the oldest, at most ``limit``, by their tenants' policies."""
        with translated():
            rows = await self._pool.fetch(self._queries["expire_stale"], limit, now)
        return [_ended(row) for row in rows]

    async def find_overdue(
        self, limit: int, batch_rows: int, now: datetime | None, wait_seconds: int
    ) -> Sequence[OverdueBatch]:
        """The oldest, at most ``limit``, overdue for ``wait_seconds``; in batches by tenant."""
        with translated():
            rows = await self._pool.fetch(
                self._queries["find_overdue"], limit, batch_rows, now, wait_seconds
            )
        return [OverdueBatch(row["places"], row["rows"]) for row in rows]

    async def expire_places(
        self, places: str, now: datetime | None, wait_seconds: int, *, wait: bool
    ) -> Sequence[StaleEnded]:
        """End one batch by its tenants' policies, of those that aren't locked by others."""
        with translated():
            rows = await self._pool.fetch(
                self._queries["expire_places"], places, now, wait_seconds, wait
            )
        return [_ended(row) for row in rows]

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

    async def price_unpriced(self, limit: int, now: datetime | None) -> UnpricedWorked:
        """Price at most ``limit`` requests whose price is known by now."""
        with translated():
            row = await self._pool.fetchrow(self._queries["price_unpriced"], limit, now)
        if row is None:
            raise RuntimeError("quota_price_unpriced returned no row")
        return UnpricedWorked(row["worked"], row["priced"])

    async def _count(self, query: str, limit: int, now: datetime | None) -> int:
        with translated():
            count: int | None = await self._pool.fetchval(self._queries[query], limit, now)
        return count or 0


class PostgresOutlook:
    """``Outlook`` on ``sql/queries/ledger.sql``; changes nothing."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def waiting(self, limit: int, now: datetime | None) -> Waiting:
        """How much a run would find, each counted to ``limit``."""
        with translated():
            row = await self._pool.fetchrow(self._queries["count_waiting"], limit, now)
        if row is None:
            raise RuntimeError("count_waiting returned no row")
        return Waiting(row["overdue"], row["inbox"], row["priceable"])

    async def others_ask(self, hours: int, now: datetime | None) -> bool:
        """Whether something is overdue, and sources were asked within the last ``hours``."""
        with translated():
            asked: bool = await self._pool.fetchval(self._queries["others_ask"], hours, now)
        return asked


def _ended(row: asyncpg.Record) -> StaleEnded:
    return StaleEnded(
        row["tenant_id"],
        row["policy"],
        row["ended"],
        row["in_tokens"],
        row["out_tokens"],
        row["cost_nanos"],
    )
