"""One stuck session, odd row or crossed order must not stop or spoil the work for the others."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from model.days import month_of
from sql.calls import NOON, Calls, at, several

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HUGE = 5_000_000_000_000_000_000
LARGEST = 9_223_372_036_854_775_807
TODAY = NOON.date()
INSERT = """
INSERT INTO quota_usage (tenant_id, period, input_tokens, output_tokens) VALUES ($1, $2, $3, $4)
"""


async def test_batches_of_crossed_departments_settle_without_deadlock(dsn: str) -> None:
    """Department by department in the batch's order, two such batches would wait in a ring."""
    names = [f"{side}{number}" for number in range(6) for side in "za"]
    async with several(dsn, 12) as calls:
        for side in "za":
            # near its budget all along, so that every booking locks all slots of the month
            await calls[0].department(side, monthly_tokens=4_000)
        for name in names:
            await calls[0].tenant(name, department_id=name[0])

        async def client(number: int, one: Calls) -> None:
            for step in range(10):
                pair = [f"z{number % 6}", f"a{(number + 1) % 6}"][:: 1 if number % 2 else -1]
                items = [
                    {"tenant": name, "request_id": f"{number}-{step}-{name}", "in_tokens": 10,
                     "out_tokens": 5, "cost_nanos": 7}
                    for name in pair
                ]  # fmt: skip
                await one.reserve_batch(items)
                await one.settle_batch(items)

        await asyncio.gather(*(client(number, one) for number, one in enumerate(calls)))
        for side in "za":
            used = await calls[0].department_used(
                side, "production", month_of(datetime.now(tz=UTC).date())
            )
            assert used["tokens_held"] == 0
            assert used["tokens_used"] == 12 * 10 * 15


async def test_the_inbox_of_the_others_is_booked_while_one_tenant_is_stuck(
    dsn: str, connect: Callable[[], Awaitable[asyncpg.Connection[Any]]], calls: Calls
) -> None:
    for name in ("stuck", "free"):
        await calls.tenant(name)
    for number in range(30):
        for name in ("stuck", "free"):
            await calls.conn.execute(
                "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens,"
                " cost_nanos, occurred_at) VALUES ($1, $2, 10, 5, 100, $3)",
                name,
                f"r{number}",
                NOON,
            )
    other = await connect()
    async with other.transaction():
        await Calls(other).reserve("stuck", "held", (1, 1, 1))
        row = await calls.row("SELECT * FROM quota_book_inbox(1000, $1)", NOON)
        assert (row["taken"], row["booked"]) == (30, 30)
    row = await calls.row("SELECT * FROM quota_book_inbox(1000, $1)", NOON)
    assert (row["taken"], row["booked"]) == (30, 30)


async def test_a_huge_row_by_hand_spoils_neither_booking_nor_views(calls: Calls) -> None:
    await calls.department("d")
    for name in ("bad", "worse", "worst", "good"):
        await calls.tenant(name, department_id="d")
    today = datetime.now(tz=UTC).date()
    for name in ("bad", "worse", "worst"):
        await calls.conn.execute(INSERT, name, today, HUGE, HUGE)
    await calls.conn.execute(INSERT, "good", today, 100, 100)
    for _ in range(20):
        if await calls.conn.fetchval("SELECT quota_book_legacy(1000, NULL)") == 0:
            break
    else:
        pytest.fail("direct writes were never worked off")
    good = await calls.row("SELECT * FROM quota_usage WHERE tenant_id = 'good'")
    assert (good["legacy_input_tokens"], good["booked_input_tokens"]) == (100, 100)
    rows = {r["tenant_id"]: r for r in await calls.rows("SELECT * FROM v_quota_status")}
    assert rows["good"]["daily_tokens_used"] == 200
    assert rows["bad"]["daily_tokens_used"] == LARGEST
    assert await calls.rows("SELECT * FROM v_department_status")


