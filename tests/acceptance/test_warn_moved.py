"""The next pass finds whatever changed since the last: by row versions, not by events."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.warnings_world import World

if TYPE_CHECKING:
    import asyncpg

    from conftest import Connect


@pytest.fixture
def world(conn: asyncpg.Connection[Any]) -> World:
    return World(conn)


CHANGES = {
    "a plain UPDATE": "UPDATE quota_usage SET completions = completions + 15 WHERE tenant_id = 't'",
    "a lower cap": "UPDATE tenant_limits SET daily_completions = 80 WHERE tenant_id = 't'",
    "a lower threshold": "UPDATE tenant_limits SET soft_warn_pct = 60 WHERE tenant_id = 't'",
    "an older day": "INSERT INTO quota_usage (tenant_id, period, completions) VALUES ('t', '2026-05-03', 900)",
    "another zone": "UPDATE quota_settings SET billing_zone = 'Pacific/Auckland'",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_the_next_pass_finds_whatever_changed(world: World, change: str) -> None:
    await world.tenant(daily_completions=100, monthly_completions=1_000, soft_warn_pct=80)
    await world.use(70)
    # already counted for the day that Auckland has
    await world.conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, completions) VALUES ('t', '2026-05-16', 85)"
    )
    for _ in range(3):
        assert await world.warn() == (0, 0, 0, 0)
    await world.conn.execute(CHANGES[change])
    assert (await world.warn())[1] == 1
    assert await world.warn() == (0, 0, 0, 0)


async def test_what_was_not_committed_at_a_pass_is_found_by_the_next(
    world: World, connect: Connect
) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    await world.use(70)
    assert await world.warn() == (0, 0, 0, 0)
    other = await connect()
    transaction = other.transaction()
    await transaction.start()
    await other.execute("UPDATE quota_usage SET completions = 85 WHERE tenant_id = 't'")
    for number in range(3):
        # others go on, so that newer transactions are seen before the older one
        await world.tenant(f"other-{number}", daily_completions=100)
        assert await world.warn() == (0, 0, 0, 0)
    await transaction.commit()
    assert (await world.warn())[1] == 1


async def test_a_mark_from_another_cluster_makes_everybody_judged(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    await world.use(85)
    await world.conn.execute(
        "INSERT INTO quota_warn_scans VALUES ('soft_warn', $1, '9000000000000')", world.now
    )
    assert (await world.warn())[1] == 1


async def test_a_pass_by_an_earlier_time_is_judged_by_that_time(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    await world.use(85)
    world.now += timedelta(days=2)
    await world.use(10)
    assert (await world.warn())[1] == 0
    assert (await world.warn(timedelta(days=-2)))[1] == 1
