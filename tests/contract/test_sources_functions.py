"""The functions beneath usage sources, called as the worker calls them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from contract.sources_world import MINUTE, NOW, charged, faults, overdue

if TYPE_CHECKING:
    from datetime import datetime

    Connection = asyncpg.Connection[Any]


async def settle(conn: Connection, *usages: dict[str, Any], now: datetime = NOW) -> list[str]:
    """Outcomes of usages of 7 and 3 tokens, unless they say otherwise."""
    told = [{"tenant": "a", "in_tokens": 7, "out_tokens": 3} | usage for usage in usages]
    rows = await conn.fetch(
        "SELECT outcome FROM quota_source_settle('log', $1::text::jsonb, false, $2) ORDER BY ordinal",
        json.dumps(told),
        now,
    )
    return [row["outcome"] for row in rows]


async def due(
    conn: Connection, limit: int = 10, *, again: bool = False, before: datetime | None = None
) -> list[str]:
    rows = await conn.fetch(
        "SELECT request_id FROM quota_source_due($1, $2, $3, $4, $2)", again, NOW, before, limit
    )
    return [row["request_id"] for row in rows]


async def test_costs_are_converted_exactly_by_the_requests_day(conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO quota_currency_rates (currency, valid_from, rate) VALUES ('EUR', '2026-11-30', 1.5),"
        " ('EUR', '2026-11-01', 1.25), ('EUR', '2026-12-01', 9)"
    )
    costs = {
        ("0.5", "USD"): 500_000_000,
        ("0.0000000015", None): 2,  # half a nano goes up
        ("0.0000000014", None): 1,
        ("999999.999999999", "USD"): 999_999_999_999_999,
        ("0.2", "EUR"): 300_000_000,
    }
    names = [f"r{place}" for place in range(len(costs))]
    await overdue(conn, *(f"a/{name}" for name in names), "a/dear", "a/poor")
    usages = [
        {"request_id": name, "cost": cost, "currency": currency}
        for name, (cost, currency) in zip(names, costs, strict=True)
    ]
    dear = {"request_id": "dear", "cost": "900000000000", "currency": "EUR"}
    poor = {"request_id": "poor", "cost": "1", "currency": "CHF"}
    outcomes = await settle(conn, *usages, dear, poor, now=NOW + 24 * 60 * MINUTE)
    assert outcomes == ["settled"] * len(costs) + ["invalid", "settled"]
    state = await charged(conn)
    assert [state[f"a/{name}"][3] for name in names] == list(costs.values())
    assert await faults(conn) == {"a/dear": "invalid", "a/poor": "no_rate"}
    assert state["a/dear"][0] == "open"


async def test_usage_from_elsewhere_stays_and_a_guess_does_not(conn: Connection) -> None:
    await overdue(conn, *(f"a/{name}" for name in ("inline", "released", "expired", "estimated")))
    await conn.execute("SELECT quota_settle('a', 'inline', 9, 9, 9, p_now => $1)", NOW)
    await conn.execute("SELECT quota_release('a', 'released', 0, 0, 0, p_now => $1)", NOW)
    await conn.execute("SELECT quota_settle('a', 'estimated', NULL, NULL, NULL, p_now => $1)", NOW)
    await conn.execute("SELECT quota_expire_stale(1, $1)", NOW)
    told = [
        {"request_id": name, "usage_id": "u", "cost": "0.5"}
        for name in ("inline", "released", "expired", "estimated", "nobody's")
    ]
    outcomes = ["overtaken", "overtaken", "corrected", "corrected", "overtaken"]
    assert await settle(conn, *told) == outcomes
    # the whole once more changes nothing, and other figures under the same usage id are named
    assert await settle(conn, *told) == ["overtaken"] * 5
    assert {name: figures[1:] for name, figures in (await charged(conn)).items()} == {
        "a/inline": (9, 9, 9),
        "a/released": (0, 0, 0),
        "a/expired": (7, 3, 500_000_000),
        "a/estimated": (7, 3, 500_000_000),
    }
    assert await conn.fetchval("SELECT sum(held_input_tokens) FROM quota_usage") == 0


async def test_who_is_asked_for_next(conn: Connection) -> None:
    for place, name in enumerate(("new", "middle", "old", "oldest")):
        await overdue(conn, f"a/{name}", at=NOW - 12 * MINUTE - place * MINUTE)
    await overdue(conn, "a/running", at=NOW - 9 * MINUTE)
    await overdue(conn, "a/now", at=NOW - 10 * MINUTE)  # its time is over this very moment
    assert await due(conn, 3) == ["now", "new", "middle"]
    assert await due(conn, before=NOW - 3 * MINUTE) == ["middle", "old", "oldest"]
    ask = "SELECT quota_source_asked($1, $2, $3)"
    assert await conn.fetchval(ask, ["a", "a"], ["old", "new"], NOW - 5 * MINUTE) == 2
    assert await conn.fetchval(ask, ["a"], ["middle"], NOW - 6 * MINUTE) == 1
    assert await due(conn) == ["now", "oldest"]
    # at this very time: another worker did, or this one; later is not earlier either
    assert await conn.fetchval(ask, ["a"], ["now"], NOW) == 1
    await conn.execute("SELECT quota_settle('a', 'new', 1, 1, 1, p_now => $1)", NOW)
    assert await due(conn, again=True) == ["middle", "old"]
    assert await conn.fetchval(ask, ["a"], ["middle"], NOW - MINUTE) == 1
    assert await due(conn, 1, again=True) == ["old"]
    # what has ended is cleared, and nothing else
    begun = await conn.fetchval("SELECT quota_source_begin($1)", NOW)
    assert begun == NOW
    asks = "SELECT array_agg(request_id || ' ' || asks ORDER BY request_id) FROM quota_source_asks"
    assert await conn.fetchval(asks) == ["middle 2", "now 1", "old 1"]
    for limit in (0, 1001, None):
        with pytest.raises(asyncpg.PostgresError, match="p_limit must be 1 to 1000"):
            await conn.fetch("SELECT quota_source_due(false, NULL, NULL, $1)", limit)


async def test_slots_lie_apart_and_a_clock_that_went_back_blocks_nobody(conn: Connection) -> None:
    async def slot(name: str, wait: float, after: float = 0.0) -> float | None:
        at = NOW + after * MINUTE / 60
        wait_seconds: float | None = await conn.fetchval(
            "SELECT quota_source_slot($1, 4, $2, $3)", name, wait, at
        )
        return wait_seconds

    assert [await slot("api", 1.0) for _ in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert await slot("api", 1.0) is None
    assert await slot("other", 1.0) == 0.0
    # what wasn't granted isn't counted
    assert await slot("api", 2.0) == 1.25
    assert await slot("api", 2.0, after=100.0) == 0.0
    assert await slot("api", 2.0, after=-1000.0) == 0.0
    for rate, wait in ((0, 1.0), (1, -1.0), (None, 1.0), (1, None)):
        with pytest.raises(asyncpg.PostgresError, match="the rate must be at least 1"):
            await conn.fetchval("SELECT quota_source_slot('api', $1, $2)", rate, wait)


async def test_what_was_set_aside_is_bounded(conn: Connection) -> None:
    fault = {"tenant": "a", "request_id": "r" * 300, "reason": "wrong_number", "excerpt": "e" * 400}
    aside = "SELECT quota_source_set_aside('log', $1::text::jsonb, $2)"
    assert await conn.fetchval(aside, json.dumps([fault, fault | {"excerpt": "latest"}]), NOW) == 1
    assert await conn.fetchval(aside, json.dumps([fault]), NOW + MINUTE) == 1
    row = await conn.fetchrow("SELECT * FROM quota_source_faults")
    assert row is not None
    assert (len(row["request_id"]), len(row["excerpt"]), row["times"]) == (200, 300, 2)
    assert row["seen_at"] - row["first_seen_at"] == MINUTE
    await conn.execute(
        "INSERT INTO quota_source_faults SELECT 'a', n::text, 'log', 'x', '', 1, $1, $1::timestamptz - n * interval '1 s'"
        " FROM generate_series(1, 10004) n",
        NOW,
    )
    await conn.fetchval("SELECT quota_source_begin($1)", NOW)
    kept = (
        "SELECT count(*), max(request_id::int) FILTER (WHERE reason = 'x') FROM quota_source_faults"
    )
    assert tuple(await conn.fetchrow(kept) or ()) == (10_000, 9_999)
    await conn.fetchval("SELECT quota_source_begin($1)", NOW + 40 * 24 * 60 * MINUTE)
    assert await conn.fetchval("SELECT count(*) FROM quota_source_faults") == 1
    with pytest.raises(asyncpg.PostgresError, match="at most 1000 are taken at once"):
        await conn.fetchval(aside, json.dumps([fault] * 1001), NOW)
