"""`status` and `metrics` with a million tenants, as whole processes, against one bare count."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.cluster import HERE, tell
from bench.results import Row, ratio_row
from bench.tick import PEAK_MEBIBYTES_MAX, environment_of, program, run_process

if TYPE_CHECKING:
    from bench.measures import Bench

RATIO_MAX = 6.0
# Two passes are read and one is ranked, where the baseline only counts.
COMMANDS = (["status"], ["metrics"])


def status(bench: Bench) -> list[Row]:
    """The worst 20 of the fleet that the warning decision has, and its last hours' requests."""
    tenants = bench.options.warn_tenants
    database = bench.cluster.empty()
    tell(f"loading {tenants:,} tenants")
    bench.cluster.execute(database, (HERE / "decide.sql").read_text(encoding="utf-8"))
    bench.cluster.rows(database, "load_for_warning", tenants)
    bench.cluster.execute(database, "VACUUM (ANALYZE)")
    environment = environment_of(bench, database)
    rows: list[Row] = []
    for command in COMMANDS:
        name = command[0]
        run_process([*program(), *command], environment)
        rounds: list[tuple[float, float]] = []
        peak = 0
        for _ in range(bench.options.rounds):
            milliseconds, kibibytes = run_process([*program(), *command], environment)
            rounds.append((milliseconds, _bare(bench, database)))
            peak = max(peak, kibibytes)
            tell(f"  {name}: {rounds[-1][0]:.0f} ms / {rounds[-1][1]:.0f} ms")
        rows += [
            ratio_row(
                "status",
                f"{name} / bare count of who is over 80 %; {tenants:,} tenants",
                rounds,
                target=RATIO_MAX,
                at_most=True,
                unit=" ms",
            ),
            Row(
                "status",
                f"peak memory of {name}, MiB; {tenants:,} tenants",
                peak / 1024,
                target=PEAK_MEBIBYTES_MAX,
                at_most=True,
            ),
        ]
    bench.cluster.drop(database)
    return rows


def _bare(bench: Bench, database: str) -> float:
    begin = time.perf_counter()
    bench.cluster.rows(database, "tenants_over_threshold")
    return (time.perf_counter() - begin) * 1000
