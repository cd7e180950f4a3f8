"""Damage to a day's notes (booked_*, legacy_*) is mended there, and never becomes a charge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sql.auditing import CENT, MAY, assert_mended, audit, places, plant
from sql.calls import NOON

if TYPE_CHECKING:
    from sql.calls import Calls

COST = 500 * CENT
NOTES = (
    "SELECT booked_completions, booked_input_tokens, booked_output_tokens, booked_cost_nanos,"
    " legacy_completions, legacy_input_tokens, legacy_output_tokens, legacy_cost_nanos"
    " FROM quota_usage WHERE tenant_id = 't'"
)
GIGA = 10**9
DAMAGE = (
    "booked_cost_nanos = 0, booked_input_tokens = 0",
    f"booked_cost_nanos = booked_cost_nanos + {GIGA}",
    f"booked_cost_nanos = booked_cost_nanos - {GIGA}",
    "booked_completions = 0, booked_output_tokens = 7",
    f"legacy_cost_nanos = {GIGA}",
    f"legacy_cost_nanos = -{GIGA}, legacy_output_tokens = 50",
    f"legacy_cost_nanos = {GIGA}, booked_cost_nanos = booked_cost_nanos - {GIGA}",
)


async def requests_only(calls: Calls) -> None:
    """Tenant t of department d: one request of (100, 50, 500 cents); keeper beside it."""
    for name in ("d", "e"):
        await calls.department(name, monthly_tokens=10**6, monthly_cost_cents=10**6)
    await calls.tenant(department_id="d")
    await calls.tenant("keeper", department_id="d")
    await calls.reserve("keeper", "k", amounts=(1, 1, 1))
    # legacy charges of as much as what is planted below
    await calls.conn.execute(
        "UPDATE quota_usage SET cost_cents = cost_cents + 100 WHERE tenant_id = 'keeper'"
    )
    await fold(calls)
    await calls.reserve(request_id="x", amounts=(100, 50, COST))
    await calls.settle(request_id="x", amounts=(100, 50, COST))


async def fold(calls: Calls) -> None:
    await calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)


async def assert_right(calls: Calls) -> None:
    await assert_mended(calls)
    assert await calls.figures() == (1, 100, 50, COST)
    notes = await calls.row(NOTES)
    assert tuple(notes.values()) == (1, 100, 50, COST, 0, 0, 0, 0)
    used = await calls.department_used("d", "production", MAY)
    assert (used["tokens_used"], used["cost_used_nanos"]) == (152, COST + 100 * CENT + 1)
    assert await calls.figures("keeper") == (1, 1, 1, 100 * CENT + 1)
    assert await audit(calls, severity="remark") == []


async def test_no_note_becomes_a_charge(calls: Calls) -> None:
    await requests_only(calls)
    for sets in DAMAGE:
        for folded in (False, True):
            await plant(calls, sets)
            if folded:
                await fold(calls)
            found = await audit(calls)
            assert {r["kind"] for r in found} == {"booked"}, sets
            await assert_right(calls)


async def test_it_is_told_what_is_wrong(calls: Calls) -> None:
    await requests_only(calls)
    await plant(calls, "booked_input_tokens = 0")
    await fold(calls)
    (row,) = await audit(calls)
    assert places([row]) == [("booked", "t", NOON.date(), "input_tokens", 0, 100)]
    assert "legacy charges are noted (legacy_*)" in row["cause"]


@pytest.mark.parametrize("department", ["e", None])
async def test_nor_after_a_move(calls: Calls, department: str | None) -> None:
    await requests_only(calls)
    await plant(calls, "booked_cost_nanos = 0")
    await fold(calls)
    await calls.change(department_id=department)
    await assert_right(calls)
    await plant(calls, f"legacy_cost_nanos = {GIGA}")
    await assert_right(calls)


async def test_a_hold_is_part_of_what_requests_say(calls: Calls) -> None:
    await requests_only(calls)
    await calls.reserve(request_id="o", amounts=(9, 9, 9))
    await plant(calls, "booked_cost_nanos = 0, booked_output_tokens = 1")
    await fold(calls)
    await assert_mended(calls)
    assert await calls.figures() == (2, 109, 59, COST + 9)


async def test_a_wrong_note_makes_no_keeper(calls: Calls) -> None:
    await requests_only(calls)
    await plant(calls, f"legacy_cost_nanos = {GIGA}, input_tokens = 277")
    assert {(r["kind"], r["dimension"]) for r in await audit(calls)} == {
        ("booked", "cost_nanos"),
        ("direct_write", "input_tokens"),
    }
    await assert_right(calls)
