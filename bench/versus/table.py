"""The results as a table of medians."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.versus.options import SCENARIOS, SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.versus.run import Result

TIMES = ("first", "p50", "p99", "last")
COUNTS = ("lost", "waiting", "doubled", "requests")
COLUMNS = ("fault", "told by", *(f"{name}, s" for name in TIMES), *COUNTS, "memory, MB")


def table(results: Sequence[Result]) -> str:
    """Markdown; where the rounds differ in a count, the lowest and the highest stand behind it."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for scenario, title in SCENARIOS.items():
        for subject, words in SUBJECTS.items():
            rounds = [r for r in results if (r.scenario, r.subject) == (scenario, subject)]
            if rounds:
                lines.append("| " + " | ".join([title, words, *_cells(rounds)]) + " |")
    servers = [r.server_kibibytes for r in results if r.server_kibibytes]
    if servers:
        lines += ["", f"PostgreSQL beside it, all its processes: {median(servers) / 1024:.0f} MB."]
    return "\n".join(lines)


def _cells(rounds: Sequence[Result]) -> Iterator[str]:
    for name in TIMES:
        yield _seconds(median(getattr(r, name) for r in rounds))
    for name in COUNTS:
        yield _count([getattr(r, name) for r in rounds])
    yield f"{median(r.kibibytes for r in rounds) / 1024:.0f}"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _count(values: Sequence[int], shown: Callable[[float], str] = "{:,.0f}".format) -> str:
    middle = shown(median(values))
    if min(values) == max(values):
        return middle
    return f"{middle} ({shown(min(values))} to {shown(max(values))})"
