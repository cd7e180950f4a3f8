"""Runs the measures and prints ratios, all taken side by side in one run."""

from __future__ import annotations

import os
import platform
import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bench.cluster import Cluster, tell
from bench.decide import decide
from bench.expire import expire
from bench.flat import flat
from bench.measures import Bench
from bench.options import CLIENTS, THREADS, Options, read_options
from bench.pgbench import PgbenchError
from bench.report import document, table
from bench.reports import reports
from bench.roll import roll
from bench.status import status
from bench.tick import tick
from bench.upkeep import upkeep
from bench.watch import watch
from worker.errors import QuotaWorkerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.results import Row

EXIT_MISSED = 1
EXIT_BROKEN = 2
MEASURES: dict[str, Callable[[Bench], list[Row]]] = {
    "cpu": Bench.cpu,
    "floor": Bench.floor,
    "hot": Bench.hot,
    "uniform": Bench.uniform,
    "departments": Bench.departments,
    "batch": Bench.batch,
    "pairs": Bench.pairs,
    "refusals": Bench.refusals,
    "flat": flat,
    "tick": tick,
    "decide": decide,
    "expire": expire,
    "upkeep": upkeep,
    "roll": roll,
    "status": status,
    "reports": reports,
    "watch": watch,
}


def main() -> int:
    """Exit 0 measured, 1 with --strict where a target is missed, 2 where a run is broken."""
    options = read_options(tuple(MEASURES))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # leave through Cluster's exit
    rows: list[Row] = []
    try:
        with Cluster(options) as cluster:
            facts = _facts(options) | cluster.description()
            bench = Bench(cluster, options)
            for name, measure in MEASURES.items():
                if not options.only or name in options.only:
                    tell(name)
                    rows += measure(bench)
    except (PgbenchError, QuotaWorkerError) as error:
        tell(f"bench: {error}")
        return EXIT_BROKEN
    except KeyboardInterrupt:
        tell("bench: interrupted")
        return EXIT_BROKEN
    print(table(rows, facts))
    if options.json:
        options.json.write_text(document(rows, facts) + "\n", encoding="utf-8")
    missed = any(row.verdict == "MISSED" for row in rows)
    return EXIT_MISSED if missed and options.strict else 0


def _facts(options: Options) -> dict[str, str]:
    return {
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average_before": f"{os.getloadavg()[0]:.1f}",
        "clients": f"{CLIENTS} ({THREADS} threads)",
        "runs": f"{options.rounds} rounds of {options.seconds} s",
        "tenants": f"{options.tenants:,}",
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
