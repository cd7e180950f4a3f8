"""A ledger of months says after upkeep what it said before: audits, totals, days, and what is left."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from sql.calls import Calls
from sql.rolling import assert_totals_are_the_days, everything, roll, tenant
from sql.sweeping import APRIL, DAY, FEBRUARY, JANUARY, MARCH, drifts, upkeep

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]


async def _act(
    calls: Calls, kind: int, place: tuple[str, str], amounts: tuple[int, ...], at: datetime
) -> None:
    """One thing that a gateway or a legacy program does."""
    name, request = place
    match kind:
        case 0:
            await calls.conn.execute(
                "UPDATE quota_usage SET input_tokens = input_tokens + 7, cost_cents = cost_cents + 1"
                " WHERE tenant_id = $1",
                name,
            )
        case 1 | 2:
            await calls.settle(name, request, amounts, now=at)  # perhaps nobody reserved it
        case 3:
            await calls.reserve(name, request, amounts, now=at)  # expires
        case 4:
            await calls.reserve(name, request, amounts, now=at)
            await calls.release(name, request, now=at)
        case _:
            await calls.reserve(name, request, amounts, now=at)
            await calls.settle(name, request, amounts, now=at)


async def _live(conn: Connection, seed: int, now: datetime) -> None:
    """Random requests of four months, corrections and direct writes among them, rolled up to now."""
    chance = random.Random(seed)  # noqa: S311  a story, no secret
    calls = Calls(conn)
    await calls.department("d", monthly_tokens=10**9)
    names = [f"t{number}" for number in range(4)]
    for number, name in enumerate(names):
        await tenant(calls, name, "d" if number % 2 else None)
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    made: list[tuple[str, str]] = []
    rolled = begin
    for hour in sorted(chance.randrange(24 * 110) for _ in range(90)):
        at, name = begin + timedelta(hours=hour), chance.choice(names)
        request = f"r{len(made)}"
        kind = chance.randrange(10)
        if kind == 1 and made:
            name, request = chance.choice(made[-20:])  # usage that comes late
        amounts = tuple(chance.randrange(1000) for _ in range(3))
        await _act(calls, kind, (name, request), amounts, at)
        made.append((name, request))
        if at > rolled + 9 * DAY:
            rolled = at
            await conn.execute("SELECT quota_expire_stale(1000, $1)", at)
            await conn.execute("SELECT quota_book_legacy(1000, $1)", at)
            await roll(conn, at)
    await conn.execute("SELECT quota_expire_stale(1000, $1)", now)
    await conn.execute("SELECT quota_book_legacy(1000, $1)", now)
    await roll(conn, now)
    await roll(conn, now)


@pytest.mark.parametrize("seed", range(2))
async def test_a_ledger_months_later_says_what_it_said(conn: Connection, seed: int) -> None:
    now = datetime(2024, 4, 20, 12, tzinfo=UTC)
    await _live(conn, seed, now)
    months = (JANUARY, FEBRUARY, MARCH, APRIL)
    before = [await drifts(conn, month, now) for month in months]
    assert not any(row["severity"] == "drift" for rows in before for row in rows)
    sums, usage = (
        await everything(conn),
        await conn.fetch("SELECT * FROM v_quota_usage ORDER BY 1, 2"),
    )
    kept = await conn.fetch(
        "SELECT * FROM quota_reservations WHERE period >= $1 ORDER BY 1, 2", MARCH
    )

    assert (await upkeep(conn, now)).keys() == {"quota_reservations"}
    removed = [
        row["month"]
        for row in await conn.fetch(
            "SELECT month FROM quota_months WHERE requests_removed_at IS NOT NULL ORDER BY 1"
        )
    ]
    assert removed in ([JANUARY], [JANUARY, FEBRUARY])
    after = [await drifts(conn, month, now) for month in months]
    assert after[len(removed) :] == before[len(removed) :]
    for rows in after[: len(removed)]:
        assert not any(row["severity"] == "drift" for row in rows)
        assert [row["kind"] for row in rows if row["kind"] == "removed"] == ["removed"]
    # neither a repair nor a roll takes the removed requests for something to mend
    for month in months:
        assert await conn.fetch("SELECT * FROM quota_audit_repair($1, 1000, $2)", month, now) == []
    await roll(conn, now)
    await assert_totals_are_the_days(conn)
    assert await everything(conn) == sums
    assert await conn.fetch("SELECT * FROM v_quota_usage ORDER BY 1, 2") == usage
    assert (
        await conn.fetch("SELECT * FROM quota_reservations WHERE period >= $1 ORDER BY 1, 2", MARCH)
        == kept
    )
    assert await upkeep(conn, now) == {}
