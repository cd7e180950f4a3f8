"""The ledger's side of usage sources: ports ``SourceLedger`` and ``SourceFaults``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from worker.postgres.errors import translated
from worker.usage import OverdueRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries
    from worker.usage import SourceFault, ToldUsage


MAX_SOURCES: Final = 100


class PostgresSourceLedger:
    """``SourceLedger`` on ``sql/queries/sources.sql``; each method one transaction."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def begin(self, now: datetime | None) -> datetime:
        """Clear what earlier runs noted; the time at which this one begins."""
        begun: datetime = await self._value("begin_asking", now)
        return begun

    async def due(
        self,
        since: datetime,
        before: datetime | None,
        limit: int,
        now: datetime | None,
        *,
        again: bool,
    ) -> Sequence[OverdueRequest]:
        """At most ``limit`` overdue reservations to ask for next; changes nothing."""
        with translated():
            rows = await self._pool.fetch(
                self._queries["due_reservations"], again, since, before, limit, now
            )
        return [
            OverdueRequest(row["tenant_id"], row["request_id"], row["expires_at"]) for row in rows
        ]

    async def note_asked(self, requests: Sequence[OverdueRequest], now: datetime | None) -> None:
        """Note that these were asked for, and have no usage so far."""
        tenants = [one.tenant_id for one in requests]
        await self._value("note_asked", tenants, [one.request_id for one in requests], now)

    async def settle(
        self, source: str, usages: Sequence[ToldUsage], now: datetime | None, *, keep: bool
    ) -> Sequence[str]:
        """Settle at most 1,000 usages; their outcomes, in order."""
        document = json.dumps([_element(usage) for usage in usages])
        with translated():
            rows = await self._pool.fetch(self._queries["settle_told"], source, document, keep, now)
        return [row["outcome"] for row in rows]

    async def set_aside(
        self, source: str, faults: Sequence[SourceFault], now: datetime | None
    ) -> None:
        """Keep at most 1,000 faults by name."""
        document = [
            {
                "tenant": fault.tenant_id,
                "request_id": fault.request_id,
                "reason": fault.reason,
                "excerpt": fault.excerpt,
            }
            for fault in faults
        ]
        await self._value("set_aside", source, json.dumps(document), now)

    async def take_slot(self, source: str, per_second: int, wait_seconds: float) -> float | None:
        """The seconds until one request may go out; None: more than ``wait_seconds``."""
        wait: float | None = await self._value("source_slot", source, per_second, wait_seconds)
        return wait

    async def _value(self, query: str, *arguments: object) -> Any:  # noqa: ANN401  as the column
        with translated():
            return await self._pool.fetchval(self._queries[query], *arguments)


class PostgresSourceFaults:
    """What was set aside, for people."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def newest(self, source: str | None, limit: int) -> list[dict[str, Any]]:
        """At most ``limit`` rows of ``quota_source_faults``, newest first; None: of all."""
        with translated():
            rows = await self._pool.fetch(self._queries["source_faults"], source, limit)
        return [dict(row) for row in rows]

    async def sources(self) -> list[str]:
        """The sources of which something is set aside, at most 100."""
        with translated():
            rows = await self._pool.fetch(self._queries["fault_sources"], MAX_SOURCES)
        return [row["source"] for row in rows]


def _element(usage: ToldUsage) -> dict[str, object]:
    """As ``quota_source_settle`` reads it; a cost is exact as a text."""
    return {
        "tenant": usage.tenant_id,
        "request_id": usage.request_id,
        "usage_id": usage.usage_id,
        "in_tokens": usage.in_tokens,
        "out_tokens": usage.out_tokens,
        "cached_in_tokens": usage.cached_in_tokens,
        "cost": None if usage.cost is None else format(usage.cost, "f"),
        "currency": usage.currency,
        "model": usage.model,
    }
