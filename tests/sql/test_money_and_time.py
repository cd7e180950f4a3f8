"""Nanos beside cents, and local days: the zone of the deployment, never the session's."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from model.days import day_of, end_of_day, end_of_month, start_of_day
from sql.calls import NOON, at

if TYPE_CHECKING:
    from sql.calls import Calls

CENT = 10_000_000
DAYS = [
    ("UTC", date(2026, 2, 28)),
    ("UTC", date(2028, 2, 29)),
    ("Asia/Shanghai", date(2026, 12, 31)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("America/Havana", date(2026, 3, 8)),  # no midnight on that day
    ("Asia/Kathmandu", date(2026, 6, 30)),
]
SESSIONS = ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"]


@pytest.mark.parametrize("cost", [1, 1500, CENT - 1, CENT, CENT + 1, 3 * CENT + 7])
async def test_costs_carry_between_cents_and_nanos(calls: Calls, cost: int) -> None:
    await calls.tenant()
    for number in range(7):
        await calls.reserve(request_id=f"r{number}", amounts=(0, 0, cost))
        row = await calls.usage()
        total = (number + 1) * cost
        assert (row["cost_cents"], row["cost_subcent_nanos"]) == divmod(total, CENT)
        assert row["held_cost_nanos"] == total
    for number in range(7):
        await calls.settle(request_id=f"r{number}", amounts=(0, 0, number))
    row = await calls.usage()
    assert (row["cost_cents"], row["cost_subcent_nanos"], row["held_cost_nanos"]) == (0, 21, 0)


async def test_a_correction_carries_downwards_too(calls: Calls) -> None:
    await calls.tenant()
    await calls.settle(request_id="a", amounts=(0, 0, 2 * CENT + 3))
    await calls.settle(request_id="a", amounts=(0, 0, CENT - 1))
    row = await calls.usage()
    assert (row["cost_cents"], row["cost_subcent_nanos"]) == (0, CENT - 1)


async def test_a_cost_cap_is_judged_to_the_nano(calls: Calls) -> None:
    await calls.tenant(daily_cost_cents=1)
    assert (await calls.reserve(amounts=(0, 0, CENT - 1)))["allowed"]
    assert (await calls.reserve(amounts=(0, 0, 2)))["reason"] == "daily_cost_reached"
    assert (await calls.reserve(amounts=(0, 0, 1)))["allowed"]
    assert (await calls.reserve(amounts=(0, 0, 0)))["reason"] == "daily_cost_reached"


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize(("zone", "day"), DAYS)
async def test_days_and_months_end_where_the_billing_zone_ends_them(
    calls: Calls, zone: str, day: date, session: str
) -> None:
    await calls.zone(zone)
    await calls.conn.execute(f"SET TimeZone = '{session}'")
    await calls.tenant("day", daily_completions=1)
    await calls.tenant("month", monthly_completions=1)
    moments = [
        start_of_day(day, zone),
        start_of_day(day, zone) + timedelta(hours=2, minutes=30),
        end_of_day(day, zone) - timedelta(microseconds=1),
    ]
    for number, moment in enumerate(moments):
        names = (f"day{number}", f"month{number}")
        await calls.tenant(names[0], daily_completions=1)
        await calls.tenant(names[1], monthly_completions=1)
        for name, end in zip(names, (end_of_day(day, zone), end_of_month(day, zone)), strict=True):
            assert (await calls.reserve(name, now=moment))["allowed"]
            assert (await calls.usage(name, day_of(moment, zone)))["completions"] == 1
            row = await calls.reserve(name, now=moment)
            assert not row["allowed"]
            assert row["resets_at"] == end
            gap = (end - moment) / timedelta(seconds=1)
            assert abs(float(row["retry_after_seconds"]) - gap) < 0.001
            last = await calls.reserve(name, now=end - timedelta(seconds=1))
            assert not last["allowed"]
            assert (await calls.reserve(name, now=end))["allowed"]


@pytest.mark.parametrize(("zone", "day"), DAYS)
async def test_the_ledgers_own_day_functions_agree_with_the_model(
    calls: Calls, zone: str, day: date
) -> None:
    await calls.zone(zone)
    for offset in range(-3, 4):
        one = day + timedelta(days=offset)
        start = start_of_day(one, zone)
        assert await calls.conn.fetchval("SELECT quota_day_start($1)", one) == start
        for moment in (start, start - timedelta(microseconds=1), start + timedelta(hours=1)):
            got = await calls.conn.fetchval("SELECT quota_day($1)", moment)
            assert got == day_of(moment, zone)


async def test_a_settlement_after_midnight_belongs_to_the_day_of_admission(calls: Calls) -> None:
    await calls.tenant()
    late = at("2026-05-15T23:59:59")
    await calls.reserve(request_id="r", amounts=(100, 0, 0), now=late)
    await calls.settle(amounts=(30, 0, 0), now=late + timedelta(seconds=5))
    await calls.settle(amounts=(40, 0, 0), now=late + timedelta(days=20))
    assert await calls.figures(day=date(2026, 5, 15)) == (1, 40, 0, 0)
    assert await calls.figures(day=date(2026, 5, 16)) == (0, 0, 0, 0)
    assert await calls.figures(day=date(2026, 6, 4)) == (0, 0, 0, 0)


@pytest.mark.parametrize("session", SESSIONS)
async def test_the_sessions_zone_never_picks_the_day_of_a_charge(
    calls: Calls, session: str
) -> None:
    """Also where both days have a row to charge."""
    await calls.zone("Asia/Shanghai")
    await calls.conn.execute(f"SET TimeZone = '{session}'")
    await calls.tenant(daily_completions=3)
    for moment in ("2026-05-15T12:00+08:00", "2026-05-15T12:01+08:00", "2026-05-16T06:00+08:00"):
        assert (await calls.reserve(now=at(moment)))["allowed"]
    for moment in ("2026-05-16T06:01+08:00", "2026-05-16T23:59+08:00"):
        assert (await calls.reserve(now=at(moment)))["allowed"]
    assert (await calls.usage(day=date(2026, 5, 15)))["completions"] == 2
    assert (await calls.usage(day=date(2026, 5, 16)))["completions"] == 3
    assert not (await calls.reserve(now=at("2026-05-16T23:59:30+08:00")))["allowed"]
    assert (await calls.reserve(now=at("2026-05-17T00:00+08:00")))["allowed"]
    # far from every threshold, where the short path charges
    await calls.tenant("u", daily_completions=100)
    for moment in ("15T12:00", "15T12:01", "16T06:00", "16T06:01", "16T23:59"):
        assert (await calls.reserve("u", now=at(f"2026-05-{moment}+08:00")))["allowed"]
    assert (await calls.usage("u", day=date(2026, 5, 15)))["completions"] == 2
    assert (await calls.usage("u", day=date(2026, 5, 16)))["completions"] == 3


async def test_null_p_now_is_the_clock_not_the_transactions_start(calls: Calls) -> None:
    await calls.tenant()
    async with calls.conn.transaction():
        await calls.conn.execute("SELECT pg_sleep(0.3)")
        await calls.reserve(request_id="r", now=None)
        started = await calls.conn.fetchval("SELECT now()")
    admitted = (await calls.reservation())["admitted_at"]
    assert admitted - started >= timedelta(seconds=0.29)
    assert abs(datetime.now(tz=UTC) - admitted) < timedelta(seconds=30)


async def test_a_clock_slightly_behind_charges_its_own_day(calls: Calls) -> None:
    await calls.tenant(daily_completions=1)
    assert (await calls.reserve(now=at("2026-05-16T00:00:01")))["allowed"]
    assert (await calls.reserve(now=at("2026-05-15T23:59:59")))["allowed"]
    for moment in ("2026-05-16T00:00:02", "2026-05-15T23:59:59.5"):
        assert (await calls.reserve(now=at(moment)))["reason"] == "daily_cap_reached"
    assert (await calls.usage(day=NOON.date()))["completions"] == 1
