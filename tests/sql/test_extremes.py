"""Figures at the ledger's limits: no call fails for the sums that they make, and none spoils another's work."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.assets import Assets
from worker.clock import monotonic_seconds
from worker.jobs import expiry
from worker.jobs.context import Deadline, JobContext, JobPorts
from worker.postgres.ledger import PostgresLedger
from worker.postgres.queries import load_queries

from sql.calls import NOON, Calls

if TYPE_CHECKING:
    from collections.abc import Callable

LATER = NOON + timedelta(hours=1)
TOKENS = 10**12
NANOS = 10**15
LARGEST = 2**63 - 1
INBOX = """
INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens, cost_nanos, model)
VALUES ('a', 'img', 1000000000000, 1000000000000, NULL, 'unk'), ('b', 'good', 10, 5, 100, 'm')
"""
# a slip of somebody's hand
SPOILED = (
    "UPDATE quota_usage SET output_tokens = $1, booked_output_tokens = $1 WHERE tenant_id = $2"
)


async def test_tokens_far_beyond_the_estimate_are_booked_and_cost_what_one_call_may(
    calls: Calls,
) -> None:
    for name in ("a", "b"):
        await calls.tenant(name, department_id="d")
        await calls.reserve(name, "img", (1, 0, 50_000_000), model="unk")
    await calls.reserve("a", "ok", (10, 10, 1000), model="unk")
    await calls.conn.execute(INBOX)
    row = await calls.row("SELECT * FROM quota_book_inbox(1000, $1)", NOON)
    assert (row["taken"], row["booked"], row["refused"]) == (2, 2, 0)
    assert await calls.figures("a") == (2, TOKENS + 10, TOKENS + 10, NANOS + 1000)
    assert await calls.figures("b") == (2, 11, 5, 50_000_100)
    done = await calls.settle("b", "img", (10**11, 1, None))
    assert (done["outcome"], done["cost_nanos"]) == ("settled", NANOS)
    for name in ("a", "b"):
        stored = await calls.reservation(name, "img")
        assert (stored["charged_cost_nanos"], stored["unpriced"]) == (NANOS, True)
    used = await calls.department_used("d", "production", NOON.date().replace(day=1))
    assert used["cost_used_nanos"] == 2 * NANOS + 1100


async def test_a_stream_far_beyond_its_estimate_ends_every_way(calls: Calls) -> None:
    await calls.tenant("a", stale_policy="partial")
    await calls.tenant("b")
    for name in ("p1", "p2", "p3"):
        await calls.reserve("a", name, (1, 1, 10**9), ttl_seconds=1)
        await calls.progress("a", name, TOKENS)
        await calls.reserve("b", name, ttl_seconds=1)
    assert await calls.release("a", "p1") == "released"
    ended = {row["tenant_id"]: row for row in await calls.expire(now=LATER)}
    assert (ended["a"]["ended"], ended["a"]["cost_nanos"]) == (2, 2 * NANOS)
    assert ended["b"]["ended"] == 3
    assert await calls.figures("a") == (3, 3, 3 * TOKENS, 3 * NANOS)


async def test_what_can_not_end_stays_alone_and_is_named(calls: Calls, dsn: str) -> None:
    for name in ("a", "bad", "c"):
        await calls.tenant(name, department_id="d", stale_policy="partial")
    for number in range(3):
        for name in ("a", "bad", "c"):
            await calls.reserve(name, f"{name}{number}", (10, 5, 100))
    await calls.progress("bad", "bad1", 500)
    await calls.conn.execute(SPOILED, LARGEST - 100, "bad")
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
        nobody: Any = None
        ledger = PostgresLedger(pool, load_queries(Assets(), "ledger"))
        ctx = JobContext(
            LATER,
            Deadline(60, monotonic_seconds),
            dry_run=False,
            ports=JobPorts(nobody, ledger, *[nobody] * 8),
        )
        first = await expiry.expire_overdue(ctx, 0)
        assert first.ended["partial"] == 8
        assert first.leftover
        # alone it fails; whatever comes due later ends beside it
        again = await expiry.expire_overdue(ctx, 0)
        assert (again.total, again.leftover) == (0, True)
        assert "request bad1 of tenant bad can't be ended: the amounts" in str(again.errors[0])
        await calls.reserve("c", "new")
        assert (await expiry.expire_overdue(ctx, 0)).total == 1
    assert (await calls.reservation("bad", "bad1"))["state"] == "open"
    used = await calls.department_used("d", "production", NOON.date().replace(day=1))
    assert (used["tokens_held"], used["cost_held_nanos"]) == (15, 100)
    with pytest.raises(asyncpg.PostgresError, match="request bad1 of tenant bad") as raised:
        await calls.expire(now=LATER)
    assert raised.value.sqlstate == "QW002"
    # mended, it ends
    await calls.conn.execute(SPOILED, 15, "bad")
    assert [row["ended"] for row in await calls.expire(now=LATER)] == [1]


TOKEN_COUNTS = st.sampled_from([0, 1, 7, TOKENS - 1, TOKENS])
COSTS = st.sampled_from([0, 1, 99, NANOS - 1, NANOS])
MAYBE_COSTS = st.one_of(st.none(), COSTS)
REQUESTS = st.sampled_from(["r1", "r2"])
STEPS = st.one_of(
    st.tuples(st.just("reserve"), REQUESTS, TOKEN_COUNTS, TOKEN_COUNTS, COSTS),
    st.tuples(st.just("settle"), REQUESTS, TOKEN_COUNTS, TOKEN_COUNTS, MAYBE_COSTS),
    st.tuples(st.just("batch"), REQUESTS, TOKEN_COUNTS, TOKEN_COUNTS, MAYBE_COSTS),
    st.tuples(st.just("release"), REQUESTS, TOKEN_COUNTS, TOKEN_COUNTS, COSTS),
    st.tuples(st.just("progress"), REQUESTS, TOKEN_COUNTS, TOKEN_COUNTS, COSTS),
    st.tuples(st.just("expire"), REQUESTS, TOKEN_COUNTS, TOKEN_COUNTS, COSTS),
    st.tuples(st.just("price"), REQUESTS, TOKEN_COUNTS, TOKEN_COUNTS, COSTS),
)
COUNTERS = st.sampled_from([0, 10**18, 4 * 10**18, LARGEST - TOKENS, LARGEST])


async def step(calls: Calls, what: str, request: str, *amounts: Any) -> None:
    conn = calls.conn
    match what:
        case "reserve":
            await calls.reserve("t", request, amounts, model="m")
        case "settle":
            await calls.settle("t", request, amounts)
        case "batch":
            keys = ("in_tokens", "out_tokens", "cost_nanos")
            usage = {"tenant": "t", "request_id": request} | dict(zip(keys, amounts, strict=True))
            await conn.fetch("SELECT * FROM quota_settle_batch($1, $2)", json.dumps([usage]), NOON)
        case "release":
            await calls.release("t", request, amounts)
        case "progress":
            await calls.progress("t", request, amounts[0])
        case "expire":
            await calls.expire(now=LATER)
        case _:
            await conn.execute("UPDATE quota_prices SET loaded_at = clock_timestamp()")
            await conn.fetch("SELECT * FROM quota_price_unpriced(10, $1)", NOON)


def test_no_figures_at_the_limits_raise_anything_but_the_contracts_errors(
    fresh: Callable[[], Any],
) -> None:
    """Also beside counters that a legacy program wrote, booked as its own or not yet."""
    loop = asyncio.new_event_loop()
    calls = loop.run_until_complete(fresh())

    async def run(counter: int, *, booked: bool, lowered: bool, steps: list[Any]) -> None:
        block = calls.conn.transaction()
        await block.start()
        try:
            await calls.conn.execute(
                "INSERT INTO quota_usage (tenant_id, period, input_tokens, output_tokens, cost_cents)"
                " VALUES ('t', $1, $2, $2, $2)",
                NOON.date(),
                counter,
            )
            if booked:
                await calls.conn.execute("SELECT quota_book_legacy(10, $1)", NOON)
            if lowered:
                await calls.conn.execute(
                    "UPDATE quota_usage SET input_tokens = 0, output_tokens = 0, cost_cents = 0"
                )
            for each in steps:
                try:
                    async with calls.conn.transaction():
                        await step(calls, *each)
                except asyncpg.PostgresError as error:
                    assert error.sqlstate in {"QW001", "QW002"}, (each, error)  # noqa: PT017
        finally:
            await block.rollback()

    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(COUNTERS, st.booleans(), st.booleans(), st.lists(STEPS, min_size=2, max_size=8))
    def every(counter: int, booked: bool, lowered: bool, steps: list[Any]) -> None:  # noqa: FBT001
        loop.run_until_complete(run(counter, booked=booked, lowered=lowered, steps=steps))

    try:
        every()
    finally:
        loop.run_until_complete(calls.conn.close())
        loop.close()


@pytest.fixture
def fresh(dsn: str) -> Callable[[], Any]:
    """Opens a connection of its own loop, to tenant t with model m at a dear price."""

    async def opened() -> Calls:
        calls = Calls(await asyncpg.connect(dsn, statement_cache_size=50))
        await calls.department("d", monthly_cost_cents=10**9)
        await calls.tenant("t", department_id="d", stale_policy="partial")
        await calls.conn.execute(
            "INSERT INTO quota_prices (origin, model, currency, input, output)"
            " VALUES ('file', 'm', 'USD', 1000, 1)"
        )
        return calls

    return opened
