"""The audit beside other programs: direct writes, closed months, live traffic, random operations."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sql.auditing import (
    CENT,
    DAY,
    MAY,
    RIGHT,
    TODAY,
    assert_mended,
    audit,
    make_busy,
    plant,
    repair,
)
from sql.calls import NOON, Calls
from sql.machine import LedgerMachine

if TYPE_CHECKING:
    from conftest import Connect

HUGE = 10**12

# ---------------------------------------------------------------- direct writes


async def test_direct_writes_of_a_tenant_with_legacy_charges_are_kept(calls: Calls) -> None:
    calls.now = None
    await calls.department("d", monthly_tokens=10**6)
    await calls.tenant(department_id="d")
    await calls.reserve(request_id="r", amounts=(10, 5, 100))
    assert (await calls.check_and_charge("t", 100, 50, 3))[0]
    day = await calls.conn.fetchval("SELECT quota_day(clock_timestamp())")
    month = day.replace(day=1)
    assert await audit(calls) == []
    await plant(calls, "input_tokens = input_tokens + 33, cost_cents = cost_cents + 1", day)
    found = await audit(calls)
    assert [(r["kind"], r["dimension"], r["found"] - r["expected"]) for r in found] == [
        ("direct_write", "cost_nanos", CENT),
        ("direct_write", "input_tokens", 33),
    ]
    assert "the mend keeps it as a legacy charge" in found[0]["cause"]
    mends = await assert_mended(calls)
    assert [m["mended"] for m in mends] == [m["found"] for m in mends]
    assert await calls.figures(day=day) == (2, 143, 55, 4 * CENT + 100)
    used = await calls.department_used("d", "production", month)
    assert (used["tokens_used"], used["tokens_held"]) == (198, 15)
    assert used["cost_used_nanos"] == 4 * CENT + 100
    assert await calls.conn.fetchval("SELECT quota_book_legacy(1000)") == 0


async def test_a_direct_write_is_taken_back_where_all_charges_come_from_requests(
    calls: Calls,
) -> None:
    await make_busy(calls)
    await plant(calls, "output_tokens = output_tokens + 1000, cost_cents = cost_cents + 77")
    found = await audit(calls)
    assert {r["kind"] for r in found} == {"direct_write"}
    assert all("the mend takes it back" in r["cause"] for r in found)
    await assert_mended(calls)
    assert await calls.figures() == RIGHT


async def test_rows_of_the_tutorials_programs_are_kept(calls: Calls) -> None:
    """An old database whose rows no reconcile has folded in yet, its gateway already ours."""
    await calls.tenant()
    await calls.tenant("quiet")
    for name in ("t", "quiet"):
        for day in (TODAY - 3 * DAY, TODAY):
            await calls.conn.execute(
                "INSERT INTO quota_usage (tenant_id, period, completions, input_tokens,"
                " output_tokens, cost_cents) VALUES ($1, $2, 9, 900, 90, 12)",
                name,
                day,
            )
    await calls.reserve(request_id="r")
    assert {r["kind"] for r in await audit(calls)} == {"direct_write"}
    await assert_mended(calls)
    assert await calls.figures() == (10, 910, 95, 12 * CENT + 100)
    assert await calls.figures("quiet", TODAY - 3 * DAY) == (9, 900, 90, 12 * CENT)


async def test_legacy_charges_moves_and_corrections_are_no_drift(calls: Calls) -> None:
    for name in ("d", "e"):
        await calls.department(name, monthly_tokens=10**6)
    await calls.tenant(department_id="d")
    await calls.reserve(request_id="a", amounts=(50, 50, 5 * CENT))
    await plant(calls, "input_tokens = input_tokens - 30, cost_cents = cost_cents + 2")
    await calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)
    await calls.change(department_id="e")
    await calls.reserve(request_id="b", amounts=(7, 7, 7))
    # lowered below what is to go back: what can't be given back is kept as a legacy charge
    await calls.settle(request_id="a", amounts=(0, 0, 0))
    await calls.release(request_id="b")
    await calls.settle(request_id="c", amounts=(1, 2, 3))
    await calls.settle(request_id="b", amounts=(4, 5, 6))
    await calls.conn.execute("DELETE FROM tenant_limits")
    await calls.settle(request_id="b", amounts=(5, 5, 5), usage_id="u2")
    assert await audit(calls) == []
    assert await repair(calls) == []


async def test_an_old_databases_departments_begin_with_their_legacy_charges(
    calls: Calls, connect: Connect
) -> None:
    """The migration's own arithmetic, run once more over slots that lack the columns."""
    from worker.assets import Assets

    await calls.department("d", monthly_tokens=10**6)
    await calls.tenant(department_id="d")
    await calls.reserve(request_id="a", amounts=(50, 50, 5))
    await plant(calls, "input_tokens = input_tokens + 1000")
    await calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON)
    await calls.conn.execute(
        "ALTER TABLE quota_department_slots DROP COLUMN legacy_tokens,"
        " DROP COLUMN legacy_cost_nanos; DROP TABLE quota_repairs CASCADE"
    )
    again = await connect()
    text = Assets().read("sql/migrations/0007_audit.sql")
    body = text[: text.index("-- A parameter more")]
    async with again.transaction():
        await again.execute(body)
    legacy = await again.fetchval("SELECT sum(legacy_tokens)::bigint FROM quota_department_slots")
    assert legacy == 1000
    assert await audit(Calls(again)) == []


