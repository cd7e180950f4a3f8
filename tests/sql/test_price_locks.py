"""quota_price_unpriced waits for nobody with a tenant in hand: no ring with a batch that takes them in order."""

from __future__ import annotations

import asyncio

import pytest

from sql.calls import NOON, Calls, several

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))"
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def until_waiting(calls: Calls, count: int) -> None:
    async with asyncio.timeout(5):
        while await calls.conn.fetchval(WAITING) < count:  # noqa: ASYNC110  others' locks tell nobody
            await asyncio.sleep(0.005)


@pytest.fixture
async def names(dsn: str) -> list[str]:
    """Two tenants, the first by the order of the locks first; the first's usage has a price by now."""
    async with several(dsn, 1) as (calls,):
        rows = await calls.rows(
            "SELECT t FROM unnest('{a,c}'::text[]) t ORDER BY hashtextextended(t, 1)"
        )
        first, last = (row["t"] for row in rows)
        for name in (first, last):
            await calls.tenant(name)
        for number in range(20):
            await calls.settle(first, f"r{number}", (10, 5, None), model="known")
        await calls.settle(last, "r", (10, 5, None), model="unknown")
        await calls.rows("UPDATE quota_unpriced SET tried_at = '-infinity'")
        await calls.rows(
            "INSERT INTO quota_prices (origin, model, currency, input, output)"
            " VALUES ('file', 'known', 'USD', 1, 1)"
        )
        return [first, last]


async def test_no_second_tenant_is_waited_for(dsn: str, names: list[str]) -> None:
    first, last = names
    async with several(dsn, 5) as (holds_first, holds_last, pricing, batch, other):
        mine = holds_first.conn.transaction()
        theirs = holds_last.conn.transaction()
        await mine.start()
        await theirs.start()
        await holds_first.conn.execute(LOCK, first)
        await holds_last.conn.execute(LOCK, last)
        priced = asyncio.create_task(
            pricing.row("SELECT * FROM quota_price_unpriced(1000, $1)", NOON)
        )
        await until_waiting(other, 1)
        decided = asyncio.create_task(
            batch.reserve_batch(
                [
                    {
                        "tenant": name,
                        "request_id": "new",
                        "in_tokens": 1,
                        "out_tokens": 1,
                        "cost_nanos": 1,
                    }
                    for name in names
                ]
            )
        )
        await until_waiting(other, 2)
        await theirs.rollback()
        await mine.rollback()
        assert [row["reason"] for row in await decided] == ["ok", "ok"]
        await priced
        # whom it left out, for the batch had it, comes at the next call
        await pricing.row("SELECT * FROM quota_price_unpriced(1000, $1)", NOON)
        left = await other.rows("SELECT tenant_id FROM quota_unpriced")
        assert [row["tenant_id"] for row in left] == [last]