@pytest.mark.parametrize("column", ["input_tokens", "output_tokens", "completions"])
async def test_a_counter_at_its_end_is_refused_by_name(calls: Calls, column: str) -> None:
    await calls.tenant("t")
    assert (await calls.reserve("t"))["allowed"]
    await calls.conn.execute(f"UPDATE quota_usage SET {column} = {LARGEST} WHERE tenant_id = 't'")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await calls.reserve("t")
    assert caught.value.sqlstate == "QW002"


async def test_a_null_counter_of_an_old_table_does_not_stop_the_roll(calls: Calls) -> None:
    await calls.tenant("t")
    await calls.conn.execute("ALTER TABLE quota_usage ALTER COLUMN input_tokens DROP NOT NULL")
    await calls.conn.execute(INSERT, "t", TODAY, None, 7)
    await calls.conn.fetch("SELECT * FROM quota_roll_month($1, $2)", TODAY.replace(day=1), NOON)
    row = await calls.row("SELECT * FROM quota_monthly_totals WHERE tenant_id = 't'")
    assert (row["input_tokens"], row["output_tokens"]) == (0, 7)


async def test_expiry_takes_a_thousand_tenants_at_most_at_once(calls: Calls) -> None:
    """More would fill the lock table that all sessions share."""
    await calls.conn.execute(
        "INSERT INTO tenant_limits (tenant_id) SELECT 't' || i FROM generate_series(1, 1200) i"
    )
    await calls.conn.execute(
        "SELECT count(*) FROM tenant_limits l,"
        " LATERAL quota_reserve(l.tenant_id, 'r', 1, 1, 1, p_now => $1) r",
        NOON,
    )
    later = NOON + timedelta(hours=1)
    ended = [
        len(await calls.rows("SELECT * FROM quota_expire_stale(100000, $1)", later))
        for _ in range(3)
    ]
    assert ended == [1000, 200, 0]


@pytest.mark.parametrize("moment", ["1999-12-31T23:59:59", "2200-01-02T00:00:00"])
async def test_a_time_that_is_no_time_is_refused(calls: Calls, moment: str) -> None:
    await calls.tenant("t")
    await calls.department("d")
    for call in (
        calls.reserve("t", now=at(moment)),
        calls.settle("t", "r", (1, 1, 1), now=at(moment)),
        calls.expire(now=at(moment)),
    ):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await call
        assert caught.value.sqlstate == "QW002"
    assert await calls.conn.fetchval("SELECT count(*) FROM quota_usage") == 0


async def test_the_tutorials_reader_needs_a_right_to_the_view_alone(calls: Calls) -> None:
    await calls.tenant("t", daily_completions=4)
    await calls.conn.execute("CREATE ROLE only_the_view")
    try:
        await calls.conn.execute("GRANT USAGE ON SCHEMA public TO only_the_view")
        await calls.conn.execute("GRANT SELECT ON v_quota_status TO only_the_view")
        await calls.conn.execute("SET ROLE only_the_view")
        row = await calls.row("SELECT * FROM v_quota_status")
        assert (row["completions_cap"], row["completions_pct"]) == (4, 0)
    finally:
        await calls.conn.execute("RESET ROLE")
        await calls.conn.execute("DROP OWNED BY only_the_view; DROP ROLE only_the_view")


async def test_a_first_request_waits_for_a_top_up_under_way(
    connect: Callable[[], Awaitable[asyncpg.Connection[Any]]], calls: Calls
) -> None:
    """Its band would else be drawn without the allowance, and keep calling the month a warning."""
    await calls.department("d", monthly_tokens=10_000)
    await calls.tenant("t", department_id="d")
    other = await connect()
    transaction = other.transaction()
    await transaction.start()
    await Calls(other).top_up("d", 100_000, None, "k", NOON + timedelta(days=1))
    first = asyncio.create_task(calls.reserve("t", amounts=(8_000, 0, 0)))
    await asyncio.sleep(0.3)
    await transaction.commit()
    assert (await first)["allowed"]
    assert (await calls.reserve("t", amounts=(1, 0, 0)))["tier"] == "normal"
