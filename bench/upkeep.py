"""Old reservations removed by upkeep, against a bare DELETE, and beside a gateway."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import asyncpg

from bench.cluster import HERE, tell
from bench.expire import GATEWAY_PACE, MEMORY_RATIO_MAX, P99_RATIO_MAX, ROUNDS_MAX, p99
from bench.options import DEPARTMENTS
from bench.pgbench import PgbenchError
from bench.results import Row, ratio_row
from bench.tick import PEAK_MEBIBYTES_MAX, environment_of, program, run_process
from worker.jobs.upkeep import BATCH_ROWS

if TYPE_CHECKING:
    from bench.measures import Bench

RUNS_MAX = 20
# About as many rows as a batch has.
BARE_BLOCKS = 23
BATCHES_MAX = 100_000
START_SECONDS = 1.0
STOP_SECONDS = 60
# The bare DELETE neither looks for who may need a row, nor locks tenants, nor rests.
RATE_MIN = 0.02


def upkeep(bench: Bench) -> list[Row]:
    """Each round removes all of it from fresh copies, by the job and by the DELETE."""
    old, tenants = bench.options.old, bench.options.tenants
    loaded = bench.cluster.empty()
    tell(f"loading {tenants:,} tenants with {old:,} old reservations")
    for file in ("expire.sql", "upkeep.sql"):
        bench.cluster.execute(loaded, (HERE / file).read_text(encoding="utf-8"))
    bench.cluster.rows(loaded, "load_for_expiry", tenants, DEPARTMENTS)
    bench.cluster.rows(loaded, "load_old", tenants, DEPARTMENTS, old)
    bench.cluster.execute(loaded, "VACUUM (ANALYZE)")
    bench.cluster.rows(loaded, "warm_for_expiry", tenants)
    bench.cluster.execute(loaded, "VACUUM (ANALYZE)")

    rounds: list[tuple[float, float]] = []
    peaks: list[tuple[float, float]] = []
    for number in range(min(bench.options.rounds, ROUNDS_MAX)):
        rates: dict[bool, float] = {}
        for ours in (True, False) if number % 2 == 0 else (False, True):
            database = bench.cluster.copy(loaded)
            if ours:
                seconds, peak, idle_peak = _by_job(bench, database)
                peaks.append((peak, idle_peak))
            else:
                seconds = _delete_bare(bench, database)
            rates[ours] = old / seconds
            bench.cluster.drop(database)
        rounds.append((rates[True], rates[False]))
        tell(f"  {rounds[-1][0]:,.0f} / {rounds[-1][1]:,.0f} reservations a second")
    latencies = _beside_gateway(bench, loaded)
    bench.cluster.drop(loaded)
    return [
        Row(
            "upkeep",
            f"requests removed a second; {old:,} old requests",
            min(rate for rate, _ in rounds),
        ),
        ratio_row(
            "upkeep",
            "the same / bare DELETE in batches of as many",
            rounds,
            target=RATE_MIN,
            detail=f"{tenants:,} tenants; batches of {BATCH_ROWS:,}, with a rest after each",
        ),
        ratio_row(
            "upkeep",
            f"peak memory of it / of one with nothing to do; {old:,} old requests",
            peaks,
            target=MEMORY_RATIO_MAX,
            at_most=True,
            unit=" MiB",
        ),
        Row(
            "upkeep",
            f"peak memory of it, MiB; {old:,} old requests",
            max(peak for peak, _ in peaks),
            target=PEAK_MEBIBYTES_MAX,
            at_most=True,
        ),
        ratio_row(
            "upkeep",
            f"p99 of quota_reserve, {GATEWAY_PACE}/s, during it / without",
            latencies,
            target=P99_RATIO_MAX,
            at_most=True,
            unit=" ms",
            detail=", ".join(f"{ours:.1f}/{without:.1f} ms" for ours, without in latencies),
        ),
    ]


def _by_job(bench: Bench, database: str) -> tuple[float, float, float]:
    """Seconds until none is left; peak mebibytes of those runs, and of an idle one."""
    command, environment = [*program(), "run", "upkeep"], environment_of(bench, database)
    seconds = peak = 0.0
    for _ in range(RUNS_MAX):
        milliseconds, kibibytes = run_process(command, environment)
        seconds += milliseconds / 1000
        peak = max(peak, kibibytes / 1024)
        if not bench.cluster.value(database, "old_requests"):
            break
    else:
        raise PgbenchError(f"upkeep: old requests are left after {RUNS_MAX} runs")
    _, idle_kibibytes = run_process(command, environment)
    return seconds, peak, idle_kibibytes / 1024


def _delete_bare(bench: Bench, database: str) -> float:
    """Seconds until none is left; a prepared statement, a commit each."""

    async def run() -> float:
        connection = await asyncpg.connect(bench.cluster.server.dsn_of(database))
        try:
            statement = await connection.prepare(bench.cluster.query("delete_bare"))
            begin = time.perf_counter()
            for block in range(0, min(blocks, BATCHES_MAX * BARE_BLOCKS), BARE_BLOCKS):
                await statement.fetch(f"({block},0)", f"({block + BARE_BLOCKS},0)")
            return time.perf_counter() - begin
        finally:
            await connection.close()

    blocks = int(bench.cluster.value(database, "reservation_blocks"))
    seconds = asyncio.run(run())
    if bench.cluster.value(database, "old_requests"):
        raise PgbenchError("upkeep: the bare DELETE left old requests")
    return seconds


def _beside_gateway(bench: Bench, loaded: str) -> list[tuple[float, float]]:
    """The p99 in milliseconds with the job at work and without it, of the same tenants."""
    rounds: list[tuple[float, float]] = []
    for number in range(min(bench.options.rounds, ROUNDS_MAX)):
        database = bench.cluster.copy(loaded)
        values: dict[bool, float] = {}
        for beside in (True, False) if number % 2 == 0 else (False, True):
            values[beside] = _p99_during(bench, database) if beside else p99(bench, database)
        rounds.append((values[True], values[False]))
        tell(f"  p99 {rounds[-1][0]:.2f} / {rounds[-1][1]:.2f} ms")
        bench.cluster.drop(database)
    return rounds


def _p99_during(bench: Bench, database: str) -> float:
    """Raises PgbenchError where the old ones were gone before the gateway was done."""
    with subprocess.Popen(
        [*program(), "run", "upkeep"],
        env=environment_of(bench, database),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as job:
        try:
            time.sleep(START_SECONDS)
            value = p99(bench, database)
            if job.poll() is not None:
                raise PgbenchError(
                    "upkeep: it had ended before the gateway's requests: BENCH_OLD is too small"
                )
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait(STOP_SECONDS)
    return value
