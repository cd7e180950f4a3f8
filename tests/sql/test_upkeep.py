"""Upkeep removes requests that nobody needs, and nothing else, whoever is at work beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from sql.calls import Calls
from sql.rolling import everything, roll, tenant
from sql.sweeping import (
    CLOSES,
    DAY,
    FEBRUARY,
    JANUARY,
    MID_MARCH,
    NOON,
    requests,
    settled,
    sweep,
    upkeep,
)

if TYPE_CHECKING:
    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]


async def test_requests_go_with_their_month_and_a_late_end_stays(conn: Connection) -> None:
    """Closed for 40 days, ended 40 days ago; the last three days wait for the next month."""
    calls = Calls(conn)
    await tenant(calls, "t")
    await settled(calls, "first", datetime(2024, 1, 1, tzinfo=UTC))
    await settled(calls, "day 28", datetime(2024, 1, 28, 23, 59, 59, tzinfo=UTC))
    await settled(calls, "day 29", datetime(2024, 1, 29, tzinfo=UTC))
    await settled(calls, "next month", datetime(2024, 2, 1, tzinfo=UTC))
    await calls.reserve(request_id="open", amounts=(1, 1, 1), now=MID_MARCH)
    open_month = datetime(2024, 3, 31, tzinfo=UTC)
    assert await upkeep(conn, open_month) == {}  # nothing is closed
    await roll(conn, CLOSES)
    forty = CLOSES + 40 * DAY
    assert await upkeep(conn, forty) == {}  # to the second
    assert await upkeep(conn, forty + timedelta(seconds=1)) == {"quota_reservations": 2}
    assert await requests(conn) == ["day 29", "next month", "open"]
    await roll(conn, forty)
    february_closed = await conn.fetchval(
        "SELECT closed_at FROM quota_months WHERE month = $1", FEBRUARY
    )
    assert await upkeep(conn, february_closed + 41 * DAY) == {"quota_reservations": 2}
    assert await requests(conn) == ["open"]


async def test_a_request_that_ended_late_is_remembered_for_forty_days(conn: Connection) -> None:
    """Its end counts, not its admission: expired by a worker that came back weeks later."""
    calls = Calls(conn)
    await tenant(calls, "t")
    await calls.reserve(request_id="lost", amounts=(1, 1, 1), now=NOON)
    await settled(calls, "done", NOON)
    ended = datetime(2024, 2, 20, tzinfo=UTC)
    await conn.execute("SELECT quota_expire_stale(10, $1)", ended)
    await roll(conn, ended)
    # as if the month had been closed long before
    await conn.execute("UPDATE quota_months SET closed_at = $1 WHERE month = $2", CLOSES, JANUARY)
    assert await sweep(conn, "quota_reservations", ended + 40 * DAY) == 1
    assert await requests(conn) == ["lost"]
    again = await calls.settle(request_id="lost", amounts=(5, 5, 5), now=ended + 40 * DAY)
    assert again["outcome"] == "corrected"


async def test_a_month_that_is_not_closed_keeps_all_that_come_after_it(conn: Connection) -> None:
    calls = Calls(conn)
    await tenant(calls, "t")
    await calls.reserve(request_id="open", amounts=(1, 1, 1), now=NOON, ttl_seconds=3600)
    await settled(calls, "january", NOON)
    await settled(calls, "february", NOON + 31 * DAY)
    await roll(conn, datetime(2024, 3, 10, tzinfo=UTC))
    assert (
        await conn.fetchval("SELECT count(*) FROM quota_months WHERE closed_at IS NOT NULL") == 1
    )  # february alone: january has an open request
    assert await upkeep(conn, datetime(2024, 6, 30, tzinfo=UTC)) == {}
    assert await requests(conn) == ["february", "january", "open"]


async def test_what_waits_for_a_price_and_impossible_rows_stay(conn: Connection) -> None:
    calls = Calls(conn)
    await tenant(calls, "t")
    for name in ("priced", "unpriced", "odd", "uncharged"):
        await settled(calls, name, NOON)
    await conn.execute(
        "UPDATE quota_reservations SET unpriced = true WHERE request_id = 'unpriced'"
    )
    await conn.execute("UPDATE quota_reservations SET state = 'gone' WHERE request_id = 'odd'")
    await conn.execute(
        "UPDATE quota_reservations SET charged_cost_nanos = NULL WHERE request_id = 'uncharged'"
    )
    await roll(conn, CLOSES)
    assert await upkeep(conn, MID_MARCH) == {"quota_reservations": 1}
    assert await requests(conn) == ["odd", "uncharged", "unpriced"]


async def test_usage_that_waits_keeps_the_request_it_may_belong_to(conn: Connection) -> None:
    """Received on the last day, booked by a worker that comes late: a correction, no new charge."""
    calls = Calls(conn)
    await tenant(calls, "t")
    await settled(calls, "late", NOON)
    await roll(conn, CLOSES)
    await conn.execute("UPDATE quota_months SET closed_at = $1", NOON)
    await conn.execute(
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens, cost_nanos, received_at)"
        " VALUES ('t', 'late', 1, 1, 1, $1)",
        NOON + 40 * DAY,
    )
    later = NOON + 60 * DAY
    assert await sweep(conn, "quota_reservations", later) == 0
    await conn.execute("SELECT quota_book_inbox(10, $1)", later)
    assert await conn.fetchval("SELECT outcome FROM quota_usage_inbox") == "corrected"
    # no walk is due before the next month may go: it is said to begin anew
    assert await upkeep(conn, later + DAY) == {}
    await conn.execute("UPDATE quota_upkeep_walks SET horizon = NULL")
    assert await upkeep(conn, later + DAY) == {"quota_reservations": 1}


async def test_usage_ids_go_with_their_request_and_what_comes_after_is_unreserved(
    conn: Connection,
) -> None:
    calls = Calls(conn)
    await tenant(calls, "t")
    for name, at in (("old", NOON), ("new", NOON + 40 * DAY)):
        await calls.reserve(request_id=name, amounts=(10, 5, 700), now=at)
        for number in (1, 2, 3):
            await calls.settle(
                request_id=name, amounts=(number, 1, 1), usage_id=f"u{number}", now=at
            )
    await roll(conn, CLOSES)
    assert await upkeep(conn, MID_MARCH) == {"quota_reservations": 1}
    ids = await conn.fetch("SELECT request_id, usage_id FROM quota_usage_ids ORDER BY 1, 2")
    assert [tuple(row) for row in ids] == [("new", "u1"), ("new", "u2")]
    before = await everything(conn)
    late = await calls.settle(request_id="old", amounts=(3, 1, 1), usage_id="u3", now=MID_MARCH)
    assert late["outcome"] == "unreserved"
    await roll(conn, CLOSES + DAY)
    assert (await everything(conn))[2].keys() >= before[2].keys()  # January's totals stay


async def test_tenants_that_are_at_work_are_passed_over_until_a_later_walk(
    conn: Connection, connect: Connect
) -> None:
    """A correction that has read its request writes it: nothing is taken from under it."""
    calls = Calls(conn)
    other = await connect()
    for name in ("a", "b"):
        await tenant(calls, name)
        await calls.reserve(name, "r", (10, 5, 700), now=NOON)
        await calls.settle(name, "r", (10, 5, 700), now=NOON)
    await roll(conn, CLOSES)
    await conn.execute("UPDATE quota_months SET closed_at = $1", NOON + 12 * DAY)
    correcting = other.transaction()
    await correcting.start()
    # as its first statement does: it has read the request, or is about to
    await other.execute("SELECT pg_advisory_xact_lock(hashtextextended('a', 1))")
    assert await sweep(conn, "quota_reservations", MID_MARCH) == 1
    late = await Calls(other).settle("a", "r", (1, 1, 1), now=MID_MARCH)
    assert late["outcome"] == "corrected"
    assert await sweep(conn, "quota_reservations", MID_MARCH) == 0
    await correcting.commit()
    assert await conn.fetchval("SELECT tenant_id FROM quota_reservations") == "a"
    assert await sweep(conn, "quota_reservations", MID_MARCH) == 1
    # and now that nothing was passed over, no further walk is due
    assert await conn.fetchval(
        "SELECT passed_over = 0 AND horizon IS NOT NULL FROM quota_upkeep_walks WHERE relation = 'quota_reservations'"
    )


async def test_of_two_at_once_one_does_the_work(conn: Connection, connect: Connect) -> None:
    calls = Calls(conn)
    await tenant(calls, "t")
    await settled(calls, "r", NOON)
    await roll(conn, CLOSES)
    assert await sweep(conn, "quota_usage_inbox", MID_MARCH) == 0
    await conn.execute(
        "UPDATE quota_upkeep_walks SET relation = 'quota_reservations', horizon = NULL"
    )
    other = await connect()
    busy = other.transaction()
    await busy.start()
    assert await sweep(other, "quota_reservations", MID_MARCH) == 1
    assert await sweep(conn, "quota_reservations", MID_MARCH) == 0
    await busy.rollback()  # as a kill would
    assert await sweep(conn, "quota_reservations", MID_MARCH) == 1


@pytest.mark.parametrize("blocks", [7, 60])
async def test_batches_go_on_where_the_last_one_stopped(conn: Connection, blocks: int) -> None:
    """Few blocks with less than a batch of rows, and many with more."""
    calls = Calls(conn)
    await tenant(calls, "t")
    await settled(calls, "r", NOON)
    await conn.execute(
        "INSERT INTO quota_reservations SELECT (jsonb_populate_record(r, jsonb_build_object('request_id',"
        " r.request_id || n, 'reservation_id', 1000000 + n))).*"
        " FROM quota_reservations r, generate_series(1, 2499) n"
    )
    await conn.execute(
        "UPDATE quota_usage SET completions = 2500, input_tokens = 27500, output_tokens = 15000"
    )
    await roll(conn, CLOSES)
    batches = []
    for _ in range(100):
        row = await conn.fetchrow(
            "SELECT removed, done FROM quota_upkeep('quota_reservations', 40, $1, 300, $2)",
            MID_MARCH,
            blocks,
        )
        assert row is not None
        assert row["removed"] <= 300
        batches.append(row["removed"])
        if row["done"]:
            break
    assert sum(batches) == 2500
    assert len(batches) > 8
    assert await requests(conn) == []


async def test_a_time_to_come_removes_nothing_more_than_the_present(conn: Connection) -> None:
    calls = Calls(conn)
    await tenant(calls, "t")
    now = datetime.now(UTC)
    await settled(calls, "r", now - 40 * DAY)
    later = now + 400 * DAY
    await roll(conn, later)
    await conn.execute("UPDATE quota_months SET closed_at = $1", now - timedelta(days=39))
    assert await upkeep(conn, later) == {}
    assert await requests(conn) == ["r"]


@pytest.mark.parametrize(
    "asked",
    [
        ("quota_usage", 40, 1000),
        ("tenant_limits", 4000, 1000),
        ("quota_reservations", 39, 1000),
        ("quota_outbox", None, 1000),
        ("quota_outbox", 90, 299),
        (None, 90, 1000),
    ],
)
async def test_what_upkeep_is_not_for_is_refused(conn: Connection, asked: tuple[Any, ...]) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute("SELECT quota_upkeep($1, $2, NULL, $3)", *asked)
    assert refused.value.sqlstate == "QW002"
