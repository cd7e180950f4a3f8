"""What a refusal leaves behind: a count, and nothing else."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from sql.calls import NOON

if TYPE_CHECKING:
    from sql.calls import Calls

STORM = 500
TABLES = [
    "quota_usage",
    "quota_reservations",
    "tenant_limits",
    "rate_buckets",
    "department_budgets",
]


async def test_refusals_are_counted_by_tenant_day_and_reason(calls: Calls) -> None:
    await calls.tenant("t", daily_completions=0)
    await calls.tenant("u", bucket_capacity=0.0)
    for _ in range(3):
        await calls.reserve("t")
    await calls.reserve("u")
    await calls.reserve("t", now=NOON.replace(day=16))
    await calls.conn.execute("SELECT pg_sleep(1.1)")  # a count may lag by a second
    await calls.reserve("t")
    rows = await calls.rows(
        "SELECT tenant_id, period, reason, count, first_at, last_at FROM quota_refusals"
        " ORDER BY 1, 2"
    )
    got = {(row["tenant_id"], row["period"], row["reason"]): row["count"] for row in rows}
    assert got.keys() == {
        ("t", date(2026, 5, 15), "daily_cap_reached"),
        ("t", date(2026, 5, 16), "daily_cap_reached"),
        ("u", date(2026, 5, 15), "rate_limited"),
    }
    assert all(row["first_at"] <= row["last_at"] for row in rows)


async def test_the_count_is_complete_after_a_second(calls: Calls) -> None:
    await calls.tenant(daily_completions=0)
    for _ in range(40):
        await calls.reserve()
    await calls.conn.execute("SELECT pg_sleep(1.2)")
    await calls.reserve()
    seen = await calls.refusals()
    assert seen == {"daily_cap_reached": 41}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"daily_completions": 0}, "daily_cap_reached"),
        ({"monthly_tokens": 0}, "monthly_tokens_reached"),
        ({"bucket_capacity": 0.0}, "rate_limited"),
        ({"department_id": "d"}, "department_budget_exhausted"),
    ],
)
async def test_a_storm_of_refusals_takes_no_transaction_ids_and_grows_no_table(
    calls: Calls, limits: dict[str, Any], reason: str
) -> None:
    await calls.department("d", monthly_tokens=0)
    await calls.tenant(**limits)
    for number in range(20):
        await calls.reserve(request_id=f"warm{number}")
    before = await measured(calls)
    for number in range(STORM):
        row = await calls.reserve(request_id=f"r{number}")
        assert row["reason"] == reason
    after = await measured(calls)
    assert after[0] - before[0] < STORM / 5, "each refusal took a transaction id"
    assert after[1:] == before[1:]


async def measured(calls: Calls) -> tuple[Any, ...]:
    """The next transaction id, then size and content of the ledger's tables."""
    xid = await calls.conn.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    sizes = [await calls.conn.fetchval(f"SELECT pg_relation_size('{name}')") for name in TABLES]
    rows = await calls.rows("SELECT * FROM quota_usage")
    return (xid, sizes, rows)
