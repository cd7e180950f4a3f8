"""The audit of departments: moves, deleted slots, legacy charges of either side, keepers."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from sql.auditing import DAY, MAY, TODAY, assert_mended, audit, plant, repair
from sql.calls import NOON, Calls

if TYPE_CHECKING:
    from conftest import Connect

APRIL = date(2026, 4, 1)
BEFORE = NOON - 30 * DAY
COST = 70_000_000
SLOTS = "SELECT count(*) FROM quota_department_slots WHERE department_id = $1"


async def two_departments(calls: Calls) -> None:
    for name in ("d1", "d2"):
        await calls.department(name, monthly_tokens=10**9, monthly_cost_cents=10**6)
    await calls.tenant(department_id="d1")


async def used(calls: Calls, department: str, month: date = MAY) -> tuple[int, int]:
    row = await calls.department_used(department, "production", month)
    return (row["tokens_used"], row["cost_used_nanos"]) if row else (0, 0)


async def test_a_mend_after_a_move_goes_to_the_department_that_was_charged(calls: Calls) -> None:
    await two_departments(calls)
    await calls.reserve(request_id="r", amounts=(100, 50, COST))
    await calls.settle(request_id="r", amounts=(100, 50, COST))
    await plant(calls, "cost_cents = cost_cents - 100, input_tokens = input_tokens - 1000")
    await calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)
    assert await used(calls, "d1") == (150 - 1000, COST - 10**9)
    await calls.change(department_id="d2")
    await calls.reserve(request_id="there", amounts=(7, 7, 7))
    mends = await assert_mended(calls)
    assert {(m["kind"], m["department_id"]) for m in mends} == {("negative", "d1")}
    assert await used(calls, "d1") == (150, COST)
    assert await used(calls, "d2") == (14, 7)
    # a direct write that is kept is booked where the tenant is now, as reconcile does it
    await plant(calls, "legacy_completions = 1, completions = 3, booked_completions = 3")
    await plant(calls, "input_tokens = input_tokens + 5")
    await assert_mended(calls)
    assert await used(calls, "d2") == (19, 7)
    assert await audit(calls, severity="remark") == []


async def test_so_does_the_adjustment_of_a_closed_month(calls: Calls) -> None:
    await two_departments(calls)
    await calls.reserve(request_id="r", amounts=(100, 50, COST), now=BEFORE)
    await calls.settle(request_id="r", amounts=(100, 50, COST), now=BEFORE)
    day = BEFORE.date()
    await plant(calls, "cost_cents = cost_cents - 100, input_tokens = input_tokens - 1000", day)
    await calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)
    assert (await calls.row("SELECT * FROM quota_roll_month($1, $2)", APRIL, NOON))["closed"]
    await calls.change(department_id="d2")
    await assert_mended(calls, APRIL)
    assert await used(calls, "d1", APRIL) == (150, COST)
    assert await used(calls, "d2", APRIL) == (0, 0)
    await calls.conn.fetchval("SELECT quota_book_adjustments($1)", NOON)
    await calls.row("SELECT * FROM quota_roll_month($1, $2)", MAY, NOON)
    totals = await calls.rows(
        "SELECT department_id, sum(input_tokens) AS i, sum(cost_nanos) AS n"
        " FROM quota_monthly_totals WHERE belongs_to = $1 GROUP BY department_id",
        APRIL,
    )
    assert [tuple(row.values()) for row in totals] == [("d1", 100, COST)]


async def test_slots_that_somebody_deleted_are_made_by_every_booking_and_by_a_repair(
    calls: Calls, connect: Connect
) -> None:
    await two_departments(calls)
    await calls.reserve(request_id="r", amounts=(10, 5, 100))
    other = Calls(await connect())
    # the one that stays isn't the other's
    kept = (await other.conn.fetchval("SELECT pg_backend_pid()") + 1) % 16
    delete = "DELETE FROM quota_department_slots WHERE slot <> $1"
    bookings = (
        lambda: other.reserve(request_id="s", amounts=(1, 1, 1)),
        lambda: other.reserve_batch(
            [{"tenant": "t", "request_id": "b", "in_tokens": 1, "out_tokens": 1, "cost_nanos": 1}]
        ),
        lambda: other.settle(request_id="r", amounts=(11, 5, 101)),
        lambda: other.settle(request_id="new", amounts=(2, 0, 2)),
        lambda: other.expire(now=NOON + DAY),
    )
    for booking in bookings:
        # what the others hold goes to the slot that stays, as the sums are to be kept
        await calls.conn.execute(
            "UPDATE quota_department_slots k SET tokens_used = s.t, cost_used_nanos = s.n,"
            " tokens_held = s.ht, cost_held_nanos = s.hn"
            " FROM (SELECT sum(tokens_used) AS t, sum(cost_used_nanos) AS n, sum(tokens_held) AS ht,"
            " sum(cost_held_nanos) AS hn FROM quota_department_slots) s WHERE k.slot = $1",
            kept,
        )
        await calls.conn.execute(delete, kept)
        await booking()
        assert await calls.conn.fetchval(SLOTS, "d1") == 16
        assert await audit(calls) == []
    before = await used(calls, "d1")
    await calls.conn.execute(delete, kept)
    await assert_mended(calls)
    assert await calls.conn.fetchval(SLOTS, "d1") == 16
    assert await used(calls, "d1") == before
    # none was lost with its sums: a repair makes them all the same
    await calls.conn.execute(
        "DELETE FROM quota_department_slots WHERE (tokens_used, cost_used_nanos, tokens_held,"
        " cost_held_nanos) = (0, 0, 0, 0)"
    )
    assert await repair(calls) == []
    assert await calls.conn.fetchval(SLOTS, "d1") == 16


async def test_a_keepers_direct_write_stays_whatever_it_equals(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r3", amounts=(10, 5, 10_000_000))
    await calls.settle(request_id="r3", amounts=(10, 5, 10_000_000))
    await plant(calls, "input_tokens = input_tokens + 1000")
    await calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)
    await plant(
        calls, "input_tokens = input_tokens + 10, output_tokens = output_tokens + 5,"
        " cost_cents = cost_cents + 1, completions = completions + 1",
    )  # fmt: skip
    found = await audit(calls)
    assert {(r["kind"], r["request_id"]) for r in found} == {("direct_write", "r3")}
    assert all("keeps it" in r["cause"] and "a double post, unless" in r["cause"] for r in found)
    await assert_mended(calls)
    assert await calls.figures() == (2, 1020, 10, 20_000_000)
    # and a correction that moves a charge to the day before
    await calls.reserve(request_id="e", now=NOON - DAY)
    await plant(calls, "input_tokens = input_tokens - 7")
    await plant(calls, "input_tokens = input_tokens + 7", TODAY - DAY)
    assert {r["kind"] for r in await audit(calls)} == {"direct_write"}
    await assert_mended(calls)
    assert (await calls.figures())[1] == 1013


async def test_legacy_charges_that_the_slots_lack_are_a_remark(calls: Calls) -> None:
    await two_departments(calls)
    await plant(calls, "input_tokens = 0")
    await calls.reserve(request_id="r", amounts=(1, 1, 1))
    await plant(calls, "input_tokens = input_tokens + 30")
    await calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)
    assert await audit(calls, severity="remark") == []
    await calls.change(department_id="d2")
    assert await audit(calls, severity="remark") == []  # a move explains it
    await calls.change(department_id="d1")
    await calls.conn.execute(
        "UPDATE quota_department_slots SET tokens_used = tokens_used - legacy_tokens,"
        " legacy_tokens = 0"
    )
    assert await audit(calls) == []
    (row,) = await audit(calls, severity="remark")
    assert (row["kind"], row["department_id"], row["dimension"]) == ("legacy", "d1", "tokens_used")
    assert (row["expected"], row["found"]) == (30, 0)
