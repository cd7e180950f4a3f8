"""A refusal by a cap is told as its 100 %, and hides no threshold that usage has yet to reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from acceptance.warnings_world import World

if TYPE_CHECKING:
    import asyncpg


@pytest.fixture
def world(conn: asyncpg.Connection[Any]) -> World:
    return World(conn)


async def test_the_first_refusal_counts_as_100_percent(world: World) -> None:
    await world.tenant(daily_input_tokens=1_000, soft_warn_pct=80)
    await world.reserve(in_tokens=600)
    assert await world.warn() == (0, 0, 0, 0)
    assert await world.reserve(in_tokens=500) == ["daily_input_tokens_reached"]
    assert await world.warn() == (1, 1, 0, 0)
    (facts,) = await world.messages()
    assert facts["severity"] == "exhausted"
    # neither further refusals nor ticks tell it again
    await world.reserve(times=3, in_tokens=500)
    for _ in range(4):
        assert await world.warn() == (0, 0, 0, 0)
    # usage itself has yet to reach 80 %, and that is told; 100 % is told already
    await world.reserve(in_tokens=250)
    assert await world.warn() == (1, 1, 0, 0)
    await world.reserve(in_tokens=150)
    assert await world.warn() == (0, 0, 0, 0)
    assert await world.log("threshold", "severity", "state") == [
        (100, "exhausted", "told"),
        (80, "warning", "told"),
    ]
    assert [d["refused_at"] for d in (await world.messages())[1]["dimensions"]] == [None]


async def test_a_refusal_supersedes_only_what_usage_has_passed(world: World) -> None:
    await world.department(monthly_cost_cents=1_000)
    await world.tenant(department_id="d")
    cent = 10_000_000
    await world.reserve(cost_nanos=400 * cent)
    assert await world.reserve(cost_nanos=700 * cent) == ["department_budget_exhausted"]
    assert await world.warn() == (1, 1, 0, 0)
    for more, told in ((370, 75), (140, 90), (70, 98)):  # 77, 91 and 98 %
        assert await world.reserve(cost_nanos=more * cent) == ["ok"]
        assert await world.warn() == (1, 1, 0, 0), told
        assert await world.warn() == (0, 0, 0, 0)
    await world.reserve(cost_nanos=20 * cent)
    assert await world.warn() == (0, 0, 0, 0)
    assert await world.log("threshold", "severity", "state") == [
        (100, "exhausted", "told"),
        (75, "warning", "told"),
        (90, "downgrade", "told"),
        (98, "protected", "told"),
    ]
    assert [f["severity"] for f in await world.messages()] == [
        "exhausted",
        "warning",
        "downgrade",
        "protected",
    ]


async def test_a_refusal_at_92_percent_leaves_98_to_come(world: World) -> None:
    await world.department(monthly_tokens=1_000)
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=920)
    await world.reserve(in_tokens=100)
    assert await world.warn() == (3, 1, 2, 0)
    await world.reserve(in_tokens=65)
    assert await world.warn() == (1, 1, 0, 0)
    assert await world.log("threshold", "state") == [
        (75, "superseded"),
        (90, "superseded"),
        (100, "told"),
        (98, "told"),
    ]


async def test_after_a_refusal_full_at_once_is_no_second_message(world: World) -> None:
    await world.department(monthly_tokens=1_000)
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=400)
    await world.reserve(in_tokens=700)
    assert await world.warn() == (1, 1, 0, 0)
    await world.reserve(in_tokens=600)
    assert await world.warn() == (3, 0, 3, 0)


async def test_a_refusal_for_want_of_budget_is_the_departments(world: World) -> None:
    await world.department(monthly_tokens=1_000, monthly_cost_cents=1_000)
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=500)
    assert await world.reserve(in_tokens=600) == ["department_budget_exhausted"]
    crossings, messages, _, _ = await world.warn()
    assert (crossings, messages) == (1, 1)
    (facts,) = await world.messages()
    assert (facts["subject_kind"], facts["severity"], facts["tier"]) == (
        "department",
        "exhausted",
        "normal",
    )
    assert {d["dimension"]: d["crossed"] for d in facts["dimensions"]} == {
        "tokens": True,
        "cost": False,
    }


async def test_a_told_refusal_is_not_told_again_of_the_other_dimension(world: World) -> None:
    await world.department(monthly_tokens=1_000, monthly_cost_cents=100)
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=400)
    assert await world.reserve(in_tokens=700) == ["department_budget_exhausted"]
    assert await world.warn() == (1, 1, 0, 0)
    await world.reserve(cost_nanos=700_000_000)  # 70 %: now the fuller one
    assert await world.warn() == (0, 0, 0, 0)
    assert await world.reserve(cost_nanos=400_000_000) == ["department_budget_exhausted"]
    assert await world.warn() == (1, 1, 0, 0)
    assert await world.log() == [("tokens", 100, "told"), ("cost", 100, "told")]


async def test_a_budget_of_nothing_exhausts_no_other(world: World) -> None:
    await world.department(monthly_tokens=1_000, monthly_cost_cents=0)
    await world.tenant(department_id="d")
    assert await world.reserve(in_tokens=10) == ["department_budget_exhausted"]
    assert await world.warn() == (0, 0, 0, 0)
    assert await world.log() == []
