"""The watch's tests share: a pass, what it told, a history of paces, requests of an hour."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from requests_world import put

from sql.calls import NOON, Calls

Connection = asyncpg.Connection
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
# put() charges 100 tokens and 700 nanos a request.
LIMITS = {
    "day_hours": 4,
    "month_hours": 24,
    "burn_times": 3,
    "burn_requests": 1,
    "usual_times": 10,
    "min_requests": 100,
}


async def watch(conn: Connection, now: datetime = NOON, **limits: int) -> tuple[int, int, int]:
    """One pass; returns burns, runaways and messages."""
    row = await conn.fetchrow(
        "SELECT burns, runaways, messages FROM quota_watch($1, p_limits => $2)",
        now,
        json.dumps(LIMITS | limits),
    )
    return row["burns"], row["runaways"], row["messages"]


async def told(conn: Connection) -> list[dict[str, Any]]:
    rows = await conn.fetch("SELECT facts::text FROM quota_outbox ORDER BY outbox_id")
    return [json.loads(row[0]) for row in rows]


async def note(conn: Connection, now: datetime = NOON) -> tuple[int, int, int]:
    row = await conn.fetchrow("SELECT hours, rows, removed FROM quota_paces_note($1, 400)", now)
    return row["hours"], row["rows"], row["removed"]


async def history(conn: Connection, requests: int, *, days: int = 5, minute: int = 7) -> None:
    """So many requests in one minute of each hour of the days before the last three hours."""
    for back in range(3, days * 24):
        await put(conn, requests, at=NOON - back * HOUR + minute * MINUTE)
    await note(conn)


async def spread(calls: Calls, requests: int, tokens: int, **extra: Any) -> None:
    """Requests through the ledger, evenly over the last hour."""
    now = extra.pop("now", NOON)
    for number in range(requests):
        answer = await calls.reserve(
            extra.get("tenant", "t"),
            f"{now.isoformat()} {number}",
            (tokens, 0, 0),
            app=extra.get("app", "bot"),
            api_key="k-1",
            now=now - HOUR + (number + 1) * HOUR / requests,
        )
        assert answer["allowed"], answer
