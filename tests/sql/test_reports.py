"""What a month's report is computed from, against what the test itself put into the ledger."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from worker.assets import Assets
from worker.errors import UnknownNameError, UsageError
from worker.postgres.pool import open_pool
from worker.postgres.queries import load_queries
from worker.postgres.roi import OF_ALL, PostgresRoi
from worker.roi.figures import Reason

from sql.calls import Calls, at
from sql.rolling import roll, tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Connection = asyncpg.Connection[asyncpg.Record]

SEPTEMBER, OCTOBER, NOVEMBER = (date(2026, month, 1) for month in (9, 10, 11))
UNIT = 10**9
BEGUN = "2026-10-10T00:00:00"
CLOSES = "2026-11-04T00:00:00"


async def spend(calls: Calls, name: str, day: str, nanos: int, **labels: Any) -> None:
    """A request of 600 input and 400 output tokens at noon of the day."""
    request = f"{name} {day} {nanos}"
    row = await calls.reserve(name, request, (600, 400, nanos), now=at(f"{day}T12:00:00"), **labels)
    assert row["allowed"], row
    await calls.settle(name, request, (600, 400, nanos), cached=100, now=at(f"{day}T12:00:01"))


async def outcome(conn: Connection, month: date, department: str, metric: str, value: str) -> None:
    """As an import of one value does."""
    import_id = await conn.fetchval(
        "INSERT INTO quota_outcome_imports (file_name, file_sha256, rows) VALUES ('f', '', 1)"
        " RETURNING import_id"
    )
    await conn.execute(
        "UPDATE quota_outcomes SET superseded_by = $4 WHERE (month, department_id, metric) = ($1, $2, $3)"
        " AND superseded_by IS NULL",
        *(month, department, metric, import_id),
    )
    await conn.execute(
        "INSERT INTO quota_outcomes (month, department_id, metric, value, import_id)"
        " VALUES ($1, $2, $3, $4, $5)",
        *(month, department, metric, Decimal(value), import_id),
    )


async def write_october(conn: Connection) -> Calls:
    """Sales and ops in September and October, a tenant without a department; rolled, open."""
    await conn.execute("UPDATE quota_settings SET currency = 'CNY', locale = 'zh-CN'")
    await conn.execute(
        "INSERT INTO departments (department_id, name, locale, owner_emails, finance_emails) VALUES"
        " ('sales', 'Sales', 'en', '{Boss@example.com}', '{money@example.com,boss@example.com}'),"
        " ('ops', NULL, NULL, '{ops@example.com}', '{}')"
    )
    await conn.execute(
        "INSERT INTO department_budgets (department_id, monthly_cost_cents) VALUES ('sales', 10000)"
    )
    calls = Calls(conn)
    for name, department in (("shop", "sales"), ("line", "ops"), ("lone", None)):
        await tenant(calls, name, department)
    await spend(calls, "shop", "2026-09-05", 10 * UNIT, model="large", app="chat")
    await spend(calls, "shop", "2026-10-05", 30 * UNIT, model="large", app="chat")
    await spend(calls, "shop", "2026-10-06", 10 * UNIT, model="small", app="search")
    await spend(calls, "line", "2026-10-06", 7 * UNIT + 1, model="small", app="bot")
    await spend(calls, "lone", "2026-10-07", 3, model="small")
    for month, department, metric, value in (
        (SEPTEMBER, "sales", "orders", "5"),
        (OCTOBER, "sales", "orders", "80"),
        (OCTOBER, "ops", "orders", "0.5"),
        (OCTOBER, "ops", "tickets", "7"),
    ):
        await outcome(conn, month, department, metric, value)
    await roll(conn, at(BEGUN))
    return calls


@pytest.fixture
async def roi(dsn: str) -> AsyncIterator[PostgresRoi]:
    pool = await open_pool(dsn)
    yield PostgresRoi(pool, load_queries(Assets(), "roi"))
    await pool.close()


async def test_a_report_is_of_what_the_ledger_and_the_outcomes_have(
    conn: Connection, roi: PostgresRoi
) -> None:
    calls = await write_october(conn)
    async with roi.reading(OCTOBER) as reading:
        sales, of_all = await reading.summary("sales"), await reading.summary(OF_ALL)
        assert [reading.locale(one) for one in ("sales", "ops", OF_ALL)] == ["en", "zh-CN", "zh-CN"]
        with pytest.raises(UnknownNameError, match="no department is called 'sale'"):
            await reading.summary("sale")
    assert sales.department is not None
    assert (sales.department.name, sales.provisional, sales.currency) == ("Sales", True, "CNY")
    own = sales.ledger.total
    assert (own.completions, own.tokens, own.cached_in_tokens, own.cost_nanos) == (
        *(2, 2000, 200),
        40 * UNIT,
    )
    (orders, gmv, tickets) = sales.metrics
    assert (orders.metric, orders.now.cost_per_one.value) == ("orders", 40 * UNIT / 80)
    assert (orders.before.cost_per_one.value, orders.change.cost_per_one.value) == (2 * UNIT, -0.75)
    assert (gmv.now.value.reason, tickets.metric) == (Reason.NO_OUTCOMES, "tickets")
    assert sales.changes.cost.value == 3
    assert [(one.month, one.own is None) for one in sales.trend] == [
        *((date(2026, month, 1), True) for month in (5, 6, 7, 8)),
        *((SEPTEMBER, False), (OCTOBER, False)),
    ]
    (use,) = [one for one in sales.budgets if one.environment == "production"]
    assert (use.cost_allowed_nanos, use.cost_share.value) == (100 * UNIT, Fraction(2, 5))
    assert {one.key: one.amounts.cost_nanos for one in sales.splits.apps.lines} == {
        "chat": 30 * UNIT,
        "search": 10 * UNIT,
    }
    assert [one.cost_nanos for one in sales.curves[0].points][4:6] == [30 * UNIT, 10 * UNIT]
    (standing,) = [one for one in sales.standings if one.measure == "orders"]
    assert (standing.rank, standing.of) == (1, 2)

    assert of_all.department is None
    assert of_all.ledger.total.cost_nanos == 47 * UNIT + 4
    assert [one.amounts.cost_nanos for one in of_all.ledger.lines] == [47 * UNIT + 1, 3]
    assert of_all.outcomes == {"orders": Decimal("80.5"), "tickets": Decimal(7)}
    assert of_all.splits.departments is not None
    assert [one.name for one in of_all.splits.departments.lines] == ["Sales", "ops", ""]
    assert of_all.changes.before is not None
    assert of_all.changes.before.cost_nanos == 10 * UNIT

    # What comes for October after its closing is a line of November, and October stays.
    await roll(conn, at(CLOSES))
    await calls.settle(
        "shop", f"shop 2026-10-05 {30 * UNIT}", (600, 500, 31 * UNIT), now=at(CLOSES)
    )
    await roll(conn, at(CLOSES))
    async with roi.reading(OCTOBER) as reading:
        closed = await reading.summary("sales")
    assert (closed.provisional, closed.ledger, closed.splits) == (False, sales.ledger, sales.splits)
    async with roi.reading(NOVEMBER) as reading:
        later = await reading.summary("sales")
    assert [(one.belongs_to, one.amounts.cost_nanos) for one in later.ledger.lines] == [
        (NOVEMBER, 0),
        (OCTOBER, UNIT),
    ]
    assert later.ledger.total.tokens == 100

    # Closed by a version that had no parts: the totals, without models and apps.
    await conn.execute("DELETE FROM quota_month_parts WHERE month = $1", OCTOBER)
    async with roi.reading(OCTOBER) as reading:
        old = await reading.summary(OF_ALL)
    assert old.ledger.total.cost_nanos == of_all.ledger.total.cost_nanos
    for month, words in ((date(2026, 6, 1), "no totals of 2026-06"), (date(2199, 1, 1), "begun")):
        with pytest.raises(UsageError, match=words):
            async with roi.reading(month):
                pass
