"""Tenants, departments and use for the tests of alerts, through the ledger's own functions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncpg

NOON = datetime(2026, 5, 15, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TICK = timedelta(minutes=5)
NO_CAPS: dict[str, Any] = {
    "daily_completions": None,
    "daily_input_tokens": None,
    "daily_output_tokens": None,
    "daily_cost_cents": None,
    "monthly_cost_cents": None,
    "bucket_capacity": 1e9,
    "bucket_refill_per_sec": 1e6,
}


class World:
    """One connection and a clock that the test moves."""

    def __init__(self, conn: asyncpg.Connection[Any], now: datetime = NOON) -> None:
        self.conn = conn
        self.now = now
        self._requests = 0

    async def tenant(self, tenant: str = "t", **limits: Any) -> None:
        values = NO_CAPS | limits
        names = ", ".join(values)
        marks = ", ".join(f"${n}" for n in range(2, len(values) + 2))
        await self.conn.execute(
            f"INSERT INTO tenant_limits (tenant_id, {names}) VALUES ($1, {marks})",
            tenant,
            *values.values(),
        )

    async def limit(self, tenant: str = "t", **limits: Any) -> None:
        for name, value in limits.items():
            await self.conn.execute(
                f"UPDATE tenant_limits SET {name} = $2 WHERE tenant_id = $1", tenant, value
            )

    async def department(self, department: str = "d", **budget: Any) -> None:
        await self.conn.execute(
            "INSERT INTO departments (department_id, name, finance_emails)"
            " VALUES ($1, $1, '{money@example.com}') ON CONFLICT DO NOTHING",
            department,
        )
        names = ", ".join(["department_id", *budget])
        marks = ", ".join(f"${n}" for n in range(1, len(budget) + 2))
        await self.conn.execute(
            f"INSERT INTO department_budgets ({names}) VALUES ({marks})",
            department,
            *budget.values(),
        )

    async def reserve(self, tenant: str = "t", times: int = 1, **amounts: Any) -> list[str]:
        """Ask `times` times; returns the reasons. amounts: in_tokens, out_tokens, cost_nanos, app, model."""
        reasons = []
        for _ in range(times):
            self._requests += 1
            reasons.append(
                await self.conn.fetchval(
                    "SELECT reason FROM quota_reserve($1, $2, $3, $4, $5, p_model => $6,"
                    " p_app => $7, p_now => $8)",
                    tenant,
                    f"r{self._requests}",
                    amounts.get("in_tokens", 0),
                    amounts.get("out_tokens", 0),
                    amounts.get("cost_nanos", 0),
                    amounts.get("model"),
                    amounts.get("app"),
                    self.now,
                )
            )
        return reasons

    async def settle(self, request: str, tenant: str = "t", *amounts: int) -> None:
        await self.conn.execute(
            "SELECT quota_settle($1, $2, $3, $4, $5, p_now => $6)",
            tenant,
            request,
            *amounts,
            self.now,
        )

    async def use(self, completions: int, tenant: str = "t") -> None:
        """Set the day's completions by hand, as the tutorial's programs do."""
        await self.conn.execute(
            "INSERT INTO quota_usage (tenant_id, period, completions) VALUES ($1, $2, $3)"
            " ON CONFLICT (tenant_id, period) DO UPDATE SET completions = $3",
            tenant,
            self.now.date(),
            completions,
        )

    async def top_up(self, key: str, tokens: int = 0, cost_cents: int = 0) -> None:
        await self.conn.execute(
            "SELECT quota_topup('d', 'production', $1, $2, $3, 'boss', 'need', $4, $5)",
            tokens,
            cost_cents,
            key,
            NOON + timedelta(days=40),
            self.now,
        )

    async def warn(
        self, after: timedelta = TICK, routes: dict[str, Any] | None = None
    ) -> tuple[int, int, int, int]:
        """A tick later: one pass; returns (crossings, messages, superseded, rearmed)."""
        self.now += after
        if routes is None:
            return tuple(await self.conn.fetchrow("SELECT * FROM quota_soft_warn($1)", self.now))
        return tuple(
            await self.conn.fetchrow(
                "SELECT * FROM quota_soft_warn($1, $2)", self.now, json.dumps(routes)
            )
        )

    async def log(self, *names: str) -> list[tuple[Any, ...]]:
        names = names or ("dimension", "threshold", "state")
        rows = await self.conn.fetch(
            f"SELECT {', '.join(names)} FROM quota_warn_log"
            " ORDER BY logged_at, subject, dimension, period_kind, threshold, generation"
        )
        return [tuple(row) for row in rows]

    async def messages(self) -> list[dict[str, Any]]:
        rows = await self.conn.fetch("SELECT facts::text FROM quota_outbox ORDER BY outbox_id")
        return [json.loads(row[0]) for row in rows]
