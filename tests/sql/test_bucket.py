"""The token bucket: capacity, refill, no way back in time, tokens given back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sql.calls import NOON, at

if TYPE_CHECKING:
    from sql.calls import Calls

HOUR = timedelta(hours=1)


async def drained(calls: Calls, now: object = NOON) -> int:
    """How many requests pass before the bucket refuses."""
    count = 0
    while (await calls.reserve(now=now))["allowed"]:
        count += 1
        assert count < 100
    return count


async def test_a_new_tenants_bucket_is_full(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=3.0, bucket_refill_per_sec=0.5)
    assert await drained(calls) == 3
    row = await calls.reserve()
    assert (row["allowed"], row["reason"]) == (False, "rate_limited")
    assert float(row["retry_after_seconds"]) == 2
    half = await calls.reserve(now=NOON + timedelta(seconds=1))
    assert (half["reason"], float(half["retry_after_seconds"])) == ("rate_limited", 1)
    assert (await calls.reserve(now=NOON + timedelta(seconds=2)))["allowed"]


async def test_the_bucket_fills_to_its_capacity_only(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=3.0, bucket_refill_per_sec=0.5)
    await drained(calls)
    assert await drained(calls, NOON + HOUR) == 3
    assert await drained(calls, at("2026-05-16T12:00")) == 3, "over a day's end"
    assert await drained(calls, at("2026-07-01T12:00")) == 3, "over a month's end"


async def test_the_bucket_carries_over_midnight(calls: Calls) -> None:
    """A new day is no new bucket."""
    await calls.tenant(bucket_capacity=3.0, bucket_refill_per_sec=0.0)
    assert await drained(calls, at("2026-05-15T23:59:59")) == 3
    assert await drained(calls, at("2026-05-16T00:00:00")) == 0
    assert await drained(calls, at("2026-06-01T00:00:00")) == 0


async def test_a_clock_behind_adds_no_tokens(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=2.0, bucket_refill_per_sec=1.0)
    assert await drained(calls) == 2
    for _ in range(5):
        assert not (await calls.reserve(now=NOON - HOUR))["allowed"]
    assert not (await calls.reserve(now=NOON))["allowed"]
    assert await drained(calls, NOON + timedelta(seconds=1)) == 1
    assert not (await calls.reserve(now=NOON - timedelta(days=1)))["allowed"]
    assert not (await calls.reserve(now=NOON + timedelta(seconds=1)))["allowed"]


async def test_an_admission_by_a_clock_behind_moves_no_time_back(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=2.0, bucket_refill_per_sec=1.0)
    assert (await calls.reserve(now=NOON))["allowed"]
    assert (await calls.reserve(now=NOON - HOUR))["allowed"]
    assert not (await calls.reserve(now=NOON))["allowed"]
    assert (await calls.reserve(now=NOON + timedelta(seconds=1)))["allowed"]


async def test_a_refusal_takes_no_token(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=3.0, bucket_refill_per_sec=0.0, daily_input_tokens=100)
    assert (await calls.reserve())["allowed"]
    for _ in range(10):
        row = await calls.reserve(amounts=(101, 0, 0))
        assert row["reason"] == "daily_input_tokens_reached"
    assert await drained(calls) == 2


async def test_a_rate_limited_refusal_writes_no_row(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=0.0)
    assert (await calls.reserve())["reason"] == "rate_limited"
    assert await calls.rows("SELECT * FROM quota_reservations") == []
    assert await calls.figures() == (0, 0, 0, 0)


async def test_a_release_gives_its_token_back_once(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=2.0, bucket_refill_per_sec=0.0)
    await calls.reserve(request_id="r")
    await calls.reserve(request_id="q")
    assert await calls.release() == "released"
    assert await calls.release() == "replayed"
    assert await drained(calls) == 1


async def test_a_release_with_usage_gives_no_token_back(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=2.0, bucket_refill_per_sec=0.0)
    for name in ("used", "streamed"):
        await calls.reserve(request_id=name)
    await calls.progress(request_id="streamed", tokens_out=1)
    assert await calls.release(request_id="used", amounts=(1, 0, 0)) == "released"
    assert await calls.release(request_id="streamed") == "released"
    assert await drained(calls) == 0


async def test_a_token_given_back_stays_below_the_capacity(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=2.0, bucket_refill_per_sec=1.0)
    for name in ("r", "q"):
        await calls.reserve(request_id=name)
    for name in ("r", "q"):
        await calls.release(request_id=name, now=NOON + HOUR)
    assert await drained(calls, NOON + HOUR) == 2


async def test_a_settlement_gives_no_token_back(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=1.0, bucket_refill_per_sec=0.0)
    await calls.reserve(request_id="r")
    await calls.settle()
    assert await drained(calls) == 0


async def test_a_lower_capacity_counts_at_once(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=10.0, bucket_refill_per_sec=0.0)
    await calls.reserve()
    await calls.change(bucket_capacity=2.0)
    assert await drained(calls) == 2


async def test_a_bucket_that_never_refills_names_no_wait(calls: Calls) -> None:
    await calls.tenant(bucket_capacity=1.0, bucket_refill_per_sec=0.0)
    await drained(calls)
    row = await calls.reserve()
    assert row["reason"] == "rate_limited"
    assert row["retry_after_seconds"] is None or float(row["retry_after_seconds"]) > 0


async def test_check_and_charge_draws_from_the_same_bucket(calls: Calls) -> None:
    calls.now = None
    await calls.tenant(bucket_capacity=2.0, bucket_refill_per_sec=0.0)
    assert await calls.check_and_charge() == (True, "ok")
    assert (await calls.reserve())["allowed"]
    assert await calls.check_and_charge() == (False, "rate_limited")
