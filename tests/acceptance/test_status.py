"""`quota-worker status` on a real database."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from acceptance.program import quota_worker

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

HOSTILE = "evil\x1b[2J\nok  100.0"


async def test_an_empty_database_says_what_to_do(dsn: str) -> None:
    done = await quota_worker(dsn, "status")
    assert done.code == 0
    assert done.out.startswith("no tenants yet: ")
    assert "last tick  none yet: run quota-worker tick" in done.out


async def test_worst_first_with_tier_bucket_holds_and_refusals(dsn: str, conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO department_budgets (department_id, monthly_tokens, monthly_cost_cents)"
        " VALUES ('部门', 1000, NULL);"
        "INSERT INTO tenant_limits (tenant_id, daily_completions, bucket_capacity, department_id,"
        " daily_tokens) VALUES ('hot', 4, 10, NULL, NULL), ('市场部', 1000, 1, '部门', 1000)"
    )
    # nothing is capped: no worst dimension, the last row
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, daily_input_tokens,"
        " daily_output_tokens, daily_cost_cents, monthly_cost_cents, enforce)"
        " VALUES ($1, NULL, NULL, NULL, NULL, NULL, 'observe')",
        HOSTILE,
    )
    for number in range(6):
        await conn.execute("SELECT quota_reserve('hot', $1, 1, 1, 1)", f"r{number}")
    await conn.execute("SELECT quota_reserve('市场部', 'r', 600, 180, 1)")
    assert (await quota_worker(dsn, "tick")).code == 0

    done = await quota_worker(dsn, "status", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    rows = {(row["kind"], row["subject"]): row for row in document["rows"]}
    assert [row["subject"] for row in document["rows"]] == ["hot", "市场部", "部门", HOSTILE] or [
        row["subject"] for row in document["rows"]
    ] == ["hot", "部门", "市场部", HOSTILE]
    hot = rows["tenant", "hot"]
    assert (hot["dimension"], hot["used"], hot["cap"], hot["pct"]) == (
        "daily_completions",
        4,
        4,
        100,
    )
    assert (hot["holds"], hot["refusals_today"], hot["bucket_capacity"]) == (4, 2, 10)
    assert 5 <= hot["bucket_tokens"] <= 10
    department = rows["department", "部门"]
    assert (department["dimension"], department["used"], department["cap"]) == (
        "monthly_tokens",
        780,
        1000,
    )
    assert (department["pct"], department["tier"], department["holds"]) == (78, "warning", 1)
    assert rows["tenant", "市场部"]["tier"] == "warning"
    free = rows["tenant", HOSTILE]
    assert (free["dimension"], free["pct"], free["enforce"]) == (None, None, "observe")
    assert document["last_tick"] is not None
    assert document["failed_jobs"] == []

    text = (await quota_worker(dsn, "status")).out
    lines = text.splitlines()
    assert all(line.isprintable() for line in lines)
    assert any(line.startswith("evil\\x1b[2J\\nok  100.0 (observe)") for line in lines)
    assert lines[1].startswith("hot ")
    assert "last tick  " in text
    assert "outbox     " in text

    top = json.loads((await quota_worker(dsn, "status", "--json", "--top", "1")).out)
    assert [row["subject"] for row in top["rows"]] == ["hot"]
    assert top["subjects"] == 4
    assert "… and 3 more: --top 4" in (await quota_worker(dsn, "status", "--top", "1")).out


async def test_the_last_tick_is_by_the_clock_whatever_time_one_judged_by(
    dsn: str, conn: Connection
) -> None:
    async def shown() -> dict[str, Any]:
        document: dict[str, Any] = json.loads((await quota_worker(dsn, "status", "--json")).out)
        return document

    assert (await shown())["last_tick"] is None
    before = await conn.fetchval("SELECT clock_timestamp()")
    assert (await quota_worker(dsn, "tick", "--as-of", "2100-12-05")).code == 2  # no time of day
    done = await quota_worker(dsn, "tick", "--as-of", "2100-12-05T00:00:00Z")
    assert done.code == 0
    between = await conn.fetchval("SELECT clock_timestamp()")
    assert before < datetime.fromisoformat((await shown())["last_tick"]) < between
    assert (await quota_worker(dsn, "tick", "--as-of", "2001-12-05T00:00:00Z")).code == 0
    assert datetime.fromisoformat((await shown())["last_tick"]) > between
    # nor does a run of a later slot hide that the job failed since
    await conn.execute("ALTER FUNCTION quota_expire_stale RENAME TO gone")
    assert (await quota_worker(dsn, "tick", "--jobs", "reconcile")).code == 1
    assert (await shown())["failed_jobs"] == ["reconcile"]


async def test_a_cap_of_zero_reads_as_full_and_a_failed_job_is_named(
    dsn: str, conn: Connection
) -> None:
    await conn.execute("INSERT INTO tenant_limits (tenant_id, daily_cost_cents) VALUES ('z', 0)")
    await conn.execute("ALTER FUNCTION quota_roll_month RENAME TO gone")
    await quota_worker(dsn, "tick")
    text = (await quota_worker(dsn, "status")).out
    row = next(line for line in text.splitlines() if line.startswith("z "))
    assert row.split()[1:6] == ["cost,", "day", "0.00", "0.00", "100.0"]
    # usage of no month at all: nothing to roll, so the job fails only when there is some
    await conn.execute("SELECT quota_settle('z', 'r', 1, 1, 1)")
    await quota_worker(dsn, "run", "roll_month")
    assert "failed: roll_month" in (await quota_worker(dsn, "status")).out
