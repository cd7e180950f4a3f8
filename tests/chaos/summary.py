"""A run's figures, as the table of docs/reliability.md has them."""

from __future__ import annotations

from collections import Counter
from statistics import quantiles
from typing import TYPE_CHECKING

from chaos.crossings import Line

if TYPE_CHECKING:
    import asyncpg

    from chaos.crossings import Crossings
    from chaos.run import Run
    from chaos.ticks import Ticks
    from chaos.told import Told
    from chaos.truth import Truth


def summary(
    run: Run,
    truth: Truth,
    crossings: Crossings,
    told: Told,
    ticks: Ticks,
    log: list[asyncpg.Record],
    seconds: float,
) -> str:
    kinds = Counter(one.kind for one in run.happened)
    states = Counter(row["state"] for row in log)
    since = next((one.ended for one in run.happened if one.kind == "upgrade"), run.stopped)
    waits = _waits(crossings, told, log)
    figures = told.figures
    lines = [
        ("seed, minutes", f"{run.plan.seed}, {seconds / 60:.1f}"),
        ("upgraded from", run.upgraded_from),
        *((f"fault: {kind}", str(number)) for kind, number in sorted(kinds.items())),
        ("requests, calls", f"{len(truth.requests):,}, {truth.calls:,}"),
        *((f"call {what}", f"{number:,}") for what, number in sorted(truth.outcomes.items())),
        ("wrong charges, sums, holds", str(len(truth.faults))),
        ("crossings", ", ".join(f"{name} {number:,}" for name, number in sorted(states.items()))),
        ("crossings missing or false", str(len(crossings.faults))),
        (
            "messages by the outbox",
            ", ".join(
                f"{name} {figures[name]:,}"
                for name in ("sent", "superseded", "dead", "stale")
                if figures[name]
            ),
        ),
        (
            "requests at the receivers: taken, answered wrongly",
            f"{figures['arrived']:,}, {figures['misanswered']:,}",
        ),
        ("lost", str(sum("LOST" in one for one in told.faults))),
        (
            "taken again, because the answer did not say that it was taken; such answers",
            f"{told.doubled['an answer that was none']}; {figures['in doubt by the answer']}",
        ),
        (
            "taken again, after a kill or a cut; kills and cuts",
            f"{told.doubled['a kill or a cut']}; {figures['kills and cuts']}",
        ),
        ("ticks by cron", ", ".join(f"{what} {n:,}" for what, n in sorted(ticks.ends.items()))),
        ("longest pause between ticks by cron", f"{ticks.longest_pause_seconds:.0f} s"),
        ("slots of jobs, missing", f"{ticks.slots}, {sum('slot:' in one for one in ticks.faults)}"),
        (
            "from a charge to the first delivery, ticks alone: p50, p90, p99, most",
            _spread([wait for at, wait in waits if at < since]),
        ),
        (
            "the same, with two schedulers beside them",
            _spread([wait for at, wait in waits if at >= since]),
        ),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def _spread(waits: list[float]) -> str:
    if len(waits) < 2:
        return "too few"
    per_cent = quantiles(waits, n=100, method="inclusive")
    return ", ".join(
        f"{one:.1f} s" for one in (per_cent[49], per_cent[89], per_cent[98], max(waits))
    )


def _waits(
    crossings: Crossings, told: Told, log: list[asyncpg.Record]
) -> list[tuple[float, float]]:
    """When a threshold was passed, and the seconds from that charge to the first arrival that tells it."""
    found = []
    for row in log:
        if row["state"] != "told" or row["generation"] != 0:
            continue
        line = Line(row["subject"], row["dimension"], row["period_kind"], row["period_start"])
        course = crossings.courses.get(line)
        crossed_at = course.crossed_at(row["threshold"]) if course else None
        first = told.first.get(row["message_key"])
        if crossed_at is not None and first is not None:
            found.append((crossed_at, max(0.0, first - crossed_at)))
    return found
