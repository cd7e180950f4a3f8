"""Several connections at once: no overshoot, no double end, no deadlock.

Every race runs on the true clock and judges the tables afterwards; a SQLSTATE
that a race must not raise (40P01, 55P03) fails it by itself.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from model.days import month_of
from sql.calls import Calls, several

if TYPE_CHECKING:
    from collections.abc import Awaitable

CENT = 10_000_000
ROUNDS = 10


async def gather(*work: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*work))


def today() -> datetime:
    return datetime.now(tz=UTC)


async def settled_sums(calls: Calls) -> tuple[int, ...]:
    """What the requests themselves say of today: completions, in, out, cost."""
    row = await calls.row(
        "SELECT count(*) FILTER (WHERE completion_counted)::bigint AS n,"
        " sum(CASE WHEN state = 'open' THEN estimated_in_tokens ELSE charged_in_tokens END)::bigint"
        "   AS tokens_in,"
        " sum(CASE WHEN state = 'open' THEN estimated_out_tokens ELSE charged_out_tokens END)"
        "   ::bigint AS tokens_out,"
        " sum(CASE WHEN state = 'open' THEN estimated_cost_nanos ELSE charged_cost_nanos END)"
        "   ::bigint AS cost FROM quota_reservations"
    )
    return (row["n"], row["tokens_in"] or 0, row["tokens_out"] or 0, row["cost"] or 0)


async def test_twenty_first_requests_of_a_bucket_of_one(dsn: str) -> None:
    async with several(dsn, 20) as calls:
        for number in range(ROUNDS):
            name = f"t{number}"
            await calls[0].tenant(name, bucket_capacity=1.0, bucket_refill_per_sec=0.0)
            rows = await gather(*(one.reserve(name, f"r{i}") for i, one in enumerate(calls)))
            assert sorted(row["reason"] for row in rows) == ["ok", *["rate_limited"] * 19]
            usage = await calls[0].usage(name, today().date())
            assert (usage["completions"], usage["held_input_tokens"]) == (1, 10)


async def test_two_first_requests_of_a_cap_of_one(dsn: str) -> None:
    async with several(dsn, 2) as calls:
        for number in range(3 * ROUNDS):
            name = f"t{number}"
            await calls[0].tenant(name, daily_completions=1)
            rows = await gather(*(one.reserve(name) for one in calls))
            assert sorted(row["reason"] for row in rows) == ["daily_cap_reached", "ok"]


async def test_twenty_first_check_and_charges_of_a_cap_of_three(dsn: str) -> None:
    async with several(dsn, 20) as calls:
        await calls[0].tenant(daily_completions=3)
        answers = await gather(*(one.check_and_charge() for one in calls))
        assert sorted(answers) == [(False, "daily_cap_reached")] * 17 + [(True, "ok")] * 3


@pytest.mark.parametrize("dimension", ["tokens", "cost"])
async def test_twenty_tenants_of_one_department_on_thirty_connections(
    dsn: str, dimension: str
) -> None:
    """The budget is nearly used: not one token of overshoot, no deadlock, no lock timeout."""
    budget = {"monthly_tokens": 20_000} if dimension == "tokens" else {"monthly_cost_cents": 20}
    amounts = (37, 0, 0) if dimension == "tokens" else (0, 0, 370_000)
    limit = 20_000 if dimension == "tokens" else 20 * CENT
    before = (14_000, 0, 0) if dimension == "tokens" else (0, 0, 14 * CENT)
    async with several(dsn, 30) as calls:
        await calls[0].department("d", **budget)
        for number in range(20):
            await calls[0].tenant(f"t{number}", department_id="d")
        await calls[0].settle("t0", "before", before)

        async def client(number: int, one: Calls) -> int:
            passed = 0
            for step in range(12):
                tenant = f"t{(number * 7 + step) % 20}"
                row = await one.reserve(tenant, f"r{number}-{step}", amounts, priority="high")
                assert row["reason"] in ("ok", "department_budget_exhausted")
                passed += row["allowed"]
                if row["allowed"] and step % 3 == 0:
                    await one.settle(tenant, f"r{number}-{step}", amounts)
            return passed

        passed = sum(await gather(*(client(n, one) for n, one in enumerate(calls))))
        used = await calls[0].department_used("d", "production", month_of(today().date()))
        total = used["tokens_used"] if dimension == "tokens" else used["cost_used_nanos"]
        step = max(amounts)
        assert total == max(before) + passed * step
        assert total <= limit
        assert limit - total < step, "and nothing that fits was refused"


async def test_one_request_id_on_twenty_connections(dsn: str) -> None:
    async with several(dsn, 20) as calls:
        await calls[0].tenant()
        for number in range(ROUNDS):
            rows = await gather(*(one.reserve("t", f"r{number}") for one in calls))
            assert len({row["reservation_id"] for row in rows}) == 1
            assert sorted(row["replayed"] for row in rows) == [False, *[True] * 19]
        assert (await calls[0].usage(day=today().date()))["completions"] == ROUNDS


@pytest.mark.parametrize("other", ["expire", "release"])
async def test_a_settlement_races_another_end(dsn: str, other: str) -> None:
    async with several(dsn, 3) as calls:
        await calls[0].department("d", monthly_tokens=10**9)
        await calls[0].tenant(stale_policy="estimate", department_id="d")
        for number in range(3 * ROUNDS):
            name = f"r{number}"
            await calls[0].reserve("t", name, (100, 50, 1500))
            later = today() + timedelta(hours=1)
            end = calls[1].expire(now=later) if other == "expire" else calls[1].release("t", name)
            row, _ = await gather(calls[0].settle("t", name, (7, 8, 9)), end)
            assert row["outcome"] in ("settled", "corrected")
            stored = await calls[2].reservation("t", name)
            charged = [stored[f"charged_{n}"] for n in ("in_tokens", "out_tokens", "cost_nanos")]
            assert charged == [7, 8, 9], "whatever the order, the usage is the charge"
        assert await settled_sums(calls[0]) == (30, 7 * 30, 8 * 30, 9 * 30)
        figures = await calls[0].figures(day=today().date())
        assert figures == (30, 7 * 30, 8 * 30, 9 * 30)
        assert await calls[0].held(day=today().date()) == (0, 0, 0)
        used = await calls[0].department_used("d", "production", month_of(today().date()))
        assert (used["tokens_used"], used["tokens_held"]) == (15 * 30, 0)


async def test_a_reserve_races_its_own_settlement(dsn: str) -> None:
    """One of the two orders: admitted and settled, or unreserved and replayed."""
    async with several(dsn, 2) as calls:
        await calls[0].tenant()
        for number in range(3 * ROUNDS):
            name = f"r{number}"
            reserved, settled = await gather(
                calls[0].reserve("t", name, (100, 50, 1500)), calls[1].settle("t", name, (7, 8, 9))
            )
            assert reserved["allowed"]
            orders = {("settled", False), ("unreserved", True)}
            assert (settled["outcome"], reserved["replayed"]) in orders
        assert await calls[0].figures(day=today().date()) == (30, 210, 240, 270)
        assert await calls[0].held(day=today().date()) == (0, 0, 0)


async def test_two_expiries_side_by_side_end_each_once(dsn: str) -> None:
    async with several(dsn, 4) as calls:
        for tenant in "abcde":
            await calls[0].tenant(tenant, stale_policy="partial")
            for number in range(40):
                await calls[0].reserve(tenant, f"r{number}", (100, 50, 1500))
        later = today() + timedelta(hours=1)
        ended = 0
        for _ in range(10):
            rounds = await gather(*(one.expire(30, now=later) for one in calls))
            ended += sum(row["ended"] for rows in rounds for row in rows)
        assert ended == 200
        for tenant in "abcde":
            assert await calls[0].figures(tenant, today().date()) == (40, 4000, 0, 40_000)
            assert await calls[0].held(tenant, today().date()) == (0, 0, 0)


async def test_batches_race_single_calls(dsn: str) -> None:
    """Crossing tenant orders: no deadlock, no overshoot, sums right."""
    tenants = [f"t{number}" for number in range(6)]
    async with several(dsn, 8) as calls:
        await calls[0].department("d", monthly_tokens=40_000)
        for name in tenants:
            await calls[0].tenant(name, department_id="d", daily_completions=60)

        def elements(number: int, step: int) -> list[dict[str, Any]]:
            order = tenants if number % 2 else tenants[::-1]
            figures = {"in_tokens": 40, "out_tokens": 10, "cost_nanos": 100}
            return [
                {"tenant": name, "request_id": f"b{number}-{step}-{name}", **figures}
                for name in order
            ]

        async def batcher(number: int, one: Calls) -> None:
            for step in range(12):
                items = elements(number, step)
                rows = await one.reserve_batch(items)
                passed = [
                    {**item, "in_tokens": 1}
                    for item, row in zip(items, rows, strict=True)
                    if row["allowed"]
                ]
                for row in await one.settle_batch(passed[::2]):
                    assert row["outcome"] == "settled"

        async def singler(number: int, one: Calls) -> None:
            for step in range(40):
                name = tenants[(number + step) % 6]
                row = await one.reserve(name, f"s{number}-{step}", (40, 10, 100))
                if row["allowed"] and step % 2:
                    await one.settle(name, f"s{number}-{step}", (1, 10, 100))

        work = [(singler if n % 2 else batcher)(n // 2, one) for n, one in enumerate(calls)]
        await gather(*work)
        total = [0, 0, 0, 0]
        for name in tenants:
            figures = await calls[0].figures(name, today().date())
            assert figures[0] <= 60
            total = [a + b for a, b in zip(total, figures, strict=True)]
        assert tuple(total) == await settled_sums(calls[0])
        used = await calls[0].department_used("d", "production", month_of(today().date()))
        assert used["tokens_used"] == total[1] + total[2]
        assert used["tokens_used"] <= 40_000


async def test_reserves_while_the_tutorials_programs_write(dsn: str) -> None:
    """Nothing of either side is lost."""
    async with several(dsn, 6) as calls:
        await calls[0].department("d", monthly_tokens=10**9)
        await calls[0].tenant(department_id="d")
        await calls[0].reserve("t", "first", (0, 0, 0))

        async def writer(one: Calls) -> None:
            for _ in range(40):
                done = await one.conn.execute(
                    "UPDATE quota_usage SET input_tokens = input_tokens + 3,"
                    " output_tokens = output_tokens + 2, cost_cents = cost_cents + 1"
                    " WHERE tenant_id = 't' AND period = $1",
                    today().date(),
                )
                assert done == "UPDATE 1"

        async def reserver(number: int, one: Calls) -> None:
            for step in range(40):
                name = f"r{number}-{step}"
                assert (await one.reserve("t", name, (10, 5, CENT - 1)))["allowed"]
                if step % 2:
                    await one.settle("t", name, (1, 1, 1))

        async def booker(one: Calls) -> None:
            for _ in range(20):
                await one.conn.fetchval("SELECT quota_book_legacy(1000)")

        jobs = [writer(calls[0]), writer(calls[1]), booker(calls[2])]
        await gather(*jobs, *(reserver(n, one) for n, one in enumerate(calls[3:])))
        for _ in range(20):
            if not await calls[0].conn.fetchval("SELECT quota_book_legacy(1000)"):
                break
        completions, tokens_in, tokens_out, cost = await settled_sums(calls[0])
        figures = await calls[0].figures(day=today().date())
        expected = (completions, tokens_in + 240, tokens_out + 160, cost + 80 * CENT)
        assert figures == expected
        used = await calls[0].department_used("d", "production", month_of(today().date()))
        assert used["tokens_used"] == tokens_in + tokens_out + 400
        assert used["cost_used_nanos"] == cost + 80 * CENT


async def test_limits_change_while_requests_run(dsn: str) -> None:
    """A cap lowered or a tenant moved in the middle deadlocks nobody and loses nothing."""
    async with several(dsn, 6) as calls:
        for name in "de":
            await calls[0].department(name, monthly_tokens=10**6)
        await calls[0].tenant(department_id="d")

        async def mover(one: Calls) -> None:
            for step in range(30):
                await one.change(
                    department_id="de"[step % 2], daily_completions=[None, 10**6][step % 2]
                )

        async def client(number: int, one: Calls) -> None:
            for step in range(30):
                name = f"r{number}-{step}"
                assert (await one.reserve("t", name, (10, 5, 7)))["allowed"]
                await one.settle("t", name, (1, 1, 1))

        await gather(mover(calls[0]), *(client(n, one) for n, one in enumerate(calls[1:])))
        sums = await settled_sums(calls[0])
        assert await calls[0].figures(day=today().date()) == sums == (150, 150, 150, 150)
        months = [
            await calls[0].department_used(n, "production", month_of(today().date())) for n in "de"
        ]
        assert sum(row["tokens_used"] for row in months) == 300
        assert sum(row["tokens_held"] for row in months) == 0
