"""What the monthly totals are made of: equal to a recomputation in Python, however the roll was cut up."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from sql.calls import Calls
from sql.rolling import (
    DECEMBER,
    MOVE,
    NOVEMBER,
    OCTOBER,
    Story,
    assert_parts_make_the_rest,
    assert_totals_are_the_days,
    everything,
    legacy,
    parts,
    recomputed,
    roll,
    tenant,
    totals,
)

if TYPE_CHECKING:
    from conftest import Connect, NewDatabase

    Connection = asyncpg.Connection[asyncpg.Record]

ZONES = ("UTC", "Asia/Shanghai", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
LONG = os.environ.get("QUOTA_WORKER_LONG") == "1"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
IN_NOVEMBER = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOVEMBER_CLOSES = datetime(2026, 12, 4, tzinfo=UTC)


async def forget_what_was_seen(conn: Connection) -> None:
    """The next roll reads everything anew."""
    await conn.execute("UPDATE quota_months SET rolled_snapshot = NULL")


@pytest.mark.parametrize("zone", ZONES)
async def test_however_a_month_is_rolled_it_is_the_same(
    conn: Connection, connect: Connect, new_database: NewDatabase, zone: str
) -> None:
    """Case 26: split at any boundary, repeated, by two at once; shuffled, after weeks of silence."""
    story = Story(ZONES.index(zone), ZoneInfo(zone), 400 if LONG else 40)
    calls, other = await story.begin(conn), await connect()
    for number, event in enumerate(story.events):
        await story.tell(calls, event)
        if number % 7 == 0:
            await asyncio.gather(roll(conn, event[0]), roll(other, event[0]))
    end = story.events[-1][0]
    silent = await asyncpg.connect(await new_database(migrated=True), statement_cache_size=0)
    try:
        silent_calls = await story.begin(silent)
        for event in story.shuffled():
            await story.tell(silent_calls, event)
        # nobody closes a month with open requests in it
        for one in (conn, silent):
            await one.execute("SELECT quota_expire_stale(1000, $1)", end + HOUR)
        right = await recomputed(conn, story.zone)
        last = end + 21 * DAY
        done = [await roll(conn, last), await roll(silent, last)]
        assert {month for rolled in done for month, _, _ in rolled} <= {
            date(2026, 9, 1), OCTOBER, NOVEMBER,
        }  # fmt: skip
        for one in (conn, silent):
            await assert_totals_are_the_days(one)
            await assert_parts_make_the_rest(one)
        # what requests charged doesn't depend on when anybody rolled
        for one in (conn, silent):
            assert {k: v for k, v in (await by_requests(one)).items() if k[3] or k[4]} == {
                k: v for k, v in by_belonging(right[0]).items() if k[3] or k[4]
            }
    finally:
        await silent.close()


def by_belonging(found: dict[tuple[Any, ...], tuple[int, ...]]) -> dict[Any, tuple[int, ...]]:
    """Without the month that told it: tenant, department and so on, and what is by token and cost."""
    summed: dict[Any, tuple[int, ...]] = {}
    for (_, belongs, *labels), amounts in found.items():
        key = (belongs, *labels)
        told = (amounts[0], amounts[1], amounts[3], amounts[4])
        summed[key] = tuple(map(sum, zip(summed.get(key, (0,) * 4), told, strict=True)))
    return {(k[1], k[2], k[3], k[4], k[5], k[0]): v for k, v in summed.items() if any(v)}


async def by_requests(conn: Connection) -> dict[Any, tuple[int, ...]]:
    return by_belonging(await parts(conn))


@pytest.mark.parametrize("without", ["move", "legacy"])
async def test_an_open_month_rolled_bit_by_bit_equals_the_rows(
    conn: Connection, without: str
) -> None:
    """After each event parts and days are those of the raw rows, and a full reading changes nothing."""
    # where charges without a request of a moved tenant belong has a test of its own
    story = Story(20, ZoneInfo("America/New_York"), 200 if LONG else 30)
    calls = await story.begin(conn)
    for number, event in enumerate(story.events):
        if event[2] == without:
            continue
        await story.tell(calls, event)
        if number % 5:
            continue
        # never closing: the clock stands at the first event
        await roll(conn, story.events[0][0])
        right = await recomputed(conn, story.zone)
        found = await everything(conn)
        assert found[0] == right[0]
        assert found[1] == right[1]
    await assert_parts_make_the_rest(conn)
    await forget_what_was_seen(conn)
    await roll(conn, story.events[0][0])
    before = await everything(conn)
    await forget_what_was_seen(conn)
    assert all(rows == 0 for _, rows, _ in await roll(conn, story.events[0][0]))
    assert await everything(conn) == before


async def test_each_kind_of_request_is_told_by_model_and_app(conn: Connection) -> None:
    calls = Calls(conn, IN_NOVEMBER)
    await tenant(calls, "t", "sales")
    labels: dict[str, Any] = {"model": "large", "app": "chat"}
    await calls.reserve("t", "settled", (10, 5, 100), **labels)
    await calls.settle("t", "settled", (12, 6, 110), cached=4)
    await calls.reserve("t", "nothing", (10, 5, 100), **labels)
    await calls.release("t", "nothing")
    await calls.reserve("t", "some", (10, 5, 100), **labels)
    await calls.release("t", "some", (3, 1, 20))
    await calls.reserve("t", "guess", (10, 5, 100), **labels)
    await calls.settle("t", "guess", (20, 10, None))
    await calls.reserve("t", "lost", (10, 5, 100), ttl_seconds=1, **labels)
    await calls.expire(now=IN_NOVEMBER + HOUR)
    await calls.reserve("t", "open", (10, 5, 100), ttl_seconds=86400, **labels)
    await calls.reserve("t", "other", (1, 1, 1), model="small", app="chat")
    await conn.execute(
        "UPDATE quota_reservations SET answered_model = 'small' WHERE request_id = 'other'"
    )
    await roll(conn, IN_NOVEMBER)
    assert await parts(conn) == {
        (NOVEMBER, NOVEMBER, "t", "sales", "production", "large", "chat"): (
            # completions, in, cached, out, nanos
            *(5, 12 + 3 + 20 + 10 + 10, 4, 6 + 1 + 10 + 5 + 5, 110 + 20 + 200 + 100 + 100),
            # stale, its cost, gave everything back, a guessed cost, by another model
            *(1, 100, 1, 1, 0, 0),
        ),
        (NOVEMBER, NOVEMBER, "t", "sales", "production", "small", "chat"): (
            *(1, 1, 0, 1, 1),
            *(0, 0, 0, 0, 0, 0),
        ),
    }
    # the model that was asked for: without touching a day's row nobody looks again
    await conn.execute(
        "UPDATE quota_reservations SET requested_model = 'large' WHERE request_id = 'other'"
    )
    await calls.reserve("t", "touch", (0, 0, 0), model="small", app="chat")
    await roll(conn, IN_NOVEMBER)
    found = (await parts(conn))[NOVEMBER, NOVEMBER, "t", "sales", "production", "small", "chat"]
    assert found[-2:] == (1, 2)
    await assert_parts_make_the_rest(conn)
    before = await everything(conn)
    assert await roll(conn, IN_NOVEMBER) == [(NOVEMBER, 0, False)]
    assert await everything(conn) == before


async def test_only_days_that_changed_are_read_again(conn: Connection) -> None:
    """A made-up part of a day stays until a row of that day is written, or all is read anew."""
    calls = Calls(conn)
    await tenant(calls, "t")
    for day in (IN_NOVEMBER - DAY, IN_NOVEMBER):
        await calls.reserve("t", f"{day}", (10, 5, 100), model="m", now=day)
        await calls.settle("t", f"{day}", (10, 5, 100), now=day)
    await roll(conn, IN_NOVEMBER)

    async def models() -> set[str]:
        return {key[5] for key in await parts(conn)}

    async def make_up() -> None:
        await conn.execute("UPDATE quota_day_parts SET model = 'made-up' WHERE day = '2026-11-19'")

    await make_up()
    await calls.reserve("t", "today", (1, 1, 1), model="m", now=IN_NOVEMBER)
    await roll(conn, IN_NOVEMBER)
    assert await models() == {"m", "made-up"}
    # a correction of the day before
    await calls.settle("t", f"{IN_NOVEMBER - DAY}", (11, 5, 100), now=IN_NOVEMBER)
    await roll(conn, IN_NOVEMBER)
    assert await models() == {"m"}
    # transaction ids of another server: nothing can be told from them
    await make_up()
    await conn.execute("UPDATE quota_months SET rolled_snapshot = '9999999999:9999999999:'")
    await roll(conn, IN_NOVEMBER)
    assert await models() == {"m"}
    await make_up()
    await calls.settle("t", "today", (1, 1, 1), now=IN_NOVEMBER)
    await roll(conn, NOVEMBER_CLOSES)
    assert await models() == {"m"}
    assert await conn.fetchval("SELECT count(*) FROM quota_day_parts") == 0


async def test_what_another_transaction_wrote_during_a_roll_is_read_by_the_next(
    conn: Connection, connect: Connect
) -> None:
    calls, other = Calls(conn), Calls(await connect())
    await tenant(calls, "t")
    await calls.reserve("t", "1", (10, 5, 100), model="m", now=IN_NOVEMBER)
    writing = other.conn.transaction()
    await writing.start()
    await other.reserve("t", "2", (10, 5, 100), model="late", now=IN_NOVEMBER)
    # later than the open one, and seen by the roll
    await tenant(calls, "u")
    await roll(conn, IN_NOVEMBER)
    await writing.commit()
    await calls.reserve("u", "3", (10, 5, 100), model="m", now=IN_NOVEMBER - DAY)
    await roll(conn, IN_NOVEMBER)
    assert {key[5] for key in await parts(conn)} == {"m", "late"}
    await assert_parts_make_the_rest(conn)


async def test_an_adjustment_has_the_requests_model_and_app(conn: Connection) -> None:
    calls = Calls(conn)
    await tenant(calls, "t", "sales")
    for request, model in (("1", "large"), ("2", "small")):
        await calls.reserve("t", request, (10, 5, 100), model=model, app="chat", now=IN_NOVEMBER)
        await calls.settle("t", request, (10, 5, 100), now=IN_NOVEMBER)
    await roll(conn, NOVEMBER_CLOSES)
    frozen = await everything(conn)
    # one is told more, the other as much less: no change of the total, but of its parts
    late = NOVEMBER_CLOSES + HOUR
    await calls.settle("t", "1", (13, 5, 100), now=late)
    await calls.settle("t", "2", (7, 5, 100), now=late)
    await roll(conn, late)
    found = await everything(conn)
    adjusted = (DECEMBER, NOVEMBER, "t", "sales", "production")
    assert {k: v for k, v in found[0].items() if k[0] == DECEMBER} == {
        (*adjusted, "large", "chat"): (0, 3, *(0,) * 9),
        (*adjusted, "small", "chat"): (0, -3, *(0,) * 9),
    }
    assert found[1] == frozen[1]
    assert {k: v for k, v in found[2].items() if k[0] == NOVEMBER} == frozen[2]
    await assert_parts_make_the_rest(conn)
    await assert_totals_are_the_days(conn)


async def test_budgets_and_topups_are_those_in_force_and_freeze_with_the_month(
    conn: Connection,
) -> None:
    calls = Calls(conn)
    await tenant(calls, "t", "sales")
    await tenant(calls, "u", "free")
    for name in ("t", "u"):
        await legacy(conn, name, (1, 1, 1000), IN_NOVEMBER)
    await conn.execute(
        "INSERT INTO department_budgets (department_id, monthly_tokens, monthly_cost_cents)"
        " VALUES ('sales', 1000, 200), ('idle', NULL, 5)"
    )
    # ended with October's last instant; within; begun before and beyond; begins with December
    first, last = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    for number, (begin, end) in enumerate(
        ((first - DAY, first), (first, first + HOUR), (first - DAY, last + DAY), (last, last + DAY))
    ):
        await conn.execute(
            "INSERT INTO quota_topups (department_id, environment, idempotency_key, tokens, cost_cents,"
            " valid_from, expires_at, approved_by, reason)"
            " VALUES ('sales', 'production', $1, $2, $3, $4, $5, 'me', 'why')",
            *(f"k{number}", 10**number, 2 * 10**number, begin, end),
        )
    query = (
        "SELECT department_id, monthly_tokens, monthly_cost_cents, topups, topup_tokens::int,"
        " topup_cost_cents::int, warn_pct FROM quota_month_budgets WHERE month = '2026-11-01' ORDER BY 1"
    )
    right = [
        ("free", None, None, 0, 0, 0, None),
        ("idle", None, 5, 0, 0, 0, 75),
        ("sales", 1000, 200, 2, 110, 220, 75),
    ]
    await roll(conn, IN_NOVEMBER)
    assert [tuple(row) for row in await conn.fetch(query)] == right
    await conn.execute("UPDATE department_budgets SET warn_pct = 50")
    await conn.execute("DELETE FROM department_budgets WHERE department_id = 'idle'")
    await roll(conn, NOVEMBER_CLOSES)
    right = [right[0], (*right[2][:-1], 50)]
    assert [tuple(row) for row in await conn.fetch(query)] == right
    await conn.execute("UPDATE department_budgets SET monthly_tokens = 7")
    await legacy(conn, "t", (1, 1, 1000), NOVEMBER_CLOSES)
    await roll(conn, NOVEMBER_CLOSES + HOUR)
    assert [tuple(row) for row in await conn.fetch(query)] == right


async def test_names_of_any_length_are_rolled(conn: Connection) -> None:
    """200 letters of four bytes in each label are more than a row of an index holds."""
    calls = Calls(conn, IN_NOVEMBER)
    long = "".join(chr(0x20000 + number) for number in range(200))
    await tenant(calls, long, "d")
    await calls.reserve(long, "r", (10, 5, 100), model=long, app=long)
    for _ in range(2):
        await roll(conn, IN_NOVEMBER)
        assert [key[2:] for key in await parts(conn)] == [(long, "d", "production", long, long)]


async def test_a_closed_month_is_frozen_in_all_its_tables(conn: Connection) -> None:
    calls = Calls(conn)
    await tenant(calls, "t", "sales")
    await calls.reserve("t", "r", (10, 5, 100), model="m", app="chat", now=IN_NOVEMBER)
    await calls.settle("t", "r", (10, 5, 100), now=IN_NOVEMBER)
    assert await roll(conn, NOVEMBER_CLOSES) == [(NOVEMBER, 1, True)]
    frozen = await everything(conn)
    await conn.execute(MOVE, "t", "ops", "test")
    await conn.execute("UPDATE quota_reservations SET model = 'n'")
    await conn.execute("UPDATE quota_usage SET completions = 9")
    for now in (NOVEMBER_CLOSES, IN_NOVEMBER):
        row = await conn.fetchrow(
            "SELECT rows, closed FROM quota_roll_month($1, $2)", NOVEMBER, now
        )
        assert row is not None
        assert tuple(row) == (0, True)
    assert await everything(conn) == frozen
    assert set(await totals(conn)) == {(NOVEMBER, NOVEMBER, "t", "sales", "production")}
