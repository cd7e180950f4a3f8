"""Does the rate hold, and do the hot rows stay where they are?"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from bench.cluster import tell
from bench.pgbench import PgbenchError, run_load
from bench.results import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.measures import Bench

# Statistics reach the views when a backend ends, at the latest.
STATISTICS_SECONDS = 2.0
# Autovacuum looks at a database once a minute: in a shorter run dead rows say nothing.
JUDGED_FROM_SECONDS = 180


def flat(bench: Bench) -> list[Row]:
    """reserve + settle for a while, a quarter of it on one tenant, amid many reservations."""
    cluster, options = bench.cluster, bench.options
    database = cluster.clone(reservations=options.flat_rows)
    cluster.set_option("checkpoint_timeout", "5min")
    cluster.execute(database, "ANALYZE")  # a clone begins with empty statistics
    load = bench.load("flat")
    before = _tables(bench, database)
    counted = int(cluster.value(database, "settled"))
    tell(f"  reserve + settle for {options.flat_seconds} s")
    run = run_load(
        cluster.pgbench,
        cluster.server.dsn_of(database),
        load,
        seconds=options.flat_seconds,
        progress=True,
    )
    time.sleep(STATISTICS_SECONDS)
    after = _tables(bench, database)
    counted = int(cluster.value(database, "settled")) - counted
    cluster.set_option("checkpoint_timeout", "30min")
    cluster.drop(database)
    if counted != run.transactions:
        raise PgbenchError(f"flat: {run.transactions} pairs, but {counted} were settled")

    third = len(run.progress) // 3
    first, last = run.progress[:third], run.progress[-third:]
    rows = [
        Row(
            "flat",
            f"pairs, last third / first third of {options.flat_seconds} s",
            statistics.mean(last) / statistics.mean(first),
            target=0.9,
            ours=f"{statistics.mean(last):,.0f}/s",
            baseline=f"{statistics.mean(first):,.0f}/s",
            detail=f"{run.transactions:,} pairs amid {options.flat_rows:,} reservations",
        )
    ]
    for name in ("quota_usage", "quota_department_slots"):
        changed = {key: after[name][key] - before[name][key] for key in after[name]}
        rows.append(
            Row(
                "flat",
                f"HOT share of {name}'s updates",
                changed["hot_updates"] / max(changed["updates"], 1),
                target=0.95,
                detail=_upkeep(name, before[name], after[name]),
            )
        )
        rows.append(
            Row(
                "flat",
                f"size of {name} after / before",
                after[name]["bytes"] / before[name]["bytes"],
                target=1.5,
                at_most=True,
            )
        )
    rows.append(
        Row(
            "flat",
            "dead rows per live row of quota_reservations",
            after["quota_reservations"]["dead"] / max(after["quota_reservations"]["live"], 1),
            target=0.25 if options.flat_seconds >= JUDGED_FROM_SECONDS else None,
            at_most=True,
            detail=_upkeep(
                "quota_reservations", before["quota_reservations"], after["quota_reservations"]
            ),
        )
    )
    return rows


def _tables(bench: Bench, database: str) -> dict[str, dict[str, int]]:
    return {
        row["name"]: {key: int(value) for key, value in row.items() if key != "name"}
        for row in bench.cluster.rows(database, "table_updates")
    }


def _upkeep(name: str, before: Mapping[str, int], after: Mapping[str, int]) -> str:
    mebibyte = 1024 * 1024
    return (
        f"{name}: {after['updates'] - before['updates']:,} updates, "
        f"{after['dead']:,} dead rows beside {after['live']:,} live, "
        f"{after['vacuums'] - before['vacuums']} autovacuums, "
        f"{before['bytes'] / mebibyte:,.1f} MiB before, {after['bytes'] / mebibyte:,.1f} after"
    )
