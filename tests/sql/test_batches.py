"""quota_reserve_batch and quota_settle_batch: order, bad elements, bounds."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sql.calls import NOON, sqlstate_of

if TYPE_CHECKING:
    from sql.calls import Calls


def ask(request_id: str, tokens: int = 10, **more: Any) -> dict[str, Any]:
    """A reserve element."""
    amounts = {"in_tokens": tokens, "out_tokens": 5, "cost_nanos": 100}
    return {"tenant": "t", "request_id": request_id, **amounts} | more


used = ask  # a settle element has the same keys


async def test_rows_come_in_order_with_ordinals_from_one(calls: Calls) -> None:
    await calls.tenant(daily_completions=2)
    rows = await calls.reserve_batch([ask("a"), ask("b"), ask("c"), ask("a")])
    assert [row["ordinal"] for row in rows] == [1, 2, 3, 4]
    assert [row["reason"] for row in rows] == ["ok", "ok", "daily_cap_reached", "ok"]
    assert [row["replayed"] for row in rows] == [False, False, False, True]
    assert rows[3]["reservation_id"] == rows[0]["reservation_id"]
    single = await calls.reserve(request_id="a")
    assert set(rows[0]) == {*single, "ordinal"}


async def test_every_parameter_has_its_key(calls: Calls) -> None:
    await calls.tenant()
    whole = ask(
        "r", model="big", app="shop", api_key="k", end_user="u", priority="high", ttl_seconds=30
    )
    assert [row["reason"] for row in await calls.reserve_batch([whole])] == ["ok"]
    stored = await calls.reservation()
    assert (stored["app"], stored["api_key"], stored["end_user"]) == ("shop", "k", "u")
    assert (stored["priority"], stored["requested_model"]) == ("high", "big")
    assert stored["expires_at"] == NOON + timedelta(seconds=30)
    rows = await calls.settle_batch(
        [used("r", usage_id="u1", model="answered", cached_in_tokens=3)]
    )
    assert [row["outcome"] for row in rows] == ["settled"]
    assert (await calls.reservation())["cached_in_tokens"] == 3


BAD = [
    {},
    5,
    None,
    "text",
    [],
    {"tenant": "t"},
    ask("x", nonsense=1),
    ask("x", p_model="big"),
    ask("x", now="2026-05-15T12:00:00Z"),
    ask("x", tokens=-1),
    ask("x", tokens=10**12 + 1),
    ask("x", tokens=10**30),
    ask("x", in_tokens="many"),
    ask("x", in_tokens=1.5),
    ask("x", in_tokens=[1]),
    ask("x", in_tokens={"a": 1}),
    ask("x", in_tokens=True),
    ask(""),
    ask("x" * 201),
    ask("a\nb"),
    ask("x", tenant=""),
    {**ask("x"), "request_id": None},
    {**ask("x"), "request_id": 7},
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
async def test_a_bad_element_is_invalid_and_spoils_nothing(calls: Calls, bad: Any) -> None:
    await calls.tenant()
    rows = await calls.reserve_batch([ask("a"), bad, ask("b")])
    assert [row["reason"] for row in rows] == ["ok", "invalid", "ok"]
    assert [row["ordinal"] for row in rows] == [1, 2, 3]
    assert rows[1]["allowed"] is False
    rows = await calls.settle_batch([used("a"), bad, used("b")])
    assert [row["outcome"] for row in rows] == ["settled", "invalid", "settled"]
    assert await calls.figures() == (2, 20, 10, 200)


@pytest.mark.parametrize("more", [{"priority": "urgent"}, {"ttl_seconds": "soon"}, {"model": 5}])
async def test_bad_values_of_reserve_keys(calls: Calls, more: Any) -> None:
    await calls.tenant()
    rows = await calls.reserve_batch([ask("a", **more), ask("b")])
    assert [row["reason"] for row in rows] == ["invalid", "ok"]


async def test_conflicts_are_told_and_spoil_nothing(calls: Calls) -> None:
    await calls.tenant()
    rows = await calls.reserve_batch([ask("a"), ask("a", tokens=11), ask("b"), ask("a")])
    assert [row["reason"] for row in rows] == ["ok", "conflict", "ok", "ok"]
    rows = await calls.settle_batch(
        [
            used("a", usage_id="u"),
            used("a", tokens=11, usage_id="u"),
            used("b"),
            used("a", usage_id="u"),
            used("a", tokens=3),
        ]
    )
    outcomes = ["settled", "conflict", "settled", "replayed", "corrected"]
    assert [row["outcome"] for row in rows] == outcomes
    assert await calls.figures() == (2, 13, 10, 200)


async def test_settle_batches_reach_every_outcome(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="a")
    none: dict[str, Any] = {"in_tokens": None, "out_tokens": None, "cost_nanos": None}
    rows = await calls.settle_batch(
        [used("a", **none), used("new"), used("x", tenant="ghost"), used("new")]
    )
    assert [row["outcome"] for row in rows] == ["estimated", "unreserved", "invalid", "replayed"]
    assert [row["ordinal"] for row in rows] == [1, 2, 3, 4]


async def test_an_empty_batch_is_an_empty_answer(calls: Calls) -> None:
    assert await calls.reserve_batch([]) == []
    assert await calls.settle_batch([]) == []


@pytest.mark.parametrize("what", ['{"a": 1}', "5", '"x"', "null"])
async def test_what_is_no_array_is_refused_whole(calls: Calls, what: str) -> None:
    await calls.tenant()
    for function in ("reserve", "settle"):
        call = calls.conn.fetch(f"SELECT * FROM quota_{function}_batch($1::jsonb)", what)
        assert await sqlstate_of(call) == "QW002"


async def test_a_thousand_and_not_one_more(calls: Calls) -> None:
    await calls.tenant()
    thousand = [ask(f"r{number}") for number in range(1000)]
    rows = await calls.reserve_batch(thousand)
    assert [row["ordinal"] for row in rows] == list(range(1, 1001))
    assert {row["reason"] for row in rows} == {"ok"}
    assert await calls.figures() == (1000, 10_000, 5000, 100_000)
    rows = await calls.settle_batch([used(f"r{number}", tokens=1) for number in range(1000)])
    assert {row["outcome"] for row in rows} == {"settled"}
    assert await calls.figures() == (1000, 1000, 5000, 100_000)
    assert await calls.held() == (0, 0, 0)
    over = [ask(f"q{number}") for number in range(1001)]
    assert await sqlstate_of(calls.reserve_batch(over)) == "QW002"
    assert await sqlstate_of(calls.settle_batch(over)) == "QW002"
    assert await calls.figures() == (1000, 1000, 5000, 100_000)


async def test_a_key_given_twice_is_one_key(calls: Calls) -> None:
    """jsonb keeps the last; nothing breaks."""
    await calls.tenant()
    text = json.dumps([ask("a")]).replace('"in_tokens": 10', '"in_tokens": 1, "in_tokens": 10')
    rows = await calls.rows("SELECT * FROM quota_reserve_batch($1::jsonb, $2)", text, NOON)
    assert [row["reason"] for row in rows] == ["ok"]
    assert await calls.figures() == (1, 10, 5, 100)


async def warmed(calls: Calls, *tenants: str, **limits: Any) -> None:
    """Tenants that have had a request today already, as most have."""
    for name in tenants:
        await calls.tenant(name, **limits)
        for number in range(2):
            await calls.reserve(name, f"warm{number}", (0, 0, 0), model="big")


async def test_a_batch_crosses_the_thresholds_in_its_middle(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=1000, downgrade_model="small")
    await warmed(calls, "t", "u", department_id="d")
    tenants = ["t", "u", "u", "t"] * 5
    items = [
        {**ask(f"r{number}", tokens=50), "tenant": name, "model": "big", "priority": "high"}
        for number, name in enumerate(tenants)
    ]
    rows = await calls.reserve_batch(items)
    used = 0
    for row in rows:
        tiers = [(1000, "exhausted"), (980, "protected"), (900, "downgrade"), (750, "warning")]
        tier = next((name for line, name in tiers if used >= line), "normal")
        fits = used + 55 <= 1000
        assert (row["tier"], row["allowed"]) == (tier, fits), row
        assert not fits or row["model"] == ("big" if used < 900 else "small")
        used += 55 * fits


async def test_a_batch_meets_a_cap_or_an_empty_bucket_in_its_middle(calls: Calls) -> None:
    await warmed(calls, "t", daily_completions=5)
    await warmed(calls, "u", bucket_capacity=6.0, bucket_refill_per_sec=0.0)
    items = [{**ask(f"r{number}"), "tenant": "tu"[number % 2]} for number in range(12)]
    reasons = [row["reason"] for row in await calls.reserve_batch(items)]
    assert reasons[::2] == ["ok"] * 3 + ["daily_cap_reached"] * 3
    assert reasons[1::2] == ["ok"] * 4 + ["rate_limited"] * 2


async def test_a_known_id_inside_a_batch_that_fits(calls: Calls) -> None:
    await warmed(calls, "t")
    await calls.reserve(request_id="known")
    rows = await calls.reserve_batch([ask("a"), ask("known"), ask("b")])
    assert [row["replayed"] for row in rows] == [False, True, False]
    assert await calls.figures() == (5, 30, 15, 300)


async def test_a_repeated_id_inside_a_batch_that_fits(calls: Calls) -> None:
    await warmed(calls, "t")
    rows = await calls.reserve_batch([ask("a"), ask("b"), ask("b"), ask("a", tokens=11)])
    assert [row["reason"] for row in rows] == ["ok", "ok", "ok", "conflict"]
    assert [row["replayed"] for row in rows] == [False, False, True, False]
    assert await calls.figures() == (4, 20, 10, 200)


@pytest.mark.parametrize("counter", ["booked_input_tokens", "held_output_tokens"])
async def test_a_counter_at_its_end_spoils_no_other_tenant(calls: Calls, counter: str) -> None:
    await warmed(calls, "t", "u")
    await calls.conn.execute(
        f"UPDATE quota_usage SET {counter} = $1 WHERE tenant_id = 'u'", 2**63 - 1
    )
    rows = await calls.reserve_batch([ask("a"), ask("a", tenant="u"), ask("b")])
    assert [row["reason"] for row in rows] == ["ok", "invalid", "ok"]
    assert await calls.figures() == (4, 20, 10, 200)


async def test_a_batch_sent_again_is_answered_as_before(calls: Calls) -> None:
    """All of it, then with one that is new and one of other figures; nothing is charged twice."""
    await calls.department("d", monthly_tokens=1000, downgrade_model="small")
    await warmed(calls, "t", department_id="d")
    await calls.settle("t", "before", (905, 0, 0))
    whole = [ask(f"r{number}", model="big") for number in range(3)]
    first = await calls.reserve_batch(whole)
    assert {(row["tier"], row["model"]) for row in first} == {("downgrade", "small")}
    again = await calls.reserve_batch(whole)
    assert again == [{**row, "replayed": True} for row in first]
    rows = await calls.reserve_batch(
        [ask("r0"), *whole[1:], ask("new", model="big"), ask("x", tenant="?")]
    )
    assert rows[1:3] == again[1:]
    assert [row["reason"] for row in rows] == ["conflict", "ok", "ok", "ok", "unknown_tenant"]
    assert await calls.figures() == (7, 945, 20, 400)