async def test_big_counters(calls: Calls) -> None:
    """Amounts at the contract's limits, a counter near its end, caps of any bigint."""
    await calls.department("d", monthly_tokens=2**63 - 1, monthly_cost_cents=2**63 - 1)
    await calls.tenant(department_id="d", monthly_cost_cents=2**63 - 1)
    for number in range(3):
        await calls.reserve(request_id=f"r{number}", amounts=(HUGE, HUGE, 10**15))
    await calls.settle(request_id="r0", amounts=(HUGE, 0, 10**15))
    assert await audit(calls) == []
    for value in (2**63 - 1, -(2**63)):
        await plant(calls, f"input_tokens = {value}, cost_cents = {value}")
        (cost, tokens) = await audit(calls)
        assert (tokens["found"], tokens["dimension"]) in {
            (value - 2 * HUGE, "input_tokens"),
            (value, "input_tokens"),
        }
        assert cost["dimension"] == "cost_nanos"
        await assert_mended(calls)
        assert await calls.figures() == (3, 3 * HUGE, 2 * HUGE, 3 * 10**15)
    # folded in as far as a counter goes: the department's month stays explained
    await plant(calls, f"input_tokens = {2**63 - 1}")
    while await calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", NOON):
        pass
    assert await audit(calls) == []


# ---------------------------------------------------------------- months, remarks, bounds


