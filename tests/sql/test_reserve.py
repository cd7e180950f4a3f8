"""quota_reserve: the order of checks, every cap, replay, what a refusal tells."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from model.records import BIGINT_MAX
from sql.calls import NOON, at, sqlstate_of

if TYPE_CHECKING:
    from sql.calls import Calls

# cap column, its reason, the amounts of a request that takes one unit of it
CAPS = [
    ("daily_completions", "daily_cap_reached", (0, 0, 0)),
    ("daily_input_tokens", "daily_input_tokens_reached", (1, 0, 0)),
    ("daily_output_tokens", "daily_output_tokens_reached", (0, 1, 0)),
    ("daily_tokens", "daily_tokens_reached", (1, 0, 0)),
    ("daily_cost_cents", "daily_cost_reached", (0, 0, 10_000_000)),
    ("monthly_completions", "monthly_completions_reached", (0, 0, 0)),
    ("monthly_tokens", "monthly_tokens_reached", (0, 1, 0)),
    ("monthly_cost_cents", "monthly_cost_reached", (0, 0, 10_000_000)),
]
MIDNIGHT = at("2026-05-16T00:00:00")
MONTH_END = at("2026-06-01T00:00:00")


async def test_an_admission_answers_every_field(calls: Calls) -> None:
    await calls.tenant()
    row = await calls.reserve(request_id="r", model="big")
    assert row["allowed"] is True
    assert row["reason"] == "ok"
    assert row["observed_reason"] is None
    assert isinstance(row["reservation_id"], int)
    assert row["replayed"] is False
    assert row["tier"] == "normal"
    assert row["model"] == "big"
    assert not row["notice"]
    assert list(row) == [
        "allowed",
        "reason",
        "observed_reason",
        "reservation_id",
        "replayed",
        "tier",
        "model",
        "notice",
        "limit_name",
        "limit_value",
        "limit_used",
        "resets_at",
        "retry_after_seconds",
    ]
    assert await calls.figures() == (1, 10, 5, 100)
    assert await calls.held() == (10, 5, 100)
    stored = await calls.reservation()
    assert stored["state"] == "open"
    assert stored["expires_at"] == NOON + timedelta(seconds=600)


async def test_an_unknown_tenant_is_refused_and_leaves_nothing(calls: Calls) -> None:
    row = await calls.reserve("ghost")
    assert (row["allowed"], row["reason"]) == (False, "unknown_tenant")
    assert row["reservation_id"] is None
    assert await calls.rows("SELECT * FROM quota_usage") == []
    assert await calls.rows("SELECT * FROM quota_reservations") == []


@pytest.mark.parametrize(("column", "reason", "unit"), CAPS)
async def test_cap_zero_refuses_the_first_call(
    calls: Calls, column: str, reason: str, unit: tuple[int, int, int]
) -> None:
    await calls.tenant(**{column: 0})
    for amounts in ((0, 0, 0), unit):
        row = await calls.reserve(amounts=amounts)
        assert (row["allowed"], row["reason"]) == (False, reason)
    assert await calls.figures() == (0, 0, 0, 0)


@pytest.mark.parametrize(("column", "reason", "unit"), CAPS)
async def test_usage_equal_to_the_cap_refuses_the_next(
    calls: Calls, column: str, reason: str, unit: tuple[int, int, int]
) -> None:
    await calls.tenant(**{column: 3})
    for _ in range(3):
        assert (await calls.reserve(amounts=unit))["reason"] == "ok"
    for amounts in (unit, (0, 0, 0)):
        row = await calls.reserve(amounts=amounts)
        assert (row["allowed"], row["reason"]) == (False, reason)
    assert row["limit_name"]
    assert row["limit_value"] in (3, 30_000_000)
    assert row["limit_used"] == row["limit_value"]
    resets = MONTH_END if column.startswith("monthly") else MIDNIGHT
    assert row["resets_at"] == resets
    assert float(row["retry_after_seconds"]) == (resets - NOON).total_seconds()


@pytest.mark.parametrize(("column", "reason", "unit"), CAPS)
async def test_used_plus_estimate_over_the_cap_is_refused(
    calls: Calls, column: str, reason: str, unit: tuple[int, int, int]
) -> None:
    if "completions" in column:
        unit = (0, 0, 0)
        await calls.tenant(**{column: 1})
        assert (await calls.reserve(amounts=unit))["allowed"]
        assert (await calls.reserve(amounts=unit))["reason"] == reason
        return
    await calls.tenant(**{column: 10})
    six, four = tuple(6 * n for n in unit), tuple(4 * n for n in unit)
    assert (await calls.reserve(amounts=six))["allowed"]
    five = tuple(5 * n for n in unit)
    assert (await calls.reserve(amounts=five))["reason"] == reason
    assert (await calls.reserve(amounts=four))["allowed"]


@pytest.mark.parametrize(("column", "reason", "unit"), CAPS)
async def test_usage_of_111_percent_is_refused_until_the_reset(
    calls: Calls, column: str, reason: str, unit: tuple[int, int, int]
) -> None:
    await calls.tenant()
    for number in range(10):
        await calls.reserve(request_id=f"r{number}", amounts=unit)
    await calls.change(**{column: 9})
    row = await calls.reserve(amounts=unit)
    assert row["reason"] == reason
    assert row["limit_used"] * 9 == row["limit_value"] * 10
    later = row["resets_at"]
    assert (await calls.reserve(amounts=unit, now=later - timedelta(seconds=1)))["allowed"] is False
    assert (await calls.reserve(amounts=unit, now=later))["allowed"] is True


@pytest.mark.parametrize(("column", "reason", "unit"), CAPS)
async def test_no_cap_and_the_largest_cap_never_overflow(
    calls: Calls, column: str, reason: str, unit: tuple[int, int, int]
) -> None:
    await calls.tenant()
    big = (10**12, 10**12, 10**15)
    assert (await calls.reserve(amounts=big))["allowed"], reason
    largest = 2**31 - 1 if column == "daily_completions" else BIGINT_MAX
    await calls.change(**{column: largest})
    for _ in range(3):
        assert (await calls.reserve(amounts=big))["allowed"]
    assert unit is not None
    assert await calls.figures() == (4, 4 * 10**12, 4 * 10**12, 4 * 10**15)
    assert await calls.rows("SELECT * FROM v_quota_status") != []


async def test_daily_caps_come_before_monthly_ones_in_the_order_of_the_contract(
    calls: Calls,
) -> None:
    await calls.tenant(bucket_capacity=0.0, **{column: 0 for column, _, _ in CAPS})
    for column, reason, _ in CAPS:
        assert (await calls.reserve())["reason"] == reason
        await calls.change(**{column: None})
    assert (await calls.reserve())["reason"] == "rate_limited"


async def test_the_department_comes_before_the_caps_and_the_models_before_the_tier(
    calls: Calls,
) -> None:
    await calls.department("d", monthly_tokens=0, allowed_models=["big"])
    await calls.tenant(department_id="d", daily_completions=0)
    assert (await calls.reserve(model="small"))["reason"] == "model_not_allowed"
    assert (await calls.reserve(model="big"))["reason"] == "department_budget_exhausted"


async def test_a_replay_comes_before_every_later_check(calls: Calls) -> None:
    await calls.department("d")
    await calls.tenant(department_id="d", bucket_capacity=1.0, bucket_refill_per_sec=0.0)
    first = await calls.reserve(request_id="r", model="big")
    await calls.change(daily_completions=0)
    await calls.conn.execute(
        "UPDATE department_budgets SET allowed_models = '{}', monthly_tokens = 0"
    )
    again = await calls.reserve(request_id="r", model="big")
    assert again == {**first, "replayed": True}
    assert await calls.figures() == (1, 10, 5, 100)


@pytest.mark.parametrize(
    "other",
    [
        {"amounts": (11, 5, 100)},
        {"amounts": (10, 6, 100)},
        {"amounts": (10, 5, 101)},
        {"model": "small"},
        {"model": None},
    ],
)
async def test_the_same_id_with_other_figures_conflicts(calls: Calls, other: Any) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r", model="big")
    before = await calls.reservation()
    assert await sqlstate_of(calls.reserve(request_id="r", **{"model": "big", **other})) == "QW001"
    assert await calls.reservation() == before
    assert await calls.figures() == (1, 10, 5, 100)


@pytest.mark.parametrize("end", ["settle", "release", "expire"])
async def test_a_replay_after_the_end_revives_nothing(calls: Calls, end: str) -> None:
    await calls.tenant(stale_policy="release")
    first = await calls.reserve(request_id="r")
    if end == "settle":
        await calls.settle(amounts=(1, 2, 3))
    elif end == "release":
        await calls.release()
    else:
        await calls.expire(now=NOON + timedelta(hours=1))
    figures, stored = await calls.figures(), await calls.reservation()
    again = await calls.reserve(request_id="r")
    assert again["replayed"] is True
    assert again["reservation_id"] == first["reservation_id"]
    assert await calls.figures() == figures
    assert await calls.held() == (0, 0, 0)
    assert await calls.reservation() == stored


async def test_a_refusal_is_not_remembered(calls: Calls) -> None:
    await calls.tenant(daily_completions=0)
    assert not (await calls.reserve(request_id="r"))["allowed"]
    await calls.change(daily_completions=1)
    row = await calls.reserve(request_id="r", amounts=(99, 0, 0))
    assert (row["allowed"], row["replayed"]) == (True, False)


async def test_a_reserve_after_its_own_usage_holds_nothing(calls: Calls) -> None:
    await calls.tenant()
    assert (await calls.settle(amounts=(7, 8, 9)))["outcome"] == "unreserved"
    row = await calls.reserve(request_id="r", amounts=(100, 100, 100))
    assert (row["allowed"], row["replayed"]) == (True, True)
    assert await calls.figures() == (1, 7, 8, 9)
    assert await calls.held() == (0, 0, 0)


async def test_the_ttl_of_the_call_wins_over_the_tenants(calls: Calls) -> None:
    await calls.tenant(reservation_ttl_seconds=120)
    await calls.reserve(request_id="r")
    await calls.reserve(request_id="q", ttl_seconds=30)
    assert (await calls.reservation())["expires_at"] == NOON + timedelta(seconds=120)
    assert (await calls.reservation(request_id="q"))["expires_at"] == NOON + timedelta(seconds=30)


async def test_the_same_request_id_of_two_tenants_is_two_requests(calls: Calls) -> None:
    await calls.tenant("t")
    await calls.tenant("u")
    one = await calls.reserve("t", "r")
    two = await calls.reserve("u", "r", (1, 1, 1))
    assert one["reservation_id"] != two["reservation_id"]
    assert not two["replayed"]


async def test_monthly_caps_count_every_day_of_the_month(calls: Calls) -> None:
    """Also a day that lies ahead of a clock that runs behind."""
    await calls.tenant(monthly_tokens=30)
    for day in ("2026-05-02T10:00", "2026-05-31T23:59:59"):
        assert (await calls.reserve(amounts=(10, 0, 0), now=at(day)))["allowed"]
    row = await calls.reserve(amounts=(11, 0, 0), now=at("2026-05-15T12:00"))
    assert (row["reason"], row["limit_used"]) == ("monthly_tokens_reached", 20)
    assert (await calls.reserve(amounts=(10, 0, 0), now=at("2026-05-15T12:00")))["allowed"]
    assert (await calls.reserve(amounts=(30, 0, 0), now=at("2026-06-01T00:00")))["allowed"]
