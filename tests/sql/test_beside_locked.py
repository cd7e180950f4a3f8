"""A tenant that somebody has locked, or one's hopeless rows, however many, hold up nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest

from sql.calls import NOON, Calls
from sql.priced import assert_sums, put, row

if TYPE_CHECKING:
    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]

# requests of no estimate that wait for the price of as many models
HOPELESS = """
WITH made AS (
    INSERT INTO quota_reservations (tenant_id, request_id, state, period, environment, estimated_in_tokens,
        estimated_out_tokens, estimated_cost_nanos, charged_in_tokens, charged_out_tokens, charged_cost_nanos,
        unpriced, ttl_seconds, admitted_at, expires_at, ended_at, model)
    SELECT $1, 'x' || to_char(n, 'FM0000'), 'settled', $3, 'production', 0, 0, 0, 0, 0, 0, true, 0, $4, $4, $4, 'nobody' || n % $5
    FROM generate_series(1, $2) n RETURNING *)
INSERT INTO quota_unpriced (tenant_id, request_id, model, reason, since)
SELECT m.tenant_id, m.request_id, m.model, 'unknown_model', m.ended_at FROM made m
"""


async def hopeless(conn: Connection, tenant: str, rows: int, models: int) -> None:
    await conn.execute(HOPELESS, tenant, rows, NOON.date(), NOON, models)


async def price(conn: Connection) -> tuple[int, int]:
    found = await conn.fetchrow("SELECT worked, priced FROM quota_price_unpriced(1000, $1)", NOON)
    assert found is not None
    return tuple(found)


async def test_prices_are_given_beside_a_tenant_with_many_rows_that_is_locked(
    conn: Connection, connect: Connect
) -> None:
    calls = Calls(conn)
    for name in ("a", "b"):
        await calls.tenant(name)
    await hopeless(conn, "a", 1200, 1)
    await put(conn, model="nobody0", input=1, output=1)
    await calls.settle("b", "r", (1000, 0, None), model="m")
    await put(conn, input=1)
    other = await connect()
    async with other.transaction():
        await Calls(other).reserve("a", "held")
        assert await price(conn) == (1, 1)
        assert await row(conn, "r") == (1_000_000, False, None)
        await conn.execute("SET lock_timeout = '10ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await conn.execute(
                "ALTER FUNCTION quota_price_unpriced SET lock_timeout = '10ms'; SELECT quota_price_unpriced()"
            )
    assert [await price(conn) for _ in range(6)] == [(250, 250)] * 4 + [(200, 200), (0, 0)]
    assert await conn.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_thousands_that_have_no_price_hide_none_that_has(conn: Connection) -> None:
    calls = Calls(conn)
    await calls.tenant("a")
    await calls.tenant("b")
    await hopeless(conn, "a", 5200, 700)
    await calls.settle("b", "r", (1000, 0, None), model="m")
    await put(conn, input=1)
    worked = [await price(conn) for _ in range(3)]
    assert [priced for _, priced in worked] == [0, 1, 0]
    assert sum(each for each, _ in worked) == 5201
    assert await row(conn, "r") == (1_000_000, False, None)
    for table in ("quota_unpriced", "quota_reservations"):
        await conn.execute(f"DELETE FROM {table} WHERE request_id > 'x0700'")
    # a price that begins later, and one that needs a rate, are prices that a model has
    await put(conn, model="nobody1", input=1, output=1, valid_from=NOON.replace(year=2030))
    await put(conn, model="nobody2", input=1, output=1, currency="CNY")
    await put(conn, model="nobody3", input=None, output=None, cached_input=None)
    while (await price(conn))[0]:
        pass
    told = await conn.fetch(
        "SELECT DISTINCT model, reason FROM quota_unpriced"
        " WHERE model IN ('nobody1', 'nobody2', 'nobody3') ORDER BY 1"
    )
    reasons = [each["reason"] for each in told]
    assert reasons == ["unknown_model", "no_rate", "unknown_model"]
    await put(conn, model="nobody1", input=1, output=1)
    assert (await price(conn))[1] == 1
    await assert_sums(conn)


async def test_the_inbox_is_booked_beside_a_tenant_with_many_rows_that_is_locked(
    conn: Connection, connect: Connect
) -> None:
    calls = Calls(conn)
    for name in ("a", "b"):
        await calls.tenant(name)
    leave = (
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens, cost_nanos)"
        " SELECT $1, 'r' || n, 1, 1, 1 FROM generate_series(1, $2) n"
    )
    await conn.execute(leave, "a", 20_001)
    await conn.execute(leave, "b", 2)
    book = "SELECT taken, booked FROM quota_book_inbox(1000, $1)"
    other = await connect()
    async with other.transaction():
        await Calls(other).reserve("a", "held")
        assert await calls.row(book, NOON) == {"taken": 2, "booked": 2}
    assert await calls.figures("b") == (2, 2, 2, 2)
    assert await calls.row(book, NOON) == {"taken": 1000, "booked": 1000}
