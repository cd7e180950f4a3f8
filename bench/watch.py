"""A pass of the watch with a million tenants, some of them active, against a bare aggregate."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from typing import TYPE_CHECKING

import asyncpg

from bench.cluster import HERE, tell
from bench.pgbench import PgbenchError
from bench.results import Row, ratio_row
from bench.tick import environment_of, program

if TYPE_CHECKING:
    from bench.measures import Bench

CALL_SECONDS = 900
# Half of the tenants' number, all in the last hour; one tenant in fifty is active.
REQUESTS_PER_TENANT = 0.5
RATIO_MAX = 6.0


def watch(bench: Bench) -> list[Row]:
    """Each round a pass that tells nothing, as a process of its own, and the aggregate."""
    tenants = bench.options.warn_tenants
    requests = int(tenants * REQUESTS_PER_TENANT)
    database = bench.cluster.empty()
    tell(f"loading {tenants:,} tenants, {6 * requests:,} requests of six hours, a week of paces")
    bench.cluster.execute(database, (HERE / "watch.sql").read_text(encoding="utf-8"))
    bench.cluster.rows(database, "load_for_watch", tenants, requests)
    bench.cluster.execute(database, "VACUUM (ANALYZE)")
    environment = environment_of(bench, database)
    first = _seconds(environment)
    rounds: list[tuple[float, float]] = []
    for _ in range(bench.options.rounds):
        rounds.append((1000 * _seconds(environment), _milliseconds(bench, database)))
        tell(f"  {rounds[-1][0]:.0f} ms / {rounds[-1][1]:.0f} ms")
    bench.cluster.drop(database)
    least = min(ours for ours, _ in rounds) / 1000
    return [
        ratio_row(
            "watch",
            f"a pass / a bare aggregate of the hour by tenant, app and key; {requests:,} requests",
            rounds,
            target=RATIO_MAX,
            at_most=True,
            unit=" ms",
            detail=f"the first, which notes the hours before as well, {first:.1f} s",
        ),
        Row("watch", "the fastest pass, seconds", least, at_most=True),
    ]


def _seconds(environment: dict[str, str]) -> float:
    """The job's own time; raises PgbenchError where it told anything or didn't end."""
    done = subprocess.run(
        [*program(), "run", "watch", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=CALL_SECONDS,
    )
    if done.returncode != 0:
        raise PgbenchError(f"watch: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    (job,) = json.loads(done.stdout)["jobs"]
    if job["outcome"] != "done" or job["messages"]:
        raise PgbenchError(f"watch: {job['outcome']}, {job['messages']} messages")
    return float(job["seconds"])


def _milliseconds(bench: Bench, database: str) -> float:
    """One run of the aggregate on a connection of its own."""

    async def run() -> float:
        connection = await asyncpg.connect(bench.cluster.server.dsn_of(database))
        try:
            statement = await connection.prepare(bench.cluster.query("hour_by_app_and_key"))
            begin = time.perf_counter()
            await statement.fetch()
            return 1000 * (time.perf_counter() - begin)
        finally:
            await connection.close()

    return asyncio.run(run())
