"""A database made by the tutorial is taken over in place, and its programs go on."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from worker.assets import Assets
from worker.postgres.migrate import print_script

from scripts import TUTORIAL, catalog, migrate, run_sql, value

OLD_COLUMNS = {
    "rate_buckets": "tenant_id, tokens, capacity, refill_rate, last_refill_at",
    "quota_usage": "tenant_id, period, completions, input_tokens, output_tokens, cost_cents",
    "tenant_limits": (
        "tenant_id, daily_completions, daily_input_tokens, daily_output_tokens, daily_cost_cents, "
        "monthly_cost_cents, bucket_capacity, bucket_refill_per_sec, soft_warn_pct"
    ),
}


async def old_rows(dsn: str) -> dict[str, list]:
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    rows = {
        table: await connection.fetch(f"SELECT {columns} FROM {table} ORDER BY 1, 2")
        for table, columns in OLD_COLUMNS.items()
    }
    await connection.close()
    return rows


@pytest.fixture
async def tutorial(new_database) -> str:
    dsn = await new_database()
    await run_sql(dsn, TUTORIAL)
    return dsn


async def test_every_row_stays(tutorial: str) -> None:
    before = await old_rows(tutorial)
    await migrate(tutorial)
    assert await old_rows(tutorial) == before
    await migrate(tutorial)
    assert await old_rows(tutorial) == before


async def test_a_fresh_schema_equals_a_taken_over_one(tutorial: str, new_database) -> None:
    fresh = await new_database()
    await migrate(fresh)
    await migrate(tutorial)
    assert catalog(tutorial, "--no-privileges") == catalog(fresh, "--no-privileges")


async def test_odd_limits_are_named_not_refused(tutorial: str) -> None:
    result = await migrate(tutorial)
    assert set(result.warnings) == {
        "odd limit kept: tenant tenant-odd: daily_completions is -3",
        "odd limit kept: tenant tenant-odd: soft_warn_pct is 500",
    }


async def test_many_odd_limits_are_counted(tutorial: str) -> None:
    await run_sql(
        tutorial,
        "INSERT INTO tenant_limits (tenant_id, bucket_capacity) "
        "SELECT E'odd\\n' || n, 'NaN' FROM generate_series(1, 50) n",
    )
    warnings = (await migrate(tutorial)).warnings
    assert len(warnings) == 21
    assert warnings[-1] == "odd limits kept: 32 more like these"
    assert not any("\n" in warning for warning in warnings)


async def test_the_tutorials_function_keeps_its_grants_and_ours_are_closed(tutorial: str) -> None:
    for _ in range(2):
        await migrate(tutorial)
        open_to_all = await value(
            tutorial,
            "SELECT array_agg(DISTINCT p.proname::text) FROM pg_proc p, "
            "aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a "
            "WHERE p.pronamespace = 'public'::regnamespace AND a.grantee = 0",
        )
        assert open_to_all == ["quota_check_and_charge"]


async def test_a_grant_that_was_taken_away_stays_away(tutorial: str) -> None:
    await run_sql(
        tutorial,
        "REVOKE ALL ON FUNCTION quota_check_and_charge(text, bigint, bigint, bigint) FROM PUBLIC",
    )
    for _ in range(2):
        await migrate(tutorial)
        everybody = await value(
            tutorial,
            "SELECT count(*) FROM pg_proc p, "
            "aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a "
            "WHERE p.proname = 'quota_check_and_charge' AND a.grantee = 0",
        )
        assert everybody == 0


async def test_the_tutorials_programs_go_on(tutorial: str) -> None:
    await migrate(tutorial)
    connection = await asyncpg.connect(tutorial, statement_cache_size=0)
    answer = await connection.fetchrow(
        "SELECT * FROM quota_check_and_charge('tenant-pro', 1000, 200, 3)"
    )
    assert dict(answer) == {"allowed": True, "reason": "ok"}
    today = await connection.fetchval("SELECT quota_day(now())")
    await connection.execute(
        "UPDATE quota_usage SET input_tokens = input_tokens + 5, "
        "output_tokens = output_tokens + 7, cost_cents = cost_cents + 4590 "
        "WHERE tenant_id = 'tenant-pro' AND period = $1",
        today,
    )
    status = await connection.fetchrow(
        "SELECT * FROM v_quota_status WHERE tenant_id = 'tenant-pro'"
    )
    assert list(status.keys())[:8] == [
        "tenant_id",
        "period",
        "completions_used",
        "completions_cap",
        "completions_pct",
        "cost_used_cents",
        "cost_cap_cents",
        "cost_pct",
    ]
    assert (status["cost_used_cents"], status["cost_cap_cents"]) == (5003, 5000)
    # The direct UPDATE binds at once.
    answer = await connection.fetchrow(
        "SELECT * FROM quota_check_and_charge('tenant-pro', 1, 1, 1)"
    )
    assert dict(answer) == {"allowed": False, "reason": "daily_cost_reached"}
    # A correction that goes below zero is the tutorial's own habit.
    await connection.execute(
        "UPDATE quota_usage SET input_tokens = input_tokens - 1000000 WHERE tenant_id = 'tenant-pro'"
    )
    await connection.close()


async def test_migrates_under_a_live_gateway(tutorial: str) -> None:
    """Every call of the tutorial's gateway passes while two migrations run."""
    stop = asyncio.Event()
    calls = 0

    async def gateway() -> None:
        nonlocal calls
        connection = await asyncpg.connect(tutorial, statement_cache_size=0)
        while not stop.is_set():
            await connection.fetchrow("SELECT * FROM quota_check_and_charge('tenant-pro', 1, 1, 0)")
            await connection.fetch("SELECT * FROM v_quota_status")
            calls += 1
        await connection.close()

    gateways = [asyncio.create_task(gateway()) for _ in range(3)]
    await asyncio.sleep(0.05)
    await asyncio.gather(migrate(tutorial), migrate(tutorial))
    await asyncio.sleep(0.05)
    stop.set()
    await asyncio.gather(*gateways)
    assert calls > 10


async def test_a_big_table_is_not_rewritten(tutorial: str) -> None:
    """A rewrite would lock it for minutes: its file must stay the same."""
    sql = (
        "SELECT array_agg(pg_relation_filenode(oid) ORDER BY relname) FROM pg_class "
        "WHERE relname IN ('tenant_limits', 'quota_usage', 'rate_buckets')"
    )
    before = await value(tutorial, sql)
    await migrate(tutorial)
    assert await value(tutorial, sql) == before


async def test_printed_script_takes_over_too(tutorial: str, new_database) -> None:
    from scripts import psql

    done = psql(tutorial, print_script(Assets()))
    assert done.returncode == 0
    assert "ERROR" not in done.stderr
    assert "tenant-odd" in done.stderr
    other = await new_database()
    await run_sql(other, TUTORIAL)
    await migrate(other)
    assert catalog(tutorial) == catalog(other)
