"""A tick with nothing to do against the least a program with asyncpg can do, as whole processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cluster import tell
from bench.pgbench import PgbenchError
from bench.results import Row, ratio_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measures import Bench

CALL_SECONDS = 300
SETTLING_TICKS = 5
RATIO_MAX = 1.6
PEAK_MEBIBYTES_MAX = 80
_LEAST = """
import asyncio, os
import asyncpg
async def main():
    connection = await asyncpg.connect(os.environ["POSTGRES_DSN"])
    await connection.fetchval("SELECT 1")
    await connection.close()
asyncio.run(main())
"""


def tick(bench: Bench) -> list[Row]:
    """On a database without tenants, which leaves the start alone, and on the fleet's."""
    return [
        *_measure(bench, bench.cluster.empty(), "no tenants"),
        *_measure(bench, bench.cluster.clone(), f"{bench.options.tenants:,} tenants"),
    ]


def _measure(bench: Bench, database: str, where: str) -> list[Row]:
    """Started alternately; peak memory is the tick's own, of its biggest run."""
    environment = environment_of(bench, database)
    command = [*program(), "tick"]
    least = [sys.executable, "-c", _LEAST]
    jobs = _settle(command, environment)
    for warm_up in (command, least):
        run_process(warm_up, environment)
    rounds: list[tuple[float, float]] = []
    peak_kibibytes = 0
    for number in range(bench.options.tick_runs):
        order = (command, least) if number % 2 == 0 else (least, command)
        milliseconds: dict[int, float] = {}
        for child in order:
            milliseconds[id(child)], kibibytes = run_process(child, environment)
            if child is command:
                peak_kibibytes = max(peak_kibibytes, kibibytes)
        rounds.append((milliseconds[id(command)], milliseconds[id(least)]))
    tell("  " + ", ".join(f"{ours:.0f}/{theirs:.0f} ms" for ours, theirs in rounds))
    bench.cluster.drop(database)
    return [
        ratio_row(
            "tick",
            f"idle tick / import asyncpg, connect, query; {where}",
            rounds,
            target=RATIO_MAX,
            at_most=True,
            unit=" ms",
            detail=f"{where}: " + ", ".join(f"{job} {ms:.0f} ms" for job, ms in jobs.items()),
        ),
        Row(
            "tick",
            f"peak memory of the tick, MiB; {where}",
            peak_kibibytes / 1024,
            target=PEAK_MEBIBYTES_MAX,
            at_most=True,
        ),
    ]


def environment_of(bench: Bench, database: str) -> dict[str, str]:
    """A process's environment with that database and no channel."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", "/"),
        "POSTGRES_DSN": bench.cluster.server.dsn_of(database),
    }


def program() -> list[str]:
    script = Path(sys.executable).with_name("quota-worker")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "worker"]


def _settle(command: Sequence[str], environment: dict[str, str]) -> dict[str, float]:
    """Tick until a tick finds nothing to do; returns the milliseconds of its jobs.

    Raises PgbenchError if that doesn't happen.
    """
    jobs: list[dict[str, object]] = []
    for _ in range(SETTLING_TICKS):
        done = subprocess.run(
            [*command, "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=CALL_SECONDS,
        )
        if done.returncode != 0:
            raise PgbenchError(f"tick: exit {done.returncode}: {done.stderr.strip()[-300:]}")
        jobs = json.loads(done.stdout)["jobs"]
        counts = [v for job in jobs for k, v in job.items() if k not in {"job", "seconds"}]
        if not any(isinstance(count, int) and count for count in counts):
            return {str(job["job"]): 1000 * float(str(job["seconds"])) for job in jobs}
    raise PgbenchError(f"tick: always something to do: {jobs}")


def run_process(command: Sequence[str], environment: dict[str, str]) -> tuple[float, int]:
    """Wall milliseconds of the whole process, and its peak resident kibibytes."""
    begin = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        _, status, usage = os.wait4(child.pid, 0)
        milliseconds = (time.perf_counter() - begin) * 1000
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise PgbenchError(f"{Path(command[0]).name}: exit {child.returncode}")
    # Linux tells kibibytes, macOS bytes.
    return milliseconds, usage.ru_maxrss // (1024 if sys.platform == "darwin" else 1)
