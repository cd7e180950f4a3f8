"""What a month's report is computed from, against what the test itself put into the ledger."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import asyncpg
import pytest

from worker.assets import Assets
from worker.clock import monotonic_seconds
from worker.errors import InvalidInputError, UnknownNameError, UsageError
from worker.jobs import roi_report
from worker.jobs.context import Deadline, JobContext, JobPorts
from worker.postgres.outbox import OutboxRules, PostgresOutbox
from worker.postgres.pool import open_pool
from worker.postgres.queries import load_queries
from worker.postgres.roi import OF_ALL, PostgresRoi
from worker.postgres.roi_reports import PostgresRoiReports
from worker.report.json_file import load_summary
from worker.roi.figures import Reason
from worker.settings import ReportSettings

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
async def pool(dsn: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await open_pool(dsn)
    yield pool
    await pool.close()


async def test_a_report_is_of_what_the_ledger_and_the_outcomes_have(
    conn: Connection, pool: asyncpg.Pool
) -> None:
    calls = await write_october(conn)
    roi = PostgresRoi(pool, load_queries(Assets(), "roi"))
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
    for month, words in (
        (date(2026, 6, 1), "no totals of 2026-06: quota-worker run roll_month"),
        (date(2199, 1, 1), "begun"),
    ):
        with pytest.raises(UsageError, match=words):
            async with roi.reading(month):
                pass


class World:
    """Reports of a database, as the job builds them; ``beside`` has connections of its own."""

    def __init__(self, pool: asyncpg.Pool, **changes: Any) -> None:
        queries = load_queries(Assets(), "roi")
        settings = ReportSettings(**({"channel": "mail", "to": ("cfo@example.com",)} | changes))
        self.reports = PostgresRoiReports(pool, queries, PostgresRoi(pool, queries), settings)

    async def job(self, now: str) -> roi_report.ReportCounts:
        """One run of the job."""
        deadline = Deadline(600.0, monotonic_seconds)
        none = cast("dict[str, Any]", dict.fromkeys(JobPorts._fields))
        ports = JobPorts(**(none | {"reports": self.reports}))
        return await roi_report.run(JobContext(at(now), deadline, False, ports))

    async def run(self, now: str) -> tuple[int, int]:
        """One run without a fault: revisions made, mails queued."""
        counts = await self.job(now)
        assert (counts.failed, counts.leftover) == (0, False)
        return counts.built, counts.messages


async def test_a_closed_month_is_told_once_and_again_where_it_changed(
    dsn: str, conn: Connection, pool: asyncpg.Pool
) -> None:
    calls = await write_october(conn)
    # October is open; September closed on October 10
    assert await World(pool, day=11).run("2026-10-10T23:59:59") == (0, 0)
    assert await World(pool, day=11).run("2026-10-11T00:00:00") == (2, 3)
    assert await World(pool).run("2026-10-12T00:00:00") == (0, 0)

    # Caught up once after weeks, by four at a time.
    await roll(conn, at(CLOSES))
    world = World(pool)
    pools = [await open_pool(dsn) for _ in range(4)]  # as of four processes
    runs = await asyncio.gather(*(World(one).run("2026-11-25T10:00:00") for one in pools))
    for one in pools:
        await one.close()
    assert [sum(counts) for counts in zip(*runs, strict=True)] == [3, 4]
    stored = await conn.fetch(
        "SELECT department_id, revision, locale, changes FROM quota_reports WHERE month = $1 ORDER BY 1",
        OCTOBER,
    )
    assert [tuple(row) for row in stored] == [
        ("", 1, "zh-CN", "[]"),
        ("ops", 1, "zh-CN", "[]"),
        ("sales", 1, "en", "[]"),
    ]
    summary = (
        "SELECT summary FROM quota_reports WHERE month = $1 AND department_id = $2 AND revision = 1"
    )
    async with PostgresRoi(pool, load_queries(Assets(), "roi")).reading(OCTOBER) as reading:
        for department in ("sales", OF_ALL):
            kept = load_summary(await conn.fetchval(summary, OCTOBER, department))
            assert kept == await reading.summary(department)
    mails = await conn.fetch(
        "SELECT recipient, kind, channel, locale, subject, facts ->> 'month' AS month, facts ->> 'revision' AS revision,"
        " state FROM quota_outbox WHERE facts ->> 'month' = '2026-10' ORDER BY lower(recipient)"
    )
    assert [tuple(row) for row in mails] == [
        (address, "roi-report", "mail", locale, subject, "2026-10", "1", "pending")
        for address, locale, subject in (
            ("Boss@example.com", "en", "sales"),
            ("cfo@example.com", "zh-CN", None),
            ("money@example.com", "en", "sales"),
            ("ops@example.com", "zh-CN", "ops"),
        )
    ]

    # What is booked later for October is November's; outcomes make a new revision, of whom they are, and of all.
    await calls.settle(
        "shop", f"shop 2026-10-05 {30 * UNIT}", (600, 500, 31 * UNIT), now=at(CLOSES)
    )
    await roll(conn, at("2026-11-26T00:00:00"))
    assert await world.run("2026-11-26T00:00:00") == (0, 0)
    await outcome(conn, OCTOBER, "sales", "orders", "100")
    assert await world.run("2026-12-24T00:00:00") == (2, 3)
    assert await world.run("2026-12-24T01:00:00") == (0, 0)
    changes = await conn.fetchval(
        "SELECT changes FROM quota_reports WHERE (month, department_id, revision) = ($1, 'sales', 2)",
        OCTOBER,
    )
    assert {one["figure"]: (one["old"], one["new"]) for one in json.loads(changes)} == {
        "orders": ("80", "100"),
        "orders.cost_per_one": (str(UNIT // 2), str(UNIT * 2 // 5)),
        "orders.per_million_tokens": ("40000", "50000"),
        "orders.per_cost_unit": ("2", "5/2"),
    }
    # Imported again as it was: looked at, and nothing to tell.
    await outcome(conn, OCTOBER, "sales", "orders", "100")
    assert await world.reports.count_due(at("2026-12-24T02:00:00")) == 3
    assert await world.run("2026-12-24T02:00:00") == (0, 0)
    assert await world.reports.count_due(at("2026-12-24T02:00:00")) == 0


async def test_a_month_of_nothing_is_told_where_a_budget_was_set_and_while_it_is_the_last(
    conn: Connection, pool: asyncpg.Pool
) -> None:
    await write_october(conn)
    await roll(conn, at(CLOSES))
    world = World(pool)
    await world.run("2026-11-05T00:00:00")
    await roll(conn, at("2026-12-04T00:00:00"))
    # of all, and of sales, which has the budget
    assert await world.run("2026-12-04T00:00:00") == (2, 3)
    assert await world.run("2026-12-31T23:59:59") == (0, 0)
    shown = "SELECT summary FROM quota_reports WHERE month = $1 AND department_id = 'sales'"
    summary = load_summary(await conn.fetchval(shown, NOVEMBER))
    assert (summary.ledger.total.completions, summary.budgets[0].cost_allowed_nanos) == (
        0,
        100 * UNIT,
    )
    # caught up after months: those of nothing in between are nobody's question any more
    await roll(conn, at("2027-03-04T00:00:00"))
    assert await world.run("2027-03-04T00:00:00") == (2, 3)
    told = await conn.fetch("SELECT DISTINCT month FROM quota_reports ORDER BY 1 DESC LIMIT 2")
    assert [row["month"] for row in told] == [date(2027, 2, 1), NOVEMBER]
    await conn.execute("DELETE FROM department_budgets")
    await roll(conn, at("2027-04-04T00:00:00"))
    assert await world.run("2027-04-04T00:00:00") == (0, 0)


async def test_only_what_is_closed_is_stored_and_nothing_older_replaces_it(
    conn: Connection, pool: asyncpg.Pool
) -> None:
    await write_october(conn)
    reports = World(pool).reports
    roi = PostgresRoi(pool, load_queries(Assets(), "roi"))
    async with roi.reading(OCTOBER) as reading:
        with pytest.raises(InvalidInputError, match="2026-10 is not closed yet"):
            await reports.store(reading, "sales", await reading.summary("sales"), None)
    async with roi.reading(SEPTEMBER) as old:
        before = await old.summary("sales")
        await outcome(conn, SEPTEMBER, "sales", "orders", "6")
        async with roi.reading(SEPTEMBER) as new:
            done = await reports.store(new, "sales", await new.summary("sales"), None)
            assert done == (1, True, 2)
        assert await reports.store(old, "sales", before, None) == (1, False, 0)
    # An owner that comes later gets it when it is sent again; nobody gets it twice.
    await conn.execute(
        "UPDATE departments SET owner_emails = '{BOSS@example.com, new@example.com}'"
    )
    async with roi.reading(SEPTEMBER) as reading:
        summary = await reading.summary("sales")
        assert await reports.store(reading, "sales", summary, None) == (1, False, 1)
        silent = World(pool, channel=None).reports
        assert await silent.store(reading, OF_ALL, await reading.summary(OF_ALL), None) == (
            1,
            True,
            0,
        )
    assert await conn.fetchval("SELECT count(*) FROM quota_outbox") == 3


async def test_a_report_that_cannot_be_computed_stops_no_other(
    conn: Connection, pool: asyncpg.Pool
) -> None:
    await write_october(conn)
    await roll(conn, at(CLOSES))
    await conn.execute(
        "UPDATE quota_month_parts SET belongs_to = '2027-01-01' WHERE (month, department_id) = ($1, 'ops')",
        OCTOBER,
    )
    counts = await World(pool).job("2026-11-05T00:00:00")
    # nor can the report of all, which has these parts, too
    assert (counts.built, counts.failed, counts.leftover) == (3, 2, False)
    assert [one.department for one in counts.failures] == ["", "ops"]
    assert "the report of 'ops' of 2026-10 can't be computed: nothing" in counts.failures[1].fault
    await conn.execute("UPDATE quota_month_parts SET belongs_to = month WHERE month = $1", OCTOBER)
    assert await World(pool).run("2026-11-05T01:00:00") == (2, 2)


async def test_reports_are_never_collected_in_a_digest(
    conn: Connection, pool: asyncpg.Pool
) -> None:
    await write_october(conn)
    await conn.execute(
        "INSERT INTO departments (department_id, finance_emails)"
        " SELECT 'd' || n, '{money@example.com}' FROM generate_series(1, 12) n"
    )
    await conn.execute(
        "INSERT INTO department_budgets (department_id, monthly_tokens) SELECT 'd' || n, 1 FROM generate_series(1, 12) n"
    )
    await roll(conn, at(CLOSES))
    built, messages = await World(pool).run("2026-11-05T00:00:00")
    assert (built, messages) == (17, 19)  # September closed before these budgets were given
    outbox = PostgresOutbox(pool, load_queries(Assets(), "outbox"), OutboxRules(("mail",)))
    told = []
    while claim := await outbox.claim("mail", 10, 60, at("2026-11-05T00:00:00")):
        (message,) = claim.messages
        facts = json.loads(message.facts)
        told.append((message.recipient, facts["month"], facts["department_id"]))
        department = load_summary(facts["summary"]).department
        assert facts["department_id"] == ("" if department is None else department.department_id)
    assert len(set(told)) == len(told) == messages
