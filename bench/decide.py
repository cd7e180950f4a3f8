"""The warning decision with a million tenants, of whom a few moved, against a bare scan of them."""

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
from bench.tick import PEAK_MEBIBYTES_MAX, environment_of, program, run_process

if TYPE_CHECKING:
    from bench.measures import Bench

CALL_SECONDS = 900
MOVED_PERCENT = 1
CROSSED_PERMILLE = 1
RATIO_MAX = 3.0


def decide(bench: Bench) -> list[Row]:
    """Each round 1 % of the tenants move and 0.1 % cross; the job as a process of its own."""
    tenants = bench.options.warn_tenants
    database = bench.cluster.empty()
    tell(f"loading {tenants:,} tenants")
    bench.cluster.execute(database, (HERE / "decide.sql").read_text(encoding="utf-8"))
    bench.cluster.rows(database, "load_for_warning", tenants)
    bench.cluster.execute(database, "VACUUM (ANALYZE)")
    environment = environment_of(bench, database)
    first = _seconds(environment)
    rounds: list[tuple[float, float]] = []
    scans: list[float] = []
    for number in range(bench.options.rounds):
        scanned = bench.cluster.value(database, "scanned_xid")
        bench.cluster.rows(database, "move_for_warning", number)
        scans.append(_milliseconds(bench, database, "moved_rows", scanned))
        baseline = _milliseconds(bench, database, "moved_over_threshold", scanned)
        rounds.append((1000 * _seconds(environment, tenants * CROSSED_PERMILLE // 1000), baseline))
        tell(f"  {rounds[-1][0]:.0f} ms / {baseline:.0f} ms; headers alone {scans[-1]:.0f} ms")
    bench.cluster.rows(database, "move_for_warning", bench.options.rounds)
    _, kibibytes = run_process([*program(), "tick"], environment)
    bench.cluster.drop(database)
    return [
        ratio_row(
            "decide",
            f"soft_warn / bare scan of what moved with its limits; {tenants:,} tenants",
            rounds,
            target=RATIO_MAX,
            at_most=True,
            unit=" ms",
            detail=f"the rows' headers alone {min(scans):.0f} ms; "
            f"a day's first pass {1000 * first:.0f} ms",
        ),
        Row(
            "decide",
            f"peak memory of such a tick with its deliveries, MiB; {tenants:,} tenants",
            kibibytes / 1024,
            target=PEAK_MEBIBYTES_MAX,
            at_most=True,
        ),
    ]


def _seconds(environment: dict[str, str], messages: int | None = None) -> float:
    """The job's own time; raises PgbenchError unless it wrote that many messages."""
    done = subprocess.run(
        [*program(), "run", "soft_warn", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=CALL_SECONDS,
    )
    if done.returncode != 0:
        raise PgbenchError(f"soft_warn: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    (job,) = json.loads(done.stdout)["jobs"]
    if messages is not None and job["messages"] != messages:
        raise PgbenchError(f"soft_warn: {job['messages']} messages, {messages} tenants crossed")
    return float(job["seconds"])


def _milliseconds(bench: Bench, database: str, query: str, scanned: int) -> float:
    """One run of the named query on a warm connection of its own."""

    async def run() -> float:
        connection = await asyncpg.connect(bench.cluster.server.dsn_of(database))
        try:
            statement = await connection.prepare(bench.cluster.query(query))
            begin = time.perf_counter()
            await statement.fetch(scanned)
            return 1000 * (time.perf_counter() - begin)
        finally:
            await connection.close()

    return asyncio.run(run())
