"""Upkeep's tests share: a time long ago, all batches of a walk, and what is left."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncpg

    from sql.calls import Calls

    Connection = asyncpg.Connection[asyncpg.Record]

# Long ago by any clock: a time to come removes nothing.
JANUARY, FEBRUARY, MARCH, APRIL = (date(2024, month, 1) for month in (1, 2, 3, 4))
NOON = datetime(2024, 1, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)
CLOSES = datetime(2024, 2, 4, tzinfo=UTC)
# January's requests may go, February's may not
MID_MARCH = datetime(2024, 3, 17, 12, tzinfo=UTC)
DAYS = {
    "quota_outbox": 90,
    "quota_warn_log": 400,
    "job_runs": 30,
    "quota_missing_told": 60,
    "quota_watch_told": 60,
    "quota_paces": 60,
}
TABLES = (
    "quota_outbox",
    "quota_warn_log",
    "job_runs",
    "quota_source_asks",
    "quota_source_faults",
    "quota_missing_told",
    "quota_watch_told",
    "quota_paces",
    "quota_day_parts",
    "quota_refusal_counts",
    "quota_usage_inbox",
    "quota_reservations",
)


async def sweep(conn: Connection, table: str, now: datetime, **more: Any) -> int:
    """All batches of one table's walk; how many rows went."""
    total = 0
    for _ in range(1000):
        row = await conn.fetchrow(
            "SELECT removed, done FROM quota_upkeep($1, $2, $3, p_limit => $4, p_blocks => $5)",
            table,
            more.get("days", DAYS.get(table, 40)),
            now,
            more.get("limit", 1000),
            more.get("blocks", 4096),
        )
        assert row is not None
        total += row["removed"]
        if row["done"]:
            return total
    raise AssertionError(f"{table}: no end")


async def upkeep(conn: Connection, now: datetime) -> dict[str, int]:
    """As the job does; what went, where anything did."""
    went = {table: await sweep(conn, table, now) for table in TABLES}
    return {table: rows for table, rows in went.items() if rows}


async def requests(conn: Connection) -> list[str]:
    return [
        row["request_id"]
        for row in await conn.fetch("SELECT request_id FROM quota_reservations ORDER BY request_id")
    ]


async def drifts(conn: Connection, month: date, now: datetime) -> list[asyncpg.Record]:
    return await conn.fetch(
        "SELECT * FROM quota_audit($1, $2) ORDER BY 1, 2, 3, 4, 6, 7", month, now
    )


async def settled(calls: Calls, name: str, at: datetime, ended: datetime | None = None) -> None:
    await calls.reserve(request_id=name, amounts=(10, 5, 700), now=at, ttl_seconds=3600)
    await calls.settle(request_id=name, amounts=(11, 6, 701), now=ended or at)
