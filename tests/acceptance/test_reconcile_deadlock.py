"""What PostgreSQL picks as a deadlock's victim: a batch is tried again, a roll is left to the next tick."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from acceptance.program import PROCESS_SECONDS, quota_worker, start, until

if TYPE_CHECKING:
    import asyncpg

    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]

TENANT_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('t', 1))"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'quota-worker' AND wait_event_type = 'Lock'"


async def test_a_deadlocks_victim_is_tried_again(
    dsn: str, conn: Connection, connect: Connect
) -> None:
    await conn.execute("INSERT INTO tenant_limits (tenant_id, bucket_capacity) VALUES ('t', 100)")
    await conn.execute(
        "SELECT quota_reserve('t', 'r' || n, 10, 5, 7, p_now => clock_timestamp() - interval '2 h')"
        " FROM generate_series(1, 20) AS n"
    )
    before = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    deadlocks = await conn.fetchval(before)
    # rows first and the tenant then: the other way round than all of ours
    blocker = await connect(server_settings={"deadlock_timeout": "1min"})
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("SELECT FROM quota_reservations WHERE request_id = 'r9' FOR UPDATE")
    process = await start(dsn, "run", "reconcile", "--json")

    async def waits() -> bool:
        return bool(await conn.fetchval(WAITING))

    await until(waits)
    # granted when the worker's batch is given up
    await blocker.execute(TENANT_LOCK, timeout=PROCESS_SECONDS)
    await transaction.rollback()
    out, errors = await asyncio.wait_for(process.communicate(), PROCESS_SECONDS)
    assert process.returncode == 0, errors.decode()
    (job,) = json.loads(out)["jobs"]
    assert (job["outcome"], job["expired_estimate"], job["error"]) == ("done", 20, None)

    async def counted() -> bool:
        await conn.execute("SELECT pg_stat_clear_snapshot()")
        return bool(await conn.fetchval(before) == deadlocks + 1)

    await until(counted)


async def test_a_roll_that_lost_a_deadlock_is_left_to_the_next_tick(
    dsn: str, conn: Connection
) -> None:
    """The refusal comes from a trigger: two rolls of one month take turns, and never meet in a ring."""
    await conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, completions) VALUES ('t', CURRENT_DATE, 1);"
        "CREATE FUNCTION victim() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01', MESSAGE = 'deadlock detected'; END $$;"
        "CREATE TRIGGER victim BEFORE INSERT ON quota_monthly_totals"
        " FOR EACH ROW EXECUTE FUNCTION victim()"
    )
    done = await quota_worker(dsn, "run", "roll_month", "--json")
    (job,) = json.loads(done.out)["jobs"]
    assert (done.code, job["outcome"], job["months"]) == (0, "unfinished", 0)
    await conn.execute("DROP TRIGGER victim ON quota_monthly_totals")
    done = await quota_worker(dsn, "run", "roll_month", "--json")
    (job,) = json.loads(done.out)["jobs"]
    assert (done.code, job["outcome"], job["months"]) == (0, "done", 1)
