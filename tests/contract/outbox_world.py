"""An outbox with messages in it, and real runs of deliver, in this process or another."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from contract.samples import tenant_facts
from worker.assets import Assets
from worker.clock import monotonic_seconds
from worker.configuration import load_delivery
from worker.jobs import deliver
from worker.jobs.context import Deadline, JobContext, JobPorts
from worker.notifiers.channels import ConfiguredChannels
from worker.postgres.outbox import OutboxRules, PostgresOutbox, PostgresWarnings
from worker.postgres.pool import open_pool
from worker.postgres.queries import load_queries

if TYPE_CHECKING:
    import io

    import asyncpg

    from worker.jobs.deliver import DeliverCounts
    from worker.settings import DeliverySettings

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


async def put(
    conn: asyncpg.Connection[Any], count: int = 1, channel: str = "im-bot", **columns: Any
) -> None:
    """Add `count` pending messages, named tenant-000 and so on."""
    have = await conn.fetchval("SELECT count(*) FROM quota_outbox")
    for number in range(have, have + count):
        facts = tenant_facts(f"tenant-{number:03}", severity=columns.get("severity", "warning"))
        await conn.execute(
            "INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency,"
            " facts, next_attempt_at, created_at) VALUES ($1, $1, 'tenant-warn', $2, $3, $4, $5, $6, $6)",
            f"key-{number:03}",
            channel,
            facts["severity"],
            columns.get("urgency", 3),
            json.dumps(facts),
            columns.get("created_at", NOW),
        )


async def states(conn: asyncpg.Connection[Any]) -> dict[str, int]:
    """How many messages are in each state."""
    rows = await conn.fetch("SELECT state, count(*) AS n FROM quota_outbox GROUP BY state")
    return {row["state"]: row["n"] for row in rows}


async def run_deliver(
    dsn: str,
    environ: dict[str, str],
    now: datetime | None = NOW,
    *,
    seconds: float = 240.0,
    stream: io.StringIO | None = None,
    dry_run: bool = False,
    delivery: DeliverySettings | None = None,
) -> DeliverCounts:
    """One run of the job in this process, on a pool of its own."""
    assets = Assets()
    queries = load_queries(assets, "outbox")
    channels = ConfiguredChannels.from_delivery(
        delivery or load_delivery(environ),
        assets,
        environ={**os.environ, **environ},
        stream=stream,
    )
    pool = await open_pool(dsn)
    try:
        ports = JobPorts(
            ledger=cast("Any", None),
            expiry=cast("Any", None),
            months=cast("Any", None),
            warnings=PostgresWarnings(pool, queries, channels.routes),
            outbox=PostgresOutbox(
                pool,
                queries,
                OutboxRules((*channels.names, "console"), channels.fallbacks, channels.quiet),
            ),
            channels=channels,
            diagnosis=cast("Any", None),
            outlook=cast("Any", None),
            watch=cast("Any", None),
            upkeep=cast("Any", None),
        )
        deadline = Deadline(seconds, monotonic_seconds)
        return await deliver.run(JobContext(now, deadline, dry_run, ports))
    finally:
        await pool.close()


async def start_deliver(
    dsn: str, environ: dict[str, str], now: datetime = NOW
) -> asyncio.subprocess.Process:
    """One run in a process of its own, beside others: without the tick's lease."""
    return await _start([__file__, dsn, now.isoformat()], environ)


async def start_command(
    dsn: str, environ: dict[str, str], now: datetime = NOW
) -> asyncio.subprocess.Process:
    """One run as the command that operators start."""
    arguments = ["-m", "worker", "run", "deliver", "--as-of", now.isoformat()]
    return await _start(arguments, {**environ, "POSTGRES_DSN": dsn})


async def _start(arguments: list[str], environ: dict[str, str]) -> asyncio.subprocess.Process:
    root = Path(__file__).parents[2]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}", **environ},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


def later(**delta: float) -> datetime:
    return NOW + timedelta(**delta)


if __name__ == "__main__":
    asyncio.run(run_deliver(sys.argv[1], dict(os.environ), datetime.fromisoformat(sys.argv[2])))
