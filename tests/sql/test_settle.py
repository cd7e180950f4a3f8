"""quota_settle: every outcome, and that the charge is always the latest usage."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from sql.calls import NOON, sqlstate_of

if TYPE_CHECKING:
    from sql.calls import Calls

HOUR = timedelta(hours=1)


async def begin(calls: Calls, end: str | None = None, **limits: Any) -> None:
    """Tenant t with request r (100, 50, 1500 nanos), ended as told."""
    await calls.tenant(**limits)
    await calls.reserve(request_id="r", amounts=(100, 50, 1500))
    if end == "settle":
        await calls.settle(amounts=(1, 2, 3), usage_id="u0")
    elif end == "release":
        assert await calls.release() == "released"
    elif end == "expire":
        assert len(await calls.expire(now=NOON + HOUR)) == 1


def answer(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["outcome"], row["in_tokens"], row["out_tokens"], row["cost_nanos"])


@pytest.mark.parametrize("figures", [(10, 5, 100), (0, 0, 0), (100, 50, 1500), (999, 888, 77_777)])
async def test_the_first_end_posts_what_was_used(calls: Calls, figures: Any) -> None:
    await begin(calls)
    assert answer(await calls.settle(amounts=figures)) == ("settled", *figures)
    assert await calls.figures() == (1, *figures)
    assert await calls.held() == (0, 0, 0)
    stored = await calls.reservation()
    assert stored["state"] == "settled"
    assert stored["ended_at"] == NOON


async def test_usage_over_the_cap_is_posted_all_the_same(calls: Calls) -> None:
    await begin(calls, daily_input_tokens=100)
    assert (await calls.settle(amounts=(5000, 0, 0)))["outcome"] == "settled"
    assert (await calls.usage())["input_tokens"] == 5000
    assert (await calls.reservation())["over"] is True
    assert (await calls.reserve(amounts=(0, 0, 0)))["reason"] == "daily_input_tokens_reached"


@pytest.mark.parametrize("latest", ["ub", None])
async def test_the_cost_of_an_older_usage_does_not_overtake_the_latest(
    calls: Calls, latest: str | None
) -> None:
    await begin(calls)
    await calls.settle(amounts=(100, 50, None), usage_id="ua")
    end = ("corrected", 200, 80, 9000)
    assert answer(await calls.settle(amounts=(200, 80, 9000), usage_id=latest)) == end
    for figures in [(100, 50, 3000), (100, 50, 3000), (100, 50, None), (None, None, None)]:
        again = answer(await calls.settle(amounts=figures, usage_id="ua"))
        assert again == ("replayed", 200, 80, 9000), figures
    # the cost is remembered beside its usage
    with pytest.raises(asyncpg.PostgresError) as raised:
        await calls.settle(amounts=(100, 50, 3001), usage_id="ua")
    assert raised.value.sqlstate == "QW001"
    assert await calls.figures() == (1, 200, 80, 9000)


async def test_figures_that_come_late_under_an_older_id_do_not_overtake(calls: Calls) -> None:
    await begin(calls)
    assert (await calls.settle(amounts=(None, None, None), usage_id="ua"))["outcome"] == "estimated"
    assert (await calls.settle(amounts=(7, 8, 9), usage_id="ub"))["outcome"] == "corrected"
    assert answer(await calls.settle(amounts=(1, 2, 3), usage_id="ua")) == ("replayed", 7, 8, 9)
    with pytest.raises(asyncpg.PostgresError, match="came before with other figures"):
        await calls.settle(amounts=(1, 2, 4), usage_id="ua")
    assert await calls.figures() == (1, 7, 8, 9)


@pytest.mark.parametrize("usage_id", [None, "u0", "u1"])
async def test_figures_that_change_nothing_are_a_replay(calls: Calls, usage_id: str | None) -> None:
    await begin(calls, "settle")
    before = await calls.usage()
    row = await calls.settle(amounts=(1, 2, 3), usage_id=usage_id, now=NOON + HOUR)
    assert answer(row) == ("replayed", 1, 2, 3)
    assert await calls.usage() == before


@pytest.mark.parametrize("usage_id", [None, "u1"])
@pytest.mark.parametrize("end", ["settle", "release", "expire"])
async def test_later_usage_replaces_the_charge_on_the_day_of_admission(
    calls: Calls, end: str, usage_id: str | None
) -> None:
    await begin(calls, end)
    row = await calls.settle(amounts=(7, 8, 9), usage_id=usage_id, now=NOON + 30 * HOUR)
    assert answer(row) == ("corrected", 7, 8, 9)
    assert await calls.figures() == (1, 7, 8, 9)
    assert await calls.held() == (0, 0, 0)
    states = {"settle": "settled", "release": "released", "expire": "expired"}
    assert (await calls.reservation())["state"] == states[end], "the reservation stays ended"
    row = await calls.settle(amounts=(7, 8, 9), usage_id=usage_id, now=NOON + 31 * HOUR)
    assert answer(row) == ("replayed", 7, 8, 9)
    assert await calls.figures() == (1, 7, 8, 9)


async def test_a_known_usage_id_replays_whatever_came_since(calls: Calls) -> None:
    await begin(calls, "settle")
    assert (await calls.settle(amounts=(4, 5, 6), usage_id="u1"))["outcome"] == "corrected"
    assert answer(await calls.settle(amounts=(1, 2, 3), usage_id="u0")) == ("replayed", 4, 5, 6)
    assert answer(await calls.settle(amounts=(4, 5, 6), usage_id="u1")) == ("replayed", 4, 5, 6)
    assert await calls.figures() == (1, 4, 5, 6)


async def test_a_correction_without_an_id_leaves_the_known_ids_as_they_were(calls: Calls) -> None:
    await begin(calls, "settle")
    assert (await calls.settle(amounts=(4, 5, 6)))["outcome"] == "corrected"
    assert answer(await calls.settle(amounts=(1, 2, 3), usage_id="u0")) == ("replayed", 4, 5, 6)
    assert await sqlstate_of(calls.settle(amounts=(4, 5, 6), usage_id="u0")) == "QW001"
    assert await calls.figures() == (1, 4, 5, 6)


async def test_an_id_that_came_with_figures_already_charged_is_known_too(calls: Calls) -> None:
    await begin(calls, "settle")
    assert answer(await calls.settle(amounts=(1, 2, 3), usage_id="u1"))[0] == "replayed"
    assert answer(await calls.settle(amounts=(4, 5, 6), usage_id="u2"))[0] == "corrected"
    for usage_id in ("u0", "u1"):
        row = await calls.settle(amounts=(1, 2, 3), usage_id=usage_id)
        assert answer(row) == ("replayed", 4, 5, 6)
        assert await sqlstate_of(calls.settle(amounts=(7, 8, 9), usage_id=usage_id)) == "QW001"


@pytest.mark.parametrize("usage_id", ["u0", "u1"])
async def test_other_figures_under_a_known_usage_id_conflict(calls: Calls, usage_id: str) -> None:
    await begin(calls, "settle")
    await calls.settle(amounts=(4, 5, 6), usage_id="u1")
    before = await calls.reservation()
    state = await sqlstate_of(calls.settle(amounts=(4, 5, 7), usage_id=usage_id))
    assert state == "QW001"
    assert await calls.reservation() == before
    assert await calls.figures() == (1, 4, 5, 6)


async def test_a_repeat_without_the_cost_that_it_came_with_is_a_replay(calls: Calls) -> None:
    await begin(calls, "settle")
    assert (await calls.settle(amounts=(7, 8, None), usage_id="u1"))["outcome"] == "corrected"
    assert answer(await calls.settle(amounts=(7, 8, 99), usage_id="u1")) == ("corrected", 7, 8, 99)
    assert answer(await calls.settle(amounts=(7, 8, None), usage_id="u1")) == ("replayed", 7, 8, 99)
    assert await sqlstate_of(calls.settle(amounts=(7, 9, None), usage_id="u1")) == "QW001"


async def test_usage_ids_belong_to_one_request(calls: Calls) -> None:
    await begin(calls, "settle")
    await calls.reserve(request_id="q")
    assert answer(await calls.settle(request_id="q", amounts=(9, 9, 9), usage_id="u0"))[0] == (
        "settled"
    )


async def test_no_figures_leave_the_estimate_until_some_come(calls: Calls) -> None:
    await begin(calls)
    row = await calls.settle(amounts=(None, None, None))
    assert answer(row) == ("estimated", 100, 50, 1500)
    assert await calls.figures() == (1, 100, 50, 1500)
    assert await calls.held() == (0, 0, 0)
    stored = await calls.reservation()
    assert (stored["usage_missing"], stored["state"]) == (True, "settled")
    assert answer(await calls.settle(amounts=(7, 8, 9)))[1:] == (7, 8, 9)
    assert (await calls.reservation())["usage_missing"] is False


async def test_no_figures_never_undo_figures_that_came(calls: Calls) -> None:
    await begin(calls, "settle")
    row = await calls.settle(amounts=(None, None, None))
    assert answer(row)[1:] == (1, 2, 3)
    assert await calls.figures() == (1, 1, 2, 3)
    assert (await calls.reservation())["usage_missing"] is False


@pytest.mark.parametrize(
    ("tokens", "cost"), [((100, 50), 1500), ((50, 25), 750), ((1, 0), 10), ((200, 100), 3000)]
)
async def test_without_a_cost_the_estimates_is_taken_in_proportion(
    calls: Calls, tokens: tuple[int, int], cost: int
) -> None:
    await begin(calls)
    row = await calls.settle(amounts=(*tokens, None))
    assert answer(row) == ("settled", *tokens, cost)
    assert (await calls.reservation())["unpriced"] is True
    assert answer(await calls.settle(amounts=(*tokens, 42))) == ("corrected", *tokens, 42)
    assert (await calls.reservation())["unpriced"] is False
    assert await calls.figures() == (1, *tokens, 42)


async def test_a_cost_without_estimated_tokens_divides_by_nothing(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r", amounts=(0, 0, 1500))
    assert (await calls.settle(amounts=(5, 5, None)))["outcome"] == "settled"
    assert (await calls.reservation())["unpriced"] is True
    assert await calls.held() == (0, 0, 0)


async def test_huge_proportions_stay_exact(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r", amounts=(10**12, 10**12, 10**15))
    row = await calls.settle(amounts=(10**12, 10**12, None))
    assert answer(row) == ("settled", 10**12, 10**12, 10**15)


async def test_unreserved_usage_is_posted_to_its_own_day_and_marked(calls: Calls) -> None:
    await calls.tenant(daily_completions=1)
    row = await calls.settle(request_id="x", amounts=(7, 8, 9), usage_id="u")
    assert answer(row) == ("unreserved", 7, 8, 9)
    assert await calls.figures() == (1, 7, 8, 9)
    assert (await calls.reservation(request_id="x"))["unreserved"] is True
    assert (await calls.reserve())["reason"] == "daily_cap_reached"
    row = await calls.settle(request_id="x", amounts=(7, 8, 9), usage_id="u", now=NOON + 40 * HOUR)
    assert answer(row) == ("replayed", 7, 8, 9)
    row = await calls.settle(request_id="x", amounts=(1, 1, 1), now=NOON + 40 * HOUR)
    assert answer(row) == ("corrected", 1, 1, 1)
    assert await calls.figures() == (1, 1, 1, 1)


async def test_unreserved_usage_counts_for_the_department(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=100)
    await calls.tenant(department_id="d")
    await calls.settle(request_id="x", amounts=(90, 10, 9))
    used = await calls.department_used("d", "production", NOON.date().replace(day=1))
    assert (used["tokens_used"], used["tokens_held"], used["cost_used_nanos"]) == (100, 0, 9)
    assert (await calls.reserve())["tier"] == "exhausted"


async def test_usage_late_after_expiry_is_marked_late_and_over(calls: Calls) -> None:
    await begin(calls, "expire")
    await calls.settle(amounts=(250, 50, 1500), now=NOON + 2 * HOUR)
    stored = await calls.reservation()
    assert (stored["late"], stored["over"]) == (True, True)
    await calls.settle(amounts=(20, 5, 15), now=NOON + 3 * HOUR)
    stored = await calls.reservation()
    assert (stored["late"], stored["over"]) == (True, False)


async def test_the_model_that_answered_and_cached_tokens_are_kept(calls: Calls) -> None:
    await begin(calls)
    await calls.settle(amounts=(10, 5, 3), model="answered", cached=8)
    stored = await calls.reservation()
    assert (stored["model"], stored["cached_in_tokens"]) == ("answered", 8)


async def test_a_deleted_tenants_request_settles_from_its_row(calls: Calls) -> None:
    await begin(calls)
    await calls.conn.execute("DELETE FROM tenant_limits")
    assert (await calls.reserve(request_id="new"))["reason"] == "unknown_tenant"
    assert answer(await calls.settle(amounts=(7, 8, 9))) == ("settled", 7, 8, 9)
    assert answer(await calls.settle(amounts=(1, 1, 1))) == ("corrected", 1, 1, 1)
    assert await calls.figures() == (1, 1, 1, 1)
    assert await calls.held() == (0, 0, 0)


@pytest.mark.parametrize("way", ["release", "expire", "settle"])
async def test_a_deleted_tenants_hold_ends_every_way(calls: Calls, way: str) -> None:
    await calls.department("d", monthly_tokens=1000)
    await begin(calls, department_id="d", stale_policy="release")
    await calls.conn.execute("DELETE FROM tenant_limits")
    if way == "release":
        assert await calls.release() == "released"
    elif way == "expire":
        assert len(await calls.expire(now=NOON + HOUR)) == 1
    else:
        await calls.settle(amounts=(0, 0, 0))
    assert await calls.held() == (0, 0, 0)
    used = await calls.department_used("d", "production", NOON.date().replace(day=1))
    assert used["tokens_held"] == 0
