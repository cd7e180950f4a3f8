"""enforce = observe and off: everything passes, everything counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from model.days import month_of
from sql.calls import NOON

if TYPE_CHECKING:
    from sql.calls import Calls


@pytest.mark.parametrize(
    ("limits", "budget", "observed"),
    [
        ({"daily_completions": 0}, None, "daily_cap_reached"),
        ({"monthly_cost_cents": 0}, None, "monthly_cost_reached"),
        ({"bucket_capacity": 0.0}, None, "rate_limited"),
        ({}, {"monthly_tokens": 0}, "department_budget_exhausted"),
        ({}, {"allowed_models": []}, "model_not_allowed"),
    ],
)
async def test_an_observed_tenant_passes_and_is_told(
    calls: Calls, limits: dict[str, object], budget: dict[str, object] | None, observed: str
) -> None:
    if budget is not None:
        await calls.department("d", downgrade_model="small", **budget)
        limits = {**limits, "department_id": "d"}
    await calls.tenant(enforce="observe", **limits)
    row = await calls.reserve(request_id="r", model="big")
    assert (row["allowed"], row["reason"], row["observed_reason"]) == (True, "ok", observed)
    assert row["model"] == "big"
    assert not row["notice"]
    assert await calls.figures() == (1, 10, 5, 100)
    assert await calls.reserve(request_id="r", model="big") == {**row, "replayed": True}


async def test_an_observed_tenant_below_its_caps_observes_nothing(calls: Calls) -> None:
    await calls.tenant(enforce="observe")
    row = await calls.reserve()
    assert (row["reason"], row["observed_reason"]) == ("ok", None)


@pytest.mark.parametrize("used", [900, 980, 1000])
async def test_observing_leaves_the_model_alone_in_every_tier(calls: Calls, used: int) -> None:
    await calls.department("d", monthly_tokens=1000, downgrade_model="small")
    await calls.tenant(enforce="observe", department_id="d")
    await calls.settle(request_id="before", amounts=(used, 0, 0))
    row = await calls.reserve(amounts=(1, 0, 0), model="big")
    assert (row["allowed"], row["model"]) == (True, "big")
    assert not row["notice"]


async def test_an_observed_bucket_stays_at_zero(calls: Calls) -> None:
    await calls.tenant(enforce="observe", bucket_capacity=2.0, bucket_refill_per_sec=0.0)
    seen = [(await calls.reserve())["observed_reason"] for _ in range(5)]
    assert seen == [None, None, *["rate_limited"] * 3]
    await calls.change(enforce="on", bucket_refill_per_sec=0.5)
    later = NOON.replace(second=2)
    assert (await calls.reserve(now=later))["allowed"], "no debt was run up"
    assert not (await calls.reserve(now=later))["allowed"]


async def test_switching_on_meets_no_debt_of_tokens(calls: Calls) -> None:
    await calls.tenant(enforce="observe", bucket_capacity=2.0, bucket_refill_per_sec=1.0)
    for _ in range(20):
        assert (await calls.reserve())["allowed"]
    await calls.change(enforce="on")
    assert (await calls.reserve(now=NOON.replace(second=1)))["allowed"]
    assert (await calls.reserve(now=NOON.replace(second=1)))["reason"] == "rate_limited"


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_usage_counts_everywhere_all_the_same(calls: Calls, mode: str) -> None:
    await calls.department("d", monthly_tokens=10)
    await calls.tenant(enforce=mode, department_id="d", daily_completions=1)
    for number in range(3):
        await calls.reserve(request_id=f"r{number}", amounts=(10, 0, 5))
    await calls.settle(request_id="r0", amounts=(4, 0, 2))
    assert await calls.figures() == (3, 24, 0, 12)
    used = await calls.department_used("d", "production", month_of(NOON.date()))
    assert (used["tokens_used"], used["tokens_held"]) == (24, 20)


async def test_off_only_counts(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=0, allowed_models=[], downgrade_model="small")
    await calls.tenant(enforce="off", department_id="d", daily_completions=0, bucket_capacity=0.0)
    for _ in range(3):
        row = await calls.reserve(model="big")
        assert (row["allowed"], row["reason"], row["observed_reason"]) == (True, "ok", None)
        assert row["model"] == "big"
    assert (await calls.refusals()) == {}
    calls.now = None
    assert await calls.check_and_charge() == (True, "ok")


async def test_switching_on_binds_with_what_was_used(calls: Calls) -> None:
    await calls.tenant(enforce="off", daily_completions=2)
    for _ in range(2):
        assert (await calls.reserve())["allowed"]
    await calls.change(enforce="on")
    assert (await calls.reserve())["reason"] == "daily_cap_reached"


async def test_an_unknown_mode_is_refused_by_a_named_constraint(calls: Calls) -> None:
    await calls.tenant()
    for column in ("enforce", "environment", "stale_policy"):
        name = await calls.conn.fetchval(
            "SELECT conname FROM pg_constraint WHERE conrelid = 'tenant_limits'::regclass"
            " AND contype = 'c' AND pg_get_constraintdef(oid) LIKE $1",
            f"%{column}%",
        )
        assert name, f"{column} carries no CHECK"
