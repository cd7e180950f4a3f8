"""The model against the words of the contract, by hand-worked figures."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest

from model.days import day_of, end_of_day, end_of_month, start_of_day
from model.ledger import Ledger
from model.records import Budget, Limits, Refused, TopUp, Usage

NOON = datetime(2026, 5, 15, 12, tzinfo=UTC)


def ledger(**limits: object) -> Ledger:
    one = Ledger()
    one.tenants["t"] = Limits(**limits)  # type: ignore[arg-type]
    return one


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("UTC", date(2026, 1, 1), 24),
        ("America/New_York", date(2025, 3, 9), 23),
        ("America/New_York", date(2025, 11, 2), 25),
        ("Australia/Lord_Howe", date(2025, 4, 6), 24.5),
        ("Australia/Lord_Howe", date(2025, 10, 5), 23.5),
        ("America/Havana", date(2025, 3, 9), 23),  # midnight doesn't exist
        ("Asia/Beirut", date(2025, 3, 30), 23),  # nor here
    ],
)
def test_a_day_is_as_long_as_the_zone_makes_it(zone: str, day: date, hours: float) -> None:
    start, end = start_of_day(day, zone), end_of_day(day, zone)
    assert end - start == timedelta(hours=hours)
    assert day_of(start, zone) == day
    assert day_of(start - timedelta(seconds=1), zone) < day
    assert day_of(end, zone) > day


def test_month_end_in_shanghai_is_four_in_the_afternoon_utc() -> None:
    assert end_of_month(date(2026, 1, 31), "Asia/Shanghai") == datetime(2026, 1, 31, 16, tzinfo=UTC)


def test_a_cap_is_reached_at_used_or_passed_by_the_estimate() -> None:
    one = ledger(daily_input_tokens=10)
    assert one.reserve("t", "a", (11, 0, 0), NOON).reason == "daily_input_tokens_reached"
    assert one.reserve("t", "a", (10, 0, 0), NOON).reason == "ok"
    refused = one.reserve("t", "b", (0, 0, 0), NOON)
    assert (refused.reason, refused.limit_value, refused.limit_used) == (
        "daily_input_tokens_reached",
        10,
        10,
    )
    assert refused.retry_after == 12 * 3600


def test_the_bucket_refills_and_never_goes_back() -> None:
    one = ledger(bucket_capacity=Fraction(2), bucket_refill_per_sec=Fraction(1, 2))
    for name in "ab":
        assert one.reserve("t", name, (0, 0, 0), NOON).allowed
    refused = one.reserve("t", "c", (0, 0, 0), NOON)
    assert refused.reason == "rate_limited"
    assert refused.retry_after == Fraction(2)
    assert not one.reserve("t", "c", (0, 0, 0), NOON - timedelta(hours=1)).allowed
    assert not one.reserve("t", "c", (0, 0, 0), NOON + timedelta(seconds=1)).allowed
    assert one.reserve("t", "c", (0, 0, 0), NOON + timedelta(seconds=2)).allowed


def test_the_latest_usage_is_the_charge() -> None:
    one = ledger()
    one.reserve("t", "a", (100, 50, 1000), NOON)
    assert one.settle("t", "a", (1, 2, 3), NOON, usage_id="u1").accepts == {"settled"}
    assert one.settle("t", "a", (4, 5, 6), NOON, usage_id="u2").accepts == {"corrected"}
    assert one.settle("t", "a", (1, 2, 3), NOON, usage_id="u1").accepts == {"replayed"}
    with pytest.raises(Refused, match="QW001"):
        one.settle("t", "a", (9, 9, 9), NOON, usage_id="u2")
    assert one.day_used("t", NOON.date()) == Usage(4, 5, 6, 1)
    assert one.day_held("t", NOON.date()) == Usage()


def test_expiry_by_each_policy() -> None:
    for policy, charge in (
        ("estimate", Usage(100, 50, 1000, 1)),
        ("partial", Usage(100, 7, 714, 1)),  # 1000 x 107 / 150 = 713.3
        ("release", Usage()),
    ):
        one = ledger(stale_policy=policy)
        one.reserve("t", "a", (100, 50, 1000), NOON)
        one.progress("t", "a", 7, NOON)
        assert one.overdue(NOON + timedelta(seconds=599)) == []
        late = one.overdue(NOON + timedelta(seconds=601))
        one.expire([(r.tenant, r.request_id) for r in late])
        assert one.day_used("t", NOON.date()) == charge


def test_tiers_top_ups_and_what_no_longer_fits() -> None:
    one = ledger(department_id="d")
    one.departments.budgets[("d", "production")] = Budget(
        monthly_tokens=100, downgrade_model="small", downgrade_from=["big"]
    )
    assert one.reserve("t", "a", (89, 0, 0), NOON, model="big").tier == "normal"
    assert one.reserve("t", "b", (1, 0, 0), NOON, model="big").tier == "warning"
    answer = one.reserve("t", "c", (8, 0, 0), NOON, model="big")
    assert (answer.tier, answer.model, answer.notice) == ("downgrade", "small", True)
    assert one.reserve("t", "d", (1, 0, 0), NOON).reason == "department_protected"
    assert one.reserve("t", "d", (9, 0, 0), NOON, priority="high").reason == (
        "department_budget_exhausted"
    )
    one.departments.top_up(
        TopUp("d", "production", 50, 0, NOON, NOON + timedelta(hours=1), "k", "cfo", "why")
    )
    assert one.reserve("t", "d", (9, 0, 0), NOON).tier == "normal"
    assert one.reserve("t", "e", (9, 0, 0), NOON + timedelta(hours=1)).tier == "exhausted"


def test_a_move_counts_from_the_next_request() -> None:
    one = ledger(department_id="d")
    for name in "de":
        one.departments.budgets[(name, "production")] = Budget(monthly_tokens=1000)
    one.reserve("t", "a", (10, 0, 0), NOON)
    one.tenants["t"].department_id = "e"
    one.settle("t", "a", (7, 0, 0), NOON)
    one.reserve("t", "b", (5, 0, 0), NOON)
    month = date(2026, 5, 1)
    used = [
        one.departments.month_used(one.everything(), (name, "production"), month) for name in "de"
    ]
    assert [(u.tokens, h.tokens) for u, h in used] == [(7, 0), (5, 5)]


def test_a_release_gives_the_token_back_never_above_capacity() -> None:
    one = ledger(bucket_capacity=Fraction(1), bucket_refill_per_sec=Fraction(0))
    assert one.reserve("t", "a", (5, 5, 5), NOON).allowed
    assert one.release("t", "a", (0, 0, 0), NOON).accepts == {"released"}
    assert one.release("t", "a", (0, 0, 0), NOON).accepts == {"replayed"}
    assert one.bucket("t", NOON)[0] == 1
    assert one.day_used("t", NOON.date()) == Usage()
