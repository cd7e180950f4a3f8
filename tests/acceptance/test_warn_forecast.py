"""When a cap is expected to be full: by what the last hour brought."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.warnings_world import NOON, World

if TYPE_CHECKING:
    import asyncpg


@pytest.fixture
def world(conn: asyncpg.Connection[Any]) -> World:
    return World(conn)


def forecasts(facts: dict[str, Any]) -> dict[str, datetime | None]:
    """When each dimension of an alert is expected to be full."""
    return {
        d["dimension"]: d["expected_at"] and datetime.fromisoformat(d["expected_at"])
        for d in facts["dimensions"]
    }


async def test_the_forecast_goes_by_the_last_hour(world: World) -> None:
    await world.tenant(
        daily_completions=100, daily_input_tokens=10_000, daily_cost_cents=100, soft_warn_pct=80
    )
    await world.tenant("other")
    world.now = NOON - timedelta(hours=2)
    await world.reserve(times=60)  # long ago: no pace
    world.now = NOON - timedelta(minutes=30)
    await world.reserve(times=10, in_tokens=900, cost_nanos=50_000_000)
    await world.settle("r61", "t", 100, 0, 10_000_000)  # less than it held
    await world.reserve("other", times=5, in_tokens=1_000_000)
    world.now = NOON - timedelta(minutes=20)
    await world.reserve(times=10)
    world.now = NOON
    assert (await world.warn(timedelta(0)))[1] == 1
    (facts,) = await world.messages()
    assert {d["dimension"]: d["used"] for d in facts["dimensions"]} == {
        "completions": 80,
        "cost": 460_000_000,
        "input_tokens": 8_200,
    }
    assert forecasts(facts) == {
        "completions": NOON + timedelta(hours=1),  # 20 left, 20 in the last hour
        "cost": NOON + timedelta(minutes=70),  # 0.54 left, 0.46 in the last hour: 70.4 minutes
        "input_tokens": NOON + timedelta(minutes=13),  # 1,800 left, 8,200 in the last hour
    }


async def test_no_forecast_without_a_request_in_the_last_hour(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    await world.reserve(times=80)
    assert (await world.warn(timedelta(hours=1)))[1] == 1
    await world.tenant("written", daily_completions=100, soft_warn_pct=80)
    await world.use(80, "written")
    assert (await world.warn())[1] == 1
    assert [forecasts(f) for f in await world.messages()] == [{"completions": None}] * 2


async def test_no_forecast_beyond_the_period(world: World) -> None:
    await world.tenant(daily_completions=1_000, soft_warn_pct=80)
    await world.use(800)
    await world.reserve(times=16)  # 184 left: 11.5 hours, before midnight
    assert (await world.warn(timedelta(minutes=1)))[1] == 1
    await world.tenant("slow", daily_completions=1_000, soft_warn_pct=80)
    await world.use(800, "slow")
    await world.reserve("slow", times=15)  # 185 left: 12.3 hours
    assert (await world.warn(timedelta(minutes=1)))[1] == 1
    assert [forecasts(f) for f in await world.messages()] == [
        {"completions": NOON + timedelta(hours=11, minutes=31)},
        {"completions": None},
    ]


async def test_a_departments_forecast_goes_by_its_pool(world: World) -> None:
    await world.department(monthly_tokens=10_000, monthly_cost_cents=100)
    await world.tenant("a", department_id="d")
    await world.tenant("b", department_id="d")
    await world.tenant("c", department_id="d", environment="test")
    world.now = NOON - timedelta(hours=3)
    await world.reserve("a", in_tokens=5_500)
    world.now = NOON - timedelta(minutes=50)
    await world.reserve("a", in_tokens=500, out_tokens=500)
    await world.reserve("b", in_tokens=1_000, cost_nanos=10_000_000)
    await world.reserve("c", in_tokens=9_000)
    world.now = NOON
    assert (await world.warn(timedelta(0)))[1] == 1
    (facts,) = await world.messages()
    assert forecasts(facts) == {
        "tokens": NOON + timedelta(minutes=75),  # 2,500 left, 2,000 in the last hour
        "cost": NOON + timedelta(hours=99),
    }
