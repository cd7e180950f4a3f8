"""v_quota_status and v_department_status: what operators and the tutorial's programs read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sql.calls import Calls, Row

CENT = 10_000_000
FIRST = [
    "tenant_id",
    "period",
    "completions_used",
    "completions_cap",
    "completions_pct",
    "cost_used_cents",
    "cost_cap_cents",
    "cost_pct",
]
OTHERS = [
    "daily_input_tokens",
    "daily_output_tokens",
    "daily_tokens",
    "monthly_completions",
    "monthly_tokens",
]


def close(shown: Any, exact: float) -> bool:
    """One decimal, rounded either way."""
    return abs(float(shown) - exact) < 0.1 and float(shown) == round(float(shown), 1)


@pytest.fixture(autouse=True)
def on_the_true_clock(calls: Calls) -> None:
    """The views show today."""
    calls.now = None


async def status(calls: Calls, tenant: str = "t") -> Row:
    return await calls.row("SELECT * FROM v_quota_status WHERE tenant_id = $1", tenant)


async def test_a_tenant_without_use_shows_zero(calls: Calls) -> None:
    await calls.tenant(daily_completions=10, daily_cost_cents=10, soft_warn_pct=70)
    row = await status(calls)
    assert list(row)[:8] == FIRST
    assert row["completions_used"] == 0
    assert row["completions_pct"] == 0
    assert row["cost_used_cents"] == 0
    assert row["soft_warn_pct"] == 70


async def test_used_cap_and_percent_of_every_dimension(calls: Calls) -> None:
    caps = dict.fromkeys([*OTHERS, "daily_completions"], 300)
    await calls.tenant(**caps, daily_cost_cents=3, monthly_cost_cents=7)
    await calls.settle(request_id="r", amounts=(100, 50, CENT + 5))
    await calls.reserve(amounts=(1, 0, 0))
    row = await status(calls)
    assert (row["completions_used"], row["completions_cap"]) == (2, 300)
    assert close(row["completions_pct"], 2 / 3)
    assert (row["cost_used_cents"], row["cost_cap_cents"]) == (1, 3)
    assert close(row["cost_pct"], 100 / 3)
    used = (101, 50, 151, 2, 151)
    for name, value in zip(OTHERS, used, strict=True):
        assert (row[f"{name}_used"], row[f"{name}_cap"]) == (value, 300), name
        assert close(row[f"{name}_pct"], value / 3), name
    assert (row["monthly_cost_used_cents"], row["monthly_cost_cap_cents"]) == (1, 7)
    assert close(row["monthly_cost_pct"], 100 / 7)
    assert (row["cost_nanos"], row["monthly_cost_nanos"]) == (CENT + 5, CENT + 5)


async def test_no_cap_no_percent_and_cap_zero_is_a_hundred(calls: Calls) -> None:
    await calls.tenant("free")
    caps = dict.fromkeys([*OTHERS, "daily_completions"], 0)
    await calls.tenant("shut", **caps, daily_cost_cents=0, monthly_cost_cents=0)
    await calls.settle("free", "r")
    names = ["completions_pct", "cost_pct", "monthly_cost_pct", *(f"{n}_pct" for n in OTHERS)]
    free, shut = await status(calls, "free"), await status(calls, "shut")
    for name in names:
        assert free[name] is None, name
        assert float(shut[name]) == 100, name


async def test_one_row_per_tenant_today_in_the_billing_zone(calls: Calls) -> None:
    await calls.tenant("t")
    await calls.tenant("u")
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        await calls.zone(zone)
        await calls.conn.execute("SET TimeZone = 'UTC'")
        await calls.reserve()
        rows = await calls.rows("SELECT tenant_id, period FROM v_quota_status")
        today = await calls.conn.fetchval("SELECT (now() AT TIME ZONE $1)::date", zone)
        assert sorted(row["tenant_id"] for row in rows) == ["t", "u"]
        assert {row["period"] for row in rows} == {today}
    assert (await status(calls))["completions_used"] == 1


async def test_yesterday_counts_for_the_month_alone(calls: Calls) -> None:
    await calls.tenant(daily_tokens=1000, monthly_tokens=1000)
    now = datetime.now(tz=UTC)
    yesterday = now - timedelta(days=1)
    await calls.reserve(amounts=(300, 0, 0), now=yesterday)
    await calls.reserve(amounts=(10, 0, 0))
    row = await status(calls)
    assert row["daily_tokens_used"] == 10
    assert row["monthly_tokens_used"] == (310 if yesterday.month == now.month else 10)


async def test_departments_show_used_held_budget_top_ups_and_tier(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=1000, monthly_cost_cents=100)
    await calls.department("e")
    await calls.tenant(department_id="d")
    later = datetime.now(tz=UTC) + timedelta(hours=1)
    await calls.settle(request_id="r", amounts=(500, 200, 5))
    await calls.reserve(amounts=(100, 0, 7))
    row = await calls.row("SELECT * FROM v_department_status WHERE department_id = 'd'")
    assert row["environment"] == "production"
    assert row["month"] == datetime.now(tz=UTC).date().replace(day=1)
    assert (row["tokens_used"], row["tokens_held"]) == (800, 100)
    assert (row["cost_used_nanos"], row["cost_held_nanos"]) == (12, 7)
    assert row["tier"] == "warning"
    await calls.top_up("d", 1000, 0, "k", later)
    row = await calls.row("SELECT * FROM v_department_status WHERE department_id = 'd'")
    assert row["tier"] == "normal"
    free = await calls.row("SELECT * FROM v_department_status WHERE department_id = 'e'")
    assert (free["tokens_used"], free["tier"]) == (0, "normal")
