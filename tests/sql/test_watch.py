"""quota_watch: caps that fall soon at the present pace, and apps that run away, are told once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from requests_world import put

from sql.calls import NOON, UNLIMITED, Calls, at
from sql.watching import DAY, HOUR, LIMITS, MINUTE, Connection, history, note, spread, told, watch

# ------------------------------------------------------------------------ burning caps


async def test_a_cap_that_falls_within_hours_is_told_once_a_day(calls: Calls) -> None:
    await calls.tenant("t", **UNLIMITED | {"daily_tokens": 10_000})
    await spread(calls, 60, 50)  # 3,000 in the hour: 7,000 left are 2 h 20 min
    assert await watch(calls.conn) == (1, 0, 1)
    facts = (await told(calls.conn))[0]
    assert facts["subject"] == "t"
    (one,) = facts["dimensions"]
    assert (one["dimension"], one["period_kind"], one["used"]) == ("tokens", "day", 3_000)
    assert (one["pace"], one["short_pace"], one["times_even"]) == (3_000, 3_000, 7.2)
    assert at(one["expected_at"]) == NOON + 2 * HOUR + 20 * MINUTE
    assert facts["callers"] == [
        {
            "app": "bot",
            "api_key": "k-1",
            "requests": 60,
            "tokens": 3_000,
            "cost_nanos": 0,
            "share_pct": 100.0,
        }
    ]
    assert await watch(calls.conn) == (0, 0, 0)
    # it goes on: told again on the next day only
    await spread(calls, 60, 50, now=NOON + HOUR)
    assert await watch(calls.conn, NOON + HOUR) == (0, 0, 0)
    tomorrow = NOON + DAY
    await spread(calls, 60, 50, now=tomorrow)
    assert await watch(calls.conn, tomorrow) == (1, 0, 1)


@pytest.mark.parametrize(
    ("minutes_ago", "tokens", "cap", "expected"),
    [
        pytest.param(1, 3_000, 10_000, 1, id="now"),
        pytest.param(6, 3_000, 10_000, 0, id="a spike that is over"),
        pytest.param(61, 3_000, 10_000, 0, id="an hour ago"),
        pytest.param(1, 2_000, 10_000, 1, id="exactly four hours"),
        pytest.param(1, 1_999, 10_000, 0, id="more than four hours"),
        pytest.param(1, 10_000, 10_000, 0, id="reached: 100 % is told by another job"),
        pytest.param(1, 3_000, None, 0, id="no cap"),
    ],
)
async def test_when_a_cap_burns(
    calls: Calls, minutes_ago: int, tokens: int, cap: int | None, expected: int
) -> None:
    await calls.tenant("t", **UNLIMITED | {"daily_tokens": cap})
    await calls.reserve("t", "one", (tokens, 0, 0), now=NOON - minutes_ago * MINUTE)
    assert (await watch(calls.conn))[0] == expected


@pytest.mark.parametrize(("requests", "expected"), [(29, 0), (30, 1)])
async def test_a_few_requests_are_chance_and_no_pace(
    calls: Calls, requests: int, expected: int
) -> None:
    """By default thirty an hour; of a department's all of its tenants' together."""
    await calls.department("d", monthly_tokens=100_000)
    await calls.tenant("t", **UNLIMITED | {"department_id": "d", "daily_tokens": 10_000})
    await calls.tenant("u", **UNLIMITED | {"department_id": "d"})
    await spread(calls, requests, 120)
    limits = {name: figure for name, figure in LIMITS.items() if name != "burn_requests"}
    query = "SELECT burns FROM quota_watch($1, p_dry => $2, p_limits => $3)"
    for sent in (LIMITS | {"burn_requests": 30}, limits):  # an older program sends none
        assert await calls.conn.fetchval(query, NOON, True, json.dumps(sent)) == expected
    assert (
        await calls.conn.fetchval("SELECT burns FROM quota_watch($1, p_dry => true)", NOON)
        == expected
    )
    await spread(calls, 1, 1_300, tenant="u")
    found = await calls.conn.fetch(
        "SELECT subject FROM quota_watch_burning($1, 4, 24, 3, 31) ORDER BY 1", NOON
    )
    assert [row["subject"] for row in found] == ["d"] * expected


async def test_a_cap_that_lasts_to_the_periods_end_does_not_burn(calls: Calls) -> None:
    await calls.tenant("t", **UNLIMITED | {"daily_tokens": 10_000})
    late = at("2026-05-15T22:00:00")
    await calls.reserve("t", "one", (3_000, 0, 0), now=late - MINUTE)
    assert await watch(calls.conn, late) == (0, 0, 0)


async def test_a_steady_pace_near_the_cap_does_not_burn(calls: Calls) -> None:
    await calls.tenant("t", **UNLIMITED | {"daily_tokens": 10_000})
    await calls.reserve("t", "before", (7_900, 0, 0), now=NOON - 3 * HOUR)
    # 1,200 an hour is 2.88 times 10,000 / 24 h; 900 left fall within the hour
    await calls.reserve("t", "one", (1_200, 0, 0), now=NOON - MINUTE)
    assert await watch(calls.conn) == (0, 0, 0)
    await calls.reserve("t", "two", (50, 0, 0), now=NOON - MINUTE)
    assert await watch(calls.conn) == (1, 0, 1)


async def test_each_cap_is_judged_by_its_own_pace(calls: Calls) -> None:
    limits = {"daily_tokens": 10_000, "daily_completions": 20, "soft_warn_pct": 99}
    await calls.tenant("t", **UNLIMITED | limits)
    for _ in range(17):
        await calls.reserve("t", None, (0, 0, 0), now=NOON - 3 * HOUR)
    # two completions are left, one an hour
    await calls.reserve("t", "one", (3_000, 0, 0), now=NOON - MINUTE)
    assert await watch(calls.conn) == (1, 0, 1)
    (one,) = (await told(calls.conn))[0]["dimensions"]
    assert one["dimension"] == "tokens"


async def test_a_cap_whose_threshold_was_just_told_is_left_to_that_message(calls: Calls) -> None:
    await calls.tenant("t", **UNLIMITED | {"daily_tokens": 10_000, "soft_warn_pct": 80})
    await spread(calls, 60, 140)
    assert await calls.row("SELECT messages FROM quota_soft_warn($1)", NOON) == {"messages": 1}
    assert await watch(calls.conn) == (0, 0, 0)


async def test_a_departments_month_burns_with_its_callers(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=100_000)
    await calls.tenant("t", **UNLIMITED | {"department_id": "d"})
    await calls.tenant("u", **UNLIMITED | {"department_id": "d"})
    await spread(calls, 60, 80, tenant="t", app="a")  # 4,800 and 1,200 in the hour: 94,000 left
    await spread(calls, 60, 20, tenant="u", app="b")
    assert await watch(calls.conn) == (1, 0, 1)
    facts = (await told(calls.conn))[0]
    assert (facts["subject_kind"], facts["subject"]) == ("department", "d")
    assert [(one["app"], one["tokens"], one["share_pct"]) for one in facts["callers"]] == [
        ("a", 4_800, 80.0),
        ("b", 1_200, 20.0),
    ]
    assert facts["dimensions"][0]["pace"] == 6_000
    # a month's cap may be told again after a day
    assert await watch(calls.conn, NOON + HOUR - MINUTE) == (0, 0, 0)


async def test_direct_writes_of_legacy_programs_have_no_pace(calls: Calls) -> None:
    await calls.tenant("t", **UNLIMITED | {"daily_tokens": 10_000})
    await calls.conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens,"
        " cost_cents) VALUES ('t', $1, 1, 7000, 0, 0)",
        NOON.date(),
    )
    assert await watch(calls.conn) == (0, 0, 0)


async def test_a_departments_callers_are_its_own(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=100_000)
    await calls.department("e", monthly_tokens=10**9)
    await calls.tenant("t", **UNLIMITED | {"department_id": "d"})
    await calls.tenant("u", **UNLIMITED | {"department_id": "e"})
    await calls.reserve("t", "r", (6_000, 0, 0), app="a", now=NOON - MINUTE)
    await calls.reserve("u", "r", (6_000, 0, 0), app="b", now=NOON - MINUTE)
    assert await watch(calls.conn) == (1, 0, 1)
    assert [one["app"] for one in (await told(calls.conn))[0]["callers"]] == ["a"]


# --------------------------------------------------------------------------- runaways


async def test_hours_are_noted_once_complete_and_the_same_again(conn: Connection) -> None:
    await put(conn, 5, at=NOON - 2 * HOUR + 10 * MINUTE)
    await put(conn, 3, missing=1, at=NOON - 2 * HOUR + 50 * MINUTE)
    await put(conn, 1, at=NOON - 30 * MINUTE)
    assert await note(conn, NOON + MINUTE) == (7 * 24 - 1, 1, 0)  # 11:00 to 12:00 isn't complete
    row = await conn.fetchrow("SELECT * FROM quota_paces")
    assert dict(row) == {
        "tenant_id": "t",
        "app": "bot",
        "api_key": "k-1",
        "hour": NOON - 2 * HOUR,
        "requests": 8,
        "minutes": 2,
        "tokens": 7 * 100 + 150,
        "cost_nanos": 7 * 700 + 1_000,
    }
    assert await note(conn, NOON + 2 * MINUTE) == (1, 1, 0)
    assert await note(conn, NOON + 3 * MINUTE) == (0, 0, 0)
    # the clock went back, and came again
    assert (await note(conn, NOON - 3 * HOUR))[0] == 7 * 24 - 1
    await note(conn, NOON + 3 * MINUTE)
    assert await conn.fetchval("SELECT sum(requests) FROM quota_paces") == 9
    assert await note(conn, NOON + 9 * DAY) == (7 * 24 - 1, 0, 2)


async def test_an_app_at_many_times_its_usual_pace(conn: Connection) -> None:
    await history(conn, 30)
    for minute in range(1, 51):
        await put(conn, 6, at=NOON - minute * MINUTE, usage=(80 + minute, 20))
    assert await watch(conn) == (0, 1, 1)
    facts = (await told(conn))[0]
    assert (facts["subject"], facts["finding_count"], facts["requests"]) == ("t", 1, 300)
    (one,) = facts["findings"]
    assert (one["rule"], one["figure"], one["present"], one["usual"]) == (
        "times_usual",
        "tokens",
        300 * 100 + 6 * sum(range(1, 51)),
        3_000,
    )
    assert await watch(conn) == (0, 0, 0)
    assert await watch(conn, usual_times=50) == (0, 0, 0)


@pytest.mark.parametrize(
    ("usual", "now_per_minute", "days", "expected"),
    [
        pytest.param(30, 2, 5, 0, id="four times"),
        pytest.param(2, 1, 5, 0, id="too few to matter"),
        pytest.param(30, 6, 1, 0, id="no history of a day"),
        pytest.param(30, 6, 2, 1, id="a day of history"),
    ],
)
async def test_when_an_app_runs_away(
    conn: Connection, usual: int, now_per_minute: int, days: int, expected: int
) -> None:
    await history(conn, usual, days=days)
    for minute in range(1, 61, 1 if now_per_minute > 1 else 2):
        await put(conn, now_per_minute, at=NOON - minute * MINUTE, usage=(minute, 20))
    assert (await watch(conn))[1] == expected


async def test_who_stopped_ten_minutes_ago_is_not_told(conn: Connection) -> None:
    await history(conn, 30)
    await put(conn, 400, at=NOON - 10 * MINUTE)
    assert await watch(conn) == (0, 0, 0)


async def test_a_tight_loop_is_told_without_history(conn: Connection) -> None:
    await put(conn, 80, at=NOON - MINUTE, usage=(812, 20))
    await put(conn, 20, at=NOON - 2 * MINUTE, usage=(9, 1))
    assert await watch(conn) == (0, 1, 1)
    (one,) = (await told(conn))[0]["findings"]
    assert (one["rule"], one["recent"], one["same"], one["same_in_tokens"], one["usual"]) == (
        "tight_loop",
        100,
        80,
        812,
        None,
    )


@pytest.mark.parametrize(("same", "expected"), [(79, 0), (80, 1)])
async def test_a_busy_app_with_requests_of_its_own_is_no_loop(
    conn: Connection, same: int, expected: int
) -> None:
    await put(conn, same, at=NOON - MINUTE, usage=(812, 20))
    for number in range(100 - same):
        await put(conn, 1, at=NOON - MINUTE, usage=(number + 1, 1))
    assert (await watch(conn))[1] == expected


async def test_a_loop_that_is_its_usual_pace_is_none(conn: Connection) -> None:
    await history(conn, 60, days=2)
    await put(conn, 110, at=NOON - MINUTE)
    assert await watch(conn) == (0, 0, 0)


async def test_a_daily_job_that_runs_every_minute(conn: Connection) -> None:
    for day in range(1, 6):
        await put(conn, 2, at=NOON - day * DAY)
    await note(conn)
    for minute in range(29):
        await put(conn, 1, at=NOON - minute * MINUTE, usage=(minute, 1))
    assert await watch(conn) == (0, 0, 0)
    await put(conn, 1, at=NOON - 29 * MINUTE)
    assert await watch(conn) == (0, 1, 1)
    (one,) = (await told(conn))[0]["findings"]
    assert (one["rule"], one["minutes"], one["usual"], one["usual_minutes"]) == (
        "every_minute",
        30,
        2,
        1.0,
    )


async def test_what_runs_once_an_hour_is_no_daily_job(conn: Connection) -> None:
    for back in range(3, 5 * 24, 3):  # eight hours of a day, a minute each
        await put(conn, 1, at=NOON - back * HOUR)
    await note(conn)
    for minute in range(31):
        await put(conn, 1, at=NOON - minute * MINUTE, usage=(minute, 1))
    assert await watch(conn) == (0, 0, 0)


async def test_who_stopped_is_not_told_for_what_was_before(conn: Connection) -> None:
    """Whichever rule it broke: here 40 minutes of a daily job, over for eleven."""
    for day in range(1, 6):
        await put(conn, 2, at=NOON - day * DAY)
    await note(conn)
    for minute in range(11, 51):
        await put(conn, 1, at=NOON - minute * MINUTE, usage=(minute, 1))
    assert await watch(conn) == (0, 0, 0)
    await put(conn, 1, at=NOON - MINUTE)
    assert await watch(conn) == (0, 1, 1)


async def test_keys_are_told_apart_and_share_a_message(conn: Connection) -> None:
    for key in range(12):
        await put(conn, 100, at=NOON - MINUTE, key=f"k-{key}")
    assert await watch(conn) == (0, 12, 1)
    facts = (await told(conn))[0]
    assert (facts["finding_count"], len(facts["findings"]), facts["requests"]) == (12, 10, 1_200)


async def test_a_dry_pass_counts_and_writes_nothing(conn: Connection) -> None:
    await put(conn, 100, at=NOON - MINUTE)
    query = "SELECT burns, runaways, messages FROM quota_watch($1, p_dry => true)"
    assert tuple(await conn.fetchrow(query, NOON)) == (0, 1, 0)
    assert await told(conn) == []
    assert await watch(conn) == (0, 1, 1)


async def test_a_pass_that_finds_nothing_takes_no_transaction_id(conn: Connection) -> None:
    async with conn.transaction():
        assert await watch(conn) == (0, 0, 0)
        assert await conn.fetchval("SELECT pg_current_xact_id_if_assigned()") is None


async def test_two_passes_at_once_tell_once(
    conn: Connection, connect: Callable[[], Awaitable[Connection]]
) -> None:
    await put(conn, 100, at=NOON - MINUTE)
    other = await connect()
    results = await asyncio.gather(watch(conn), watch(other))
    assert sorted(results) == [(0, 0, 0), (0, 1, 1)]
    assert len(await told(conn)) == 1


@pytest.mark.parametrize("before", ["ANALYZE quota_reservations", "SELECT 1"])
async def test_an_hour_is_read_by_its_block_range_index(conn: Connection, before: str) -> None:
    """With statistics and without: a table's first autovacuum may be hours away."""
    await put(conn, 2_000, at=NOON - MINUTE)
    await conn.execute(before)
    async with conn.transaction():
        await conn.fetchrow("SELECT * FROM quota_watch($1, p_dry => true)", NOON)
        await note(conn, NOON + 2 * MINUTE)
        row = await conn.fetchrow(
            "SELECT seq_scan, idx_scan FROM pg_stat_xact_user_tables"
            " WHERE relname = 'quota_reservations'"
        )
    # the burning's hour, the runaways' hour and their last ten minutes, the hours noted
    assert tuple(row) == (0, 4)
