"""Each crossing is told once: thresholds, supersession, periods, refusals (cases 9, 13, 15, 16)."""

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
    (facts,) = await world.messages()
    assert (facts["past"], facts["subject"]) == (True, "full")
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


async def test_one_outbox_row_for_each_channel(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.use(9)
    await world.conn.fetchrow(
        "SELECT * FROM quota_soft_warn($1, ARRAY['im-bot', 'feishu-webhook', 'im-bot'])", world.now
    )
    rows = await world.conn.fetch(
        "SELECT channel, state, attempts, count(*) OVER () AS n, dedupe_key FROM quota_outbox ORDER BY channel"
    )
    assert [(r["channel"], r["state"], r["attempts"]) for r in rows] == [
        ("feishu-webhook", "pending", 0),
        ("im-bot", "pending", 0),
    ]
    assert len({r["dedupe_key"] for r in rows}) == 2
    assert all(len(r["dedupe_key"]) <= 50 for r in rows)


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


async def test_without_a_channel_nothing_is_written(world: World) -> None:
    await world.tenant(daily_completions=10)
    await world.use(10)
    with pytest.raises(Exception, match="no channel") as refused:
        await world.conn.fetchrow("SELECT * FROM quota_soft_warn($1, '{}')", world.now)
    assert refused.value.sqlstate == "22023"
    assert await world.log() == []
