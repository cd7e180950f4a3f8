"""Rows of the price table, and what the ledger says of requests that it prices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import asyncpg

from sql.calls import NOON

Connection = asyncpg.Connection
Price = Callable[..., Awaitable[int | None]]

COLUMNS = {
    "origin": "file",
    "model": "m",
    "currency": "USD",
    "input": Decimal("1.4"),
    "cached_input": Decimal("0.26"),
    "output": Decimal("4.4"),
}


async def put(conn: Connection, **columns: Any) -> None:
    row = COLUMNS | columns
    places = ", ".join(f"${n}" for n in range(1, len(row) + 1))
    await conn.execute(
        f"INSERT INTO quota_prices ({', '.join(row)}) VALUES ({places})", *row.values()
    )


async def rate(conn: Connection, currency: str, day: date, value: str) -> None:
    await conn.execute(
        "INSERT INTO quota_currency_rates (currency, valid_from, rate) VALUES ($1, $2, $3)",
        currency,
        day,
        Decimal(value),
    )


def pricing(conn: Connection) -> Price:
    """What quota_price answers: at noon unless told."""

    async def ask(
        model: str | None, tokens: int, cached: int | None, out: int, now: datetime = NOON
    ) -> int | None:
        return await conn.fetchval(
            "SELECT quota_price($1, $2, $3, $4, $5)", model, tokens, cached, out, now
        )

    return ask


async def row(conn: Connection, request: str) -> tuple[Any, ...]:
    """Charged cost, unpriced, and why it waits."""
    found = await conn.fetchrow(
        "SELECT r.charged_cost_nanos, r.unpriced, u.reason FROM quota_reservations r"
        " LEFT JOIN quota_unpriced u USING (tenant_id, request_id) WHERE request_id = $1",
        request,
    )
    assert found is not None
    return tuple(found)


async def price_unpriced(conn: Connection, now: datetime | None = NOON) -> int:
    priced: int = await conn.fetchval("SELECT priced FROM quota_price_unpriced(1000, $1)", now)
    return priced


async def assert_sums(conn: Connection) -> None:
    """Days and departments hold what their requests were charged."""
    wrong = await conn.fetch(
        "SELECT tenant_id, period FROM (SELECT tenant_id, period, sum(cost_cents::numeric * 10000000 + cost_subcent_nanos) AS c"
        " FROM quota_usage GROUP BY 1, 2) u FULL JOIN (SELECT tenant_id, period,"
        " sum(coalesce(charged_cost_nanos, estimated_cost_nanos)) AS c FROM quota_reservations GROUP BY 1, 2) r"
        " USING (tenant_id, period) WHERE u.c IS DISTINCT FROM r.c"
    )
    assert wrong == []
    used = await conn.fetchval("SELECT sum(cost_used_nanos) FROM quota_department_slots")
    charged = await conn.fetchval(
        "SELECT sum(coalesce(charged_cost_nanos, estimated_cost_nanos)) FROM quota_reservations WHERE department_id IS NOT NULL"
    )
    assert used == charged
    listed = "SELECT tenant_id, request_id FROM quota_unpriced ORDER BY 1, 2"
    marked = (
        "SELECT tenant_id, request_id FROM quota_reservations WHERE unpriced ORDER BY tenant_id, 2"
    )
    assert await conn.fetch(listed) == await conn.fetch(marked)
