"""Department budgets: tiers, models, notices, top-ups, pools, moves."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sql.calls import NOON, at, several, sqlstate_of

if TYPE_CHECKING:
    from sql.calls import Calls

MAY = date(2026, 5, 1)


async def pool(calls: Calls, used: int = 0, **budget: Any) -> None:
    """Tenant t in department d with `used` tokens (and as many cents) of 1000 spent."""
    defaults: dict[str, Any] = {"monthly_tokens": 1000, "downgrade_model": "small"}
    await calls.department("d", **{**defaults, **budget})
    await calls.tenant(department_id="d", locale="en")
    if used:
        await calls.settle(request_id="before", amounts=(used, 0, used * 10_000_000))


TIERS = [
    (0, "normal", "normal", "big", "ok"),
    (749, "normal", "normal", "big", "ok"),
    (750, "warning", "normal", "big", "ok"),
    (899, "warning", "low", "big", "ok"),
    (900, "downgrade", "normal", "small", "ok"),
    (979, "downgrade", "low", "small", "ok"),
    (980, "protected", "high", "small", "ok"),
    (980, "protected", "normal", None, "department_protected"),
    (999, "protected", "low", None, "department_protected"),
    (999, "protected", "high", "small", "ok"),
    (1000, "exhausted", "high", None, "department_budget_exhausted"),
    (1110, "exhausted", "normal", None, "department_budget_exhausted"),
]


@pytest.mark.parametrize("dimension", ["tokens", "cost"])
@pytest.mark.parametrize(("used", "tier", "priority", "model", "reason"), TIERS)
async def test_tiers_by_the_higher_of_tokens_and_cost(
    calls: Calls,
    used: int,
    tier: str,
    priority: str,
    model: str | None,
    reason: str,
    dimension: str,
) -> None:
    if dimension == "tokens":
        await pool(calls, used, monthly_cost_cents=10**9)
    else:
        await pool(calls, used, monthly_tokens=10**9, monthly_cost_cents=1000)
    row = await calls.reserve(amounts=(1, 0, 10_000_000), model="big", priority=priority)
    assert (row["reason"], row["tier"]) == (reason, tier)
    if reason == "ok":
        assert row["model"] == model
    else:
        assert row["limit_name"]
        assert row["resets_at"] == at("2026-06-01T00:00")
    assert bool(row["notice"]) == (tier in ("downgrade", "protected", "exhausted"))


async def test_every_tier_below_a_percent_of_one_is_judged_exactly(calls: Calls) -> None:
    """No rounding: 75 % of 999 is 749.25, so 749 is below it and 750 above."""
    await pool(calls, 749, monthly_tokens=999)
    assert (await calls.reserve(amounts=(1, 0, 0)))["tier"] == "normal"
    assert (await calls.reserve(amounts=(1, 0, 0)))["tier"] == "warning"


@pytest.mark.parametrize(
    ("downgrade_from", "model", "answered"),
    [
        (None, "big", "small"),
        (None, "anything", "small"),
        (["big"], "big", "small"),
        (["big", "huge"], "huge", "small"),
        (["big"], "other", "other"),
        ([], "big", "big"),
    ],
)
async def test_which_models_are_downgraded(
    calls: Calls, downgrade_from: list[str] | None, model: str, answered: str
) -> None:
    await pool(calls, 900, downgrade_from=downgrade_from)
    row = await calls.reserve(request_id="r", amounts=(1, 0, 0), model=model)
    assert row["model"] == answered
    assert row["notice"], "every tier from downgrade on says what was done"
    stored = await calls.reservation()
    assert (stored["requested_model"], stored["model"]) == (model, answered)
    again = await calls.reserve(request_id="r", amounts=(1, 0, 0), model=model)
    assert again == {**row, "replayed": True}


async def test_without_a_downgrade_model_the_model_stays(calls: Calls) -> None:
    await pool(calls, 950, downgrade_model=None)
    row = await calls.reserve(amounts=(1, 0, 0), model="big")
    assert (row["tier"], row["model"]) == ("downgrade", "big")


async def test_notices_speak_the_tenants_language(calls: Calls) -> None:
    await pool(calls, 900)
    told = {}
    for locale in ("en", "zh-CN"):
        await calls.change(locale=locale)
        row = await calls.reserve(amounts=(1, 0, 0), model="big")
        told[locale] = row["notice"]
        assert "small" in row["notice"], "it says which model answers"
    assert told["en"].isascii()
    assert any("\u4e00" <= one <= "\u9fff" for one in told["zh-CN"])
    for used, priority in ((80, "normal"), (20, "high")):
        await calls.settle(request_id=f"more{used}", amounts=(used, 0, 0))
        for locale in ("en", "zh-CN"):
            await calls.change(locale=locale)
            row = await calls.reserve(model="big", priority=priority)
            assert not row["allowed"]
            assert row["notice"].isascii() == (locale == "en")


@pytest.mark.parametrize(
    ("allowed", "model", "reason"),
    [
        (None, None, "ok"),
        (None, "any", "ok"),
        (["big"], "big", "ok"),
        (["big"], "small", "model_not_allowed"),
        (["big"], None, "model_not_allowed"),
        ([], "big", "model_not_allowed"),
        ([], None, "model_not_allowed"),
    ],
)
async def test_allowed_models(
    calls: Calls, allowed: list[str] | None, model: str | None, reason: str
) -> None:
    await pool(calls, allowed_models=allowed)
    assert (await calls.reserve(model=model))["reason"] == reason


async def test_an_estimate_that_no_longer_fits_is_refused_in_any_tier(calls: Calls) -> None:
    await pool(calls, 100)
    row = await calls.reserve(amounts=(450, 451, 0))
    assert (row["reason"], row["tier"]) == ("department_budget_exhausted", "normal")
    assert (await calls.reserve(amounts=(450, 450, 0)))["allowed"]


async def test_holds_count_and_what_is_given_back_is_free_again(calls: Calls) -> None:
    await pool(calls)
    await calls.reserve(request_id="r", amounts=(600, 400, 0))
    assert (await calls.reserve(amounts=(0, 0, 0)))["tier"] == "exhausted"
    await calls.settle(amounts=(100, 0, 0))
    assert (await calls.reserve(amounts=(900, 0, 0)))["allowed"]
    used = await calls.department_used("d", "production", MAY)
    assert (used["tokens_used"], used["tokens_held"]) == (1000, 900)


async def test_a_budget_of_zero_allows_nothing(calls: Calls) -> None:
    await pool(calls, monthly_tokens=0)
    row = await calls.reserve(amounts=(0, 0, 0), priority="high")
    assert (row["reason"], row["tier"]) == ("department_budget_exhausted", "exhausted")


@pytest.mark.parametrize("budget", [False, True])
async def test_no_budget_no_tier(calls: Calls, budget: bool) -> None:  # noqa: FBT001
    if budget:
        await pool(calls, monthly_tokens=None, monthly_cost_cents=None)
    else:
        await calls.conn.execute("INSERT INTO departments (department_id, name) VALUES ('d', 'D')")
        await calls.tenant(department_id="d")
    row = await calls.reserve(amounts=(10**12, 10**12, 10**15))
    assert (row["allowed"], row["tier"]) == (True, "normal")
    assert not row["notice"]


async def test_tests_cannot_eat_the_production_budget(calls: Calls) -> None:
    await pool(calls)
    await calls.department("d", "test", monthly_tokens=10)
    await calls.tenant("x", department_id="d", environment="test")
    assert (await calls.reserve("x", amounts=(10, 0, 0)))["allowed"]
    assert (await calls.reserve("x", amounts=(1, 0, 0)))["reason"] == "department_budget_exhausted"
    assert (await calls.reserve("t", amounts=(1000, 0, 0)))["allowed"]


async def test_a_new_month_is_a_new_budget(calls: Calls) -> None:
    await pool(calls, 1110)
    assert not (await calls.reserve(now=at("2026-05-31T23:59:59.9")))["allowed"]
    row = await calls.reserve(now=at("2026-06-01T00:00"))
    assert (row["allowed"], row["tier"]) == (True, "normal")


async def test_a_lower_budget_counts_at_once(calls: Calls) -> None:
    await pool(calls, 300)
    for _ in range(2):
        assert (await calls.reserve(amounts=(1, 0, 0)))["tier"] == "normal"
    for limit, tier in ((390, "warning"), (330, "downgrade"), (10_000, "normal"), (0, "exhausted")):
        await calls.conn.execute(f"UPDATE department_budgets SET monthly_tokens = {limit}")
        assert (await calls.reserve(amounts=(1, 0, 0), priority="high"))["tier"] == tier
    await calls.conn.execute("UPDATE department_budgets SET monthly_tokens = 330, warn_pct = 10")
    assert (await calls.reserve(amounts=(0, 0, 0)))["tier"] == "downgrade"
    await calls.conn.execute("DELETE FROM department_budgets")
    assert (await calls.reserve(amounts=(0, 0, 0)))["tier"] == "normal"


async def test_late_usage_moves_the_tier_at_once(calls: Calls) -> None:
    """Up and down again, by settlements alone."""
    await pool(calls, 100)
    for number in range(3):
        await calls.reserve(request_id=f"r{number}", amounts=(10, 0, 0))
    for used, tier in ((700, "warning"), (900, "exhausted"), (800, "downgrade"), (0, "normal")):
        await calls.settle(request_id="r0", amounts=(used, 0, 0))
        assert (await calls.reserve(amounts=(0, 0, 0), priority="high"))["tier"] == tier


async def test_late_usage_moves_the_tier_for_every_session(dsn: str) -> None:
    """Each session books on a counter of its own; none may admit by an old line."""
    async with several(dsn, 6) as calls:
        for one in calls:
            one.now = NOON
        await pool(calls[0], 100)
        for one in calls:
            for _ in range(2):
                assert (await one.reserve(amounts=(1, 0, 0)))["tier"] == "normal"
        # with the twelve tokens of above
        for used, tier in (
            (750, "warning"),
            (900, "downgrade"),
            (990, "exhausted"),
            (740, "warning"),
            (0, "normal"),
        ):
            await calls[0].settle(request_id="before", amounts=(used, 0, 0))
            for one in calls:
                row = await one.reserve(amounts=(0, 0, 0), priority="high")
                assert row["tier"] == tier


# top-ups --------------------------------------------------------------------------


async def test_a_top_up_counts_within_its_window(calls: Calls) -> None:
    await pool(calls, 1000)
    ends = NOON + timedelta(hours=2)
    await calls.top_up("d", 1000, 0, "k", ends, now=NOON + timedelta(hours=1))
    for hours, tier in ((0, "exhausted"), (1, "normal"), (1.99, "normal"), (2, "exhausted")):
        row = await calls.reserve(amounts=(0, 0, 0), now=NOON + timedelta(hours=hours))
        assert row["tier"] == tier, hours


async def test_a_top_up_over_a_month_end_counts_in_full_in_both(calls: Calls) -> None:
    await pool(calls, 1000)
    await calls.top_up("d", 500, 0, "k", at("2026-06-10T00:00"))
    assert (await calls.reserve(amounts=(400, 0, 0), priority="high"))["allowed"]
    row = await calls.reserve(amounts=(1500, 0, 0), now=at("2026-06-02T00:00"))
    assert row["allowed"]
    row = await calls.reserve(amounts=(1, 0, 0), now=at("2026-06-02T00:00"))
    assert row["tier"] == "exhausted"


async def test_a_top_up_never_limits_an_unlimited_pool(calls: Calls) -> None:
    await pool(calls, monthly_tokens=None, monthly_cost_cents=None)
    await calls.top_up("d", 1, 1, "k", NOON + timedelta(days=1))
    assert (await calls.reserve(amounts=(1000, 0, 10**12)))["allowed"]
    assert (await calls.reserve(amounts=(1000, 0, 10**12)))["tier"] == "normal"


async def test_a_top_up_of_another_pool_does_not_count(calls: Calls) -> None:
    await pool(calls, 1000)
    await calls.department("d", "test", monthly_tokens=1)
    await calls.department("e", monthly_tokens=1)
    await calls.top_up("d", 500, 0, "k", NOON + timedelta(days=1), environment="test")
    await calls.top_up("e", 500, 0, "k", NOON + timedelta(days=1))
    assert (await calls.reserve(amounts=(0, 0, 0)))["tier"] == "exhausted"


async def test_the_same_key_adds_once_and_conflicts_with_other_values(calls: Calls) -> None:
    await pool(calls, 1000)
    ends = NOON + timedelta(days=1)
    for _ in range(3):
        await calls.top_up("d", 100, 0, "k", ends)
    assert await sqlstate_of(calls.top_up("d", 101, 0, "k", ends)) == "QW001"
    assert await sqlstate_of(calls.top_up("d", 100, 1, "k", ends)) == "QW001"
    assert await sqlstate_of(calls.top_up("d", 100, 0, "k", ends + timedelta(1))) == "QW001"
    assert await calls.conn.fetchval("SELECT count(*) FROM quota_topups") == 1
    assert (await calls.reserve(amounts=(100, 0, 0), priority="high"))["allowed"]
    assert not (await calls.reserve(amounts=(1, 0, 0), priority="high"))["allowed"]


async def test_a_refused_top_up_leaves_nothing(calls: Calls) -> None:
    await pool(calls)
    ends = NOON + timedelta(days=1)
    for tokens, cents, key in ((-1, 0, "k"), (0, -1, "k"), (10, 0, ""), (10, 0, "x" * 201)):
        assert await sqlstate_of(calls.top_up("d", tokens, cents, key, ends)) == "QW002"
    assert await calls.conn.fetchval("SELECT count(*) FROM quota_topups") == 0


# moves ----------------------------------------------------------------------------


async def test_a_moved_tenants_open_requests_end_where_they_began(calls: Calls) -> None:
    await pool(calls)
    await calls.department("e", monthly_tokens=1000)
    await calls.reserve(request_id="r", amounts=(100, 0, 0))
    await calls.change(department_id="e")
    await calls.reserve(request_id="q", amounts=(7, 0, 0))
    await calls.settle(request_id="r", amounts=(60, 0, 0))
    old, new = [await calls.department_used(name, "production", MAY) for name in "de"]
    assert (old["tokens_used"], old["tokens_held"]) == (60, 0)
    assert (new["tokens_used"], new["tokens_held"]) == (7, 7)
    await calls.settle(request_id="r", amounts=(61, 0, 0))
    assert (await calls.department_used("d", "production", MAY))["tokens_used"] == 61
    assert (await calls.usage())["input_tokens"] == 68
