"""The ledger's functions as Python calls, and rows to begin with.

`Calls` wraps one connection; every method names its arguments as the contract
does. Rows come back as plain dicts. Nothing here judges: tests do.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

Row = dict[str, Any]

RESERVE = """
SELECT * FROM quota_reserve(
    p_tenant => $1, p_request_id => $2, p_in_tokens => $3, p_out_tokens => $4,
    p_cost_nanos => $5, p_model => $6, p_app => $7, p_api_key => $8, p_end_user => $9,
    p_priority => $10, p_ttl_seconds => $11, p_now => $12)
"""
SETTLE = """
SELECT * FROM quota_settle(
    p_tenant => $1, p_request_id => $2, p_in_tokens => $3, p_out_tokens => $4,
    p_cost_nanos => $5, p_usage_id => $6, p_model => $7, p_cached_in_tokens => $8, p_now => $9)
"""
RELEASE = """
SELECT * FROM quota_release(
    p_tenant => $1, p_request_id => $2, p_in_tokens => $3, p_out_tokens => $4,
    p_cost_nanos => $5, p_now => $6)
"""
PROGRESS = """
SELECT * FROM quota_progress(
    p_tenant => $1, p_request_id => $2, p_out_tokens => $3, p_now => $4)
"""
TOP_UP = """
SELECT quota_topup(
    p_department => $1, p_environment => $2, p_tokens => $3, p_cost_cents => $4,
    p_idempotency_key => $5, p_approved_by => $6, p_reason => $7, p_expires_at => $8, p_now => $9)
"""

DEPARTMENT_USED = """
SELECT coalesce(sum(tokens_used), 0)::bigint AS tokens_used,
       coalesce(sum(tokens_held), 0)::bigint AS tokens_held,
       coalesce(sum(cost_used_nanos), 0)::bigint AS cost_used_nanos,
       coalesce(sum(cost_held_nanos), 0)::bigint AS cost_held_nanos
  FROM quota_department_slots
 WHERE department_id = $1 AND environment = $2 AND month = $3
"""

UNLIMITED: Row = {
    "daily_completions": None,
    "daily_input_tokens": None,
    "daily_output_tokens": None,
    "daily_tokens": None,
    "daily_cost_cents": None,
    "monthly_completions": None,
    "monthly_tokens": None,
    "monthly_cost_cents": None,
    "bucket_capacity": 1_000_000.0,
    "bucket_refill_per_sec": 1000.0,
}


def at(text: str) -> datetime:
    """An ISO moment; UTC where it names no offset."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


NOON = at("2026-05-15T12:00:00")


