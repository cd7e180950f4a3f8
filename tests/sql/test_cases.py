"""Faults that users of comparable systems reported, by their numbers: the ledger's share.

QUOTA_WORKER_CASE_07=1000000 runs case 7 at its full size (half an hour or so);
by default 2,000 settlements, each a transaction of its own.
"""

from __future__ import annotations

import asyncio
import os
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from model.days import month_of, next_month
from sql.calls import NOON, Calls, at, several, sqlstate_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Connect = Callable[..., Awaitable[asyncpg.Connection[Any]]]

CENT = 10_000_000
DOLLAR = 100 * CENT
MINUTE = timedelta(minutes=1)
SETTLEMENTS = int(os.environ.get("QUOTA_WORKER_CASE_07", "2000"))


async def test_case_01_twenty_cancelled_streams_leave_the_cap_free(calls: Calls) -> None:
    await calls.tenant(daily_cost_cents=1000)
    for number in range(20):
        assert (await calls.reserve(request_id=f"r{number}", amounts=(0, 0, DOLLAR // 2)))[
            "allowed"
        ]
    assert (await calls.reserve(amounts=(0, 0, DOLLAR // 2)))["reason"] == "daily_cost_reached"
    for number in range(20):
        assert await calls.release(request_id=f"r{number}") == "released"
    assert await calls.held() == (0, 0, 0)
    assert (await calls.reserve(request_id="r20", amounts=(0, 0, DOLLAR // 2)))["allowed"]


@pytest.mark.parametrize("policy", ["estimate", "partial", "release"])
async def test_case_01_killed_callers_are_expired_by_one_run(calls: Calls, policy: str) -> None:
    await calls.tenant(daily_cost_cents=1000, stale_policy=policy)
    for number in range(20):
        await calls.reserve(request_id=f"r{number}", amounts=(10, 0, DOLLAR // 2))
    rows = await calls.expire(now=NOON + 11 * MINUTE)
    assert sum(row["ended"] for row in rows) == 20
    assert await calls.held() == (0, 0, 0)
    states = await calls.rows("SELECT state, count(*)::int AS n FROM quota_reservations GROUP BY 1")
    assert states == [{"state": "expired", "n": 20}]


async def test_case_02_a_hundred_calls_that_fail_at_once(calls: Calls) -> None:
    await calls.tenant(daily_cost_cents=500)
    for number in range(100):
        assert (await calls.reserve(request_id=f"r{number}", amounts=(0, 0, DOLLAR // 10)))[
            "allowed"
        ]
        await calls.release(request_id=f"r{number}")
    assert await calls.held() == (0, 0, 0)
    assert await calls.figures() == (0, 0, 0, 0)


@pytest.mark.parametrize("end", ["settle", "release", "expire"])
async def test_case_03_ending_and_giving_back_are_one(
    calls: Calls, connect: Connect, end: str
) -> None:
    """An error between the two (here: the counters refuse the write) undoes both."""
    await calls.tenant(stale_policy="release")
    await calls.reserve(request_id="r", amounts=(100, 50, 1500))
    await calls.conn.execute(
        "ALTER TABLE quota_usage ADD CONSTRAINT planted CHECK (held_input_tokens >= 100) NOT VALID"
    )
    late = NOON + 11 * MINUTE
    work: dict[str, Callable[[], Awaitable[Any]]] = {
        "settle": lambda: calls.settle(amounts=(1, 1, 1)),
        "release": calls.release,
        "expire": lambda: calls.expire(now=late),
    }
    assert await sqlstate_of(work[end]()) == "23514"
    assert (await calls.reservation())["state"] == "open"
    assert await calls.held() == (100, 50, 1500)
    await calls.conn.execute("ALTER TABLE quota_usage DROP CONSTRAINT planted")
    for _ in range(2):
        await work[end]()
    assert await calls.held() == (0, 0, 0)
    assert await calls.figures() == ((1, 1, 1, 1) if end == "settle" else (0, 0, 0, 0))


async def test_case_03_a_caller_that_dies_in_the_transaction(
    calls: Calls, connect: Connect
) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r", amounts=(100, 50, 1500))
    conn = await connect()
    await conn.execute("BEGIN")
    await Calls(conn).settle(amounts=(1, 1, 1))
    conn.terminate()
    for _ in range(50):
        if await calls.held() == (100, 50, 1500):
            break
        await asyncio.sleep(0.05)
    assert (await calls.reservation())["state"] == "open"
    assert (await calls.settle(amounts=(1, 1, 1)))["outcome"] == "settled"
    assert await calls.figures() == (1, 1, 1, 1)


@pytest.mark.parametrize("policy", ["estimate", "partial", "release"])
async def test_case_04_usage_after_the_expiry(calls: Calls, policy: str) -> None:
    await calls.tenant(stale_policy=policy)
    await calls.reserve(request_id="r", amounts=(100, 0, DOLLAR))
    assert await calls.expire(now=NOON + 9 * MINUTE) == []
    await calls.expire(now=NOON + 15 * MINUTE)
    for outcome in ("corrected", "replayed"):
        row = await calls.settle(amounts=(130, 0, 130 * CENT), usage_id="u", now=NOON + 16 * MINUTE)
        assert row["outcome"] == outcome
        assert await calls.figures() == (1, 130, 0, 130 * CENT)
        assert await calls.held() == (0, 0, 0)


async def test_case_05_late_and_over(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r", amounts=(100, 0, 0))
    await calls.expire(now=NOON + 15 * MINUTE)
    await calls.settle(amounts=(250, 0, 0), now=NOON + 16 * MINUTE)
    assert (await calls.usage())["input_tokens"] == 250
    stored = await calls.reservation()
    assert (stored["late"], stored["over"]) == (True, True)


async def test_case_06_one_request_id_twice(calls: Calls) -> None:
    await calls.tenant()
    first = await calls.reserve(request_id="r", model="big")
    again = await calls.reserve(request_id="r", model="big")
    assert again == {**first, "replayed": True}
    assert await calls.figures() == (1, 10, 5, 100)
    assert await sqlstate_of(calls.reserve(request_id="r", amounts=(11, 5, 100))) == "QW001"
    assert await calls.figures() == (1, 10, 5, 100)


async def test_case_06_two_billed_attempts_are_summed_by_the_caller_only(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r")
    await calls.settle(amounts=(10, 1, 5), usage_id="attempt-1")
    await calls.settle(amounts=(20, 2, 6), usage_id="attempt-2")
    assert await calls.figures() == (1, 20, 2, 6), "the latest usage, never the sum"
    await calls.settle(amounts=(30, 3, 11), usage_id="both")
    assert await calls.figures() == (1, 30, 3, 11)
    for amounts, usage_id in (((10, 1, 5), "attempt-1"), ((20, 2, 6), "attempt-2")):
        row = await calls.settle(amounts=amounts, usage_id=usage_id)
        assert row["outcome"] == "replayed"
    assert await calls.figures() == (1, 30, 3, 11)


async def test_case_07_a_million_settlements_of_a_tiny_cost(dsn: str) -> None:
    """0.0000015 each: as many as asked for must sum to exactly that many times 1500 nanos."""
    clients = 8
    async with several(dsn, clients) as calls:
        await calls[0].tenant()
        for one in calls:
            one.now = NOON

        async def client(number: int, one: Calls) -> None:
            for step in range(number, SETTLEMENTS, clients):
                await one.settle("t", f"s{step}", (0, 0, 1500))

        await asyncio.gather(*(client(n, one) for n, one in enumerate(calls)))
        row = await calls[0].usage()
    assert row["completions"] == SETTLEMENTS
    assert row["cost_nanos"] == SETTLEMENTS * 1500
    assert row["cost_cents"] == SETTLEMENTS * 1500 // CENT


async def test_case_08_two_of_fifty_fit(dsn: str) -> None:
    async with several(dsn, 50) as calls:
        await calls[0].tenant(daily_cost_cents=500)
        await calls[0].settle("t", "before", (0, 0, 475 * CENT))
        rows = await asyncio.gather(*(one.reserve("t", None, (0, 0, 88_400_000)) for one in calls))
        assert sorted(row["reason"] for row in rows) == ["daily_cost_reached"] * 48 + ["ok"] * 2


DIMENSIONS = [
    ("daily_completions", "completions"),
    ("daily_input_tokens", "daily_input_tokens"),
    ("daily_output_tokens", "daily_output_tokens"),
    ("daily_tokens", "daily_tokens"),
    ("daily_cost_cents", "cost"),
    ("monthly_completions", "monthly_completions"),
    ("monthly_tokens", "monthly_tokens"),
    ("monthly_cost_cents", "monthly_cost"),
]


@pytest.mark.parametrize(("column", "shown"), DIMENSIONS)
async def test_case_09_null_zero_and_equal(calls: Calls, column: str, shown: str) -> None:
    calls.now = None
    await calls.tenant()
    assert (await calls.reserve(amounts=(1, 1, CENT)))["allowed"]
    row = await calls.row("SELECT * FROM v_quota_status")
    assert row[f"{shown}_pct"] is None
    await calls.change(**{column: 0})
    assert not (await calls.reserve(amounts=(0, 0, 0)))["allowed"]
    row = await calls.row("SELECT * FROM v_quota_status")
    assert float(row[f"{shown}_pct"]) == 100
    used = 2 if column in ("daily_tokens", "monthly_tokens") else 1
    await calls.change(**{column: used})
    assert not (await calls.reserve(amounts=(0, 0, 0)))["allowed"]
    row = await calls.row("SELECT * FROM v_quota_status")
    assert float(row[f"{shown}_pct"]) == 100


@pytest.mark.parametrize("budget", ["monthly_tokens", "monthly_cost_cents"])
async def test_case_09_null_zero_and_equal_of_a_department(calls: Calls, budget: str) -> None:
    await calls.department("d")
    await calls.tenant(department_id="d")
    assert (await calls.reserve(amounts=(1, 0, CENT)))["tier"] == "normal"
    for value in (0, 1):
        await calls.conn.execute(f"UPDATE department_budgets SET {budget} = {value}")
        row = await calls.reserve(amounts=(0, 0, 0), priority="high")
        assert (row["allowed"], row["tier"]) == (False, "exhausted")


async def test_case_10_the_first_request_of_a_new_month_passes(calls: Calls) -> None:
    last = at("2026-05-31T23:59:59")
    await calls.department("d", monthly_tokens=100)
    await calls.tenant(department_id="d", monthly_tokens=100, monthly_cost_cents=1)
    await calls.settle(request_id="r", amounts=(111, 0, 2 * CENT), now=last)
    assert not (await calls.reserve(now=last))["allowed"]
    row = await calls.reserve(now=at("2026-06-01T00:00:00"))
    assert (row["allowed"], row["tier"]) == (True, "normal")


async def test_case_11_no_figures_never_charge_zero(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r", amounts=(100, 50, 1500))
    row = await calls.settle(amounts=(None, None, None))
    assert (row["outcome"], row["in_tokens"], row["cost_nanos"]) == ("estimated", 100, 1500)
    assert (await calls.reservation())["usage_missing"] is True
    assert await calls.figures() == (1, 100, 50, 1500)


async def test_case_12_the_debt_of_a_deleted_or_moved_tenant_stays(calls: Calls) -> None:
    for name in "de":
        await calls.department(name, monthly_tokens=1000)
    for name in ("gone", "moved"):
        await calls.tenant(name, department_id="d", daily_tokens=300)
        await calls.reserve(name, "open", (100, 0, 5))
        await calls.settle(name, "done", (200, 0, 7))
    await calls.conn.execute("DELETE FROM tenant_limits WHERE tenant_id = 'gone'")
    await calls.change("moved", department_id="e")
    month = month_of(NOON.date())
    used = await calls.department_used("d", "production", month)
    assert (used["tokens_used"], used["tokens_held"], used["cost_used_nanos"]) == (600, 200, 24)
    assert (await calls.department_used("e", "production", month))["tokens_used"] == 0
    for name in ("gone", "moved"):
        assert await calls.figures(name) == (2, 300, 0, 12)
        await calls.settle(name, "open", (50, 0, 1))
    used = await calls.department_used("d", "production", month)
    assert (used["tokens_used"], used["tokens_held"]) == (500, 0)
    assert (await calls.reserve("moved", None, (51, 0, 0)))["reason"] == "daily_tokens_reached"
    await calls.tenant("gone", department_id="d", daily_tokens=250)
    assert (await calls.reserve("gone"))["reason"] == "daily_tokens_reached", "back with its debt"


async def test_case_25_the_month_ends_in_shanghai(calls: Calls) -> None:
    """The ledger's share: enforcement, counters and departments."""
    await calls.zone("Asia/Shanghai")
    await calls.conn.execute("SET TimeZone = 'UTC'")
    await calls.department("d", monthly_cost_cents=700)
    await calls.tenant(department_id="d", monthly_cost_cents=700)
    before = at("2026-05-31T23:59:59+08:00")
    after = at("2026-06-01T00:00:00+08:00")
    assert (await calls.reserve(request_id="five", amounts=(0, 0, 5 * DOLLAR), now=before))[
        "allowed"
    ]
    assert (await calls.reserve(request_id="seven", amounts=(0, 0, 7 * DOLLAR), now=after))[
        "allowed"
    ]
    await calls.settle(request_id="five", amounts=(0, 0, 5 * DOLLAR), now=after + MINUTE)
    await calls.settle(request_id="seven", amounts=(0, 0, 7 * DOLLAR), now=after + MINUTE)
    days = await calls.rows("SELECT period, cost_cents FROM quota_usage ORDER BY period")
    assert days == [
        {"period": date(2026, 5, 31), "cost_cents": 500},
        {"period": date(2026, 6, 1), "cost_cents": 700},
    ]
    for month, dollars in ((date(2026, 5, 1), 5), (date(2026, 6, 1), 7)):
        used = await calls.department_used("d", "production", month)
        assert used["cost_used_nanos"] == dollars * DOLLAR
    row = await calls.reserve(amounts=(0, 0, 1), now=after)
    assert row["reason"] == "department_budget_exhausted"
    assert row["resets_at"] == at("2026-07-01T00:00:00+08:00")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
async def test_case_26_months_are_contiguous(calls: Calls, zone: str) -> None:
    """The ledger's share: each instant lies in one month, from 31 January and 29 February on."""
    await calls.zone(zone)
    for day in (date(2026, 1, 31), date(2028, 2, 29), date(2026, 12, 31)):
        after = next_month(month_of(day))
        edge = await calls.conn.fetchval("SELECT quota_day_start($1)", after)
        for moment, month in (
            (edge - timedelta(microseconds=1), month_of(day)),
            (edge, after),
        ):
            got = await calls.conn.fetchval("SELECT quota_day($1)", moment)
            assert month_of(got) == month
    await calls.tenant(monthly_completions=1)
    for moment in ("2028-02-29T12:00", "2028-03-01T12:00", "2028-03-31T12:00", "2028-04-01T12:00"):
        await calls.reserve(now=at(moment))
    months = await calls.rows("SELECT period FROM quota_usage WHERE completions > 0 ORDER BY 1")
    assert [row["period"].month for row in months] == [2, 3, 4]


async def test_case_31_a_lost_connection_marks_nothing_done(calls: Calls, connect: Connect) -> None:
    """The ledger's share: the server side dies in mid-call, and the next call does it once."""
    await calls.tenant()
    await calls.reserve(request_id="r")
    conn = await connect()
    pid = await conn.fetchval("SELECT pg_backend_pid()")
    transaction = calls.conn.transaction()
    await transaction.start()
    await calls.conn.execute("SELECT 1 FROM quota_usage FOR UPDATE")
    waiting = asyncio.ensure_future(Calls(conn).settle(amounts=(1, 1, 1)))
    await asyncio.sleep(0.3)
    await calls.conn.execute("SELECT pg_terminate_backend($1)", pid)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await waiting
    await transaction.rollback()
    assert (await calls.reservation())["state"] == "open"
    assert (await calls.settle(amounts=(1, 1, 1)))["outcome"] == "settled"
    assert await calls.figures() == (1, 1, 1, 1)
