"""A ledger with overdue reservations, a gateway's own database and its HTTP lookup, all real."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from contract.servers_http import HttpServer, Request
from worker.bootstrap import Deps
from worker.clock import monotonic_seconds
from worker.configuration.document import read_delivery
from worker.jobs import reconcile
from worker.jobs.context import Deadline, JobContext
from worker.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    import asyncpg

    from worker.jobs.reconcile import ReconcileCounts

    Connection = asyncpg.Connection[Any]

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
# Reserved so long ago, a hold of 600 s is overdue by two minutes.
RESERVED = NOW - 12 * MINUTE
SECRET = "s3cret-of-the-source"  # noqa: S105  looked for where it must not be

SPEND = """CREATE TABLE spend (request_id text, tenant text, usage text, tin numeric, tout numeric, cached bigint,
    cost double precision, currency text, model text)"""
SQL = """
[sources.log]
kind = "sql"
dsn = { env = "LOG_DSN" }
time_limit_seconds = 10
query = '''
SELECT request_id, tenant, usage, tin, tout, cached, cost, currency, model
  FROM spend WHERE request_id = ANY($1::text[])'''
[sources.log.columns]
request_id = "request_id"
tenant_id = "tenant"
usage_id = "usage"
in_tokens = "tin"
out_tokens = "tout"
cached_in_tokens = "cached"
cost = "cost"
currency = "currency"
model = "model"
"""
HTTP = """
[sources.api]
kind = "http"
url = "http://127.0.0.1:PORT/v1/{tenant_id}/usage/{request_id}"
time_limit_seconds = 10
requests_per_second = 100
[sources.api.headers]
Authorization = { env = "API_TOKEN" }
[sources.api.paths]
tenant_id = "data.tenant"
request_id = "data.id"
in_tokens = "data.usage.prompt_tokens"
out_tokens = "data.usage.completion_tokens"
cached_in_tokens = "data.usage.details[0].cached"
cost = "data.cost"
"""


async def overdue(conn: Connection, *names: str, at: datetime = RESERVED) -> None:
    """Open reservations, each `tenant/request`, of 100 and 50 tokens for 1,000 nanos."""
    for name in names:
        tenant, request = name.split("/")
        await conn.execute(
            "INSERT INTO tenant_limits (tenant_id, daily_completions, daily_input_tokens, bucket_capacity)"
            " VALUES ($1, NULL, NULL, 1e9) ON CONFLICT DO NOTHING",
            tenant,
        )
        await conn.execute(
            "SELECT quota_reserve($1, $2, 100, 50, 1000, p_now => $3)", tenant, request, at
        )


async def charged(conn: Connection) -> dict[str, tuple[str, int | None, int | None, int | None]]:
    """By `tenant/request`: state, and what is charged."""
    rows = await conn.fetch(
        "SELECT tenant_id || '/' || request_id AS name, state, charged_in_tokens AS i,"
        " charged_out_tokens AS o, charged_cost_nanos AS c FROM quota_reservations ORDER BY 1"
    )
    return {row["name"]: (row["state"], row["i"], row["o"], row["c"]) for row in rows}


async def faults(conn: Connection) -> dict[str, str]:
    """Reason by `tenant/request`, of what was set aside; no secret is in it."""
    rows = await conn.fetch(
        "SELECT tenant_id || '/' || request_id AS name, reason, excerpt FROM quota_source_faults"
    )
    assert not any(SECRET in str(dict(row)) for row in rows)
    return {row["name"]: row["reason"] for row in rows}


@dataclass
class World:
    """The ledger, and how to run reconcile on it with these sources."""

    dsn: str
    folder: Path
    conn: Connection
    environ: dict[str, str] = field(default_factory=dict)

    def deps(self, text: str) -> Deps:
        """As the program's, with a configuration file of this text."""
        file = self.folder / "quota-worker.toml"
        file.write_text(text, encoding="utf-8")
        environ = {"PATH": os.environ["PATH"], "API_TOKEN": f"Bearer {SECRET}"} | self.environ
        return Deps(
            Settings(postgres_dsn=self.dsn),
            environ=environ,
            load_delivery=lambda: read_delivery(str(file), environ),
        )

    async def reconcile(
        self, text: str, now: datetime | None = NOW, seconds: float = 240.0
    ) -> ReconcileCounts:
        """One run of the job."""
        async with self.deps(text) as deps:
            ports = await deps.job_ports(deps.channels())
            ctx = JobContext(now, Deadline(seconds, monotonic_seconds), False, ports)
            counts = await reconcile.run(ctx)
        assert SECRET not in str(counts)
        return counts


def usage(tenant: str, request: str, tin: Any = 70, tout: Any = 30, **more: Any) -> dict[str, Any]:
    """An answer as the HTTP lookup gives it."""
    figures = {"prompt_tokens": tin, "completion_tokens": tout, "details": [{"cached": 20}]}
    data = {"tenant": tenant, "id": request, "usage": figures, "cost": 0.0000012}
    return {"data": data | more}


@dataclass
class UsageServer(HttpServer):
    """Answers by the request's id: a status and a body, a body, or as `HANG` and `DROP`."""

    answers: dict[str, Any] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    def judge(self, request: Request) -> tuple[int, Any]:
        path = request.line.split(" ")[1]
        self.paths.append(path)
        _, _, tenant, _, name = path.split("/")
        answer = self.answers.get(unquote(name), self.answers.get("*", (404, {})))
        if answer == "known":
            return 200, usage(unquote(tenant), unquote(name))
        return answer if isinstance(answer, tuple) else (200, answer)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        # dies in mid-answer where it owes something
        return await super()._one(reader, writer) and not self.owed

    def text(self) -> str:
        """The source that asks it."""
        return HTTP.replace("PORT", str(self.port))
