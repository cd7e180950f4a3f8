"""The tutorial's own programs: direct UPDATEs, hand-INSERTed rows, check_and_charge."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sql.calls import NOON

if TYPE_CHECKING:
    from sql.calls import Calls

CENT = 10_000_000
TODAY = NOON.date()
DAY = timedelta(days=1)
MAX_ROUNDS = 50

UPDATE = """
UPDATE quota_usage SET input_tokens = input_tokens + $3, output_tokens = output_tokens + $4,
       cost_cents = cost_cents + $5
 WHERE tenant_id = $1 AND period = $2
"""
INSERT = """
INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens, cost_cents)
VALUES ($1, $2, $3, $4, $5, $6)
"""


async def book(calls: Calls) -> int:
    """What reconcile does with direct writes, to the end; the number of rounds."""
    for rounds in range(MAX_ROUNDS):
        if not await calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", calls.now):
            return rounds
    raise AssertionError("quota_book_legacy never comes to an end")


@pytest.mark.parametrize(
    ("column", "change", "reason"),
    [
        ("daily_input_tokens", (90, 0, 0), "daily_input_tokens_reached"),
        ("daily_output_tokens", (0, 90, 0), "daily_output_tokens_reached"),
        ("daily_tokens", (40, 50, 0), "daily_tokens_reached"),
        ("daily_cost_cents", (0, 0, 90), "daily_cost_reached"),
        ("monthly_tokens", (40, 50, 0), "monthly_tokens_reached"),
        ("monthly_cost_cents", (0, 0, 90), "monthly_cost_reached"),
    ],
)
async def test_an_update_of_todays_row_binds_at_once(
    calls: Calls, column: str, change: tuple[int, int, int], reason: str
) -> None:
    await calls.tenant(**{column: 100})
    amounts = (5, 5, 5 * CENT)
    assert (await calls.reserve(amounts=amounts))["allowed"]
    await calls.conn.execute(UPDATE, "t", TODAY, *change)
    assert (await calls.reserve(amounts=(6, 6, 6 * CENT)))["reason"] == reason
    await calls.conn.execute(UPDATE, "t", TODAY, *(-n for n in change))
    assert (await calls.reserve(amounts=(6, 6, 6 * CENT)))["allowed"]


@pytest.mark.parametrize("offset", [-1, 1])
async def test_an_update_of_a_neighbouring_day_binds_the_month_at_once(
    calls: Calls, offset: int
) -> None:
    await calls.tenant(monthly_tokens=100)
    beside = NOON + offset * DAY
    assert (await calls.reserve(amounts=(10, 0, 0), now=beside))["allowed"]
    assert (await calls.reserve(amounts=(10, 0, 0)))["allowed"]
    await calls.conn.execute(UPDATE, "t", beside.date(), 70, 0, 0)
    row = await calls.reserve(amounts=(11, 0, 0))
    assert (row["reason"], row["limit_used"]) == ("monthly_tokens_reached", 90)
    assert (await calls.reserve(amounts=(10, 0, 0)))["allowed"]


async def test_an_update_of_an_older_day_binds_after_the_next_reconcile(calls: Calls) -> None:
    await calls.tenant(monthly_tokens=100)
    old = NOON - 9 * DAY
    assert (await calls.reserve(amounts=(10, 0, 0), now=old))["allowed"]
    assert (await calls.reserve(amounts=(10, 0, 0)))["allowed"]
    await calls.conn.execute(UPDATE, "t", old.date(), 70, 0, 0)
    await book(calls)
    row = await calls.reserve(amounts=(11, 0, 0))
    assert (row["reason"], row["limit_used"]) == ("monthly_tokens_reached", 90)


async def test_a_direct_update_reaches_the_department_with_the_next_reconcile(
    calls: Calls,
) -> None:
    await calls.department("d", monthly_tokens=1000)
    await calls.tenant(department_id="d")
    await calls.reserve(request_id="r", amounts=(10, 0, 0))
    await calls.conn.execute(UPDATE, "t", TODAY, 90, 0, 3)
    await book(calls)
    used = await calls.department_used("d", "production", date(2026, 5, 1))
    assert (used["tokens_used"], used["tokens_held"]) == (100, 10)
    assert used["cost_used_nanos"] == 3 * CENT + 0
    await calls.settle(amounts=(1, 0, 0))
    assert await book(calls) == 0, "booked once"
    used = await calls.department_used("d", "production", date(2026, 5, 1))
    assert (used["tokens_used"], used["tokens_held"]) == (91, 0)
    assert await calls.figures() == (1, 91, 0, 3 * CENT)


async def test_rows_inserted_by_hand_count(calls: Calls) -> None:
    await calls.tenant(daily_completions=10, monthly_completions=20, monthly_cost_cents=100)
    await calls.conn.execute(INSERT, "t", TODAY, 10, 0, 0, 0)
    assert (await calls.reserve(now=NOON))["reason"] == "daily_cap_reached"
    await calls.conn.execute(INSERT, "t", TODAY + DAY, 9, 0, 0, 0)
    assert (await calls.reserve(now=NOON + DAY))["allowed"]
    assert (await calls.reserve(now=NOON + DAY))["reason"] == "daily_cap_reached"
    row = await calls.reserve(now=NOON + 2 * DAY)
    assert (row["reason"], row["limit_used"]) == ("monthly_completions_reached", 20)
    await calls.change(monthly_completions=None)
    await calls.conn.execute(INSERT, "t", TODAY - 12 * DAY, 0, 0, 0, 99)
    await book(calls)
    row = await calls.reserve(amounts=(0, 0, CENT + 1), now=NOON + 2 * DAY)
    assert row["reason"] == "monthly_cost_reached"


async def test_rows_of_an_old_database_count_before_the_first_request(calls: Calls) -> None:
    """Rows that lay there, the tenant never seen by a function, no reconcile yet."""
    await calls.tenant(monthly_tokens=100)
    await calls.conn.execute(INSERT, "t", TODAY, 1, 60, 0, 0)
    await calls.conn.execute(INSERT, "t", TODAY - DAY, 1, 40, 0, 0)
    row = await calls.reserve()
    assert (row["reason"], row["limit_used"]) == ("monthly_tokens_reached", 100)


async def test_a_hand_inserted_row_is_no_full_bucket(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=2.0, bucket_refill_per_sec=0.0)
    for _ in range(2):
        assert (await calls.reserve())["allowed"]
    await calls.conn.execute(INSERT, "t", TODAY + DAY, 0, 0, 0, 0)
    assert (await calls.reserve(now=NOON + DAY))["reason"] == "rate_limited"


async def test_a_negative_counter_reads_as_zero(calls: Calls) -> None:
    await calls.tenant(daily_input_tokens=100, daily_cost_cents=100)
    await calls.conn.execute(INSERT, "t", TODAY, 1, -1000, -5, -7)
    assert (await calls.reserve(amounts=(101, 0, 0)))["reason"] == "daily_input_tokens_reached"
    assert (await calls.reserve(amounts=(0, 0, 101 * CENT)))["reason"] == "daily_cost_reached"
    assert (await calls.reserve(amounts=(100, 0, 0)))["allowed"]


async def test_a_negative_counter_reads_as_what_is_held(calls: Calls) -> None:
    await calls.tenant(daily_input_tokens=100)
    assert (await calls.reserve(amounts=(60, 0, 0)))["allowed"]
    await calls.conn.execute(UPDATE, "t", TODAY, -1000, 0, 0)
    assert (await calls.reserve(amounts=(41, 0, 0)))["reason"] == "daily_input_tokens_reached"
    assert (await calls.reserve(amounts=(40, 0, 0)))["allowed"]


async def test_a_tutorial_update_keeps_the_rest_below_a_cent(calls: Calls) -> None:
    await calls.tenant()
    await calls.settle(request_id="r", amounts=(1, 1, CENT - 1))
    await calls.conn.execute(UPDATE, "t", TODAY, 0, 0, 2)
    await calls.settle(request_id="q", amounts=(1, 1, 1))
    assert (await calls.figures())[3] == 3 * CENT


# check_and_charge -----------------------------------------------------------------


def today() -> datetime:
    return datetime.now(tz=UTC)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("daily_completions", "daily_cap_reached"),
        ("daily_input_tokens", "daily_input_tokens_reached"),
        ("daily_output_tokens", "daily_output_tokens_reached"),
        ("daily_tokens", "daily_tokens_reached"),
        ("daily_cost_cents", "daily_cost_reached"),
        ("monthly_completions", "monthly_completions_reached"),
        ("monthly_tokens", "monthly_tokens_reached"),
        ("monthly_cost_cents", "monthly_cost_reached"),
        ("bucket_capacity", "rate_limited"),
    ],
)
async def test_check_and_charge_is_right_about_every_cap(
    calls: Calls, column: str, reason: str
) -> None:
    calls.now = None
    await calls.tenant()
    assert await calls.check_and_charge() == (True, "ok")
    assert await calls.check_and_charge("ghost") == (False, "unknown_tenant")
    zero: Any = 0.0 if column == "bucket_capacity" else 0
    await calls.change(**{column: zero})
    assert await calls.check_and_charge() == (False, reason)
    rows = await calls.rows("SELECT sum(completions)::int AS n FROM quota_usage")
    assert rows == [{"n": 1}]


async def test_check_and_charge_charges_tenant_and_department(calls: Calls) -> None:
    calls.now = None
    await calls.department("d", monthly_tokens=30)
    await calls.tenant(department_id="d")
    assert [await calls.check_and_charge() for _ in range(3)] == [
        (True, "ok"),
        (True, "ok"),
        (False, "department_budget_exhausted"),
    ]
    assert await calls.figures() == (2, 20, 10, 2 * CENT)
    used = await calls.department_used("d", "production", today().date().replace(day=1))
    assert (used["tokens_used"], used["tokens_held"], used["cost_used_nanos"]) == (30, 0, 2 * CENT)


async def test_the_tutorials_correction_after_check_and_charge(calls: Calls) -> None:
    calls.now = None
    await calls.tenant(daily_input_tokens=100)
    assert await calls.check_and_charge("t", 80, 5, 1) == (True, "ok")
    await calls.conn.execute(UPDATE, "t", today().date(), -60, 0, 0)
    assert await calls.check_and_charge("t", 80, 5, 1) == (True, "ok")
    assert await calls.check_and_charge("t", 1, 0, 0) == (False, "daily_input_tokens_reached")


async def test_the_signature_and_the_answers_are_the_tutorials(calls: Calls) -> None:
    row = await calls.row(
        "SELECT pg_get_function_identity_arguments(oid) AS arguments,"
        " pg_get_function_result(oid) AS result FROM pg_proc"
        " WHERE proname = 'quota_check_and_charge'"
    )
    assert row["arguments"].replace("bigint", "b") == (
        "p_tenant text, p_in_tokens b, p_out_tokens b, p_cost_cents b"
    )
    assert row["result"] == "TABLE(allowed boolean, reason text)"
