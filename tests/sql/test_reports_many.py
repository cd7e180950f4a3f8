"""Reports of many departments: their sum is the report of all, and memory does not grow with them.

QUOTA_WORKER_REPORTS says how many departments there are; 2000 takes minutes, and prints the figures.
"""

from __future__ import annotations

import os
import resource
from datetime import date
from typing import TYPE_CHECKING

import asyncpg

from worker.clock import monotonic_seconds
from worker.postgres.pool import open_pool
from worker.report.json_file import load_summary

from sql.calls import Calls, at
from sql.rolling import roll, tenant
from sql.test_reports import CLOSES, OCTOBER, SEPTEMBER, World, spend

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

DEPARTMENTS = int(os.environ.get("QUOTA_WORKER_REPORTS", "12"))
GROWTH_MAX_KB = 90_000  # of 2,000 departments: the report of all alone
PARTS = (
    "INSERT INTO quota_month_parts (month, belongs_to, tenant_id, department_id, environment, model, app, completions,"
    " input_tokens, cached_in_tokens, output_tokens, cost_nanos, stale_count, stale_cost_nanos, released_count,"
    " unpriced_count, downgraded_count, downgraded_tokens)"
    " SELECT $1, $1, 't' || n || '-' || k % 4, 'd' || n, 'production', 'm' || k % 5, 'a' || k, 100, 1000 * k, 0, 500,"
    " 1000000000 + n * k, 0, 0, 0, 0, 0, 0 FROM generate_series(1, $2::int) n, generate_series(1, 20) k"
)
TOTALS = (
    "INSERT INTO quota_monthly_totals (tenant_id, month, department_id, environment, completions, input_tokens,"
    " output_tokens, cost_nanos) SELECT tenant_id, month, department_id, environment, sum(completions),"
    " sum(input_tokens), sum(output_tokens), sum(cost_nanos) FROM quota_month_parts"
    " WHERE month = $1 AND department_id LIKE 'd%' GROUP BY 1, 2, 3, 4"
)
DAYS = (
    "INSERT INTO quota_month_days SELECT $1::date, $1::date + k, 'd' || n, 'production', 100, 1000, 0, 500, 1000000000,"
    " 0, 0, 0, 0, 0, 0 FROM generate_series(1, $2::int) n, generate_series(0, 29) k"
)
BUDGETS = (
    "INSERT INTO quota_month_budgets SELECT $1::date, 'd' || n, 'production', NULL, 100000, 75, 90, 98, 0, 0, 0"
    " FROM generate_series(1, $2::int) n"
)


async def fill(conn: Connection, month: date) -> None:
    for statement in (PARTS, DAYS, BUDGETS):
        await conn.execute(statement, month, DEPARTMENTS)
    await conn.execute(TOTALS, month)


async def test_the_departments_reports_add_up_to_that_of_all(dsn: str, conn: Connection) -> None:
    calls = Calls(conn)
    await tenant(calls, "lone")
    for day in ("2026-09-05", "2026-10-05"):
        await spend(calls, "lone", day, 7)
    await conn.execute(
        "INSERT INTO departments (department_id, owner_emails)"
        " SELECT 'd' || n, ARRAY['owner' || n || '@example.com'] FROM generate_series(1, $1::int) n",
        DEPARTMENTS,
    )
    await conn.execute(
        "INSERT INTO quota_outcomes (month, department_id, metric, value, import_id)"
        " SELECT $1, 'd' || n, 'orders', 10 * n, 1 FROM generate_series(1, $2::int) n",
        *(OCTOBER, DEPARTMENTS),
    )
    await roll(conn, at(CLOSES))
    for month in (SEPTEMBER, OCTOBER):
        await fill(conn, month)
    await conn.execute("ANALYZE")
    pool = await open_pool(dsn)
    world, begun = World(pool, day=5), monotonic_seconds()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert await world.run("2026-11-05T00:00:00") == (2 * DEPARTMENTS + 2, 2 * DEPARTMENTS + 2)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    seconds = monotonic_seconds() - begun
    print(f"{2 * DEPARTMENTS + 2:,} reports in {seconds:.1f} s, {grown / 1024:.0f} MiB more")  # noqa: T201  figures to read
    assert grown < GROWTH_MAX_KB
    assert await world.run("2026-11-05T00:00:00") == (0, 0)
    await pool.close()

    of_all, cost, tokens = None, 7, 1000  # what has no department
    for row in await conn.fetch("SELECT summary FROM quota_reports WHERE month = $1", OCTOBER):
        summary = load_summary(row["summary"])
        if summary.department is None:
            of_all = summary
            continue
        cost += summary.ledger.total.cost_nanos
        tokens += summary.ledger.total.tokens
    assert of_all is not None
    assert (of_all.ledger.total.cost_nanos, of_all.ledger.total.tokens) == (cost, tokens)
    assert of_all.outcomes["orders"] == sum(10 * n for n in range(1, DEPARTMENTS + 1))