async def test_a_closed_months_difference_becomes_an_adjustment(calls: Calls) -> None:
    await calls.department("d", monthly_tokens=10**6)
    await calls.tenant(department_id="d")
    april = date(2026, 4, 1)
    before = NOON - 30 * DAY
    await calls.reserve(request_id="a", amounts=(10, 5, 100), now=before)
    await calls.settle(request_id="a", amounts=(10, 5, 100), now=before)
    row = await calls.row("SELECT * FROM quota_roll_month($1, $2)", april, NOON)
    assert row["closed"]
    await calls.settle(request_id="a", amounts=(12, 6, 130), usage_id="late")
    assert await audit(calls, april) == []
    assert await calls.conn.fetchval("SELECT quota_book_adjustments($1)", NOON) == 1
    assert await audit(calls, april) == []
    # a day and its note are changed behind the ledger's back
    day = before.date()
    await plant(
        calls, "input_tokens = input_tokens + 4, booked_input_tokens = booked_input_tokens + 4", day
    )
    assert [(r["kind"], r["dimension"], r["found"] - r["expected"]) for r in await audit(calls, april)] == [
        ("closed", "input_tokens", -4),
        ("posted", "input_tokens", 4),
    ]  # fmt: skip
    await assert_mended(calls, april)
    assert await calls.figures(day=day) == (1, 12, 6, 130)
    # an adjustment is lost: the frozen totals stay, and the month is made whole again
    await calls.conn.execute("DELETE FROM quota_adjustments")
    found = await audit(calls, april)
    assert {(r["kind"], r["dimension"]) for r in found} == {
        ("closed", "input_tokens"),
        ("closed", "output_tokens"),
        ("closed", "cost_nanos"),
    }
    await assert_mended(calls, april)
    await calls.conn.fetchval("SELECT quota_book_adjustments($1)", NOON)
    await calls.row("SELECT * FROM quota_roll_month($1, $2)", MAY, NOON)
    totals = await calls.rows(
        "SELECT sum(input_tokens) AS i, sum(cost_nanos) AS n FROM quota_monthly_totals"
        " WHERE belongs_to = $1",
        april,
    )
    assert (totals[0]["i"], totals[0]["n"]) == (12, 130)
    # a direct write of a legacy program, kept: it is an adjustment, too
    await calls.conn.execute(
        "UPDATE quota_usage SET legacy_completions = 1, completions = 2, booked_completions = 2"
    )
    await calls.conn.execute("SELECT quota_audit_repair($1, 1000, $2)", april, NOON)
    assert await audit(calls, april) == []


async def test_what_is_to_be_looked_at_is_no_drift(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="over", now=NOON - timedelta(hours=2))
    await calls.reserve(request_id="still")
    await calls.settle(request_id="p", amounts=(5, 5, None), model="odd-one")
    await calls.reserve(request_id="m")
    await calls.settle(request_id="m", amounts=(None, None, None))
    await calls.conn.execute(
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens, cost_nanos,"
        " received_at) VALUES ('nobody', 'q', 1, 1, 1, $1)",
        NOON,
    )
    await calls.conn.execute("SELECT quota_book_inbox(100, $1)", NOON)
    await calls.conn.execute(
        "INSERT INTO quota_source_faults (tenant_id, request_id, source, reason, excerpt,"
        " first_seen_at, seen_at) VALUES ('t', 'm', 'litellm', 'no JSON', '<html>', $1, $1)",
        NOON,
    )
    assert await audit(calls) == []
    rows = {r["kind"]: r for r in await audit(calls, severity="remark")}
    assert {k: (r["tenant_id"], r["found"], r["request_id"]) for k, r in rows.items()} == {
        "overdue": ("t", 1, "over"),
        "unpriced": ("t", 1, "p"),
        "usage_missing": ("t", 1, "m"),
        "inbox": ("nobody", 1, "q"),
        "source": ("t", 1, "m"),
    }
    assert "odd-one" in rows["unpriced"]["cause"]
    assert "since 2026-05-15 10:10" in rows["overdue"]["cause"]


async def test_only_so_many_tenants_are_mended_at_once_the_worst_first(calls: Calls) -> None:
    for name in ("a", "b", "c"):
        await calls.tenant(name)
        await calls.reserve(name, "r")
    await calls.conn.execute(
        "UPDATE quota_usage SET held_input_tokens = CASE tenant_id WHEN 'b' THEN 99 ELSE 11 END"
    )
    await calls.conn.execute("SET ROLE quota_worker")  # whose rights are enough
    assert [m["tenant_id"] for m in await repair(calls, limit=1)] == ["b"]
    assert [r["tenant_id"] for r in await audit(calls)] == ["a", "c"]
    await assert_mended(calls)
    for limit in (0, 1001):
        with pytest.raises(asyncpg.PostgresError) as raised:
            await repair(calls, limit=limit)
        assert raised.value.sqlstate == "QW002"


