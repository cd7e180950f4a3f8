"""Who may do what, hostile search paths, bounded lock waits."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sql.calls import Calls, sqlstate_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import asyncpg

    Connect = Callable[..., Awaitable[asyncpg.Connection[Any]]]

README = Path(__file__).parents[2] / "README.md"
FUNCTIONS = [
    "quota_reserve",
    "quota_settle",
    "quota_release",
    "quota_progress",
    "quota_reserve_batch",
    "quota_settle_batch",
    "quota_check_and_charge",
]
ALL_FUNCTIONS = [*FUNCTIONS, "quota_expire_stale", "quota_topup"]
TABLES = [
    "tenant_limits",
    "quota_usage",
    "quota_reservations",
    "rate_buckets",
    "departments",
    "department_budgets",
    "quota_topups",
    "quota_refusals",
    "quota_settings",
    "v_quota_status",
    "v_department_status",
]


async def as_role(conn: asyncpg.Connection[Any], role: str) -> None:
    await conn.execute(f"SET ROLE {role}")


async def test_the_gateway_calls_every_function_and_reads_nothing(
    calls: Calls, connect: Connect
) -> None:
    await calls.department("d", monthly_tokens=1000)
    await calls.tenant(department_id="d")
    conn = await connect()
    await as_role(conn, "quota_gateway")
    gateway = Calls(conn)
    assert (await gateway.reserve(request_id="r"))["allowed"]
    assert (await gateway.progress(request_id="r", tokens_out=3))["expires_at"]
    assert (await gateway.settle(request_id="r"))["outcome"] == "settled"
    await gateway.reserve(request_id="q")
    assert await gateway.release(request_id="q") == "released"
    assert not (await gateway.reserve("ghost"))["allowed"]
    element = {"tenant": "t", "request_id": "b", "in_tokens": 1, "out_tokens": 1, "cost_nanos": 1}
    assert (await gateway.reserve_batch([element]))[0]["reason"] == "ok"
    assert (await gateway.settle_batch([element]))[0]["outcome"] == "settled"
    assert await gateway.check_and_charge() == (True, "ok")
    for name in TABLES:
        for sql in (f"SELECT * FROM {name}", f"DELETE FROM {name}"):
            state = await sqlstate_of(conn.execute(sql))
            assert state in ("42501", "55000"), f"{sql} gave {state}"


async def test_the_gateway_is_refused_for_want_of_budget_too(
    calls: Calls, connect: Connect
) -> None:
    """A refusal's own bookkeeping runs with the owner's rights."""
    await calls.tenant(daily_completions=0)
    conn = await connect()
    await as_role(conn, "quota_gateway")
    assert (await Calls(conn).reserve())["reason"] == "daily_cap_reached"


async def test_the_reader_reads_views_and_changes_nothing(calls: Calls, connect: Connect) -> None:
    await calls.department("d", monthly_cost_cents=100)
    await calls.tenant(department_id="d")
    await calls.reserve()
    await calls.tenant("full", daily_completions=0)
    await calls.reserve("full")
    conn = await connect()
    await as_role(conn, "quota_reader")
    for view in ("v_quota_usage", "v_quota_status", "v_department_status", "quota_refusals"):
        assert await conn.fetch(f"SELECT * FROM {view}"), view
    assert await sqlstate_of(conn.execute("UPDATE tenant_limits SET daily_completions = 1")) == (
        "42501"
    )
    assert await sqlstate_of(Calls(conn).reserve()) == "42501"


async def test_the_reader_runs_the_queries_for_finance(calls: Calls, connect: Connect) -> None:
    _, _, section = README.read_text(encoding="utf-8").partition("## For finance")
    (query,) = re.findall(r"```sql\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    await calls.conn.execute(
        "INSERT INTO quota_monthly_totals (month, tenant_id, department_id, completions,"
        " input_tokens, output_tokens, cost_nanos)"
        " SELECT quota_month(quota_month(quota_day(now())) - 1), 't', 'd', 1, 2, 3, 4"
    )
    conn = await connect()
    await as_role(conn, "quota_reader")
    (row,) = await conn.fetch(query)
    assert row["department_id"] == "d"
    assert await conn.fetchval("SELECT quota_zone()") == "UTC"
    for table in ("quota_month_parts", "quota_month_days", "quota_month_budgets"):
        assert await conn.fetch(f"SELECT * FROM {table}") == []
    assert await sqlstate_of(conn.execute("SELECT * FROM quota_day_parts")) == "42501"
    assert await sqlstate_of(conn.execute("DELETE FROM quota_monthly_totals")) == "42501"


async def test_the_public_may_execute_nothing(calls: Calls) -> None:
    rows = await calls.rows(
        "SELECT p.proname, coalesce(p.proacl::text, 'default') AS acl FROM pg_proc p"
        " WHERE p.pronamespace = (SELECT relnamespace FROM pg_class"
        "   WHERE oid = 'tenant_limits'::regclass) AND p.proname LIKE 'quota%'"
    )
    assert {row["proname"] for row in rows} >= set(ALL_FUNCTIONS)
    for row in rows:
        assert row["acl"] != "default", f"{row['proname']} may be executed by everyone"
        assert "{=X" not in row["acl"], f"{row['proname']} is granted to PUBLIC: {row['acl']}"
        assert ",=X" not in row["acl"], f"{row['proname']} is granted to PUBLIC: {row['acl']}"


async def test_every_function_fixes_its_search_path_and_bounds_its_waits(calls: Calls) -> None:
    rows = await calls.rows(
        "SELECT proname, coalesce(array_to_string(proconfig, ';'), '') AS config FROM pg_proc"
        " WHERE proname = ANY($1)",
        ALL_FUNCTIONS,
    )
    assert {row["proname"] for row in rows} == set(ALL_FUNCTIONS)
    for row in rows:
        assert "search_path=" in row["config"], row
        assert "synchronous_commit" not in row["config"], row
        assert "fsync" not in row["config"], row


HOSTILE = [
    "CREATE SCHEMA evil",
    "CREATE TABLE evil.tenant_limits (tenant_id text, daily_completions int)",
    (
        "CREATE FUNCTION evil.quota_day(timestamptz) RETURNS date LANGUAGE sql"
        " AS $$ SELECT DATE '1999-01-01' $$"
    ),
    (
        "CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql"
        " AS $$ SELECT TIMESTAMPTZ '1999-01-01Z' $$"
    ),
    "CREATE FUNCTION evil.greatest_(a int) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$",
    "CREATE TEMP TABLE quota_usage (tenant_id text, period date, completions bigint)",
    "CREATE TEMP TABLE tenant_limits (tenant_id text, daily_completions int)",
    "CREATE TEMP TABLE quota_reservations (tenant_id text)",
    "CREATE TEMP TABLE quota_settings (billing_zone text)",
    "INSERT INTO pg_temp.tenant_limits VALUES ('t', NULL)",
    "INSERT INTO pg_temp.quota_settings VALUES ('Pacific/Kiritimati')",
]


@pytest.mark.parametrize("path", ["evil, public, pg_catalog", "pg_temp, evil, public", "public"])
async def test_a_hostile_search_path_changes_nothing(
    calls: Calls, connect: Connect, path: str
) -> None:
    await calls.tenant(daily_completions=1)
    conn = await connect()
    for sql in HOSTILE:
        await conn.execute(sql)
    await conn.execute(f"SET search_path = {path}")
    hostile = Calls(conn)
    for name, allowed in (("r", True), ("q", False)):
        row = await conn.fetchrow(
            "SELECT * FROM public.quota_reserve('t', $1, 1, 1, 1, p_now => $2)", name, calls.now
        )
        assert row is not None
        assert row["allowed"] is allowed
    row = await conn.fetchrow("SELECT * FROM public.quota_settle('t', 'r', 7, 8, 9)")
    assert row is not None
    assert row["outcome"] == "settled"
    answer = await conn.fetchrow("SELECT * FROM public.quota_check_and_charge('t', 1, 1, 0)")
    assert answer is not None
    assert await hostile.conn.fetchval("SELECT count(*) FROM pg_temp.quota_usage") == 0
    assert await calls.figures() == (1, 7, 8, 9)


@pytest.mark.parametrize("function", ["reserve", "settle", "release", "batch", "charge"])
async def test_a_held_lock_is_waited_for_two_seconds(
    calls: Calls, connect: Connect, function: str
) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r")
    calls.now = None
    conn = await connect()
    other = Calls(conn, None)
    element = {"tenant": "t", "request_id": "b", "in_tokens": 1, "out_tokens": 1, "cost_nanos": 1}
    calls_of: dict[str, Callable[[], Awaitable[Any]]] = {
        "reserve": other.reserve,
        "settle": other.settle,
        "release": other.release,
        "batch": lambda: other.reserve_batch([element]),
        "charge": other.check_and_charge,
    }
    call = calls_of[function]
    transaction = calls.conn.transaction()
    await transaction.start()
    await calls.reserve(request_id="holder")
    try:
        started = time.monotonic()
        assert await sqlstate_of(call()) == "55P03"
        assert 1.5 < time.monotonic() - started < 4
    finally:
        await transaction.rollback()
    answer = await call()
    assert answer, "and works again once the lock is gone"


async def test_one_tenants_lock_delays_no_other(calls: Calls, connect: Connect) -> None:
    await calls.tenant("t")
    await calls.tenant("u")
    conn = await connect()
    async with calls.conn.transaction():
        await calls.reserve("t")
        started = time.monotonic()
        assert (await Calls(conn).reserve("u"))["allowed"]
        assert time.monotonic() - started < 1


async def test_a_batch_that_times_out_does_nothing(calls: Calls, connect: Connect) -> None:
    await calls.tenant("t")
    await calls.tenant("u")
    conn = await connect()
    figures = {"in_tokens": 1, "out_tokens": 1, "cost_nanos": 1}
    items = [{"tenant": name, "request_id": "b", **figures} for name in ("u", "t")]
    transaction = calls.conn.transaction()
    await transaction.start()
    await calls.reserve("t", "holder")
    try:
        assert await sqlstate_of(Calls(conn).reserve_batch(items)) == "55P03"
    finally:
        await transaction.rollback()
    assert await calls.rows("SELECT * FROM quota_reservations") == []
    assert await calls.figures("u") == (0, 0, 0, 0)


async def test_no_triggers_and_the_tenant_or_department_in_every_key(calls: Calls) -> None:
    tables = ["tenant_limits", "quota_usage", "rate_buckets", "departments", "department_budgets"]
    tables += ["quota_topups", "quota_reservations"]
    triggers = await calls.rows(
        "SELECT tgrelid::regclass::text AS name FROM pg_trigger WHERE NOT tgisinternal"
        " AND tgrelid::regclass::text = ANY($1)",
        tables,
    )
    assert triggers == []
    keys = await calls.rows(
        "SELECT i.indexrelid::regclass::text AS name, array_agg(a.attname::text) AS columns,"
        " c.relpersistence::text AS kind"
        " FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
        " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey::int2[])"
        " WHERE i.indisunique AND i.indrelid::regclass::text = ANY($1) GROUP BY 1, 3",
        tables,
    )
    assert keys
    for key in keys:
        assert {"tenant_id", "department_id"} & set(key["columns"]), key
        assert key["kind"] == "p", f"{key['name']} is not logged"
