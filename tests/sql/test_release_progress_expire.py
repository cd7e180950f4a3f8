"""quota_release, quota_progress, quota_expire_stale."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sql.calls import NOON

if TYPE_CHECKING:
    from sql.calls import Calls

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
MAY = NOON.date().replace(day=1)


async def begin(calls: Calls, request_id: str = "r", **limits: Any) -> None:
    await calls.tenant(**limits)
    await calls.reserve(request_id=request_id, amounts=(100, 50, 1500))


# release --------------------------------------------------------------------------


async def test_a_release_without_usage_gives_everything_back(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=1000)
    await begin(calls, department_id="d")
    assert await calls.release() == "released"
    assert await calls.figures() == (0, 0, 0, 0)
    assert await calls.held() == (0, 0, 0)
    used = await calls.department_used("d", "production", MAY)
    assert (used["tokens_used"], used["cost_used_nanos"]) == (0, 0)
    stored = await calls.reservation()
    assert (stored["state"], stored["completion_counted"]) == ("released", False)


async def test_a_second_release_changes_nothing(calls: Calls) -> None:
    await begin(calls)
    await calls.reserve(request_id="other")
    assert [await calls.release() for _ in range(3)] == ["released", "replayed", "replayed"]
    assert await calls.figures() == (1, 10, 5, 100)


@pytest.mark.parametrize("end", ["settle", "expire", "unreserved"])
async def test_a_release_after_another_end_is_too_late(calls: Calls, end: str) -> None:
    await begin(calls)
    request_id = "r"
    if end == "settle":
        await calls.settle(amounts=(1, 2, 3))
    elif end == "expire":
        await calls.expire(now=NOON + 11 * MINUTE)
    else:
        request_id = "late"
        await calls.settle(request_id=request_id)
    before = await calls.usage()
    assert await calls.release(request_id=request_id) == "already_final"
    assert await calls.usage() == before


async def test_a_release_of_nothing_is_unknown(calls: Calls) -> None:
    await calls.tenant()
    assert await calls.release(request_id="never") == "unknown"
    assert await calls.release("ghost", "never") == "unknown"


@pytest.mark.parametrize("figures", [(100, 7, 1070), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
async def test_what_the_caller_consumed_is_charged(calls: Calls, figures: Any) -> None:
    await begin(calls)
    assert await calls.release(amounts=figures) == "released"
    assert await calls.figures() == (1, *figures)
    assert await calls.held() == (0, 0, 0)


async def test_a_release_is_never_less_than_the_progress(calls: Calls) -> None:
    await begin(calls)
    await calls.progress(tokens_out=20)
    assert await calls.release(amounts=(100, 3, 0)) == "released"
    # 1500 x (100 + 20) / 150
    assert await calls.figures() == (1, 100, 20, 1200)


async def test_a_release_of_a_stream_that_says_nothing_is_charged_like_partial(
    calls: Calls,
) -> None:
    await begin(calls)
    await calls.progress(tokens_out=20)
    assert await calls.release() == "released"
    completions, _, tokens_out, cost = await calls.figures()
    assert (completions, tokens_out) == (1, 20)
    assert cost == 1200, "cost x (input + streamed) / (estimated input + output)"
    assert await calls.held() == (0, 0, 0)


async def test_a_release_stating_more_than_the_progress_is_taken_at_its_word(calls: Calls) -> None:
    await begin(calls)
    await calls.progress(tokens_out=20)
    assert await calls.release(amounts=(100, 30, 999)) == "released"
    assert await calls.figures() == (1, 100, 30, 999)


async def test_an_overdue_but_open_request_can_still_be_released(calls: Calls) -> None:
    await begin(calls)
    assert await calls.release(now=NOON + 60 * MINUTE) == "released"
    assert await calls.expire(now=NOON + 61 * MINUTE) == []


# progress -------------------------------------------------------------------------


async def test_progress_extends_by_the_ttl_and_keeps_the_greatest(calls: Calls) -> None:
    await begin(calls)
    for minutes, tokens, greatest in ((5, 10, 10), (6, 4, 10), (7, 12, 12)):
        row = await calls.progress(tokens_out=tokens, now=NOON + minutes * MINUTE)
        assert row["expires_at"] == NOON + (minutes + 10) * MINUTE
        assert (await calls.reservation())["progress_out_tokens"] == greatest
    assert await calls.figures() == (1, 100, 50, 1500), "progress charges nothing"


async def test_progress_reaches_sixty_minutes_after_admission_at_most(calls: Calls) -> None:
    await begin(calls)
    for minutes in range(5, 70, 5):
        await calls.progress(now=NOON + minutes * MINUTE)
    assert (await calls.reservation())["expires_at"] == NOON + 60 * MINUTE
    assert await calls.expire(now=NOON + 60 * MINUTE - SECOND) == []
    assert len(await calls.expire(now=NOON + 60 * MINUTE + SECOND)) == 1


async def test_progress_by_a_clock_behind_never_shortens(calls: Calls) -> None:
    await begin(calls)
    await calls.progress(now=NOON + 5 * MINUTE)
    row = await calls.progress(now=NOON - 5 * MINUTE)
    assert row["expires_at"] == NOON + 15 * MINUTE


async def test_progress_never_shortens_a_ttl_above_an_hour(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r", ttl_seconds=3600)
    row = await calls.progress(now=NOON + MINUTE)
    assert row["expires_at"] == NOON + 60 * MINUTE


@pytest.mark.parametrize("end", ["settle", "release", "expire"])
async def test_progress_after_the_end_changes_nothing(calls: Calls, end: str) -> None:
    await begin(calls)
    if end == "settle":
        await calls.settle()
    elif end == "release":
        await calls.release()
    else:
        await calls.expire(now=NOON + 11 * MINUTE)
    before = await calls.reservation()
    row = await calls.progress(tokens_out=40, now=NOON + 12 * MINUTE)
    assert row["outcome"]
    assert await calls.reservation() == before


async def test_progress_of_nothing_answers_unknown(calls: Calls) -> None:
    await calls.tenant()
    assert (await calls.progress(request_id="never"))["outcome"] == "unknown"


# expiry ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "streamed", "charged"),
    [
        ("estimate", 0, (1, 100, 50, 1500)),
        ("estimate", 20, (1, 100, 50, 1500)),
        ("partial", 0, (1, 100, 0, 1000)),
        ("partial", 20, (1, 100, 20, 1200)),
        ("partial", 80, (1, 100, 80, 1800)),
        ("release", 0, (0, 0, 0, 0)),
        ("release", 20, (0, 0, 0, 0)),
    ],
)
async def test_stale_policies(calls: Calls, policy: str, streamed: int, charged: Any) -> None:
    await calls.department("d", monthly_tokens=10_000)
    await begin(calls, stale_policy=policy, department_id="d")
    if streamed:
        await calls.progress(tokens_out=streamed)
    (row,) = await calls.expire(now=NOON + 11 * MINUTE)
    assert (row["tenant_id"], row["policy"]) == ("t", policy)
    assert (row["in_tokens"], row["out_tokens"], row["cost_nanos"]) == charged[1:]
    assert await calls.figures() == charged
    assert await calls.held() == (0, 0, 0)
    stored = await calls.reservation()
    assert (stored["state"], stored["completion_counted"]) == ("expired", bool(charged[0]))
    used = await calls.department_used("d", "production", MAY)
    assert (used["tokens_used"], used["tokens_held"]) == (charged[1] + charged[2], 0)
    assert (used["cost_used_nanos"], used["cost_held_nanos"]) == (charged[3], 0)
    assert await calls.expire(now=NOON + 12 * MINUTE) == []


async def test_a_partial_cost_is_rounded_up(calls: Calls) -> None:
    await calls.tenant(stale_policy="partial")
    await calls.reserve(request_id="r", amounts=(1, 2, 100))
    await calls.expire(now=NOON + 11 * MINUTE)
    assert await calls.figures() == (1, 1, 0, 34)


async def test_a_partial_without_estimated_tokens_divides_by_nothing(calls: Calls) -> None:
    await calls.tenant(stale_policy="partial")
    await calls.reserve(request_id="r", amounts=(0, 0, 100))
    assert len(await calls.expire(now=NOON + 11 * MINUTE)) == 1
    assert await calls.held() == (0, 0, 0)


async def test_nothing_ends_early(calls: Calls) -> None:
    await begin(calls)
    for early in (0 * SECOND, 5 * MINUTE, 10 * MINUTE - SECOND, 10 * MINUTE - SECOND / 1000):
        assert await calls.expire(now=NOON + early) == []
    assert (await calls.reservation())["state"] == "open"


async def test_the_oldest_end_first_and_no_more_than_asked_for(calls: Calls) -> None:
    await calls.tenant()
    for number, ttl in enumerate((50, 10, 40, 20, 30)):
        await calls.reserve(request_id=f"r{number}", ttl_seconds=ttl)
    gone = []
    for _ in range(3):
        await calls.expire(2, now=NOON + 45 * SECOND)
        rows = await calls.rows(
            "SELECT request_id FROM quota_reservations WHERE state = 'expired' ORDER BY 1"
        )
        gone.append([row["request_id"] for row in rows])
    assert gone == [["r1", "r3"], ["r1", "r2", "r3", "r4"], ["r1", "r2", "r3", "r4"]]


async def test_the_policy_is_the_tenants_present_one(calls: Calls) -> None:
    await begin(calls)
    await calls.change(stale_policy="release")
    (row,) = await calls.expire(now=NOON + 11 * MINUTE)
    assert row["policy"] == "release"


async def test_expiry_charges_what_was_reserved_then_not_what_is_sent_now(calls: Calls) -> None:
    """The figures come from the reservation's own row, on the day of its admission."""
    late = NOON.replace(hour=23, minute=59)
    calls.now = late
    await begin(calls)
    await calls.expire(now=late + 11 * MINUTE)
    assert await calls.figures(day=late.date()) == (1, 100, 50, 1500)
    assert await calls.figures(day=(late + 11 * MINUTE).date()) == (0, 0, 0, 0)
