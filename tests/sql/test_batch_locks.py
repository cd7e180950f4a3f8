"""quota_reserve_batch beside others: no deadlock, and nothing that is charged by half.

Each race is laid out by hand: an open transaction holds a row, one tenant's day mostly,
so that the batch stops in its middle while the other call comes.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from model.days import month_of
from sql.calls import Calls, several

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FIGURES = {"in_tokens": 10, "out_tokens": 5, "cost_nanos": 100}
LOOKS = 400  # at most, 5 ms apart: longer than a function's lock timeout


def ask(tenant: str, request_id: str) -> dict[str, Any]:
    """A reserve element."""
    return {"tenant": tenant, "request_id": request_id, **FIGURES}


async def warm(calls: Calls, tenant: str) -> None:
    """After its first requests of the day a tenant is charged in one go."""
    for number in range(2):
        await calls.reserve(tenant, f"warm{number}", (10, 5, 100))


async def blocked(watcher: Calls, waiter: Calls, holder: Calls) -> None:
    """Returns once `waiter` waits for `holder`."""
    pids = waiter.conn.get_server_pid(), holder.conn.get_server_pid()
    for _ in range(LOOKS):
        if await watcher.conn.fetchval("SELECT $2::int = ANY (pg_blocking_pids($1))", *pids):
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nobody waited")


@asynccontextmanager
async def day_held(holder: Calls, tenant: str) -> AsyncIterator[None]:
    """Meanwhile a legacy program's transaction holds the tenant's day."""
    async with holder.conn.transaction():
        await holder.conn.execute(
            "UPDATE quota_usage SET completions = completions WHERE tenant_id = $1", tenant
        )
        yield


@pytest.mark.parametrize("again", ["known", "new"], ids=["a-known-id", "an-id-twice"])
async def test_a_batch_with_a_repeated_id_deadlocks_no_top_up(dsn: str, again: str) -> None:
    """The top-up waits for the slot that the batch has booked, the department's lock in hand."""
    tomorrow = datetime.now(tz=UTC) + timedelta(days=1)
    async with several(dsn, 4) as (one, other, holder, watcher):
        await one.department("d", monthly_tokens=10**9)
        await one.tenant(department_id="d")
        await warm(one, "t")
        await one.reserve("t", "known", (10, 5, 100))
        async with day_held(holder, "t"):
            batch = asyncio.create_task(one.reserve_batch([ask("t", "new"), ask("t", again)]))
            await blocked(watcher, one, holder)
            top_up = asyncio.create_task(other.top_up("d", 5, 0, "k", tomorrow))
            await blocked(watcher, other, one)
        rows, _ = await asyncio.gather(batch, top_up)
        assert [(row["reason"], row["replayed"]) for row in rows] == [("ok", False), ("ok", True)]
        used = await one.department_used("d", "production", month_of(datetime.now(tz=UTC).date()))
        assert used["tokens_used"] == 4 * 15


async def test_a_tenant_that_moves_amid_a_batch_brings_no_department_out_of_order(
    dsn: str,
) -> None:
    """It is judged in the department that the batch has locked for it, e; d comes before."""
    async with several(dsn, 4) as (one, other, holder, watcher):
        for name in "de":
            await one.department(name, monthly_tokens=10**9)
        await one.tenant("fits")
        await warm(one, "fits")
        await one.tenant("moves", department_id="e")
        for tenant, department in (("in_d", "d"), ("in_e", "e")):
            await one.tenant(tenant, department_id=department)
        async with day_held(holder, "fits"):
            batch = asyncio.create_task(one.reserve_batch([ask("fits", "r"), ask("moves", "r")]))
            await blocked(watcher, one, holder)
            await watcher.change("moves", department_id="d")
            ordered = asyncio.create_task(other.reserve_batch([ask("in_d", "r"), ask("in_e", "r")]))
            await blocked(watcher, other, one)
        for rows in await asyncio.gather(batch, ordered):
            assert [row["reason"] for row in rows] == ["ok", "ok"]
        assert (await one.reservation("moves", "r"))["department_id"] == "e"
        month = month_of(datetime.now(tz=UTC).date())
        used = [await one.department_used(name, "production", month) for name in "de"]
        assert [row["tokens_used"] for row in used] == [15, 30]


async def test_a_tenant_that_goes_amid_a_batch_is_charged_for_what_it_got(dsn: str) -> None:
    """Admitted before it went, so its day has the charge as well as its department."""
    async with several(dsn, 3) as (one, holder, watcher):
        await one.department("d", monthly_tokens=10**9)
        await one.tenant(department_id="d")
        await warm(one, "t")
        async with holder.conn.transaction():
            await holder.conn.execute("SELECT FROM quota_department_slots FOR UPDATE")
            batch = asyncio.create_task(one.reserve_batch([ask("t", "r")]))
            await blocked(watcher, one, holder)
            await watcher.conn.execute("DELETE FROM tenant_limits WHERE tenant_id = 't'")
        assert [row["reason"] for row in await batch] == ["ok"]
        assert (await one.usage(day=datetime.now(tz=UTC).date()))["completions"] == 3
