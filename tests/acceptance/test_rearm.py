"""When a threshold may be told again (case 17), and exactly once beside others (case 14)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from acceptance.warnings_world import MINUTE, World

if TYPE_CHECKING:
    from conftest import Connect


@pytest.fixture
def world(conn: asyncpg.Connection[Any]) -> World:
    return World(conn)


async def test_case_17_a_top_up_makes_it_news_again(world: World) -> None:
    await world.department(monthly_tokens=1_000)
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=760)
    assert await world.warn() == (1, 1, 0, 0)
    await world.top_up("k1", tokens=520)
    assert await world.warn() == (0, 0, 0, 1)
    for _ in range(3):  # replaying the top-up re-arms nothing
        await world.top_up("k1", tokens=520)
        assert await world.warn() == (0, 0, 0, 0)
    await world.reserve(in_tokens=400)
    assert await world.warn() == (1, 1, 0, 0)
    assert await world.log("threshold", "generation", "state") == [(75, 0, "told"), (75, 1, "told")]
    assert await world.warn() == (0, 0, 0, 0)


async def test_case_17_forty_small_top_ups_are_no_storm(world: World) -> None:
    await world.department(monthly_tokens=1_000)
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=755)
    for number in range(40):
        await world.warn()
        await world.top_up(f"k{number}", tokens=10)
        await world.reserve(in_tokens=8)  # goes on at about 75 %
    await world.warn()
    assert len(await world.messages()) == 1


async def test_a_raised_cap_of_a_tenant(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    await world.use(100)
    assert await world.warn() == (2, 1, 1, 0)
    await world.limit(daily_completions=130)  # 76.9 %: 100 is out of reach, 80 is near
    assert await world.warn() == (0, 0, 0, 1)
    await world.use(130)
    assert await world.warn() == (1, 1, 0, 0)
    await world.limit(daily_completions=200)  # 65 %: both
    assert await world.warn() == (0, 0, 0, 2)
    await world.use(160)
    assert await world.warn() == (1, 1, 0, 0)


async def test_exactly_five_points_below_is_not_enough(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    await world.use(90)
    await world.warn()
    await world.limit(daily_completions=120)  # 75 %
    assert await world.warn() == (0, 0, 0, 0)
    await world.limit(daily_completions=121)
    assert await world.warn() == (0, 0, 0, 1)


async def test_after_a_re_arming_old_refusals_say_nothing_new(world: World) -> None:
    await world.tenant(daily_input_tokens=1_000, soft_warn_pct=80)
    await world.reserve(in_tokens=920)
    assert await world.reserve(in_tokens=100) == ["daily_input_tokens_reached"]
    assert await world.warn() == (2, 1, 1, 0)
    await world.limit(daily_input_tokens=2_000)
    assert await world.warn() == (0, 0, 0, 2)
    assert await world.warn() == (0, 0, 0, 0)
    assert await world.reserve(in_tokens=1_100) == ["daily_input_tokens_reached"]
    assert (await world.warn())[1] == 1


async def test_a_refusal_told_early_is_re_armed_by_any_top_up(world: World) -> None:
    await world.department(monthly_tokens=1_000)
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=400)
    assert await world.reserve(in_tokens=700) == ["department_budget_exhausted"]
    assert await world.warn() == (1, 1, 0, 0)
    await world.top_up("k1", tokens=50)
    assert await world.warn() == (0, 0, 0, 1)
    assert await world.warn() == (0, 0, 0, 0)
    await world.reserve(in_tokens=650)
    assert await world.warn() == (4, 1, 3, 0)
    assert await world.log("threshold", "generation", "state") == [
        (100, 0, "told"),
        (75, 0, "superseded"),
        (90, 0, "superseded"),
        (98, 0, "superseded"),
        (100, 1, "told"),
    ]


async def test_a_refusal_told_early_is_re_armed_by_a_raised_limit(world: World) -> None:
    await world.tenant(daily_input_tokens=1_000, soft_warn_pct=80)
    await world.reserve(in_tokens=400)
    assert await world.reserve(in_tokens=700) == ["daily_input_tokens_reached"]
    assert await world.warn() == (1, 1, 0, 0)
    await world.limit(daily_input_tokens=1_050)
    assert await world.warn() == (0, 0, 0, 1)
    world.now += MINUTE
    assert await world.reserve(in_tokens=700) == ["daily_input_tokens_reached"]
    assert await world.warn() == (1, 1, 0, 0)


async def test_a_small_correction_re_arms_no_refusal_told_early(world: World) -> None:
    await world.tenant(daily_input_tokens=1_000, soft_warn_pct=80)
    await world.reserve(in_tokens=400)
    await world.reserve(in_tokens=700)
    assert await world.warn() == (1, 1, 0, 0)
    await world.settle("r1", "t", 390, 0, 0)
    for _ in range(3):
        assert await world.warn() == (0, 0, 0, 0)


async def test_corrections_re_arm_at_the_second_tick_three_times(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    for generation in range(4):
        await world.use(85)
        assert await world.warn() == (1, 1, 0, 0), generation
        await world.use(60)
        assert await world.warn() == (0, 0, 0, 0)
        assert await world.warn(MINUTE / 2) == (0, 0, 0, 0)  # not another tick
        assert await world.warn() == (0, 0, 0, 1 if generation < 3 else 0)
    await world.use(85)
    assert await world.warn() == (0, 0, 0, 0)
    assert len(await world.messages()) == 4


async def test_one_tick_below_is_not_two_in_a_row(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    await world.use(85)
    await world.warn()
    for _ in range(4):
        await world.use(60)
        assert await world.warn() == (0, 0, 0, 0)
        await world.use(85)
        assert await world.warn() == (0, 0, 0, 0)


async def test_nothing_is_told_for_falling(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    await world.use(100)
    await world.warn()
    for used in (90, 70, 10, 0):
        await world.use(used)
        assert (await world.warn())[1] == 0


async def test_case_14_four_workers_in_one_tick(world: World, connect: Connect) -> None:
    for number in range(20):
        await world.tenant(f"t{number:02}", daily_completions=100, daily_cost_cents=100)
        await world.use(83, f"t{number:02}")
    for period in range(1, 3):
        for _ in range(4):  # the tick, and three restarts
            workers = [await connect() for _ in range(4)]
            counts = await asyncio.gather(
                *(w.fetchrow("SELECT * FROM quota_soft_warn($1)", world.now) for w in workers)
            )
            assert sum(c["messages"] for c in counts) in {0, 20}
            for worker in workers:
                await worker.close()
        assert len(await world.messages()) == 20 * period
        world.now += timedelta(days=1)
        for number in range(20):
            await world.use(83, f"t{number:02}")


async def test_uncommitted_passes_do_not_tell_twice(world: World, connect: Connect) -> None:
    """The second waits for the first, and tells it when the first fails."""
    await world.tenant(daily_completions=100)
    await world.use(83)
    first, second = await connect(), await connect()
    for end, expected in (("rollback", 1), ("commit", 0)):
        transaction = first.transaction()
        await transaction.start()
        assert (await first.fetchrow("SELECT * FROM quota_soft_warn($1)", world.now))[1] in {0, 1}
        waiting = asyncio.create_task(
            second.fetchrow("SELECT * FROM quota_soft_warn($1)", world.now)
        )
        await asyncio.sleep(0.2)
        await getattr(transaction, end)()
        assert (await waiting)["messages"] == expected
    assert len(await world.messages()) == 1


async def test_a_pass_at_repeatable_read_tells_once(world: World, connect: Connect) -> None:
    await world.tenant(daily_completions=100)
    await world.use(83)
    late = await connect()
    transaction = late.transaction(isolation="repeatable_read")
    await transaction.start()
    await late.fetchval("SELECT count(*) FROM quota_warn_log")
    assert (await world.warn())[1] == 1
    try:
        counts = await late.fetchrow("SELECT * FROM quota_soft_warn($1)", world.now)
        assert counts["messages"] == 0
        await transaction.commit()
    except asyncpg.SerializationError:
        await transaction.rollback()
    assert len(await world.messages()) == 1