async def test_a_month_that_cannot_be_audited(calls: Calls) -> None:
    for month in (date(2026, 6, 1), date(2026, 5, 2)):
        for work in (audit, repair):
            with pytest.raises(asyncpg.PostgresError) as raised:
                await work(calls, month)
            assert raised.value.sqlstate == "QW002"


# ---------------------------------------------------------------- beside traffic, at random


async def gateway(conn: asyncpg.Connection[Any], seed: int, done: asyncio.Event) -> int:
    """Reserves, settles, corrects and releases without a pause; returns how many calls."""
    calls, rng, ids, count = Calls(conn, None), random.Random(seed), [], 0  # noqa: S311
    while not done.is_set():
        tenant = rng.choice("abc")
        ids.append((tenant, f"{seed}-{count}"))
        await calls.reserve(*ids[-1], (rng.randrange(90), rng.randrange(90), rng.randrange(CENT)))
        tenant, request = rng.choice(ids)
        if rng.random() < 0.3:
            await calls.release(tenant, request)
        else:
            await calls.settle(tenant, request, (rng.randrange(90), 5, rng.randrange(CENT)))
        if rng.random() < 0.2:
            await calls.check_and_charge(tenant)
        count += 1
    return count


async def test_traffic_is_no_drift_and_a_repair_beside_it_is_exact(
    calls: Calls, connect: Connect
) -> None:
    calls.now = None
    await calls.department("d", monthly_tokens=10**9)
    for name in "abc":
        await calls.tenant(name, department_id="d")
    done = asyncio.Event()
    others = [asyncio.create_task(gateway(await connect(), n, done)) for n in range(3)]
    for number in range(40):
        if number % 10 == 5:
            # each in a transaction of its own: held together they could deadlock with a gateway
            await calls.conn.execute(
                "UPDATE quota_usage SET held_output_tokens = held_output_tokens + 12345"
                " WHERE tenant_id = 'b'"
            )
            await calls.conn.execute(
                "UPDATE quota_department_slots SET tokens_used = tokens_used + 777 WHERE slot = 1"
            )
            found = await audit(calls)
            assert {(r["kind"], r["found"] - r["expected"]) for r in found} == {
                ("held", 12345),
                ("department", 777),
            }
            assert len(await repair(calls)) == 2
        assert await audit(calls) == []
    done.set()
    assert min(await asyncio.gather(*others)) > 0
    assert await audit(calls) == []


class AuditedMachine(LedgerMachine):
    """Random operations; at the end the audit is clean, and so it is after any damage's repair."""

    def the_tables_agree(self) -> None:
        """The other machine's work."""

    def teardown(self) -> None:
        if self.ready:
            self.wait(self.close_books())

    async def close_books(self) -> None:
        await self.calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", self.now)
        self.calls.now = max(self.now, datetime.now(UTC))
        months = [
            row["month"]
            for row in await self.calls.rows(
                "SELECT DISTINCT quota_month(period) AS month FROM quota_usage ORDER BY 1"
            )
            if row["month"] <= self.calls.now.date()
        ]
        for month in months:
            assert await audit(self.calls, month) == []
        await self.calls.conn.execute(
            "UPDATE quota_usage SET held_cost_nanos = held_cost_nanos + 1,"
            " booked_input_tokens = booked_input_tokens - 2, completions = completions + 1"
            " WHERE date_part('day', period)::int % 2 = 0"
        )
        for month in months:
            await assert_mended(self.calls, month)


def test_random_operations_leave_nothing_for_the_audit(dsn: str) -> None:
    profile = settings(
        max_examples=8,
        stateful_step_count=30,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    loop = asyncio.new_event_loop()
    try:
        conn = loop.run_until_complete(asyncpg.connect(dsn, statement_cache_size=500))
        machine = type("Machine", (AuditedMachine,), {"conn": conn, "loop": loop})
        run_state_machine_as_test(machine, settings=profile)
        loop.run_until_complete(conn.close())
    finally:
        loop.close()
