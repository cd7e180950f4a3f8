"""Corrections of closed months: frozen totals stay, and the open month has a row that names the month."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from sql.calls import Calls

if TYPE_CHECKING:
    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]

OCTOBER, NOVEMBER, DECEMBER = date(2026, 10, 1), date(2026, 11, 1), date(2026, 12, 1)
IN_OCTOBER = datetime(2026, 10, 20, 12, tzinfo=UTC)
IN_NOVEMBER = datetime(2026, 11, 20, 12, tzinfo=UTC)
GRACE = timedelta(hours=72)
NOVEMBER_CLOSES = datetime(2026, 12, 1, tzinfo=UTC) + GRACE
OCTOBER_CLOSES = datetime(2026, 11, 1, tzinfo=UTC) + GRACE


async def roll(conn: Connection, now: datetime) -> None:
    """As the job does: what changed in closed months, then every open month."""
    await conn.execute("SELECT quota_book_adjustments($1)", now)
    months = await conn.fetch(
        "SELECT DISTINCT date_trunc('month', period)::date AS m FROM quota_usage"
        " UNION SELECT booked_month FROM quota_adjustments WHERE booked_month IS NOT NULL ORDER BY 1"
    )
    for row in months:
        await conn.execute("SELECT quota_book_legacy_month($1, 1000, $2)", row["m"], now)
        await conn.execute("SELECT quota_roll_month($1, $2)", row["m"], now)


async def totals(conn: Connection) -> dict[tuple[date, date, str], tuple[int, int, int, int]]:
    rows = await conn.fetch(
        "SELECT month, belongs_to, department_id, sum(completions)::bigint AS n, sum(input_tokens)::bigint AS i,"
        " sum(output_tokens)::bigint AS o, sum(cost_nanos)::bigint AS c"
        " FROM quota_monthly_totals GROUP BY 1, 2, 3"
    )
    return {
        (row["month"], row["belongs_to"], row["department_id"]): (
            row["n"],
            row["i"],
            row["o"],
            row["c"],
        )
        for row in rows
    }


async def assert_totals_are_the_days(conn: Connection) -> None:
    """By the month that it belongs to, every charge is in the totals exactly once."""
    sums = "{0}, sum(completions), sum(input_tokens), sum(output_tokens), sum({1})"
    totalled = await conn.fetch(
        f"SELECT {sums.format('belongs_to AS m', 'cost_nanos')} FROM quota_monthly_totals GROUP BY 1 ORDER BY 1"
    )
    days = await conn.fetch(
        "SELECT "
        + sums.format(
            "date_trunc('month', period)::date AS m",
            "cost_cents::numeric * 10000000 + cost_subcent_nanos",
        )
        + " FROM quota_usage GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in totalled] == [tuple(row) for row in days]


@pytest.fixture
async def calls(conn: Connection) -> Calls:
    calls = Calls(conn, IN_NOVEMBER)
    await calls.tenant("t", department_id="sales")
    return calls


async def used(calls: Calls, request: str, now: datetime, amounts: tuple[int, int, int]) -> None:
    assert (await calls.reserve("t", request, amounts, now=now))["allowed"]
    await calls.settle("t", request, amounts, now=now)


async def test_a_correction_after_the_closing_is_a_row_of_the_open_month(
    conn: Connection, calls: Calls
) -> None:
    await used(calls, "r", IN_NOVEMBER, (10, 5, 100))
    await roll(conn, NOVEMBER_CLOSES)
    frozen = await totals(conn)
    assert frozen == {(NOVEMBER, NOVEMBER, "sales"): (1, 10, 5, 100)}
    late = NOVEMBER_CLOSES + timedelta(hours=1)
    await calls.settle("t", "r", (17, 3, 250), now=late)
    for _ in range(2):
        await roll(conn, late + timedelta(minutes=5))
        assert await totals(conn) == {
            **frozen,
            (DECEMBER, NOVEMBER, "sales"): (0, 7, -2, 150),
        }
    # another, which takes the first one back
    await calls.settle("t", "r", (10, 5, 100), now=late + timedelta(days=1))
    await roll(conn, late + timedelta(days=1, minutes=5))
    assert await totals(conn) == frozen
    assert (await calls.usage("t", IN_NOVEMBER.date()))["input_tokens"] == 10


async def test_a_correction_within_the_grace_belongs_to_its_month(
    conn: Connection, calls: Calls
) -> None:
    await used(calls, "r", IN_NOVEMBER, (10, 5, 100))
    await calls.settle("t", "r", (11, 6, 101), now=NOVEMBER_CLOSES - timedelta(hours=2))
    await roll(conn, NOVEMBER_CLOSES)
    await roll(conn, NOVEMBER_CLOSES + timedelta(hours=1))
    assert await totals(conn) == {(NOVEMBER, NOVEMBER, "sales"): (1, 11, 6, 101)}
    assert await conn.fetchval("SELECT count(*) FROM quota_adjustments") == 0


async def test_an_adjustment_is_frozen_with_the_month_that_has_it(
    conn: Connection, calls: Calls
) -> None:
    await used(calls, "r", IN_OCTOBER, (10, 5, 100))
    await roll(conn, OCTOBER_CLOSES)
    await calls.settle("t", "r", (20, 5, 100), now=IN_NOVEMBER)
    # nobody rolled for weeks: November is still open, and gets what came in November
    await roll(conn, NOVEMBER_CLOSES)
    await calls.settle("t", "r", (30, 5, 100), now=NOVEMBER_CLOSES + timedelta(hours=3))
    await roll(conn, NOVEMBER_CLOSES + timedelta(hours=4))
    assert await totals(conn) == {
        (OCTOBER, OCTOBER, "sales"): (1, 10, 5, 100),
        (NOVEMBER, OCTOBER, "sales"): (0, 10, 0, 0),
        (DECEMBER, OCTOBER, "sales"): (0, 10, 0, 0),
    }
    await assert_totals_are_the_days(conn)


async def test_what_a_release_or_an_expiry_let_go_is_charged_to_its_month_later(
    conn: Connection, calls: Calls
) -> None:
    await calls.reserve("t", "r", (10, 5, 100), now=IN_NOVEMBER)
    await calls.release("t", "r", now=IN_NOVEMBER)
    await calls.reserve("t", "e", (10, 5, 100), now=IN_NOVEMBER)
    await calls.expire(now=IN_NOVEMBER + timedelta(hours=1))
    await roll(conn, NOVEMBER_CLOSES)
    late = NOVEMBER_CLOSES + timedelta(days=2)
    for request in ("r", "e"):
        await calls.settle("t", request, (3, 2, 40), now=late)
    await roll(conn, late)
    assert await totals(conn) == {
        (NOVEMBER, NOVEMBER, "sales"): (1, 10, 5, 100),
        # a completion comes back with the release's usage; the expiry's estimate is corrected
        (DECEMBER, NOVEMBER, "sales"): (1, 3 - 7, 2 - 3, 40 - 60),
    }
    await assert_totals_are_the_days(conn)


async def test_the_department_of_admission_gets_the_adjustment(
    conn: Connection, calls: Calls
) -> None:
    await used(calls, "r", IN_NOVEMBER, (10, 5, 100))
    await roll(conn, NOVEMBER_CLOSES)
    await conn.execute("UPDATE tenant_limits SET department_id = 'support'")
    late = NOVEMBER_CLOSES + timedelta(hours=1)
    await calls.settle("t", "r", (11, 5, 100), now=late)
    await used(calls, "new", late, (1, 1, 1))
    await roll(conn, late)
    assert await totals(conn) == {
        (NOVEMBER, NOVEMBER, "sales"): (1, 10, 5, 100),
        (DECEMBER, NOVEMBER, "sales"): (0, 1, 0, 0),
        (DECEMBER, DECEMBER, "support"): (1, 1, 1, 1),
    }


@pytest.mark.parametrize("folded", [True, False])
async def test_direct_writes_count_once_whether_the_closing_saw_them_or_not(
    conn: Connection, calls: Calls, *, folded: bool
) -> None:
    await used(calls, "r", IN_NOVEMBER, (10, 5, 100))
    write = "UPDATE quota_usage SET input_tokens = input_tokens + 7 WHERE tenant_id = 't'"
    if folded:
        await conn.execute(write)
    await roll(conn, NOVEMBER_CLOSES)
    if not folded:
        await conn.execute(write)
    later = NOVEMBER_CLOSES + timedelta(hours=1)
    await conn.execute("SELECT quota_book_legacy(1000, $1)", later)
    await roll(conn, later)
    expected: dict[Any, Any] = {(NOVEMBER, NOVEMBER, "sales"): (1, 17 if folded else 10, 5, 100)}
    if not folded:
        expected[DECEMBER, NOVEMBER, "sales"] = (0, 7, 0, 0)
    assert await totals(conn) == expected
    await assert_totals_are_the_days(conn)


async def test_a_direct_write_of_a_month_long_closed_is_an_adjustment_too(
    conn: Connection, calls: Calls
) -> None:
    await used(calls, "r", IN_OCTOBER, (10, 5, 100))
    await roll(conn, OCTOBER_CLOSES)
    later = NOVEMBER_CLOSES + timedelta(hours=1)
    await roll(conn, later)
    await conn.execute("UPDATE quota_usage SET output_tokens = output_tokens + 7, cost_cents = 1")
    await conn.execute("SELECT quota_book_legacy(1000, $1)", later)
    await roll(conn, later)
    assert await totals(conn) == {
        (OCTOBER, OCTOBER, "sales"): (1, 10, 5, 100),
        (DECEMBER, OCTOBER, "sales"): (0, 0, 7, 10_000_000),
    }
    await assert_totals_are_the_days(conn)


async def test_a_correction_that_races_the_closing_is_in_the_totals_or_an_adjustment(
    conn: Connection, connect: Connect
) -> None:
    """Closing and correction begin at once, in many rounds: never lost, never twice."""
    calls = Calls(conn)
    other = Calls(await connect())
    for number in range(20):
        tenant = f"t{number}"
        month = date(2020 + number // 12, 1 + number % 12, 1)
        day = datetime(month.year, month.month, 15, tzinfo=UTC)
        late = day + timedelta(days=40)
        await calls.tenant(tenant)
        await calls.reserve(tenant, "r", (10, 5, 100), now=day)
        await calls.settle(tenant, "r", (10, 5, 100), now=day)

        async def correct(
            tenant: str = tenant, number: int = number, late: datetime = late
        ) -> None:
            await asyncio.sleep(number % 5 / 1000)
            await other.settle(tenant, "r", (12, 5, 100), now=late)

        await asyncio.gather(
            conn.execute("SELECT quota_roll_month($1, $2)", month, late), correct()
        )
        await roll(conn, late)
        rows = await conn.fetch(
            "SELECT input_tokens::int AS i FROM quota_monthly_totals WHERE tenant_id = $1 ORDER BY 1",
            tenant,
        )
        found = [row["i"] for row in rows]
        assert found in ([12], [2, 10]), (number, found)
    await assert_totals_are_the_days(conn)
    assert (
        await conn.fetchval("SELECT count(*) FROM quota_adjustments WHERE booked_month IS NULL")
        == 0
    )


async def test_usage_that_comes_after_a_restore_is_not_taken_for_what_the_closing_saw(
    conn: Connection,
) -> None:
    calls = Calls(conn, IN_NOVEMBER)
    await calls.tenant("t", department_id="sales")
    await used(calls, "r", IN_NOVEMBER, (10, 5, 100))
    await calls.settle("t", "r", (11, 5, 110), now=NOVEMBER_CLOSES - timedelta(hours=1))
    for hours in (0, 1):
        await roll(conn, NOVEMBER_CLOSES + timedelta(hours=hours))
    assert await conn.fetchval("SELECT count(*) FROM quota_adjustments") == 0
    # in another cluster the ids of transactions begin anew: far below those that the closing knew
    late = NOVEMBER_CLOSES + timedelta(days=1)
    await calls.settle("t", "r", (12, 5, 150), now=late)
    await conn.execute("UPDATE quota_adjustments SET adjusted_xid = '3'")
    await roll(conn, late)
    assert await totals(conn) == {
        (NOVEMBER, NOVEMBER, "sales"): (1, 11, 5, 110),
        (DECEMBER, NOVEMBER, "sales"): (0, 1, 0, 40),
    }
    await assert_totals_are_the_days(conn)
