"""The audit: damage of each kind that is planted is found, explained and mended."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from sql.auditing import (
    CENT,
    DAY,
    MAY,
    RIGHT,
    TODAY,
    assert_mended,
    audit,
    make_busy,
    places,
    plant,
)
from sql.calls import NOON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sql.calls import Calls


@pytest.fixture
async def busy(calls: Calls) -> AsyncIterator[Calls]:
    """See make_busy; whatever was planted, the tenant beside it is as it was."""
    await make_busy(calls)
    yield calls
    assert await calls.figures("other") == (1, 1, 1, 1)


async def test_a_lost_hold(busy: Calls) -> None:
    lost = "held_input_tokens = 0, held_output_tokens = 0, held_cost_nanos = 0"
    used_too = (
        ", input_tokens = input_tokens - 40, output_tokens = output_tokens - 9,"
        " booked_input_tokens = booked_input_tokens - 40, cost_subcent_nanos = 55"
    )
    for sets in (lost, lost + used_too):
        await plant(busy, sets)
        found = await audit(busy)
        assert places(found) == [
            ("held", "t", TODAY, "cost_nanos", 700, 0),
            ("held", "t", TODAY, "input_tokens", 40, 0),
            ("held", "t", TODAY, "output_tokens", 9, 0),
        ]
        assert {(r["request_id"], r["cause"].split(": ")[1]) for r in found} == {
            ("open", "as much as request open, which is open, ought to hold")
        }
        await assert_mended(busy)
        assert await busy.figures() == RIGHT
        assert await busy.held() == (40, 9, 700)


async def test_a_hold_that_was_not_given_back_and_one_without_a_reservation(busy: Calls) -> None:
    await plant(busy, "held_input_tokens = held_input_tokens + 20, input_tokens = input_tokens + 20,"
                      " held_cost_nanos = held_cost_nanos + 300")  # fmt: skip
    found = await audit(busy)
    assert {r["request_id"] for r in found} == {"done"}
    words = "more is held than open requests ask: as much as request done held, which has ended"
    assert {r["cause"] for r in found} == {words}
    await assert_mended(busy)
    await plant(busy, "held_input_tokens = held_input_tokens + 7")
    (row,) = await audit(busy)
    assert (row["expected"], row["found"], row["request_id"]) == (40, 47, None)
    assert "a hold without a reservation" in row["cause"]
    await assert_mended(busy)
    # its row is gone altogether: what it held and counted goes, too
    await busy.conn.execute("DELETE FROM quota_reservations WHERE request_id = 'open'")
    kinds = {(r["kind"], r["dimension"] or "") for r in await audit(busy)}
    assert ("held", "input_tokens") in kinds
    assert ("posted", "completions") in kinds
    assert ("department", "tokens_held") in kinds
    await assert_mended(busy)
    assert await busy.figures() == (2, 26, 7, 2 * CENT + 55)
    used = await busy.department_used("d", "production", MAY)
    assert (used["tokens_used"], used["tokens_held"]) == (26 + 7 + 18, 0)


TWICE = (
    "completions = completions + {0}, input_tokens = input_tokens + 18 * {0},"
    " output_tokens = output_tokens + 4 * {0}, cost_cents = cost_cents + 2 * {0},"
    " cost_subcent_nanos = cost_subcent_nanos + 5 * {0}"
)
AND_BOOKED = (
    ", booked_completions = booked_completions + {0}, booked_input_tokens = booked_input_tokens"
    " + 18 * {0}, booked_output_tokens = booked_output_tokens + 4 * {0},"
    " booked_cost_nanos = booked_cost_nanos + 20000005 * {0}"
)


async def test_a_charge_posted_twice_or_dropped(busy: Calls) -> None:
    for sign, words in ((1, "looks posted twice"), (-1, "looks dropped")):
        for sets in (TWICE, TWICE + AND_BOOKED):
            await plant(busy, sets.format(sign))
            found = await audit(busy)
            cost = 2 * CENT + 5
            assert places(found) == [
                ("posted", "t", TODAY, "completions", 3, 3 + sign),
                ("posted", "t", TODAY, "cost_nanos", cost + 50, cost + 50 + sign * cost),
                ("posted", "t", TODAY, "input_tokens", 26, 26 + 18 * sign),
                ("posted", "t", TODAY, "output_tokens", 7, 7 + 4 * sign),
            ]
            assert {r["request_id"] for r in found} == {"done"}
            assert all(words in r["cause"] for r in found)
            assert (found[0]["department_id"], found[0]["environment"]) == ("d", "production")
            mends = await assert_mended(busy)
            assert [m["mended"] for m in mends] == [m["expected"] for m in mends]
            assert await busy.figures() == RIGHT


async def test_a_double_post_that_was_folded_in_is_a_remark(busy: Calls) -> None:
    await plant(busy, TWICE.format(1))
    await busy.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)
    assert await audit(busy) == []
    (row,) = await audit(busy, severity="remark")
    assert (row["kind"], row["period"], row["request_id"]) == ("folded", TODAY, "done")
    await plant(busy, TWICE.format(-1))
    await busy.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)
    assert await audit(busy, severity="remark") == await audit(busy) == []
    assert await busy.figures() == RIGHT


async def test_a_charge_on_the_wrong_day(busy: Calls) -> None:
    await plant(busy, "input_tokens = input_tokens - 5, output_tokens = output_tokens - 1")
    await plant(
        busy, "input_tokens = input_tokens + 5, output_tokens = output_tokens + 1", TODAY - DAY
    )
    found = await audit(busy)
    assert [(r["period"], r["dimension"], r["found"] - r["expected"]) for r in found] == [
        (TODAY - DAY, "input_tokens", 5),
        (TODAY - DAY, "output_tokens", 1),
        (TODAY, "input_tokens", -5),
        (TODAY, "output_tokens", -1),
    ]
    assert found[0]["cause"] == "posted to the wrong day: the same is missing on 2026-05-15"
    assert found[2]["cause"] == "posted to the wrong day: it stands on 2026-05-14"
    await assert_mended(busy)
    assert await busy.figures() == RIGHT


async def test_the_wrong_day_lies_in_the_month_before(calls: Calls) -> None:
    await calls.tenant()
    first = datetime(2026, 5, 1, 0, 5, tzinfo=UTC)
    for request, at in (("a", first - timedelta(minutes=10)), ("b", first)):
        await calls.reserve(request_id=request, now=at)
        await calls.settle(request_id=request, now=at)
    for sign, day in ((-1, MAY), (1, MAY - DAY)):
        await plant(calls, f"input_tokens = input_tokens + {3 * sign}", day)
    (row,) = await audit(calls)
    assert (row["period"], row["cause"]) == (
        MAY, "posted to the wrong day: it stands on 2026-04-30"
    )  # fmt: skip
    await assert_mended(calls)
    await assert_mended(calls, date(2026, 4, 1))
    assert await calls.figures(day=MAY - DAY) == (1, 10, 5, 100)


async def test_counters_below_zero(busy: Calls) -> None:
    await plant(busy, "input_tokens = -7, cost_cents = -3, held_output_tokens = -1")
    found = await audit(busy)
    assert places(found) == [
        ("negative", "t", TODAY, "cost_nanos", 2 * CENT + 755, -3 * CENT + 755),
        ("negative", "t", TODAY, "input_tokens", 66, -7),
        ("negative", "t", TODAY, "output_tokens", 9, -1),
    ]
    await assert_mended(busy)
    assert await busy.figures() == RIGHT
    # the same after a reconcile has folded it in: tenant and department agree afterwards
    await plant(busy, "input_tokens = -7")
    await busy.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)
    assert places(await audit(busy)) == [("negative", "t", TODAY, "input_tokens", 66, -7)]
    await assert_mended(busy)
    assert await busy.figures() == RIGHT
    used = await busy.department_used("d", "production", MAY)
    assert used["tokens_used"] == 66 + 16 + 18
    assert (await busy.reserve(amounts=(1, 1, 1)))["allowed"]


async def test_requests_of_a_day_without_a_row(busy: Calls) -> None:
    await busy.conn.execute("DELETE FROM quota_usage WHERE tenant_id = 't' AND period = $1", TODAY)
    found = await audit(busy)
    assert [(r["kind"], r["dimension"], r["expected"], r["found"]) for r in found] == [
        ("orphan", "completions", 3, 0),
        ("orphan", "cost_nanos", 2 * CENT + 755, 0),
        ("orphan", "input_tokens", 66, 0),
        ("orphan", "output_tokens", 16, 0),
    ]
    await assert_mended(busy)
    assert await busy.figures() == RIGHT
    assert await busy.held() == (40, 9, 700)
    assert (await busy.settle(request_id="open", amounts=(1, 1, 1)))["outcome"] == "settled"
    assert await audit(busy) == []


IMPOSSIBLE = (
    ("open", "ended_at = now()", "open, yet has an end", "open"),
    ("open", "charged_in_tokens = 1", "open, yet charged", "open"),
    ("open", "expires_at = 'infinity'", "would never be overdue", "open"),
    ("open", "state = 'gone'", "its state is gone", "open"),
    ("done", "period = period - 1", "it was admitted on 2026-05-15", "settled"),
    ("done", "state = 'odd'", "its state is odd", "settled"),
    ("done", "ended_at = NULL", "it ended, at no time", "settled"),
    ("done", "charged_cost_nanos = NULL", "without a charge", "settled"),
    ("done", "state = 'expired', stale_policy = 'x'", "a policy that is none", "expired"),
    ("late", "charged_in_tokens = -5", "an amount is below zero", "settled"),
)


async def test_rows_of_requests_in_an_impossible_state(busy: Calls) -> None:
    for request_id, sets, words, state in IMPOSSIBLE:
        await busy.conn.execute(
            f"UPDATE quota_reservations SET {sets} WHERE tenant_id = 't' AND request_id = $1",
            request_id,
        )
        (row,) = [r for r in await audit(busy) if r["kind"] == "impossible"]
        assert (row["tenant_id"], row["request_id"]) == ("t", request_id)
        assert words in row["cause"]
        assert row["period"] == (TODAY - DAY if "period" in sets else TODAY)
        await assert_mended(busy)
        assert (await busy.reservation(request_id=request_id))["state"] == state, sets
    assert await busy.figures() == RIGHT
    await busy.expire(now=NOON + 2 * DAY)
    assert (await busy.reservation(request_id="open"))["state"] == "expired"
    assert await audit(busy) == []


async def test_a_departments_slots(busy: Calls) -> None:
    await busy.conn.execute(
        "UPDATE quota_department_slots SET tokens_used = tokens_used + 22,"
        " cost_used_nanos = cost_used_nanos + $1, tokens_held = tokens_held - 3 WHERE slot = 5",
        2 * CENT + 5,
    )
    found = await audit(busy)
    assert [(r["department_id"], r["dimension"], r["found"] - r["expected"]) for r in found] == [
        ("d", "cost_used_nanos", 2 * CENT + 5),
        ("d", "tokens_held", -3),
        ("d", "tokens_used", 22),
    ]
    assert found[2]["cause"] == "request done looks booked twice on the department's slots"
    await assert_mended(busy)
    used = await busy.department_used("d", "production", MAY)
    assert (used["tokens_used"], used["tokens_held"]) == (66 + 16 + 18, 49)
    await busy.conn.execute("DELETE FROM quota_department_slots")
    assert {r["kind"] for r in await audit(busy)} == {"department"}
    await assert_mended(busy)
    assert await busy.department_used("d", "production", MAY) == used


async def test_the_note_of_what_was_booked(busy: Calls) -> None:
    await plant(busy, "booked_input_tokens = booked_input_tokens - 6")
    assert places(await audit(busy)) == [("booked", "t", TODAY, "input_tokens", 66, 60)]
    await assert_mended(busy)
    assert await busy.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON) == 0
