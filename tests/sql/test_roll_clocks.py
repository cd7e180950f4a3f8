"""Closing is for good: by which clock, and what is known of a month that was closed before it was over."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from worker.assets import Assets
from worker.postgres.jobs import PostgresMonths
from worker.postgres.pool import open_pool
from worker.postgres.queries import load_queries

from sql.calls import Calls

Connection = asyncpg.Connection
AUGUST = date(2020, 8, 1)
GRACE_OVER = datetime(2020, 9, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ahead", "held_back"),
    [(timedelta(seconds=-1), True), (timedelta(0), False), (timedelta(days=9000), False)],
)
async def test_by_the_clock_a_month_closes_when_both_clocks_say_so(
    dsn: str, conn: Connection[Any], ahead: timedelta, *, held_back: bool
) -> None:
    """The database's is past it; a machine's own clock can keep a month open, never close it."""
    pool = await open_pool(dsn)
    months = PostgresMonths(pool, load_queries(Assets(), "jobs"), lambda: GRACE_OVER + ahead)
    rolled = await months.roll(AUGUST, None)
    assert tuple(rolled) == (AUGUST, 0, not held_back, False, held_back)
    # a time that was asked for is the only one that counts
    assert (await months.roll(AUGUST, GRACE_OVER)).closed
    next_month = await conn.fetchval(
        "SELECT (quota_month(quota_day(now())) + interval '1 month')::date"
    )
    assert not (await months.roll(next_month, None)).held_back
    await pool.close()


async def test_a_months_closing_is_noted_by_the_real_clock(dsn: str, conn: Connection[Any]) -> None:
    pool = await open_pool(dsn)
    months = PostgresMonths(pool, load_queries(Assets(), "jobs"))
    now: datetime = await conn.fetchval("SELECT clock_timestamp()")
    await Calls(conn).tenant("a")
    month = await conn.fetchval("SELECT quota_month(quota_day($1))", now)
    rolled = await months.roll(month, now + timedelta(days=40))
    assert (rolled.closed, rolled.closed_early, rolled.held_back) == (True, True, False)
    assert not (await months.roll(AUGUST, now)).closed_early
    noted = await conn.fetch(
        "SELECT closed_clock BETWEEN $1 AND clock_timestamp() AS real FROM quota_months", now
    )
    assert [row["real"] for row in noted] == [True, True]
    await pool.close()
