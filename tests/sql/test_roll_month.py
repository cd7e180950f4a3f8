"""Monthly totals: equal to a full recomputation, however often and by how many they are made."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import asyncpg
import pytest

if TYPE_CHECKING:
    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]

NOVEMBER, DECEMBER = date(2026, 11, 1), date(2026, 12, 1)
IN_NOVEMBER = datetime(2026, 11, 20, 12, tzinfo=UTC)
SUMS = (
    "SELECT tenant_id, sum(completions)::bigint, sum(input_tokens)::bigint,"
    " sum(output_tokens)::bigint, {nanos} FROM {table} WHERE {month} GROUP BY 1 ORDER BY 1"
)


async def tenant(conn: Connection, name: str, department: str | None = None) -> None:
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, department_id, daily_completions, bucket_capacity)"
        " VALUES ($1, $2, NULL, 1e9)",
        name,
        department,
    )


async def charge(conn: Connection, name: str, request: str, at: datetime, nanos: int) -> None:
    reserved = await conn.fetchrow(
        "SELECT * FROM quota_reserve($1, $2, 10, 20, 99, p_now => $3)", name, request, at
    )
    assert reserved is not None
    assert reserved["allowed"], reserved["reason"]
    await conn.execute(
        "SELECT quota_settle($1, $2, 11, 22, $3, p_now => $4)", name, request, nanos, at
    )


async def roll(conn: Connection, month: date, now: datetime) -> tuple[int, bool]:
    row = await conn.fetchrow("SELECT rows, closed FROM quota_roll_month($1, $2)", month, now)
    assert row is not None
    return row["rows"], row["closed"]


async def stored(conn: Connection) -> list[tuple[object, ...]]:
    rows = await conn.fetch("SELECT * FROM quota_monthly_totals ORDER BY 1, 2, 3, 4")
    return [tuple(row) for row in rows]


async def assert_equals_days(conn: Connection, month: date) -> None:
    days = await conn.fetch(
        SUMS.format(
            table="quota_usage",
            nanos="sum(cost_cents::numeric * 10000000 + cost_subcent_nanos)",
            month="period >= $1 AND period < ($1 + interval '1 month')::date",
        ),
        month,
    )
    totals = await conn.fetch(
        SUMS.format(table="quota_monthly_totals", nanos="sum(cost_nanos)", month="month = $1"),
        month,
    )
    assert [tuple(row) for row in totals] == [tuple(row) for row in days]
    assert days


async def test_totals_by_department_and_environment_through_a_move(conn: Connection) -> None:
    await tenant(conn, "a", "sales")
    await tenant(conn, "b")
    await charge(conn, "a", "1", IN_NOVEMBER, 15)
    await charge(conn, "a", "2", IN_NOVEMBER + timedelta(days=1), 7)
    await charge(conn, "b", "1", IN_NOVEMBER, 1)
    await conn.execute(
        "UPDATE tenant_limits SET department_id = 'ops', environment = 'test' WHERE tenant_id = 'a'"
    )
    await charge(conn, "a", "3", IN_NOVEMBER + timedelta(days=2), 100)
    # a legacy correction belongs to no request: it goes to where the tenant is now
    await conn.execute(
        "UPDATE quota_usage SET input_tokens = input_tokens + 5 WHERE tenant_id = 'a' AND period = '2026-11-20'"
    )
    assert await roll(conn, NOVEMBER, IN_NOVEMBER) == (3, False)
    rows = await conn.fetch(
        "SELECT tenant_id, department_id, environment, completions::int, input_tokens::int,"
        " output_tokens::int, cost_nanos::int, peak_day FROM quota_monthly_totals ORDER BY 1, 2"
    )
    assert [tuple(row) for row in rows] == [
        ("a", "ops", "test", 1, 16, 22, 100, date(2026, 11, 20)),
        ("a", "sales", "production", 2, 22, 44, 22, date(2026, 11, 20)),
        ("b", "", "production", 1, 11, 22, 1, date(2026, 11, 20)),
    ]
    await assert_equals_days(conn, NOVEMBER)
    # and back: the row of the department that holds nothing now goes away
    await conn.execute(
        "UPDATE tenant_limits SET department_id = 'sales', environment = 'production' WHERE tenant_id = 'a'"
    )
    await roll(conn, NOVEMBER, IN_NOVEMBER)
    await assert_equals_days(conn, NOVEMBER)


async def test_repetition_changes_nothing_and_rewrites_no_row(conn: Connection) -> None:
    for name in ("a", "b"):
        await tenant(conn, name)
        await charge(conn, name, "1", IN_NOVEMBER, 3)
    assert await roll(conn, NOVEMBER, IN_NOVEMBER) == (2, False)
    once = await stored(conn)
    for _ in range(3):
        assert await roll(conn, NOVEMBER, IN_NOVEMBER) == (0, False)
    assert await stored(conn) == once
    await charge(conn, "b", "2", IN_NOVEMBER, 4)
    assert await roll(conn, NOVEMBER, IN_NOVEMBER) == (1, False)


async def test_many_at_once_equal_one(conn: Connection, connect: Connect) -> None:
    for number in range(20):
        await tenant(conn, f"t{number}")
        await charge(conn, f"t{number}", "1", IN_NOVEMBER + timedelta(days=number % 5), number)
    others = [await connect() for _ in range(4)]
    results = await asyncio.gather(*(roll(other, NOVEMBER, IN_NOVEMBER) for other in others))
    assert sum(rows for rows, _ in results) == 20
    await assert_equals_days(conn, NOVEMBER)


async def test_a_month_closes_after_its_grace_and_is_then_frozen(conn: Connection) -> None:
    await tenant(conn, "a")
    await charge(conn, "a", "1", IN_NOVEMBER, 3)
    end = datetime(2026, 12, 1, tzinfo=UTC)
    assert await roll(conn, NOVEMBER, end + timedelta(hours=72, microseconds=-1)) == (1, False)
    assert await roll(conn, NOVEMBER, end + timedelta(hours=72)) == (1, True)
    frozen = await stored(conn)
    assert frozen[0][-4:] == (True, end + timedelta(hours=72), None, NOVEMBER)
    # late usage still corrects the day, but not the frozen month
    await conn.execute(
        "SELECT quota_settle('a', '1', 500, 500, 500, p_now => $1)", end + timedelta(days=9)
    )
    assert await conn.fetchval("SELECT input_tokens FROM quota_usage") == 500
    assert await roll(conn, NOVEMBER, end + timedelta(days=9)) == (0, True)
    # not even by a clock that went back
    assert await roll(conn, NOVEMBER, IN_NOVEMBER) == (0, True)
    assert await stored(conn) == frozen


async def test_an_open_hold_keeps_its_month_open(conn: Connection) -> None:
    await tenant(conn, "a")
    last = datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
    await conn.execute("SELECT quota_reserve('a', '1', 10, 20, 99, p_now => $1)", last)
    past_grace = last + timedelta(days=5)
    assert await roll(conn, NOVEMBER, past_grace) == (1, False)
    await conn.execute("SELECT quota_expire_stale(10, $1)", past_grace)
    assert await roll(conn, NOVEMBER, past_grace) == (1, True)
    row = await conn.fetchrow(
        "SELECT cost_nanos, stale_count, stale_cost_nanos FROM quota_monthly_totals"
    )
    assert row is not None
    assert tuple(map(int, row)) == (99, 1, 99)


async def test_usage_that_came_after_the_expiry_is_no_stale_charge(conn: Connection) -> None:
    await tenant(conn, "a")
    for request in ("lost", "late"):
        await conn.execute(
            "SELECT quota_reserve('a', $1, 10, 20, 99, p_now => $2)", request, IN_NOVEMBER
        )
    later = IN_NOVEMBER + timedelta(hours=2)
    await conn.execute("SELECT quota_expire_stale(10, $1)", later)
    await conn.execute("SELECT quota_settle('a', 'late', 1, 2, 3, p_now => $1)", later)
    await roll(conn, NOVEMBER, later)
    row = await conn.fetchrow(
        "SELECT cost_nanos, stale_count, stale_cost_nanos FROM quota_monthly_totals"
    )
    assert row is not None
    assert tuple(map(int, row)) == (102, 1, 99)


async def test_months_are_the_billing_zones_own(conn: Connection, connect: Connect) -> None:
    """Case 25: 23:59:59 and 00:00:00 in Shanghai, asked from a session in another zone."""
    await conn.execute("UPDATE quota_settings SET billing_zone = 'Asia/Shanghai'")
    other = await connect(server_settings={"timezone": "America/Los_Angeles"})
    await tenant(other, "a")
    midnight = datetime(2026, 12, 1, tzinfo=ZoneInfo("Asia/Shanghai"))
    await charge(other, "a", "1", midnight - timedelta(seconds=1), 5_000_000_000)
    await charge(other, "a", "2", midnight, 7_000_000_000)
    for month, nanos in ((NOVEMBER, 5_000_000_000), (DECEMBER, 7_000_000_000)):
        await roll(other, month, midnight)
        found = await conn.fetchval(
            "SELECT cost_nanos FROM quota_monthly_totals WHERE month = $1", month
        )
        assert found == nanos
    assert (await roll(other, NOVEMBER, midnight + timedelta(hours=72, seconds=-1)))[1] is False
    assert (await roll(other, NOVEMBER, midnight + timedelta(hours=72)))[1] is True


async def test_legacy_rows_that_went_below_zero_are_summed_as_they_are(conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens,"
        " cost_cents) VALUES ('old', '2026-11-03', 5, -7, 9223372036854775807, -2),"
        " ('old', '2026-11-04', 5, 1, 9223372036854775807, 9223372036854775807)"
    )
    await roll(conn, NOVEMBER, IN_NOVEMBER)
    row = await conn.fetchrow(
        "SELECT input_tokens, output_tokens, cost_nanos FROM quota_monthly_totals"
    )
    assert row is not None
    assert tuple(map(int, row)) == (-6, 2 * (2**63 - 1), (2**63 - 3) * 10**7)


async def test_no_first_of_a_month_is_refused(conn: Connection) -> None:
    for month in (date(2026, 11, 2), None):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await conn.fetch("SELECT * FROM quota_roll_month($1)", month)
        assert caught.value.sqlstate == "QW002"
    assert await conn.fetchval("SELECT count(*) FROM quota_months") == 0


async def test_the_peak_day_has_the_most_tokens_and_is_the_earliest_of_equals(
    conn: Connection,
) -> None:
    await conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, input_tokens, output_tokens) VALUES"
        " ('first', '2026-11-01', 9, 0), ('first', '2026-11-30', 0, 8),"
        " ('last', '2026-11-01', 3, 3), ('last', '2026-11-30', 0, 7),"
        " ('equal', '2026-11-29', 7, 0), ('equal', '2026-11-09', 3, 4),"
        " ('below', '2026-11-05', -9, 0), ('below', '2026-11-06', 0, 0)"
    )
    await roll(conn, NOVEMBER, IN_NOVEMBER)
    rows = await conn.fetch(
        "SELECT tenant_id, extract(day FROM peak_day)::int FROM quota_monthly_totals"
    )
    assert dict(map(tuple, rows)) == {"first": 1, "last": 30, "equal": 9, "below": 5}
