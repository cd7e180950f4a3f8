"""A backlog of reservations whose time ran out, against a bare UPDATE, and beside a gateway."""

from __future__ import annotations

import asyncio
import signal
import statistics
import subprocess
import time
from typing import TYPE_CHECKING

import asyncpg

from bench.cluster import HERE, tell
from bench.options import DEPARTMENTS
from bench.pgbench import Load, PgbenchError, run_load, script_file
from bench.results import Row, ratio_row
from bench.tick import PEAK_MEBIBYTES_MAX, environment_of, program, run_process
from worker.jobs.expiry import BATCH_ROWS

if TYPE_CHECKING:
    from bench.measures import Bench

ROUNDS_MAX = 3
RUNS_MAX = 20
BATCHES_MAX = 100_000
RATE_MIN = 0.5
P99_RATIO_MAX = 2.0
MEMORY_RATIO_MAX = 1.2
GATEWAY_CLIENTS = 4
GATEWAY_PACE = 300  # requests a second: far below what the server can do
GATEWAY_SECONDS = 8
START_SECONDS = 1.0
STOP_SECONDS = 60


def expire(bench: Bench) -> list[Row]:
    """Each round works the whole backlog off on fresh copies, by the job and by the UPDATE."""
    overdue, tenants = bench.options.overdue, bench.options.tenants
    loaded = bench.cluster.empty()
    tell(f"loading {tenants:,} tenants with {overdue:,} overdue reservations")
    bench.cluster.execute(loaded, (HERE / "expire.sql").read_text(encoding="utf-8"))
    bench.cluster.rows(loaded, "load_for_expiry", tenants, DEPARTMENTS)
    bench.cluster.execute(loaded, "VACUUM (ANALYZE)")
    bench.cluster.rows(loaded, "warm_for_expiry", tenants)
    bench.cluster.rows(loaded, "load_overdue", tenants, DEPARTMENTS, overdue)
    bench.cluster.execute(loaded, "VACUUM (ANALYZE)")
    _check(bench, loaded)

    rounds: list[tuple[float, float]] = []
    peaks: list[tuple[float, float]] = []
    for number in range(min(bench.options.rounds, ROUNDS_MAX)):
        rates: dict[bool, float] = {}
        for ours in (True, False) if number % 2 == 0 else (False, True):
            database = bench.cluster.copy(loaded)
            if ours:
                seconds, peak, idle_peak = _work_off(bench, database)
                peaks.append((peak, idle_peak))
            else:
                seconds = _update_bare(bench, database)
            rates[ours] = overdue / seconds
            bench.cluster.drop(database)
        rounds.append((rates[True], rates[False]))
        tell(f"  {rounds[-1][0]:,.0f} / {rounds[-1][1]:,.0f} reservations a second")
    latencies = _beside_gateway(bench, loaded)
    bench.cluster.drop(loaded)
    return [
        ratio_row(
            "expire",
            f"reconcile / bare UPDATE in batches of {BATCH_ROWS:,}; {overdue:,} overdue",
            rounds,
            target=RATE_MIN,
            detail=f"{tenants:,} tenants, {DEPARTMENTS} departments; nothing held afterwards",
        ),
        ratio_row(
            "expire",
            f"peak memory of it / of one with nothing to do; {overdue:,} overdue",
            peaks,
            target=MEMORY_RATIO_MAX,
            at_most=True,
            unit=" MiB",
        ),
        Row(
            "expire",
            f"peak memory of it, MiB; {overdue:,} overdue",
            max(peak for peak, _ in peaks),
            target=PEAK_MEBIBYTES_MAX,
            at_most=True,
        ),
        ratio_row(
            "expire",
            f"p99 of quota_reserve, {GATEWAY_PACE}/s, during it / without",
            latencies,
            target=P99_RATIO_MAX,
            at_most=True,
            unit=" ms",
            detail=", ".join(f"{ours:.1f}/{without:.1f} ms" for ours, without in latencies),
        ),
    ]


def _work_off(bench: Bench, database: str) -> tuple[float, float, float]:
    """Seconds until nothing is overdue; peak mebibytes of those runs, and of an idle one.

    Raises PgbenchError where anything is held afterwards, or counters disagree with requests.
    """
    command, environment = [*program(), "run", "reconcile"], environment_of(bench, database)
    seconds = peak = 0.0
    for _ in range(RUNS_MAX):
        milliseconds, kibibytes = run_process(command, environment)
        seconds += milliseconds / 1000
        peak = max(peak, kibibytes / 1024)
        if not bench.cluster.value(database, "overdue"):
            break
    else:
        raise PgbenchError(f"expire: reservations are overdue after {RUNS_MAX} runs")
    _, idle_kibibytes = run_process(command, environment)
    _check(bench, database)
    held = int(bench.cluster.value(database, "held"))
    if held:
        raise PgbenchError(f"expire: {held} is held though nothing is open")
    return seconds, peak, idle_kibibytes / 1024


def _update_bare(bench: Bench, database: str) -> float:
    """Seconds until nothing is overdue; a prepared statement, a commit each."""

    async def run() -> float:
        connection = await asyncpg.connect(bench.cluster.server.dsn_of(database))
        try:
            statement = await connection.prepare(bench.cluster.query("expire_bare"))
            begin = time.perf_counter()
            for _ in range(BATCHES_MAX):
                await statement.fetch(BATCH_ROWS)
                if statement.get_statusmsg() == "UPDATE 0":
                    return time.perf_counter() - begin
            raise PgbenchError(f"expire: more than {BATCHES_MAX:,} batches")
        finally:
            await connection.close()

    return asyncio.run(run())


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
        _check(bench, database)
        bench.cluster.drop(database)
    return rounds


def _p99_during(bench: Bench, database: str) -> float:
    """Raises PgbenchError where the backlog ended before the gateway did."""
    with subprocess.Popen(
        [*program(), "run", "reconcile"],
        env=environment_of(bench, database),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as job:
        try:
            time.sleep(START_SECONDS)
            value = p99(bench, database)
            if job.poll() is not None:
                raise PgbenchError(
                    "expire: reconcile had ended before the gateway's requests: "
                    "BENCH_OVERDUE is too small"
                )
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait(STOP_SECONDS)
    return value


def p99(bench: Bench, database: str) -> float:
    """Of a gateway's reservations, in milliseconds."""
    load = Load(
        "reserve", script_file("reserve"), 0, bench.options.tenants - 1, clients=GATEWAY_CLIENTS
    )
    run = run_load(
        bench.cluster.pgbench,
        bench.cluster.server.dsn_of(database),
        load,
        seconds=GATEWAY_SECONDS,
        pace=GATEWAY_PACE,
    )
    return statistics.quantiles(run.latencies_ms, n=100)[98]


def _check(bench: Bench, database: str) -> None:
    disagreeing = int(bench.cluster.value(database, "disagreeing_counters"))
    if disagreeing:
        raise PgbenchError(f"expire: {disagreeing} counters disagree with their requests")
