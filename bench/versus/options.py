"""What can be set: each an argument of `python -m bench.versus`."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SCENARIOS: Final = {
    "calm": "no fault",
    "kills": "the notifier killed 5 times",
    "away": "the receiver away for 60 s",
    "refusals": "the receiver answers every third request with 500",
    "source": "the source killed, once all alerts were raised",
    "both": "the notifier killed once, and the source, once all alerts were raised",
}
SUBJECTS: Final = {
    "alertmanager": "Alertmanager",
    "pair": "two Alertmanagers",
    "schedule": "`quota-worker schedule`",
    "ticks": "ticks",
}


@dataclass(frozen=True, slots=True)
class Options:
    """`alertmanager` is the program; `side_by_side` runs wait at once, and one begins at a time."""

    alertmanager: str
    alerts: int
    rounds: int
    scenarios: tuple[str, ...]
    subjects: tuple[str, ...]
    answer_seconds: float
    resend_seconds: float
    group_interval_seconds: int
    tick_seconds: float
    away_seconds: float
    kills: int
    kill_at: int
    limit_seconds: float
    side_by_side: int
    data: Path | None
    json: Path | None


def read_options(alertmanager: str) -> Options:
    """Options of the command line. Ends the process with 2 where one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.versus", description=__doc__)
    add = parser.add_argument
    add("--alerts", type=int, default=200)
    add("--rounds", type=int, default=3, help="the median of so many is shown")
    add("--only", default="", metavar="A,B", help=f"of {', '.join(SCENARIOS)}")
    add("--subjects", default="", metavar="A,B", help=f"of {', '.join(SUBJECTS)}")
    add("--answer-seconds", type=float, default=0.05, help="how long the receiver takes")
    add("--resend-seconds", type=float, default=15.0, help="Prometheus' resend delay")
    add("--group-interval-seconds", type=int, default=5, help="Alertmanager's group_interval")
    add("--tick-seconds", type=float, default=10.0, help="from tick to tick; cron has 300")
    add("--away-seconds", type=float, default=60.0)
    add("--kills", type=int, default=5)
    add("--kill-at", type=int, default=30, help="at which request of a life")
    add("--limit-seconds", type=float, default=420.0, help="what has not come then is waiting")
    add("--side-by-side", type=int, default=8, help="runs that wait at the same time")
    add("--data", type=Path, default=os.environ.get("BENCH_DATA") or None)
    add("--json", type=Path)
    args = parser.parse_args()
    return Options(
        alertmanager=alertmanager,
        alerts=args.alerts,
        rounds=args.rounds,
        scenarios=_names(parser, args.only, tuple(SCENARIOS)),
        subjects=_names(parser, args.subjects, tuple(SUBJECTS)),
        answer_seconds=args.answer_seconds,
        resend_seconds=args.resend_seconds,
        group_interval_seconds=args.group_interval_seconds,
        tick_seconds=args.tick_seconds,
        away_seconds=args.away_seconds,
        kills=args.kills,
        kill_at=args.kill_at,
        limit_seconds=args.limit_seconds,
        side_by_side=args.side_by_side,
        data=args.data,
        json=args.json,
    )


def _names(parser: argparse.ArgumentParser, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name for name in text.replace(",", " ").split() if name)
    for name in names:
        if name not in known:
            parser.error(f"{name} is unknown: there are {', '.join(known)}")
    return names or known
