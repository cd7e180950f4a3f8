"""`Warnings` and `Outbox` on sql/queries/outbox.sql; each method one statement, one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from worker.models import Claim, CrossingCounts, FailedAttempt, OutboxMessage, UntoldCrossing
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from worker.models import Delivery, SendRate
    from worker.postgres.queries import Queries


# More than one request holds: the rest is given back, and collected for the next.
DIGEST_MAX_MESSAGES: Final = 150
REPORT: Final = "roi-report"


class PostgresWarnings:
    """Decides what to tell; `routes` says whom, as the JSON text that quota_route reads."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries, routes: str) -> None:
        self._pool = pool
        self._queries = queries
        self._routes = routes

    async def decide(self, limit: int, now: datetime | None) -> CrossingCounts:
        """Log the untold crossings of at most ``limit`` subjects, with their messages."""
        with translated():
            row = await self._pool.fetchrow(self._queries["decide"], now, self._routes, limit)
        if row is None:
            raise RuntimeError("quota_soft_warn returned no row")
        return CrossingCounts(row["crossings"], row["messages"], row["superseded"], row["rearmed"])

    async def count_untold(self, now: datetime | None) -> int:
        """How many crossings ``decide`` would log now; changes nothing."""
        with translated():
            count: int | None = await self._pool.fetchval(self._queries["count_untold"], now)
        return count or 0

    async def untold(self, limit: int, now: datetime | None) -> Sequence[UntoldCrossing]:
        """At most `limit` of them, of each cap the highest threshold."""
        with translated():
            rows = await self._pool.fetch(self._queries["untold"], now, limit)
        return [UntoldCrossing(*row.values()) for row in rows]


class OutboxRules(NamedTuple):
    """What the configuration says of delivery, for SQL.

    ``served``: the channels of this worker; ``fallbacks`` and ``quiet``: JSON texts as
    quota_outbox_fail and quota_quiet read them, None for none.
    """

    served: tuple[str, ...]
    fallbacks: str | None = None
    quiet: str | None = None


class PostgresOutbox:
    """The messages on their way."""

    def __init__(
        self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries, rules: OutboxRules
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._rules = rules

    async def count_due(self, now: datetime | None) -> int:
        """How many messages wait to be sent now; changes nothing."""
        with translated():
            count: int | None = await self._pool.fetchval(
                self._queries["count_due"], now, self._rules.quiet
            )
        return count or 0

    async def due(self, now: datetime | None) -> Sequence[tuple[str, int]]:
        """How many of them on each channel."""
        with translated():
            rows = await self._pool.fetch(self._queries["due"], now, self._rules.quiet)
        return [(row["channel"], row["messages"]) for row in rows]

    async def take_slot(self, channel: str, rate: SendRate) -> float:
        """0.0 when one request may go out on the channel now, else seconds to wait."""
        with translated():
            wait_seconds: float = await self._pool.fetchval(
                self._queries["take_slot"], channel, rate.per_second, rate.per_minute
            )
        return wait_seconds

    async def claim(
        self, channel: str | None, digest_over: int | None, lease_seconds: int, now: datetime | None
    ) -> Claim | None:
        """Lease what the channel should send next, or None."""
        with translated():
            rows = await self._pool.fetch(
                self._queries["claim"],
                channel,
                list(self._rules.served),
                digest_over,
                DIGEST_MAX_MESSAGES,
                lease_seconds,
                self._rules.quiet,
                now,
            )
        if not rows:
            return None
        messages = tuple(_message(row) for row in rows)
        if messages[0].kind == REPORT:  # which is never collected with others
            messages = (await self._with_summary(messages[0]),)
        return Claim(
            messages=messages,
            lease_token=str(rows[0]["lease_token"]),
            digest_key=rows[0]["digest_key"],
            overdue=any(row["overdue"] for row in rows),
        )

    async def _with_summary(self, message: OutboxMessage) -> OutboxMessage:
        """The message with the report that its mail shows; as it is where that isn't needed."""
        with translated():
            facts: str | None = await self._pool.fetchval(
                self._queries["report_facts"], message.message_id
            )
        return message if facts is None else replace(message, facts=facts)

    async def keep(self, claim: Claim, count: int) -> str | None:
        """Keep the first `count` for one request; its id, None when they aren't ours any more."""
        with translated():
            key: str | None = await self._pool.fetchval(
                self._queries["keep"], claim.message_ids[:count], claim.lease_token
            )
        return key

    async def finish(self, claim: Claim, now: datetime | None) -> int:
        """Mark as sent; how many of them the lease still held."""
        with translated():
            finished: int = await self._pool.fetchval(
                self._queries["finish"], claim.message_ids, claim.lease_token, now
            )
        return finished

    async def fail(self, claim: Claim, delivery: Delivery, now: datetime | None) -> FailedAttempt:
        """Record a failed attempt: to be tried again, or dead and told on the fallbacks."""
        with translated():
            row = await self._pool.fetchrow(
                self._queries["fail"],
                claim.message_ids,
                claim.lease_token,
                delivery.cause,
                delivery.detail,
                delivery.retryable,
                self._rules.fallbacks,
                now,
            )
        if row is None:
            raise RuntimeError("quota_outbox_fail returned no row")
        return FailedAttempt(*row.values())


def _message(row: asyncpg.Record) -> OutboxMessage:
    return OutboxMessage(
        message_id=row["outbox_id"],
        kind=row["kind"],
        channel=row["channel"],
        severity=row["severity"],
        locale=row["locale"],
        facts=row["facts"],
        attempt=row["attempt"],
        dedupe_key=row["dedupe_key"],
        created_at=row["created_at"],
        is_fallback=row["is_fallback"],
        recipient=row["recipient"],
    )
