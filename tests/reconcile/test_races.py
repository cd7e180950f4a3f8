"""Releases and expiries against usages on many connections, with everything that goes wrong on the way.

Usage comes by quota_settle, quota_settle_batch and the inbox; twice, in any order, with several
figures per request, after midnight, after the month's end and after its closing. One call in
twelve is lost at COMMIT and repeated, one commit in ten ends in a deadlock, the worker's too.
In the end each request's charge is the last usage that the database took, by the order of its
answers, and all sums are sums of those.

`make test` runs a short form; `make races` thousands of pairs from a fresh seed, which it prints.
QUOTA_WORKER_SEED repeats one, QUOTA_WORKER_RACES says how many pairs.
"""

from __future__ import annotations

import os
import random
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from reconcile import faults
from reconcile.plan import DECEMBER, EXPIRE, JANUARY, NOVEMBER, PHASES, make_plan
from reconcile.truth import Truth
from reconcile.world import ALL_IS_OVERDUE, World, totals_of, without_zeros
from worker.jobs import reconcile

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]


PAIRS = int(os.environ.get("QUOTA_WORKER_RACES", "100"))
LONG = PAIRS >= 1000
SHORT_SEED = 7


def the_seed() -> int:
    chosen = int(os.environ.get("QUOTA_WORKER_SEED", "0"))
    return chosen or (random.SystemRandom().randrange(1, 2**31) if LONG else SHORT_SEED)


# In the short form both are in one.
CLOSINGS = [(), (NOVEMBER, DECEMBER)] if LONG else [(NOVEMBER,)]


@pytest.mark.parametrize("closes_amid", CLOSINGS)
async def test_the_last_usage_is_the_charge_whatever_happens_on_the_way(
    dsn: str, conn: Connection, *, closes_amid: tuple[date, ...]
) -> None:
    seed = the_seed()
    print(f"QUOTA_WORKER_SEED={seed} QUOTA_WORKER_RACES={PAIRS}")  # noqa: T201
    plan = make_plan(seed, PAIRS)
    world = World(dsn, plan, closes_amid=closes_amid)
    await world.set_up(conn)
    await faults.set_up(conn, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconcile, "RETRY_WAIT_SECONDS", 0.01)
        await world.run()
    truth = world.truth
    truth.check_answers()
    arrived = (
        "SELECT count(*) FROM quota_usage_inbox WHERE booked_at IS NULL OR inbox_id = ANY ($1)"
    )
    unheard = list(truth.left)  # their gateway's connection was lost, and so were they
    assert await conn.fetchval(arrived, unheard) == 0, "all that is in the inbox was booked"
    await assert_requests(conn, truth)
    await assert_days(conn, truth)
    await assert_departments(conn, truth)
    await assert_months(conn, truth)
    for month, rows in world.frozen.items():
        assert await totals_of(conn, month) == rows, "a closed month stays as it is"
    for month in (NOVEMBER, DECEMBER, JANUARY):
        drifts = "SELECT * FROM quota_audit($1, $2) WHERE severity = 'drift'"
        assert await conn.fetch(drifts, month, PHASES[-1] + ALL_IS_OVERDUE) == []
    await assert_it_was_hard(conn, world, plan.requests)


async def assert_requests(conn: Connection, truth: Truth) -> None:
    rows = await conn.fetch(
        "SELECT tenant_id, request_id, state, period, department_id, completion_counted::int AS n,"
        " charged_in_tokens AS i, charged_out_tokens AS o, charged_cost_nanos AS c FROM quota_reservations"
    )
    found = {(row["tenant_id"], row["request_id"]): row for row in rows}
    assert set(found) == set(truth.known)
    for key, known in truth.known.items():
        row = found[key]
        charge = known.charge()
        assert (row["n"], row["i"], row["o"], row["c"]) == charge, (row, known)
        assert row["state"] != "open"
        assert row["period"] == PHASES[known.admitted_in].date()


async def assert_days(conn: Connection, truth: Truth) -> None:
    rows = await conn.fetch(
        "SELECT tenant_id, period, completions AS n, input_tokens AS i, output_tokens AS o,"
        " (cost_cents::numeric * 10000000 + cost_subcent_nanos)::bigint AS c,"
        " booked_completions AS bn, booked_input_tokens AS bi, booked_output_tokens AS bo, booked_cost_nanos AS bc,"
        " held_input_tokens AS hi, held_output_tokens AS ho, held_cost_nanos AS hc FROM quota_usage"
    )
    found = {(row["tenant_id"], row["period"]): tuple(row)[2:6] for row in rows}
    assert without_zeros(found) == without_zeros(truth.days())
    for row in rows:
        assert tuple(row)[6:10] == tuple(row)[2:6], "what was booked is what is used"
        assert tuple(row)[10:] == (0, 0, 0), "nothing is held"


async def assert_departments(conn: Connection, truth: Truth) -> None:
    expected: dict[tuple[str, date], list[int]] = {}
    for (_, department, month), sums in truth.months().items():
        if department:
            row = expected.setdefault((department, month), [0, 0])
            row[0] += sums[1] + sums[2]
            row[1] += sums[3]
    rows = await conn.fetch(
        "SELECT department_id, month, sum(tokens_used)::bigint AS t, sum(cost_used_nanos)::bigint AS c,"
        " sum(tokens_held)::bigint AS ht, sum(cost_held_nanos)::bigint AS hc"
        " FROM quota_department_slots WHERE environment = 'production' GROUP BY 1, 2"
    )
    found = {(row["department_id"], row["month"]): [row["t"], row["c"]] for row in rows}
    assert found == expected
    assert {(row["ht"], row["hc"]) for row in rows} == {(0, 0)}


async def assert_months(conn: Connection, truth: Truth) -> None:
    """By the month they belong to, totals and adjustments are the truth."""
    rows = await conn.fetch(
        "SELECT tenant_id, department_id, belongs_to, sum(completions)::bigint AS n, sum(input_tokens)::bigint AS i,"
        " sum(output_tokens)::bigint AS o, sum(cost_nanos)::bigint AS c FROM quota_monthly_totals GROUP BY 1, 2, 3"
    )
    found: dict[Any, Any] = {tuple(row)[:3]: tuple(row)[3:] for row in rows}
    assert without_zeros(found) == without_zeros(truth.months())


async def assert_it_was_hard(conn: Connection, world: World, requests: list[Any]) -> None:
    """Everything that the test is about did happen."""
    commits, deadlocks = await faults.drawn(conn)
    assert 0.05 < deadlocks / commits < 0.15, (commits, deadlocks)
    met, outcomes = world.met, world.outcomes
    assert min(met[name] for name in ("40P01", "terminated", "unsent", "sent", "lost")) > 0, met
    wanted = ("settled", "corrected", "replayed", "unreserved", "estimated", "released")
    assert min(outcomes[name] for name in wanted) > 0, outcomes
    adjusted = await conn.fetchval(
        "SELECT count(DISTINCT (month, belongs_to)) FROM quota_monthly_totals WHERE month <> belongs_to"
    )
    assert adjusted >= 2
    real = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await conn.fetchval(real) == 0, "none but the planted ones"
    assert len([r for r in requests if r.end == EXPIRE]) > len(requests) / 3
    print(f"{commits} commits, {deadlocks} deadlocks; {dict(met)}; {dict(outcomes)}")  # noqa: T201
