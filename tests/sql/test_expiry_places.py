"""quota_overdue_find and quota_expire_places: what reconcile's expiry is made of."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from worker.assets import Assets
from worker.clock import monotonic_seconds
from worker.jobs import expiry
from worker.jobs.context import Deadline, JobContext, JobPorts
from worker.postgres.ledger import PostgresLedger
from worker.postgres.queries import load_queries

from sql.calls import NOON, Calls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

HOUR = timedelta(hours=1)
LATER = NOON + HOUR


async def find(calls: Calls, limit: int, rows: int, wait_seconds: int = 0) -> list[Any]:
    found = await calls.rows(
        "SELECT places FROM quota_overdue_find($1, $2, $3, $4)", limit, rows, LATER, wait_seconds
    )
    return [row["places"] for row in found]


async def end(calls: Calls, places: Any, *, wait: bool = False) -> int:
    ended = await calls.rows(
        "SELECT * FROM quota_expire_places($1, $2, 0, $3)", places, LATER, wait
    )
    return sum(row["ended"] for row in ended)


async def tenants_of(calls: Calls, places: Any) -> set[str]:
    rows = await calls.rows(
        "SELECT tenant_id FROM quota_reservations WHERE ctid = ANY ($1::tid[])", places
    )
    return {row["tenant_id"] for row in rows}


async def test_batches_are_of_few_tenants_and_of_the_oldest(calls: Calls) -> None:
    for name in ("a", "b", "c"):
        await calls.tenant(name)
    for number in range(4):
        for name in ("a", "b", "c"):
            await calls.reserve(name, f"{name}{number}", now=NOON + number * timedelta(seconds=1))
    assert await find(calls, 100, 10, wait_seconds=7200) == []
    batches = await find(calls, 100, 4)
    assert [await tenants_of(calls, places) for places in batches] == [{"a"}, {"b"}, {"c"}]
    (first,) = await find(calls, 3, 10)
    assert await tenants_of(calls, first) == {"a", "b", "c"}, "the oldest of each"
    assert [await end(calls, places) for places in batches] == [4, 4, 4]
    assert [await end(calls, places) for places in batches] == [0, 0, 0], "once"
    assert await find(calls, 100, 4) == []


async def test_a_place_that_changed_hands_ends_only_what_is_due(calls: Calls) -> None:
    await calls.tenant("t", reservation_ttl_seconds=60)
    await calls.reserve("t", "old")
    (places,) = await find(calls, 10, 10)
    await calls.settle("t", "old")
    assert await end(calls, places) == 0
    # A place may be taken anew by anything.
    await calls.reserve("t", "young", now=LATER)
    await calls.reserve("t", "due")
    row = await calls.row("SELECT array_agg(ctid) AS places FROM quota_reservations")
    assert await end(calls, row["places"]) == 1
    states = {
        name: (await calls.reservation("t", name))["state"] for name in ("old", "young", "due")
    }
    assert states == {"old": "settled", "young": "open", "due": "expired"}


async def test_a_stuck_tenant_holds_up_itself_alone(
    connect: Callable[[], Awaitable[asyncpg.Connection[Any]]],
    calls: Calls,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("a", "stuck", "z"):
        await calls.tenant(name)
        for number in range(4):
            await calls.reserve(name, f"{name}{number}")
    monkeypatch.setattr(expiry, "BATCH_ROWS", 2)
    other = await connect()
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
        nobody: Any = None
        ledger = PostgresLedger(pool, load_queries(Assets(), "ledger"))
        ctx = JobContext(
            LATER,
            Deadline(60, monotonic_seconds),
            dry_run=False,
            ports=JobPorts(nobody, ledger, *[nobody] * 8),
        )
        async with other.transaction():
            await Calls(other).reserve("stuck", "held")
            tally = await expiry.expire_overdue(ctx, 0)
            assert (tally.total, tally.lock_timeouts, tally.leftover) == (8, 1, True)
        tally = await expiry.expire_overdue(ctx, 0)
        assert (tally.total, tally.lock_timeouts, tally.leftover) == (5, 0, False)
    assert await calls.rows("SELECT FROM quota_usage WHERE held_cost_nanos <> 0") == []
