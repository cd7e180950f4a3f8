"""The notice that an exhausted subject is available again: once, where it is asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.warnings_world import World

if TYPE_CHECKING:
    import asyncpg

ON: dict[str, Any] = {
    "rules": [{"severities": ["exhausted"], "to": [{"channel": "pager"}]}],
    "default": {"to": [{"channel": "chat"}]},
    "available": True,
}


@pytest.fixture
def world(conn: asyncpg.Connection[Any]) -> World:
    return World(conn)


async def notices(world: World) -> list[tuple[Any, ...]]:
    rows = await world.conn.fetch(
        "SELECT kind, subject, channel, facts ->> 'reason' AS reason FROM quota_outbox"
        " WHERE severity = 'available' ORDER BY outbox_id"
    )
    return [tuple(row) for row in rows]


async def exhausted(world: World, **limits: Any) -> None:
    await world.warn(routes=ON)
    await world.tenant(**({"daily_completions": 10} | limits))
    await world.use(10)
    assert (await world.warn(routes=ON))[1] == 1


async def test_a_new_day(world: World) -> None:
    await exhausted(world)
    assert (await world.warn(routes=ON))[1] == 0
    assert (await world.warn(timedelta(days=1), ON))[1] == 1
    assert (await world.warn(routes=ON))[1] == 0
    assert await notices(world) == [("available", "t", "pager", "period")]


async def test_a_raised_cap_and_a_second_exhaustion(world: World) -> None:
    await exhausted(world)
    await world.limit(daily_completions=20)
    assert (await world.warn(routes=ON))[1] == 1
    await world.use(20)
    await world.warn(routes=ON)
    await world.limit(daily_completions=None)
    await world.warn(routes=ON)
    await world.warn(routes=ON)
    assert await notices(world) == [("available", "t", "pager", "allowance")] * 2


async def test_not_while_another_cap_is_full_nor_by_a_correction(world: World) -> None:
    await exhausted(world, monthly_completions=10)
    await world.limit(daily_completions=20)
    assert (await world.warn(routes=ON))[1] == 0
    # a correction brings no allowance
    await world.use(9)
    await world.limit(daily_completions=10)
    await world.warn(routes=ON)
    await world.warn(timedelta(days=1), ON)
    assert await notices(world) == [("available", "t", "pager", "period")]


async def test_a_department_s_top_up(world: World) -> None:
    await world.warn(routes=ON)
    await world.department(monthly_tokens=100)
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=100)
    await world.warn(routes=ON)
    await world.top_up("more", tokens=50)
    await world.warn(routes=ON)
    assert await notices(world) == [("available", "d", "pager", "allowance")]
    (told,) = [m for m in await world.messages() if m["severity"] == "available"]
    (tokens,) = told["dimensions"]
    assert (tokens["used"], tokens["cap"], tokens["crossed"]) == (100, 150, True)


async def test_off_by_default_and_nothing_old_when_switched_on(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.use(10)
    await world.warn()
    await world.warn(timedelta(days=1))
    await world.use(10)
    await world.warn()
    await world.warn(routes=ON)
    await world.warn(timedelta(days=1), ON)
    assert await notices(world) == []


async def test_a_cap_of_nothing_lets_nothing_through(world: World) -> None:
    await exhausted(world)
    await world.limit(daily_completions=0)
    await world.warn(routes=ON)
    await world.department(monthly_tokens=100)
    await world.tenant("u", department_id="d")
    await world.reserve("u", in_tokens=100)
    await world.warn(routes=ON)
    await world.conn.execute("UPDATE department_budgets SET monthly_tokens = 0")
    await world.warn(routes=ON)
    assert await notices(world) == []
    await world.limit(daily_completions=20)
    await world.conn.execute("UPDATE department_budgets SET monthly_tokens = 200")
    await world.warn(routes=ON)
    assert sorted(subject for _, subject, *_ in await notices(world)) == ["d", "t"]
