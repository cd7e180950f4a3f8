"""The audit of requests: known usage comes back, moved rows go home, a closed month stays shut."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from sql.auditing import DAY, MAY, TODAY, assert_mended, audit, places, plant, repair
from sql.calls import NOON

if TYPE_CHECKING:
    from sql.calls import Calls

APRIL = date(2026, 4, 1)
BEFORE = NOON - 30 * DAY
USED = (120, 60, 6000)
NEVER_ENDED = (
    "charged_in_tokens = NULL, charged_out_tokens = NULL, charged_cost_nanos = NULL,"
    " ended_at = NULL"
)


async def harm(calls: Calls, request_id: str, sets: str) -> None:
    await calls.conn.execute(
        f"UPDATE quota_reservations SET {sets} WHERE tenant_id = 't' AND request_id = $1",
        request_id,
    )


async def lower(calls: Calls, tokens: int, cost: int, day: date = TODAY) -> None:
    """Takes input tokens and nanos off the day and the department, as one hand would."""
    await plant(
        calls,
        f"input_tokens = input_tokens - {tokens}, booked_input_tokens = booked_input_tokens"
        f" - {tokens}, cost_subcent_nanos = cost_subcent_nanos - {cost},"
        f" booked_cost_nanos = booked_cost_nanos - {cost}",
        day,
    )
    await calls.conn.execute(
        f"UPDATE quota_department_slots SET tokens_used = tokens_used - {tokens},"
        f" cost_used_nanos = cost_used_nanos - {cost} WHERE slot = 0"
    )


async def one_request(calls: Calls, **tenant: str) -> None:
    """Request r of tenant t in department d: estimated (100, 50, 5000), settled by USED as u1."""
    await calls.department("d", monthly_tokens=10**6)
    await calls.tenant(department_id="d", **tenant)
    await calls.reserve(request_id="r", amounts=(100, 50, 5000))
    await calls.settle(amounts=USED, usage_id="u1")


async def test_a_repair_charges_the_latest_usage(calls: Calls) -> None:
    await one_request(calls)
    for sets in (
        f"state = 'x', {NEVER_ENDED}",
        f"state = 'open', {NEVER_ENDED}",
        f"state = 'settled', {NEVER_ENDED}",
        "charged_cost_nanos = -charged_cost_nanos",
        "usage_cost_nanos = -5",
        "charged_in_tokens = 1",
        "completion_counted = false",
    ):
        await harm(calls, "r", sets)
        found = {r["kind"]: r["request_id"] for r in await audit(calls)}
        assert found.get("impossible", found.get("usage")) == "r", sets
        await assert_mended(calls)
        row = await calls.reservation()
        assert (row["state"], row["usage_missing"]) == ("settled", False), sets
        assert await calls.figures() == (1, *USED), sets
    assert (await calls.settle(amounts=USED, usage_id="u1"))["outcome"] == "replayed"


async def test_a_charge_that_is_not_the_latest_usage_though_all_counters_agree(
    calls: Calls,
) -> None:
    await one_request(calls)
    await harm(calls, "r", "charged_in_tokens = 1, charged_cost_nanos = 0")
    await lower(calls, 119, 6000)
    found = await audit(calls)
    assert [(r["kind"], r["request_id"], r["dimension"]) for r in found] == [
        ("usage", "r", "request")
    ]
    assert found[0]["cause"] == (
        "the request's charge is wrong: it is charged 1 input and 60 output tokens and 0 nanos,"
        " its latest usage is 120, 60 and 6000"
    )
    await assert_mended(calls)
    assert await calls.figures() == (1, *USED)
    used = await calls.department_used("d", "production", MAY)
    assert (used["tokens_used"], used["cost_used_nanos"]) == (180, 6000)


async def test_charges_that_are_no_usage_are_no_drift(calls: Calls) -> None:
    """Usage without a cost, releases with figures, each stale policy, corrections, no figures."""
    await calls.tenant()
    for name in ("unpriced", "released", "empty", "none", "late"):
        await calls.reserve(request_id=name, amounts=(100, 50, 5000))
    await calls.settle(request_id="unpriced", amounts=(10, 5, None), model="odd-one")
    await calls.release(request_id="released", amounts=(3, 2, 1))
    await calls.release(request_id="empty", amounts=(0, 0, 0))
    await calls.settle(request_id="none", amounts=(None, None, None))
    await calls.release(request_id="late", amounts=(0, 0, 0))
    await calls.settle(request_id="late", amounts=USED)
    await calls.settle(request_id="never", amounts=(7, 7, None))
    at = NOON
    for policy in ("estimate", "partial", "release"):
        await calls.change(stale_policy=policy)
        await calls.reserve(request_id=policy, amounts=(100, 50, 5000), now=at)
        await calls.progress(request_id=policy, tokens_out=20, now=at)
        at += timedelta(hours=2)
        await calls.expire(now=at)
    assert await audit(calls) == []
    ends = {
        "none": (100, 50, 5000),
        "estimate": (100, 50, 5000),
        "partial": (100, 20, 4000),
        "release": (0, 0, 0),
        "late": USED,
    }
    for name in ends:
        await harm(calls, name, "charged_in_tokens = 77, charged_out_tokens = NULL")
    assert {r["request_id"] for r in await audit(calls) if r["kind"] == "impossible"} == set(ends)
    await assert_mended(calls)
    for name, charge in ends.items():
        row = await calls.reservation(request_id=name)
        charged = tuple(
            row[f"charged_{what}"] for what in ("in_tokens", "out_tokens", "cost_nanos")
        )
        assert charged == charge, name


async def test_a_request_whose_day_or_admission_was_moved_goes_home(calls: Calls) -> None:
    await one_request(calls)
    await calls.reserve(request_id="o", amounts=(10, 5, 100))
    figures = (2, 130, 65, 6100)
    for request, sets, words in (
        ("r", "admitted_at = admitted_at - interval '60 days'", "time of admission, on 2026-03-16"),
        ("r", "admitted_at = admitted_at + interval '2 days'", "time of admission, on 2026-05-17"),
        ("r", "admitted_at = 'infinity'", "time of admission, on infinity"),
        ("r", "period = period - 40", "it was admitted on 2026-05-15"),
        ("o", "period = period + 40", "it was admitted on 2026-05-15"),
        ("o", "admitted_at = admitted_at - interval '60 days'", "time of admission"),
        ("o", "period = period - 1", "it was admitted on 2026-05-15"),
    ):
        await harm(calls, request, sets)
        found = [r for r in await audit(calls) if r["kind"] == "impossible"]
        assert [r["request_id"] for r in found] == [request], sets
        assert words in found[0]["cause"], sets
        await assert_mended(calls)
        row = await calls.reservation(request_id=request)
        assert (row["period"], row["admitted_at"]) == (TODAY, NOON), sets
        assert await calls.figures() == figures, sets
    assert await calls.held() == (10, 5, 100)
    # a month that isn't closed is as exact: its zone can't have been changed
    await calls.reserve(request_id="past", now=BEFORE)
    await calls.settle(request_id="past", now=BEFORE)
    await harm(calls, "past", "period = period + 1")
    assert {r["request_id"] for r in await audit(calls, APRIL) if r["kind"] == "impossible"} == {
        "past"
    }
    await assert_mended(calls, APRIL)
    assert (await calls.reservation(request_id="past"))["period"] == BEFORE.date()
    # the month to which it was moved has it, too
    await harm(calls, "r", "period = period - 40")
    (row,) = await audit(calls, APRIL)
    assert (row["kind"], row["request_id"]) == ("impossible", "r")
    await repair(calls, APRIL)
    assert await audit(calls, APRIL) == await audit(calls) == []


async def test_days_of_an_older_zone_are_no_drift(calls: Calls) -> None:
    await calls.zone("Pacific/Kiritimati")
    await calls.tenant()
    await calls.reserve(request_id="r", now=BEFORE)
    await calls.settle(now=BEFORE)
    assert (await calls.row("SELECT * FROM quota_roll_month($1, $2)", APRIL, NOON))["closed"]
    await calls.zone("Pacific/Pago_Pago")
    row = await calls.reservation()
    assert row["period"] == BEFORE.date() + DAY
    assert await audit(calls, APRIL) == await audit(calls) == []


async def test_a_repair_opens_nothing_in_a_closed_month(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=10**6)
    await calls.tenant(department_id="d", stale_policy="release")
    await calls.reserve(request_id="r", amounts=(100, 50, 5000), now=BEFORE)
    await calls.reserve(request_id="s", amounts=(10, 5, 100), now=BEFORE)
    await calls.settle(request_id="r", amounts=USED, now=BEFORE)
    await calls.release(request_id="s", amounts=(0, 0, 0), now=BEFORE)
    assert (await calls.row("SELECT * FROM quota_roll_month($1, $2)", APRIL, NOON))["closed"]
    for request in ("r", "s"):
        await harm(calls, request, f"state = 'weird', {NEVER_ENDED}")
    await assert_mended(calls, APRIL)
    rows = {name: await calls.reservation(request_id=name) for name in ("r", "s")}
    assert {(r["state"], r["ended_at"] is None) for r in rows.values()} == {("settled", False)}
    assert (rows["r"]["charged_cost_nanos"], rows["r"]["usage_missing"]) == (6000, False)
    assert (rows["s"]["charged_cost_nanos"], rows["s"]["usage_missing"]) == (100, True)
    await harm(calls, "s", f"state = 'open', {NEVER_ENDED}")
    found = await audit(calls, APRIL)
    assert [r["cause"] for r in found if r["kind"] == "impossible"] == [
        "the request's row is impossible: it is open, yet its month is closed"
    ]
    await assert_mended(calls, APRIL)
    # what comes after it is an adjustment like any other
    await calls.settle(request_id="s", amounts=(20, 5, 200))
    assert await audit(calls, APRIL) == []
    await calls.conn.fetchval("SELECT quota_book_adjustments($1)", NOON)
    await calls.row("SELECT * FROM quota_roll_month($1, $2)", MAY, NOON)
    totals = await calls.row(
        "SELECT sum(completions) AS c, sum(input_tokens) AS i, sum(output_tokens) AS o,"
        " sum(cost_nanos) AS n FROM quota_monthly_totals WHERE belongs_to = $1",
        APRIL,
    )
    assert tuple(totals.values()) == (2, 140, 65, 6200)


async def test_a_hold_beyond_a_moved_request_accuses_no_other(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="moved", amounts=(10, 5, 100))
    await calls.reserve(request_id="innocent", amounts=(10, 5, 100))
    await calls.release(request_id="innocent")
    await harm(calls, "moved", "period = period + 1")
    holds = [r for r in await audit(calls) if r["kind"] == "held" and r["period"] == TODAY]
    assert {(r["dimension"], r["expected"], r["found"]) for r in holds} == {
        ("input_tokens", 0, 10),
        ("output_tokens", 0, 5),
        ("cost_nanos", 0, 100),
    }
    assert {r["cause"] for r in holds} == {
        "more is held than open requests ask: as much as request innocent held, which has ended"
    }
    await assert_mended(calls)
    assert await calls.held() == (10, 5, 100)
    assert places(await audit(calls)) == []


async def test_where_day_and_admission_were_both_changed_the_expiry_tells(calls: Calls) -> None:
    await one_request(calls)
    await calls.reserve(request_id="o", amounts=(10, 5, 100))
    await calls.reserve(request_id="late", amounts=(1, 1, 1))
    await calls.settle(request_id="late", amounts=(1, 1, 1), now=NOON + 5 * DAY)
    calls.now = NOON + 6 * DAY
    for request, days, admitted in (
        *(("r", days, 60) for days in (-35, -60, -1, 1)),
        *(("r", -1, 1), ("r", 1, -1)),
        *(("o", days, 60) for days in (-35, -1)),
        *(("late", days, 60) for days in (-35, -1)),
    ):
        sets = f"period = period + {days}, admitted_at = admitted_at - interval '{admitted} days'"
        await harm(calls, request, sets)
        found = [r for r in await audit(calls) if r["kind"] == "impossible"]
        words = f"it lies on the wrong day: it was admitted on {TODAY}"
        assert [(r["request_id"], r["cause"]) for r in found] == [
            (request, f"the request's row is impossible: {words}")
        ], sets
        await assert_mended(calls)
        row = await calls.reservation(request_id=request)
        assert (row["period"], row["admitted_at"]) == (TODAY, NOON), sets
        assert await calls.figures(day=TODAY) == (3, 131, 66, 6101), sets
        assert await audit(calls, APRIL) == await audit(calls, date(2026, 3, 1)) == [], sets
    # two of three were changed: the end speaks for the one that is left
    for sets, period in (
        ("expires_at = expires_at - interval '9 days', period = period - 35", TODAY),
        ("expires_at = expires_at - interval '9 days', admitted_at = 'infinity'", TODAY),
        ("expires_at = 'infinity', period = period - 35", TODAY),
        ("expires_at = expires_at + interval '9 days'", TODAY),
    ):
        await harm(calls, "r", sets)
        await repair(calls)
        assert (await calls.reservation())["period"] == period, sets
        assert await audit(calls) == [], sets
        assert await calls.figures(day=TODAY) == (3, 131, 66, 6101), sets
        await harm(
            calls, "r", "admitted_at = '2026-05-15 12:00Z', expires_at = '2026-05-15 12:10Z'"
        )