class Calls:
    """One connection's view of the ledger; `now` is passed as p_now unless a call says other."""

    def __init__(self, conn: asyncpg.Connection[Any], now: datetime | None = NOON) -> None:
        self.conn = conn
        self.now = now

    async def row(self, sql: str, *values: object) -> Row:
        record = await self.conn.fetchrow(sql, *values)
        assert record is not None, sql
        return dict(record)

    async def rows(self, sql: str, *values: object) -> list[Row]:
        return [dict(record) for record in await self.conn.fetch(sql, *values)]

    # functions --------------------------------------------------------------------

    async def reserve(
        self,
        tenant: str = "t",
        request_id: str | None = None,
        amounts: Sequence[int] = (10, 5, 100),
        **extra: Any,
    ) -> Row:
        """extra: model, app, api_key, end_user, priority, ttl_seconds, now."""
        return await self.row(
            RESERVE,
            tenant,
            uuid4().hex if request_id is None else request_id,
            *amounts,
            extra.get("model"),
            extra.get("app"),
            extra.get("api_key"),
            extra.get("end_user"),
            extra.get("priority", "normal"),
            extra.get("ttl_seconds"),
            extra.get("now", self.now),
        )

    async def settle(
        self,
        tenant: str = "t",
        request_id: str = "r",
        amounts: Sequence[int | None] = (10, 5, 100),
        **extra: Any,
    ) -> Row:
        """extra: usage_id, model, cached, now."""
        return await self.row(
            SETTLE,
            tenant,
            request_id,
            *amounts,
            extra.get("usage_id"),
            extra.get("model"),
            extra.get("cached"),
            extra.get("now", self.now),
        )

    async def release(
        self,
        tenant: str = "t",
        request_id: str = "r",
        amounts: Sequence[int] = (0, 0, 0),
        **extra: Any,
    ) -> str:
        row = await self.row(RELEASE, tenant, request_id, *amounts, extra.get("now", self.now))
        return str(row["outcome"])

    async def progress(
        self, tenant: str = "t", request_id: str = "r", tokens_out: int = 1, **extra: Any
    ) -> Row:
        return await self.row(PROGRESS, tenant, request_id, tokens_out, extra.get("now", self.now))

    async def expire(self, limit: int = 1000, **extra: Any) -> list[Row]:
        sql = "SELECT * FROM quota_expire_stale(p_limit => $1, p_now => $2)"
        return await self.rows(sql, limit, extra.get("now", self.now))

    async def check_and_charge(
        self, tenant: str = "t", tokens_in: int = 10, tokens_out: int = 5, cents: int = 1
    ) -> tuple[bool, str]:
        sql = "SELECT * FROM quota_check_and_charge($1, $2, $3, $4)"
        row = await self.row(sql, tenant, tokens_in, tokens_out, cents)
        return row["allowed"], row["reason"]

    async def top_up(
        self, department: str, tokens: int, cents: int, key: str, expires_at: datetime, **extra: Any
    ) -> None:
        await self.conn.fetchrow(
            TOP_UP,
            department,
            extra.get("environment", "production"),
            tokens,
            cents,
            key,
            extra.get("approved_by", "cfo"),
            extra.get("reason", "launch"),
            expires_at,
            extra.get("now", self.now),
        )

    async def reserve_batch(self, items: Any, **extra: Any) -> list[Row]:
        sql = "SELECT * FROM quota_reserve_batch(p_requests => $1::jsonb, p_now => $2)"
        return await self.rows(sql, json.dumps(items), extra.get("now", self.now))

    async def settle_batch(self, items: Any, **extra: Any) -> list[Row]:
        sql = "SELECT * FROM quota_settle_batch(p_usages => $1::jsonb, p_now => $2)"
        return await self.rows(sql, json.dumps(items), extra.get("now", self.now))

    # rows to begin with -----------------------------------------------------------

    async def tenant(self, tenant: str = "t", /, **columns: Any) -> None:
        """A tenant without any cap and with a wide bucket, but for the columns given."""
        await self.put("tenant_limits", {"tenant_id": tenant, **UNLIMITED, **columns})

    async def department(
        self, department: str = "d", environment: str = "production", /, **budget: Any
    ) -> None:
        await self.conn.execute(
            "INSERT INTO departments (department_id, name, locale) VALUES ($1, $1, $2)"
            " ON CONFLICT DO NOTHING",
            department,
            budget.pop("locale", "en"),
        )
        keys = {"department_id": department, "environment": environment}
        await self.put("department_budgets", {**keys, **budget})

    async def put(self, table: str, columns: Row) -> None:
        names = ", ".join(columns)
        marks = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        await self.conn.execute(
            f"INSERT INTO {table} ({names}) VALUES ({marks})", *columns.values()
        )

    async def change(self, tenant: str = "t", /, **columns: Any) -> None:
        """Updates tenant_limits."""
        sets = ", ".join(f"{name} = ${number}" for number, name in enumerate(columns, 2))
        await self.conn.execute(
            f"UPDATE tenant_limits SET {sets} WHERE tenant_id = $1", tenant, *columns.values()
        )

    async def zone(self, name: str) -> None:
        await self.conn.execute("UPDATE quota_settings SET billing_zone = $1", name)

    # what the tables say ----------------------------------------------------------

    async def usage(self, tenant: str = "t", day: date | None = None) -> Row:
        """One day's row of quota_usage with the cost as nanos; zeros where there is none."""
        when = self.now or datetime.now(tz=UTC)
        record = await self.conn.fetchrow(
            "SELECT completions, input_tokens, output_tokens,"
            " (cost_cents::numeric * 10000000 + cost_subcent_nanos)::bigint AS cost_nanos,"
            " cost_cents, cost_subcent_nanos,"
            " held_input_tokens, held_output_tokens, held_cost_nanos"
            " FROM quota_usage WHERE tenant_id = $1 AND period = $2",
            tenant,
            when.date() if day is None else day,
        )
        if record is not None:
            return dict(record)
        names = (
            "completions input_tokens output_tokens cost_nanos cost_cents cost_subcent_nanos"
            " held_input_tokens held_output_tokens held_cost_nanos"
        )
        return dict.fromkeys(names.split(), 0)

    async def figures(self, tenant: str = "t", day: date | None = None) -> tuple[int, ...]:
        """(completions, input, output, cost in nanos) used on a day."""
        row = await self.usage(tenant, day)
        return (row["completions"], row["input_tokens"], row["output_tokens"], row["cost_nanos"])

    async def held(self, tenant: str = "t", day: date | None = None) -> tuple[int, ...]:
        row = await self.usage(tenant, day)
        return (row["held_input_tokens"], row["held_output_tokens"], row["held_cost_nanos"])

    async def reservation(self, tenant: str = "t", request_id: str = "r") -> Row:
        sql = "SELECT * FROM quota_reservations WHERE tenant_id = $1 AND request_id = $2"
        return await self.row(sql, tenant, request_id)

    async def department_used(self, department: str, environment: str, month: date) -> Row:
        """A pool's month from the counters themselves: tokens and nanos, used and held."""
        return await self.row(DEPARTMENT_USED, department, environment, month)

    async def refusals(self, tenant: str = "t") -> dict[str, int]:
        sql = (
            "SELECT reason, sum(count)::bigint AS n FROM quota_refusals"
            " WHERE tenant_id = $1 GROUP BY reason"
        )
        return {row["reason"]: row["n"] for row in await self.rows(sql, tenant)}


async def open_connection(dsn: str, **settings: str) -> asyncpg.Connection[Any]:
    return await asyncpg.connect(dsn, statement_cache_size=0, server_settings=settings)


@asynccontextmanager
async def several(dsn: str, count: int) -> AsyncIterator[list[Calls]]:
    """`count` connections side by side, on the true clock."""
    conns = [await open_connection(dsn) for _ in range(count)]
    try:
        yield [Calls(conn, now=None) for conn in conns]
    finally:
        for conn in conns:
            await conn.close()


async def sqlstate_of(awaitable: Any) -> str:
    """The SQLSTATE that a call raises; fails where it raises none."""
    try:
        answer = await awaitable
    except asyncpg.PostgresError as error:
        return str(error.sqlstate)
    raise AssertionError(f"raised nothing, answered {answer}")
