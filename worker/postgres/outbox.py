"""`Warnings` and `Outbox` on sql/queries/outbox.sql; each method one statement, one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.models import CrossingCounts, FailedAttempt, OutboxMessage
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from worker.models import Delivery, SendRate
    from worker.postgres.queries import Queries


class PostgresWarnings:
    """Decides what to tell; `channels` are those that each message goes to."""

    def __init__(
        self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries, channels: Sequence[str]
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._channels = list(channels)

    async def decide(self, limit: int, now: datetime | None) -> CrossingCounts:
        """Log the untold crossings of at most ``limit`` subjects, with their messages."""
        with translated():
            row = await self._pool.fetchrow(self._queries["decide"], now, self._channels, limit)
        if row is None:
            raise RuntimeError("quota_soft_warn returned no row")
        return CrossingCounts(row["crossings"], row["messages"], row["superseded"], row["rearmed"])

    async def count_untold(self, now: datetime | None) -> int:
        """How many crossings ``decide`` would log now; changes nothing."""
        with translated():
            count: int | None = await self._pool.fetchval(self._queries["count_untold"], now)
        return count or 0


class PostgresOutbox:
    """The messages on their way."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def count_due(self, now: datetime | None) -> int:
        """How many messages wait to be sent now; changes nothing."""
        with translated():
            count: int | None = await self._pool.fetchval(self._queries["count_due"], now)
        return count or 0

    async def take_slot(self, channel: str, rate: SendRate) -> float:
        """0.0 when one request may go out on the channel now, else seconds to wait."""
        with translated():
            wait_seconds: float = await self._pool.fetchval(
                self._queries["take_slot"], channel, rate.per_second, rate.per_minute
            )
        return wait_seconds

    async def claim(
        self, channel: str | None, served: Sequence[str], lease_seconds: int, now: datetime | None
    ) -> OutboxMessage | None:
        """Lease the channel's most urgent due message, or None."""
        with translated():
            row = await self._pool.fetchrow(
                self._queries["claim"], channel, list(served), 1, lease_seconds, now
            )
        if row is None:
            return None
        return OutboxMessage(
            message_id=row["outbox_id"],
            lease_token=str(row["lease_token"]),
            kind=row["kind"],
            channel=row["channel"],
            severity=row["severity"],
            locale=row["locale"],
            facts=row["facts"],
            attempt=row["attempt"],
            dedupe_key=row["dedupe_key"],
            created_at=row["created_at"],
            is_fallback=row["is_fallback"],
        )

    async def finish(self, message: OutboxMessage, now: datetime | None) -> bool:
        """Mark as sent; False when the lease was lost meanwhile."""
        with translated():
            finished: bool = await self._pool.fetchval(
                self._queries["finish"], message.message_id, message.lease_token, now
            )
        return finished

    async def fail(
        self, message: OutboxMessage, delivery: Delivery, fallback: str | None, now: datetime | None
    ) -> FailedAttempt:
        """Record a failed attempt: to be tried again, or dead and told on ``fallback``."""
        with translated():
            row = await self._pool.fetchrow(
                self._queries["fail"],
                message.message_id,
                message.lease_token,
                delivery.cause,
                delivery.detail,
                delivery.retryable,
                fallback,
                now,
            )
        if row is None:
            raise RuntimeError("quota_outbox_fail returned no row")
        return FailedAttempt(row["outcome"], row["wait_seconds"] or 0.0, row["told"])
