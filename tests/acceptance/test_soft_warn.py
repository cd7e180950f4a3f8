"""Each crossing is told once: thresholds, supersession, periods (cases 9, 13, 15, 16)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.warnings_world import NOON, TICK, World

if TYPE_CHECKING:
    import asyncpg

BIGGEST = 2**63 - 1


@pytest.fixture
def world(conn: asyncpg.Connection[Any]) -> World:
    return World(conn)


async def test_case_13_a_thousand_requests_beyond_are_one_message(world: World) -> None:
    await world.tenant(daily_completions=10_000, soft_warn_pct=80)
    await world.use(8_000)
    assert await world.warn() == (1, 1, 0, 0)
    for _ in range(10):
        await world.reserve(times=100)
        assert await world.warn() == (0, 0, 0, 0)
    assert await world.log() == [("completions", 80, "told")]
    assert len(await world.messages()) == 1


@pytest.mark.parametrize(("used", "told"), [(799, 0), (800, 1), (801, 1)])
async def test_the_threshold_is_exact(world: World, used: int, told: int) -> None:
    await world.tenant(daily_completions=1_000, soft_warn_pct=80)
    await world.use(used)
    assert (await world.warn())[1] == told


async def test_the_threshold_is_exact_in_whole_numbers(world: World) -> None:
    # 66 % of 3 is 1.98: one is below, two are not.
    await world.tenant(daily_completions=3, soft_warn_pct=66)
    await world.use(1)
    assert (await world.warn())[1] == 0
    await world.use(2)
    assert (await world.warn())[1] == 1


async def test_the_first_message_has_the_facts(world: World) -> None:
    await world.tenant("tenant-free", daily_completions=50, daily_cost_cents=200, soft_warn_pct=80)
    await world.reserve("tenant-free", 41, cost_nanos=20_000_000)
    assert await world.warn() == (1, 1, 0, 0)
    (facts,) = await world.messages()
    shown = [
        (d["dimension"], d["used"], d["cap"], d["pct"], d["crossed"]) for d in facts["dimensions"]
    ]
    assert shown == [
        ("completions", 41, 50, 82.0, True),
        ("cost", 820_000_000, 2_000_000_000, 41.0, False),
    ]
    assert facts["dimensions"][1]["held"] == 820_000_000
    assert datetime.fromisoformat(facts["dimensions"][0]["resets_at"]) == datetime(
        2026, 5, 16, tzinfo=UTC
    )
    assert (facts["subject"], facts["zone"], facts["past"]) == ("tenant-free", "UTC", False)


async def test_case_15_down_from_60_to_102_percent(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=75)
    await world.use(60)
    assert await world.warn() == (0, 0, 0, 0)
    await world.use(102)
    assert await world.warn() == (2, 1, 1, 0)
    assert await world.log() == [("completions", 75, "superseded"), ("completions", 100, "told")]
    (facts,) = await world.messages()
    assert (facts["severity"], facts["threshold"]) == ("exhausted", 100)


async def test_case_15_and_16_for_a_department(world: World) -> None:
    await world.department(monthly_tokens=10_000)
    await world.tenant(department_id="d")
    await world.reserve(in_tokens=6_000)
    assert await world.warn() == (0, 0, 0, 0)
    await world.reserve(in_tokens=2_600)
    assert await world.warn() == (1, 1, 0, 0)
    await world.reserve(in_tokens=1_000)
    assert await world.warn() == (1, 1, 0, 0)
    await world.settle("r1", "t", 6_600, 0, 0)
    assert await world.warn() == (2, 1, 1, 0)
    assert await world.log("threshold", "severity", "state") == [
        (75, "warning", "told"),
        (90, "downgrade", "told"),
        (98, "protected", "superseded"),
        (100, "exhausted", "told"),
    ]
    assert [f["tier"] for f in await world.messages()] == ["warning", "downgrade", "exhausted"]


async def test_all_dimensions_of_a_subject_share_one_message(world: World) -> None:
    await world.tenant(
        daily_completions=10,
        daily_input_tokens=100,
        daily_output_tokens=100,
        daily_tokens=200,
        daily_cost_cents=1,
        monthly_completions=10,
        monthly_tokens=200,
        monthly_cost_cents=1,
        soft_warn_pct=80,
    )
    await world.reserve(times=9, in_tokens=10, out_tokens=10, cost_nanos=1_000_000)
    assert await world.warn() == (8, 1, 0, 0)
    (facts,) = await world.messages()
    assert [(d["period_kind"], d["dimension"]) for d in facts["dimensions"]] == [
        ("day", "completions"),
        ("day", "cost"),
        ("day", "input_tokens"),
        ("day", "output_tokens"),
        ("day", "tokens"),
        ("month", "completions"),
        ("month", "cost"),
        ("month", "tokens"),
    ]
    assert {d["pct"] for d in facts["dimensions"]} == {90.0}


async def test_case_9_no_cap_and_cap_zero_raise_nothing(world: World) -> None:
    await world.tenant("free")
    await world.tenant("none", daily_completions=0, daily_input_tokens=0, daily_cost_cents=0)
    await world.reserve("free", 3, in_tokens=10**12)
    assert (await world.reserve("none"))[0] == "daily_cap_reached"
    assert await world.warn() == (0, 0, 0, 0)
    await world.department(monthly_tokens=0)
    await world.tenant("poor", department_id="d")
    assert (await world.reserve("poor", in_tokens=1))[0] == "department_budget_exhausted"
    assert await world.warn() == (0, 0, 0, 0)


async def test_the_largest_caps_do_not_overflow(world: World) -> None:
    await world.tenant(
        daily_input_tokens=BIGGEST, daily_cost_cents=BIGGEST, monthly_cost_cents=BIGGEST
    )
    await world.conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, input_tokens, cost_cents) VALUES ('t', $1, $2, $2)",
        NOON.date(),
        BIGGEST,
    )
    assert (await world.warn())[1] == 1
    (facts,) = await world.messages()
    assert facts["dimensions"][0]["used"] == BIGGEST * 10_000_000


@pytest.mark.parametrize("pct", [-5, 0, 100, 500])
async def test_odd_thresholds_of_an_old_database_tell_only_100(world: World, pct: int) -> None:
    # an old database's rows stay, new ones are checked
    await world.conn.execute(
        "ALTER TABLE tenant_limits DROP CONSTRAINT IF EXISTS tenant_limits_soft_warn_pct"
    )
    await world.tenant(daily_completions=10, soft_warn_pct=pct)
    await world.use(9)
    assert await world.warn() == (0, 0, 0, 0)
    await world.use(10)
    assert await world.warn() == (1, 1, 0, 0)


async def test_usage_below_zero_reads_as_nothing(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.use(-100)
    assert await world.warn() == (0, 0, 0, 0)


@pytest.mark.parametrize("enforce", ["observe", "off"])
async def test_observed_tenants_are_warned_too(world: World, enforce: str) -> None:
    await world.tenant(daily_completions=10, enforce=enforce)
    await world.reserve(times=12)
    assert (await world.warn())[1] == 1
    (facts,) = await world.messages()
    assert (facts["severity"], facts["enforce"]) == ("exhausted", enforce)


async def test_a_new_day_starts_anew(world: World) -> None:
    await world.tenant(daily_completions=100, soft_warn_pct=80)
    await world.use(85)
    assert await world.warn() == (1, 1, 0, 0)
    world.now += timedelta(days=1)
    await world.use(85)
    assert await world.warn() == (1, 1, 0, 0)
    assert await world.warn() == (0, 0, 0, 0)


async def test_a_day_that_ended_unseen(world: World) -> None:
    await world.tenant("full", daily_completions=100, soft_warn_pct=80)
    await world.tenant("near", daily_completions=100, soft_warn_pct=80)
    assert await world.warn() == (0, 0, 0, 0)
    await world.use(100, "full")
    await world.use(90, "near")
    world.now += timedelta(days=3)
    # 80 and 100 of the one, 80 of the other; only the 100 is told
    assert await world.warn() == (3, 1, 1, 0)
    assert await world.log("subject", "threshold", "state") == [
        ("full", 80, "superseded"),
        ("full", 100, "past"),
        ("near", 80, "digest"),
    ]
    facts, for_digest = await world.messages()
    assert (facts["past"], facts["subject"]) == (True, "full")
    assert (for_digest["past"], for_digest["subject"]) == (True, "near")
    assert facts["dimensions"][0]["period_start"] == "2026-05-15"
    assert await world.warn() == (0, 0, 0, 0)


async def test_case_25_the_zone_decides_the_month(world: World) -> None:
    await world.conn.execute("UPDATE quota_settings SET billing_zone = 'Asia/Shanghai'")
    await world.tenant(daily_cost_cents=600, monthly_cost_cents=1_000, soft_warn_pct=80)
    # 23:59:59 on 31 May and midnight of 1 June in Shanghai
    world.now = datetime(2026, 5, 31, 15, 59, 59, tzinfo=UTC)
    await world.reserve(cost_nanos=5_000_000_000)
    assert await world.warn(timedelta(0)) == (1, 1, 0, 0)
    world.now = datetime(2026, 5, 31, 16, 0, tzinfo=UTC)
    assert await world.reserve(cost_nanos=5_500_000_000) == ["ok"]
    assert await world.warn(timedelta(0)) == (1, 1, 0, 0)
    facts = (await world.messages())[1]
    assert facts["dimensions"][0]["period_start"] == "2026-06-01"
    assert facts["dimensions"][0]["used"] == 5_500_000_000
    assert facts["zone"] == "Asia/Shanghai"


async def test_a_departments_money_is_exact(world: World) -> None:
    """75 % of 2 cents is 15,000,000 nanos: one nano less is not yet a warning."""
    await world.department(monthly_cost_cents=2)
    await world.tenant(department_id="d")
    await world.reserve(times=3, cost_nanos=4_999_999)
    await world.reserve(cost_nanos=2)
    assert await world.warn() == (0, 0, 0, 0)
    await world.reserve(cost_nanos=1)
    assert await world.warn() == (1, 1, 0, 0)
    (facts,) = await world.messages()
    assert facts["dimensions"][0]["used"] == facts["dimensions"][0]["held"] == 15_000_000


async def test_a_department_names_its_top_apps(world: World) -> None:
    await world.department(monthly_tokens=1_000, downgrade_model="small")
    await world.tenant("a", department_id="d")
    await world.tenant("b", department_id="d")
    await world.tenant("other")
    await world.reserve("other", in_tokens=9_000, cost_nanos=9, app="elsewhere", model="large")
    world.now -= timedelta(days=2)
    await world.reserve("a", in_tokens=10, cost_nanos=10_000, app="long ago", model="large")
    world.now += timedelta(days=2)
    for number in range(6):
        await world.reserve(
            "b", in_tokens=10, cost_nanos=100 + number, app=f"small-{number}", model="m"
        )
    await world.reserve("a", in_tokens=300, cost_nanos=3_000, app="crawler", model="large")
    await world.reserve("a", in_tokens=400, cost_nanos=1_000, app="crawler", model="cheap")
    assert (await world.warn())[1] == 1
    (facts,) = await world.messages()
    assert [a["app"] for a in facts["top_apps"]] == [
        "crawler",
        "small-5",
        "small-4",
        "small-3",
        "small-2",
    ]
    first = facts["top_apps"][0]
    assert (first["tokens"], first["cost_nanos"], first["models"]) == (
        700,
        4_000,
        ["cheap", "large"],
    )
    assert first["share_pct"] == 86.7  # of 4,615 nanos in all
    assert facts["finance_emails"] == ["money@example.com"]
    # what comes next
    assert (facts["downgrade_pct"], facts["protect_pct"], facts["downgrade_model"]) == (
        90,
        98,
        "small",
    )


@pytest.mark.parametrize(
    ("department", "tenant", "expected"),
    [(None, None, "zh-CN"), (None, "en", "en"), ("en", "zh-CN", "en"), ("zh-CN", "en", "zh-CN")],
)
async def test_whose_language(
    world: World, department: str | None, tenant: str | None, expected: str
) -> None:
    await world.conn.execute("UPDATE quota_settings SET locale = 'zh-CN'")
    await world.department()
    await world.conn.execute("UPDATE departments SET locale = $1", department)
    await world.tenant(daily_completions=10, department_id="d", locale=tenant)
    await world.use(9)
    assert (await world.warn())[1] == 1
    assert await world.conn.fetchval("SELECT locale FROM quota_outbox") == expected


async def test_the_limit_leaves_the_rest_for_the_next_pass(world: World) -> None:
    for name in "abcde":
        await world.tenant(name, daily_completions=10)
        await world.use(10, name)
    world.now += TICK
    told = [
        (await world.conn.fetchrow("SELECT * FROM quota_soft_warn($1, p_limit => 2)", world.now))[1]
        for _ in range(4)
    ]
    assert told == [2, 2, 1, 0]


async def test_without_routes_nothing_is_written(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.use(10)
    with pytest.raises(Exception, match="needs a default") as refused:
        await world.conn.fetchrow("SELECT * FROM quota_soft_warn($1, '{}'::jsonb)", world.now)
    assert refused.value.sqlstate == "22023"
    assert await world.log() == []
