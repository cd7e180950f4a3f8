"""The tick as cron runs it: leases, exit codes, silence, failure, deadline."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING

import pytest

from acceptance.program import quota_worker, start, until
from worker.jobs.expiry import BATCH_ROWS
from worker.jobs.registry import job_names

if TYPE_CHECKING:
    import asyncpg

    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]

UNREACHABLE = "postgresql://nobody@127.0.0.1:1/none"
AS_OF = "2026-11-30T10:07:00Z"


async def overdue_holds(conn: Connection, count: int) -> None:
    """A tenant whose holds ran out an hour ago."""
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, daily_input_tokens,"
        " bucket_capacity) VALUES ('t', NULL, NULL, 1e9)"
    )
    await conn.execute(
        "SELECT quota_reserve('t', 'r' || n, 10, 5, 7, p_now => clock_timestamp() - interval '2 h')"
        " FROM generate_series(1, $1::int) AS n",
        count,
    )


async def test_a_healthy_tick_is_silent_on_stdout_and_writes_its_runs(
    dsn: str, conn: Connection
) -> None:
    await overdue_holds(conn, 3)
    done = await quota_worker(dsn, "tick")
    assert (done.code, done.out) == (0, "")
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 0
    runs = {row["job"]: row for row in await conn.fetch("SELECT * FROM job_runs")}
    assert set(runs) == set(job_names())
    assert {row["outcome"] for row in runs.values()} == {"done"}
    assert json.loads(runs["reconcile"]["counts"])["expired_estimate"] == 3
    for line in done.err.splitlines():
        assert json.loads(line)["job"] in job_names()


async def test_a_tick_with_nothing_to_do_says_nothing_at_all(dsn: str) -> None:
    assert (await quota_worker(dsn, "tick")).code == 0
    again = await quota_worker(dsn, "tick")
    assert (again.code, again.out, again.err) == (0, "", "")


async def test_hourly_work_runs_once_an_hour_and_each_slot_once_after_a_silence(
    dsn: str, conn: Connection
) -> None:
    for at in ("10:02", "10:07", "10:57", "11:02"):
        await quota_worker(dsn, "tick", "--as-of", f"2026-11-01T{at}:00Z")
    await quota_worker(dsn, "tick", "--as-of", "2026-11-15T09:02:00Z")
    rows = await conn.fetch(
        "SELECT job, count(*) AS slots, sum(attempts) AS runs FROM job_runs GROUP BY job"
    )
    assert {row["job"]: (row["slots"], row["runs"]) for row in rows} == {
        "reconcile": (5, 5),
        "soft_warn": (5, 5),
        "watch": (5, 5),
        "deliver": (5, 5),
        "upkeep": (2, 2),
        "roll_month": (3, 3),
        "roi_report": (3, 3),
        "diagnose": (3, 3),
    }


async def test_months_missed_are_caught_up_and_closed_in_one_tick(
    dsn: str, conn: Connection
) -> None:
    await conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens,"
        " cost_cents, cost_subcent_nanos)"
        " SELECT 't' || n % 7, '2026-08-01'::date + n % 121, n, n, 2 * n, n, n"
        " FROM generate_series(1, 500) AS n ON CONFLICT DO NOTHING"
    )
    for _ in range(3):
        done = await quota_worker(
            dsn, "run", "roll_month", "--as-of", "2026-11-29T00:00:00Z", "--json"
        )
        assert done.code == 0, done.err
    closed = await conn.fetch(
        "SELECT month::text, closed_at IS NOT NULL AS closed FROM quota_months ORDER BY 1"
    )
    assert [tuple(row) for row in closed] == [
        ("2026-08-01", True),
        ("2026-09-01", True),
        ("2026-10-01", True),
        ("2026-11-01", False),
    ]
    assert json.loads(done.out)["jobs"][0]["months"] == 1
    nanos = "sum(cost_cents::numeric * 10000000 + cost_subcent_nanos)"
    assert await conn.fetchval("SELECT sum(cost_nanos) FROM quota_monthly_totals") == (
        await conn.fetchval(f"SELECT {nanos} FROM quota_usage")
    )


async def test_a_second_tick_leaves_at_once_with_exit_0(dsn: str, conn: Connection) -> None:
    await overdue_holds(conn, 1)
    await conn.execute(
        "UPDATE tick_lease SET owner = 'other:1', fence = 7,"
        " expires_at = clock_timestamp() + interval '1 min'"
    )
    done = await quota_worker(dsn, "tick")
    assert (done.code, done.out) == (0, "")
    assert "another tick is at work" in done.err
    assert await conn.fetchval("SELECT count(*) FROM job_runs") == 0
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 1
    # a dead owner's lease runs out, and its open runs are done again under a higher fence
    await conn.execute("UPDATE tick_lease SET expires_at = clock_timestamp()")
    assert (await quota_worker(dsn, "tick")).code == 0
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 0
    assert await conn.fetchval("SELECT DISTINCT fence FROM job_runs") == 8


async def test_ten_ticks_at_once_do_the_work_once(dsn: str, conn: Connection) -> None:
    await overdue_holds(conn, 20)
    ended = await asyncio.gather(*(quota_worker(dsn, "tick") for _ in range(6)))
    assert {done.code for done in ended} == {0}
    row = await conn.fetchrow(
        "SELECT completions, input_tokens, held_input_tokens FROM quota_usage"
    )
    assert row is not None
    assert tuple(row) == (20, 200, 0)


async def test_a_failing_job_stops_no_other_and_is_due_again(dsn: str, conn: Connection) -> None:
    await overdue_holds(conn, 1)
    await conn.execute("ALTER FUNCTION quota_roll_month RENAME TO quota_roll_month_gone")
    done = await quota_worker(dsn, "tick", "--json")
    assert done.code == 1
    outcomes = {job["job"]: job["outcome"] for job in json.loads(done.out)["jobs"]}
    assert outcomes == {
        "reconcile": "done",
        "soft_warn": "done",
        "watch": "done",
        "roll_month": "failed",
        "roi_report": "done",
        "diagnose": "done",
        "deliver": "done",
        "upkeep": "done",
    }
    error = await conn.fetchval("SELECT error FROM job_runs WHERE job = 'roll_month'")
    assert "quota_roll_month" in error
    assert len(error.splitlines()) == 1
    await conn.execute("ALTER FUNCTION quota_roll_month_gone RENAME TO quota_roll_month")
    assert (await quota_worker(dsn, "tick")).code == 0
    row = await conn.fetchrow(
        "SELECT outcome, attempts, error FROM job_runs WHERE job = 'roll_month'"
    )
    assert row is not None
    assert tuple(row) == ("done", 2, None)


async def test_one_kind_of_reconcile_work_failing_keeps_no_other_back(
    dsn: str, conn: Connection
) -> None:
    await overdue_holds(conn, 2)
    await conn.execute("ALTER FUNCTION quota_book_inbox RENAME TO quota_book_inbox_gone")
    done = await quota_worker(dsn, "run", "reconcile")
    assert done.code == 1
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 0


async def test_an_unreachable_database_is_one_line_and_exit_1() -> None:
    done = await quota_worker(UNREACHABLE, "tick")
    assert (done.code, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1
    assert "POSTGRES_DSN" in done.err
    assert "Traceback" not in done.err


async def test_a_database_that_goes_away_marks_nothing_done(
    dsn: str, conn: Connection, connect: Connect
) -> None:
    await overdue_holds(conn, 5)
    blocker = await connect()
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("LOCK TABLE quota_reservations IN ACCESS EXCLUSIVE MODE")
    process = await start(dsn, "tick")

    async def waits() -> bool:
        found: bool = await conn.fetchval(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'quota-worker'"
            " AND datname = current_database() AND wait_event_type = 'Lock'"
        )
        return found

    await until(waits)
    await conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'quota-worker' AND datname = current_database()"
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    await transaction.rollback()
    assert process.returncode == 1
    assert out == b""
    assert len(err.decode().splitlines()) == 1
    assert await conn.fetchval("SELECT count(*) FROM job_runs WHERE outcome = 'done'") == 0
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 5


async def test_sigterm_finishes_the_batch_and_leaves_the_rest(dsn: str, conn: Connection) -> None:
    await overdue_holds(conn, 6000)
    process = await start(dsn, "tick", "--jobs", "reconcile,roll_month", "--json")

    async def has_begun() -> bool:
        query = "SELECT count(*) > 0 FROM quota_reservations WHERE state = 'expired'"
        found: bool = await conn.fetchval(query)
        return found

    await until(has_begun)
    process.send_signal(signal.SIGTERM)
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    outcomes = {job["job"]: job["outcome"] for job in json.loads(out)["jobs"]}
    assert outcomes == {"reconcile": "unfinished", "roll_month": "unfinished"}
    left = await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'")
    assert 0 < left < 6000
    assert left % BATCH_ROWS == 0
    held = await conn.fetchval("SELECT held_input_tokens FROM quota_usage")
    assert held == left * 10
    # the lease was given back, so the next tick takes up the rest at once
    assert (await quota_worker(dsn, "tick")).code == 0
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 0


async def test_a_locked_tenant_is_left_for_the_next_tick(
    dsn: str, conn: Connection, connect: Connect
) -> None:
    await overdue_holds(conn, 1)
    blocker = await connect()
    async with blocker.transaction():
        await blocker.execute("SELECT quota_reserve('t', 'other', 1, 1, 1)")
        done = await quota_worker(dsn, "run", "reconcile", "--json")
        assert done.code == 0, done.out
    assert (await quota_worker(dsn, "run", "reconcile")).code == 0
    assert (
        await conn.fetchval(
            "SELECT count(*) FROM quota_reservations WHERE request_id = 'r1' AND state = 'expired'"
        )
        == 1
    )


async def test_a_dry_run_changes_nothing(dsn: str, conn: Connection) -> None:
    await overdue_holds(conn, 2)
    await conn.execute(
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens)"
        " VALUES ('t', 'x', 1, 1);"
        "SELECT quota_settle(tenant_id, 'y', 1, 1, NULL, p_model => 'm') FROM tenant_limits LIMIT 1;"
        "SELECT quota_settle(tenant_id, 'z', 1, 1, NULL, p_model => 'n') FROM tenant_limits LIMIT 1;"
        "INSERT INTO quota_prices (origin, model, currency, input, output) VALUES ('file', 'm', 'USD', 1, 1)"
    )
    done = await quota_worker(dsn, "tick", "--dry-run")
    assert done.code == 0
    assert "reconcile   overdue 2, inbox_waiting 1, priceable 1\n" in done.out
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 2
    for table in (
        "job_runs",
        "quota_months",
        "quota_monthly_totals",
        "quota_warn_log",
        "quota_outbox",
    ):
        assert await conn.fetchval(f"SELECT count(*) FROM {table}") == 0
    assert await conn.fetchval("SELECT fence FROM tick_lease") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tick", "--jobs", "reconcile,roll"), "no job is called 'roll': the jobs are reconcile"),
        (("run", "everything"), "no job is called 'everything'"),
        (("tick", "--as-of", "noon"), "--as-of 'noon' is no time"),
    ],
)
async def test_wrong_usage_is_exit_2_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = await quota_worker(UNREACHABLE, *arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1
