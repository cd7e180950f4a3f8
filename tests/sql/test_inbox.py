"""The usage inbox: booked once, in any order, nothing lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

if TYPE_CHECKING:
    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]


@pytest.fixture(autouse=True)
async def tenants(conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, bucket_capacity)"
        " SELECT 't' || n, NULL, 1e9 FROM generate_series(1, 5) AS n"
    )


async def leave(
    conn: Connection,
    tenant: str,
    request: str,
    tokens: int = 5,
    cost: int | None = 9,
    usage: str | None = None,
) -> None:
    await conn.execute(
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, usage_id, input_tokens,"
        " output_tokens, cost_nanos) VALUES ($1, $2, $3, $4, $4, $5)",
        tenant,
        request,
        usage,
        tokens,
        cost,
    )


async def book(conn: Connection, limit: int = 1000) -> tuple[int, int, int]:
    row = await conn.fetchrow("SELECT taken, booked, refused FROM quota_book_inbox($1)", limit)
    assert row is not None
    return tuple(row)


async def outcomes(conn: Connection) -> list[str | None]:
    rows = await conn.fetch("SELECT outcome FROM quota_usage_inbox ORDER BY inbox_id")
    return [row["outcome"] for row in rows]


async def test_matches_reservations_before_and_after_their_expiry(conn: Connection) -> None:
    await conn.execute("SELECT quota_reserve('t1', 'open', 50, 60, 70)")
    await conn.execute(
        "SELECT quota_reserve('t1', 'stale', 50, 60, 70, p_now => clock_timestamp() - interval '2 h')"
    )
    await conn.execute("SELECT quota_expire_stale(10)")
    await leave(conn, "t1", "open")
    await leave(conn, "t1", "stale")
    await leave(conn, "t1", "never-reserved")
    await leave(conn, "t1", "open")
    assert await book(conn) == (4, 4, 0)
    assert await outcomes(conn) == ["settled", "corrected", "unreserved", "replayed"]
    row = await conn.fetchrow(
        "SELECT sum(completions)::int, sum(input_tokens)::int, sum(held_input_tokens)::int,"
        " sum(cost_subcent_nanos)::int FROM quota_usage"
    )
    assert row is not None
    assert tuple(row) == (3, 15, 0, 27)
    assert await book(conn) == (0, 0, 0)


async def test_usage_of_unknown_cost_is_marked_unpriced(conn: Connection) -> None:
    await conn.execute("SELECT quota_reserve('t1', 'r', 50, 50, 100)")
    await leave(conn, "t1", "r", tokens=5, cost=None)
    assert await book(conn) == (1, 1, 0)
    row = await conn.fetchrow("SELECT charged_cost_nanos, unpriced FROM quota_reservations")
    assert row is not None
    assert tuple(row) == (10, True)


async def test_what_cannot_be_booked_stays_with_its_reason_and_spoils_nothing(
    conn: Connection,
) -> None:
    await leave(conn, "t1", "r", usage="u")
    await leave(conn, "t1", "r", usage="u", tokens=6)
    await leave(conn, "t1", "r2", tokens=-1)
    await leave(conn, "nobody", "r")
    await leave(conn, "t2", "r")
    assert await book(conn) == (5, 2, 3)
    assert await outcomes(conn) == ["unreserved", "conflict", "invalid", "invalid", "unreserved"]


async def test_any_name_the_ledger_takes_is_a_batch_models_name(conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, bucket_capacity) VALUES ('own', NULL, 10)"
    )
    await conn.execute(
        "INSERT INTO quota_prices (origin, model, processing, currency, input, output)"
        " VALUES ('file', 'gpt', 'batch', 'USD', 1, 1), ('file', repeat('m', 200), 'batch', 'USD', 2, 2)"
    )
    await conn.execute("SELECT quota_reserve('own', 'held', 1, 1, 1, repeat('m', 200))")
    await conn.execute(
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens, model, processing)"
        " SELECT 'own', r, 1000, 0, m, 'batch' FROM (VALUES ('held', NULL), ('long', repeat('M', 200)),"
        " ('upper', 'GPT:BATCH'), ('mixed', 'GPT:Batch'), ('plain', 'GPT'), ('over', repeat('m', 201))) v (r, m)"
    )
    assert await book(conn) == (6, 5, 1)
    assert await outcomes(conn) == ["settled", *["unreserved"] * 4, "invalid"]
    rows = await conn.fetch("SELECT request_id, charged_cost_nanos FROM quota_reservations")
    costs = {"held": 2_000_000, "long": 2_000_000}
    costs |= dict.fromkeys(("upper", "mixed", "plain"), 1_000_000)
    assert dict(map(tuple, rows)) == costs
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 0


async def test_two_runs_side_by_side_book_each_row_once(conn: Connection, connect: Connect) -> None:
    for number in range(200):
        await leave(conn, f"t{number % 5 + 1}", f"r{number}")
    others = [await connect() for _ in range(4)]

    async def drain(other: Connection) -> int:
        total = 0
        for _ in range(100):
            taken, _, _ = await book(other, 20)
            if taken == 0:
                return total
            total += taken
        raise AssertionError("the inbox never ran empty")

    assert sum(await asyncio.gather(*(drain(other) for other in others))) == 200
    assert await conn.fetchval("SELECT sum(completions) FROM quota_usage") == 200
    assert await conn.fetchval("SELECT sum(input_tokens) FROM quota_usage") == 1000
