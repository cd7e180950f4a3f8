"""Where charges without a request belong once a tenant was moved; and which months there are to roll."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from sql.calls import Calls
from sql.rolling import (
    DECEMBER,
    MOVE,
    NOVEMBER,
    OCTOBER,
    assert_parts_make_the_rest,
    assert_totals_are_the_days,
    days,
    legacy,
    parts,
    roll,
    tenant,
)

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
IN_NOVEMBER = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOVEMBER_CLOSES = datetime(2026, 12, 4, tzinfo=UTC)


async def test_charges_without_a_request_stay_with_the_department_that_made_them(
    conn: Connection,
) -> None:
    calls = Calls(conn)
    await tenant(calls, "t", "sales")
    await legacy(conn, "t", (10, 5, 1000), IN_NOVEMBER - DAY)
    await legacy(conn, "t", (20, 5, 1000), IN_NOVEMBER)
    await conn.execute(MOVE, "t", "ops", "test")
    # until something comes there, nothing belongs to the new department
    await roll(conn, IN_NOVEMBER)
    assert {key[3:5]: amounts[1] for key, amounts in (await parts(conn)).items()} == {
        ("sales", "production"): 30
    }
    await legacy(conn, "t", (40, 5, 1000), IN_NOVEMBER)
    await calls.reserve("t", "r", (7, 0, 0), model="m", now=IN_NOVEMBER)
    await conn.execute(MOVE, "t", None, "production")
    await legacy(conn, "t", (80, 5, 1000), IN_NOVEMBER)
    await conn.execute(MOVE, "t", "sales", "production")
    await legacy(conn, "t", (160, 5, 1000), IN_NOVEMBER + DAY)
    # a direct write is where the tenant was on that day
    await conn.execute(
        "UPDATE quota_usage SET input_tokens = input_tokens + 320 WHERE period = '2026-11-19'"
    )
    for now in (IN_NOVEMBER + DAY, NOVEMBER_CLOSES):
        await conn.execute("SELECT quota_expire_stale(10, $1)", now)
        await roll(conn, now)
        assert {
            (*key[3:5], key[5]): amounts[1] for key, amounts in (await parts(conn)).items()
        } == {
            ("sales", "production", ""): 30 + 160 + 320,
            ("ops", "test", ""): 40,
            ("ops", "test", "m"): 7,
            ("", "production", ""): 80,
        }
        assert {
            (key[1].day, *key[2:]): amounts[1] for key, amounts in (await days(conn)).items()
        } == {
            (19, "sales", "production"): 330,
            (20, "sales", "production"): 20,
            (20, "ops", "test"): 47,
            (20, "", "production"): 80,
            (21, "sales", "production"): 160,
        }
        await assert_parts_make_the_rest(conn)
        await assert_totals_are_the_days(conn)


async def test_a_tenant_without_limits_is_where_one_without_a_department_is(
    conn: Connection,
) -> None:
    calls = Calls(conn, IN_NOVEMBER)
    for name in ("known", "unknown", "old"):
        await tenant(calls, name, "sales" if name == "old" else None)
        await calls.reserve(name, "r", (10, 5, 100), model="m")
        await legacy(conn, name, (20, 5, 1000), IN_NOVEMBER)
    await roll(conn, IN_NOVEMBER)
    await conn.execute("DELETE FROM tenant_limits WHERE tenant_id <> 'known'")
    for _ in range(2):
        # nothing of the day was written since, and nothing at all at the second time
        await roll(conn, IN_NOVEMBER)
        assert {key[2:]: amounts[1] for key, amounts in (await days(conn)).items()} == {
            ("", "production"): 60,
            ("sales", "production"): 30,
        }
        await assert_parts_make_the_rest(conn)
        await assert_totals_are_the_days(conn)


async def test_large_tables_are_read_for_their_months_once_a_day(conn: Connection) -> None:
    calls = Calls(conn)
    await tenant(calls, "t")
    await legacy(conn, "t", (1, 1, 1000), IN_NOVEMBER)
    definition = await conn.fetchval("SELECT pg_get_functiondef('quota_months_to_roll'::regproc)")
    assert "200 * 1024 * 1024" in definition
    await conn.execute(definition.replace("200 * 1024 * 1024", "0"))

    async def months(now: datetime) -> list[date]:
        rows = await conn.fetch("SELECT quota_months_to_roll($1) AS month", now)
        return [row["month"] for row in rows]

    assert await months(IN_NOVEMBER) == [NOVEMBER]
    await roll(conn, IN_NOVEMBER)
    await conn.execute(
        "INSERT INTO job_runs (job, scheduled_for, outcome, fence, started_at)"
        " VALUES ('roll_month', $1, 'done', 1, $1)",
        IN_NOVEMBER,
    )
    # an old month that a legacy program writes into is found the day after, what is known at once
    await conn.execute("INSERT INTO quota_usage (tenant_id, period) VALUES ('t', '2026-10-09')")
    assert await months(IN_NOVEMBER + HOUR) == [NOVEMBER]
    assert await months(IN_NOVEMBER + DAY) == [OCTOBER, NOVEMBER]
    await roll(conn, NOVEMBER_CLOSES)
    await conn.execute(
        "UPDATE job_runs SET scheduled_for = $1 WHERE job = 'roll_month'", NOVEMBER_CLOSES
    )
    # the new month needs no row to be looked at
    assert await months(NOVEMBER_CLOSES) == [DECEMBER]


async def test_a_correction_of_a_closed_month_belongs_to_who_had_the_charge(
    conn: Connection,
) -> None:
    """Charges without a request, of a tenant that was moved since, and of one that is gone."""
    calls = Calls(conn)
    for name in ("moved", "gone"):
        await tenant(calls, name, "sales")
        await legacy(conn, name, (10, 5, 1000), IN_NOVEMBER - DAY)
    await conn.execute(MOVE, "moved", "ops", "test")
    await legacy(conn, "moved", (20, 5, 1000), IN_NOVEMBER)
    await conn.execute("DELETE FROM tenant_limits WHERE tenant_id = 'gone'")
    await roll(conn, NOVEMBER_CLOSES)
    await conn.execute("UPDATE quota_usage SET input_tokens = input_tokens + 3")
    await conn.execute("SELECT quota_book_legacy(10, $1)", NOVEMBER_CLOSES + HOUR)
    await roll(conn, NOVEMBER_CLOSES + HOUR)
    assert {
        key[2:5]: amounts[1] for key, amounts in (await parts(conn)).items() if key[0] == DECEMBER
    } == {
        ("moved", "sales", "production"): 3,
        ("moved", "ops", "test"): 3,
        ("gone", "sales", "production"): 3,
    }
    await assert_totals_are_the_days(conn)


async def test_a_month_without_usage_between_others_is_a_month_of_nothing(
    conn: Connection,
) -> None:
    calls = Calls(conn)
    await tenant(calls, "t")
    await legacy(conn, "t", (1, 1, 1000), datetime(2026, 8, 9, tzinfo=UTC))
    await legacy(conn, "t", (1, 1, 1000), IN_NOVEMBER)
    months = [date(2026, month, 1) for month in (8, 9, 10, 11)]
    assert [month for month, _, _ in await roll(conn, IN_NOVEMBER)] == months
    closed = "SELECT month FROM quota_months WHERE closed_at IS NOT NULL ORDER BY 1"
    assert [row["month"] for row in await conn.fetch(closed)] == months[:3]
    assert [month for month, _, _ in await roll(conn, IN_NOVEMBER + HOUR)] == [NOVEMBER]
    # after years of silence not all of them
    years = await conn.fetch("SELECT quota_months_to_roll('2036-01-05') AS month")
    assert [row["month"] for row in years] == [
        NOVEMBER,
        *(date(year, month, 1) for year in (2034, 2035) for month in range(1, 13)),
    ]


@pytest.mark.parametrize(
    "zones",
    [("Pacific/Kiritimati", "Pacific/Niue"), ("Pacific/Niue", "Pacific/Kiritimati")],
)
async def test_a_day_keeps_its_requests_whatever_the_billing_zone_becomes(
    conn: Connection, zones: tuple[str, str]
) -> None:
    """The two zones lie 25 hours apart."""
    calls = Calls(conn)
    await tenant(calls, "t", "sales")
    await calls.zone(zones[0])
    for hour in range(24):
        now = datetime(2026, 11, 5, hour, 30, tzinfo=UTC)
        await calls.reserve("t", f"r{hour}", (10, 5, 100), model="m", now=now)
        await calls.settle("t", f"r{hour}", (10, 5, 100), now=now)
    await calls.zone(zones[1])
    for now in (IN_NOVEMBER, NOVEMBER_CLOSES + DAY):
        await roll(conn, now)
        found = [(key[5], amounts[0]) for key, amounts in (await parts(conn)).items()]
        assert found == [("m", 24)]
