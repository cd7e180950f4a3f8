"""A charge that passes a threshold says so in its own transaction; no other charge says anything."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.warnings_world import World

if TYPE_CHECKING:
    import asyncpg

    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]
    Line = tuple[str, str, str, str, int]

OPERATIONS = 120
CENT = 10**7


@pytest.fixture
def world(conn: Connection) -> World:
    return World(conn)


async def told(world: World) -> int:
    """How many crossings were told since the last look."""
    return len(await world.conn.fetch("DELETE FROM quota_crossings RETURNING crossing_id"))


async def test_a_notification_comes_with_the_commit_and_says_the_kind_alone(
    world: World, connect: Connect
) -> None:
    heard: list[str] = []
    listener = await connect()
    await listener.add_listener("quota_crossing", lambda *found: heard.append(found[-1]))
    await world.tenant(daily_completions=2)
    await world.reserve()
    async with world.conn.transaction():
        await world.reserve()
        await listener.fetchval("SELECT 1")
        assert heard == []
    await listener.fetchval("SELECT 1")
    await asyncio.sleep(0)
    assert heard == ["tenant"]
    await listener.reset()


@pytest.mark.parametrize(
    ("dimension", "amounts"),
    [
        ("completions", {}),
        ("input_tokens", {"in_tokens": 5}),
        ("output_tokens", {"out_tokens": 5}),
        ("tokens", {"in_tokens": 3, "out_tokens": 2}),
        ("cost_cents", {"cost_nanos": 5 * CENT}),
    ],
)
@pytest.mark.parametrize("period", ["daily", "monthly"])
async def test_each_cap_tells_its_threshold_and_its_end_once(
    world: World, period: str, dimension: str, amounts: dict[str, int]
) -> None:
    if period == "monthly" and dimension in {"input_tokens", "output_tokens"}:
        return  # no such cap
    cap = 10 if dimension == "completions" else 50
    await world.tenant(**{f"{period}_{dimension}": cap}, soft_warn_pct=70)
    heard = []
    for _ in range(12):
        await world.reserve(**amounts)
        heard.append(await told(world))
    # 70 %, 100 %, and the first refusal
    assert heard == [0] * 6 + [1, 0, 0, 1, 1, 0]


async def test_a_month_is_added_up_over_its_days_and_refused_once(world: World) -> None:
    await world.tenant(monthly_completions=10)
    heard = []
    for day in (3, 4, 5, 6):
        world.now = datetime(2026, 5, day, 12, tzinfo=UTC)
        for _ in range(4):
            await world.reserve()
            heard.append(await told(world))
    assert heard == [0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0]


async def test_usage_beyond_the_estimate_tells_it_too(world: World) -> None:
    await world.tenant(daily_input_tokens=100)
    await world.reserve(times=3, in_tokens=10)
    assert await told(world) == 0
    await world.settle("r1", "t", 50, 0, 0)
    assert await told(world) == 0
    await world.settle("r2", "t", 20, 0, 0)  # 80
    assert await told(world) == 1
    await world.settle("r3", "t", 10, 0, 0)
    assert await told(world) == 0
    # back below, and over it once more: it passes it again
    await world.settle("r2", "t", 10, 0, 0)
    await world.settle("r3", "t", 20, 0, 0)
    assert await told(world) == 1


async def test_limits_changed_by_hand_hold_at_once(world: World) -> None:
    await world.tenant(daily_input_tokens=1000)
    await world.reserve(times=2, in_tokens=10)
    await world.limit(daily_input_tokens=50)
    await world.settle("r1", "t", 30, 0, 0)  # 40 of 50
    assert await told(world) == 1


@pytest.mark.parametrize("mode", ["on", "observe", "off"])
async def test_every_mode_tells(world: World, mode: str) -> None:
    await world.tenant(daily_completions=10, enforce=mode)
    await world.reserve(times=7)
    assert await told(world) == 0
    await world.reserve()
    assert await told(world) == 1


async def test_a_charge_of_the_tutorials_programs_tells_it(world: World) -> None:
    await world.tenant(daily_completions=5)
    heard = []
    for _ in range(6):
        await world.conn.execute("SELECT quota_check_and_charge('t', 1, 1, 0)")
        heard.append(await told(world))
    assert heard == [0, 0, 0, 1, 1, 1]


async def test_a_pass_takes_what_it_looked_at_and_leaves_what_is_not_committed(
    world: World, connect: Connect
) -> None:
    await world.tenant(daily_completions=5)
    await world.tenant("u", daily_completions=5)
    world.now = await world.conn.fetchval("SELECT clock_timestamp()")
    await world.reserve(times=4)
    other = await connect()
    transaction = other.transaction()
    await transaction.start()
    await other.execute(
        "SELECT quota_reserve('u', 'x' || n, 0, 0, 0) FROM generate_series(1, 4) AS n"
    )
    await world.conn.execute("SELECT quota_soft_warn()")
    assert await world.conn.fetchval("SELECT array_agg(subject) FROM quota_outbox") == ["t"]
    await transaction.commit()
    assert await world.conn.fetchval("SELECT count(*) FROM quota_crossings") == 1
    await world.conn.execute("SELECT quota_soft_warn()")
    assert await world.conn.fetchval("SELECT count(*) FROM quota_outbox") == 2
    assert await world.conn.fetchval("SELECT count(*) FROM quota_crossings") == 0


async def lines(world: World) -> dict[Line, bool]:
    """Each threshold of everybody, and whether it is reached: as the warning decision reads it."""
    rows = await world.conn.fetch(
        "WITH stand AS ("
        " SELECT 'tenant' AS kind, p.kind AS period, s.* FROM (VALUES ('day', $1::date), ('month', $2::date)) AS p (kind, start),"
        "  quota_warn_tenants(ARRAY(SELECT tenant_id FROM tenant_limits), p.kind, p.start) s"
        " UNION ALL SELECT 'department', 'month', s.* FROM quota_warn_departments($2, $3) s)"
        " SELECT s.kind, s.subject, s.period, s.dimension, t.pct, s.used * 100 >= t.pct * s.cap AS reached"
        " FROM stand s, unnest(s.pcts) AS t (pct)",
        world.now.date(),
        world.now.date().replace(day=1),
        world.now,
    )
    return {tuple(row)[:5]: row["reached"] for row in rows}


async def refusals(world: World) -> set[tuple[Any, ...]]:
    rows = await world.conn.fetch("SELECT tenant_id, period, reason FROM quota_refusal_counts")
    return {tuple(row) for row in rows if row["reason"] != "department_protected"}


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_passes_a_line_is_told_and_nothing_else(
    world: World, connect: Connect, seed: int
) -> None:
    """Random charges from four sessions, each judged against how everybody stood before it."""
    chance = random.Random(seed)  # noqa: S311  a test's dice
    sessions = [world.conn, *[await connect() for _ in range(3)]]
    await world.department(monthly_tokens=3000, monthly_cost_cents=40, protect_pct=95)
    budget = {"department_id": "d"}
    await world.tenant("a", daily_tokens=1000, daily_cost_cents=12, soft_warn_pct=60, **budget)
    await world.tenant("b", daily_completions=40, monthly_tokens=1500, **budget)
    await world.tenant("c", daily_output_tokens=700, enforce="observe", **budget)
    await world.tenant("e", daily_input_tokens=900, daily_completions=70)
    await told(world)
    before = await lines(world)
    refused = await refusals(world)
    opened: list[tuple[str, str]] = []
    crossed = 0
    for number in range(OPERATIONS):
        session = chance.choice(sessions)
        tenant = chance.choice("abce")
        amounts = [chance.randint(0, 40), chance.randint(0, 40), chance.randint(0, 3 * CENT // 4)]
        match chance.choice(("reserve", "reserve", "settle", "batch", "other")):
            case "reserve":
                await session.execute(
                    "SELECT quota_reserve($1, $2, $3, $4, $5, p_priority => 'high', p_now => $6)",
                    *(tenant, f"r{number}", *amounts, world.now),
                )
                opened.append((tenant, f"r{number}"))
            case "settle" if opened:
                one = opened.pop(chance.randrange(len(opened)))
                await session.execute(
                    "SELECT quota_settle($1, $2, $3, $4, $5, p_now => $6)",
                    *one,
                    *amounts,
                    world.now,
                )
            case "batch":
                await session.execute(
                    "SELECT quota_reserve_batch((SELECT jsonb_agg(jsonb_build_object('tenant', t,"
                    " 'request_id', $1 || t, 'in_tokens', $2::int, 'out_tokens', $3::int,"
                    " 'cost_nanos', $4::int, 'priority', 'high')) FROM unnest(ARRAY['a', 'b']) t), $5)",
                    *(f"b{number}", *amounts, world.now),
                )
            case _:
                await session.execute(
                    "SELECT quota_reserve($1, $2, 0, 0, 0, p_now => $3)",
                    *(tenant, f"o{number}", world.now),
                )
        after = await lines(world)
        refused_now = await refusals(world)
        passed = {line for line, reached in after.items() if reached and not before[line]}
        crossed += len(passed)
        is_told = await told(world) > 0
        assert is_told == bool(passed or refused_now - refused), (number, passed)
        before, refused = after, refused_now
    assert crossed >= 3
