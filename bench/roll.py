"""A month of daily rows rolled, against a bare INSERT … SELECT … GROUP BY over the same rows."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import asyncpg

from bench.cluster import HERE, tell
from bench.pgbench import PgbenchError
from bench.results import Row, ratio_row

if TYPE_CHECKING:
    from bench.measures import Bench

ROUNDS_MAX = 3
DAYS_OF_MONTH = 30
ROLL_DEPARTMENTS = 2_000
REQUESTS_SHARE = 10  # a request for so many daily rows
RATIO_MAX = 2.0
CLOSED_MILLISECONDS_MAX = 20.0
CALL_SECONDS = 3600
WITHIN = datetime(2026, 9, 30, 12, tzinfo=UTC)
AFTER_GRACE = datetime(2026, 10, 5, tzinfo=UTC)


def roll(bench: Bench) -> list[Row]:
    """Each round rolls the month from nothing, and sums it bare; then what hourly rolls cost."""
    rows = bench.options.roll_rows
    tenants = max(rows // DAYS_OF_MONTH, 1)
    rows = tenants * DAYS_OF_MONTH
    departments = min(ROLL_DEPARTMENTS, tenants)
    database = bench.cluster.empty()
    tell(f"loading {rows:,} daily rows of {tenants:,} tenants")
    bench.cluster.execute(database, (HERE / "roll.sql").read_text(encoding="utf-8"))
    bench.cluster.rows(database, "load_for_roll", tenants, departments, rows)
    bench.cluster.execute(database, "VACUUM (ANALYZE)")

    rounds: list[tuple[float, float]] = []
    for number in range(min(bench.options.rounds, ROUNDS_MAX)):
        taken: dict[bool, float] = {}
        for ours in (True, False) if number % 2 == 0 else (False, True):
            bench.cluster.execute(database, bench.cluster.query("roll_forget"))
            bench.cluster.execute(database, bench.cluster.query("roll_empty_bare"))
            bench.cluster.execute(database, "VACUUM (ANALYZE)")
            taken[ours] = _roll(bench, database, WITHIN) if ours else _bare(bench, database)
            if ours:
                _check(bench, database)
        rounds.append((taken[True], taken[False]))
        tell(f"  {rounds[-1][0]:,.0f} / {rounds[-1][1]:,.0f} ms")

    bench.cluster.execute(database, bench.cluster.query("roll_forget"))
    whole = _roll(bench, database, WITHIN)
    unchanged = _roll(bench, database, WITHIN)
    bench.cluster.rows(database, "roll_touch_day")
    touched = _roll(bench, database, WITHIN)
    _check(bench, database)
    requests = rows // REQUESTS_SHARE
    tell(f"  {requests:,} requests beside")
    bench.cluster.rows(database, "load_requests_for_roll", tenants, departments, requests)
    bench.cluster.execute(database, "VACUUM (ANALYZE)")
    asked = _roll(bench, database, WITHIN)
    bench.cluster.rows(database, "roll_touch_day")
    asked_again = _roll(bench, database, WITHIN)
    _check(bench, database)
    closing = _roll(bench, database, AFTER_GRACE)
    _check(bench, database)
    closed = statistics.median(_roll(bench, database, AFTER_GRACE) for _ in range(9))
    bench.cluster.drop(database)
    return [
        ratio_row(
            "roll",
            f"quota_roll_month / bare INSERT … SELECT … GROUP BY; {rows:,} daily rows",
            rounds,
            target=RATIO_MAX,
            at_most=True,
            unit=" ms",
            detail=f"{tenants:,} tenants, {departments:,} departments; with parts, days, budgets",
        ),
        ratio_row(
            "roll",
            "an open month anew, 1 % of a day's rows changed / from nothing",
            [(touched, whole)],
            at_most=True,
            unit=" ms",
            detail=f"unchanged {unchanged:,.0f} ms",
        ),
        ratio_row(
            "roll",
            f"the same with {requests:,} requests / all of them read",
            [(asked_again, asked)],
            at_most=True,
            unit=" ms",
            detail=f"the closing {closing:,.0f} ms",
        ),
        Row(
            "roll",
            "a closed month anew, ms",
            closed,
            target=CLOSED_MILLISECONDS_MAX,
            at_most=True,
        ),
    ]


def _roll(bench: Bench, database: str, now: datetime) -> float:
    return _milliseconds(bench, database, "roll", now)


def _bare(bench: Bench, database: str) -> float:
    return _milliseconds(bench, database, "roll_bare")


def _check(bench: Bench, database: str) -> None:
    disagreeing = int(bench.cluster.value(database, "roll_disagreeing"))
    if disagreeing:
        raise PgbenchError(f"roll: {disagreeing} tenants' totals or parts aren't their days")


def _milliseconds(bench: Bench, database: str, query: str, *arguments: object) -> float:
    """One run of the named query on a connection of its own."""

    async def run() -> float:
        connection = await asyncpg.connect(bench.cluster.server.dsn_of(database))
        try:
            statement = await connection.prepare(bench.cluster.query(query))
            begin = time.perf_counter()
            await statement.fetch(*arguments, timeout=CALL_SECONDS)
            return 1000 * (time.perf_counter() - begin)
        finally:
            await connection.close()

    return asyncio.run(run())
