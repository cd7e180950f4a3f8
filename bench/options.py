"""What can be set: each option as an argument and as a variable of `make bench`."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

CLIENTS = 8
THREADS = 2
TENANTS = 10_000
WARN_TENANTS = 1_000_000
OVERDUE = 1_000_000
OLD = 1_000_000
ROLL_ROWS = 10_000_000
REPORT_DEPARTMENTS = 2_000
DEPARTMENTS = 100
DAYS = 30
BATCH_SIZE = 64
REFUSALS = 100_000


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds` is the length of one run of one side; a pair is run `rounds` times."""

    seconds: int
    rounds: int
    only: tuple[str, ...]
    postgres: str
    data: Path | None
    json: Path | None
    flat_seconds: int
    flat_rows: int
    tick_runs: int
    tenants: int
    warn_tenants: int
    overdue: int
    old: int
    roll_rows: int
    report_departments: int
    strict: bool


def read_options(names: tuple[str, ...]) -> Options:
    """From the command line, else from the environment; leaves with 2 where they are no good."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)

    def number(name: str, default: int, text: str) -> None:
        variable = f"BENCH_{name.upper()}"
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=_positive,
            default=os.environ.get(variable, str(default)),
            help=f"{text} ({variable}, default {default})",
        )

    number("seconds", 4, "length of one run of one side")
    number("rounds", 5, "how often each pair is run")
    number("flat_seconds", 30, "length of the flatness run; 600 for the full one")
    number("flat_rows", 200_000, "reservations present in it; 5000000 for the full one")
    number("tick_runs", 15, "how often a cold tick and its baseline are started")
    number("tenants", TENANTS, "size of the fleet")
    number("warn_tenants", WARN_TENANTS, "size of the fleet for the warning decision")
    number("overdue", OVERDUE, "reservations whose time ran out")
    number("old", OLD, "reservations of a month that was closed long ago")
    number("roll_rows", ROLL_ROWS, "daily rows of the month that is rolled")
    number("report_departments", REPORT_DEPARTMENTS, "departments that get a report")
    parser.add_argument(
        "--only",
        default=os.environ.get("BENCH_ONLY", ""),
        help=f"some of {','.join(names)} (BENCH_ONLY, default all)",
    )
    parser.add_argument(
        "--pg",
        default=os.environ.get("BENCH_PG", "18"),
        help="18: the wheel's; another major version: an installed one (BENCH_PG)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("BENCH_DATA") or None,
        help="folder for the throw-away cluster (BENCH_DATA, default the temporary folder)",
    )
    parser.add_argument(
        "--json",
        type=Path,
        default=os.environ.get("BENCH_JSON") or None,
        help="write everything there too (BENCH_JSON)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        default=os.environ.get("BENCH_STRICT", "") not in {"", "0"},
        help="leave with 1 if a target is missed (BENCH_STRICT=1)",
    )
    args = parser.parse_args()
    only = tuple(name for name in args.only.replace(",", " ").split() if name)
    unknown = [name for name in only if name not in names]
    if unknown:
        parser.error(f"no measure is called {unknown[0]}: there are {', '.join(names)}")
    return Options(
        seconds=args.seconds,
        rounds=args.rounds,
        only=only,
        postgres=args.pg,
        data=args.data,
        json=args.json,
        flat_seconds=max(args.flat_seconds, 3),
        flat_rows=args.flat_rows,
        tick_runs=args.tick_runs,
        tenants=args.tenants,
        warn_tenants=args.warn_tenants,
        overdue=args.overdue,
        old=args.old,
        roll_rows=args.roll_rows,
        report_departments=args.report_departments,
        strict=args.strict,
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return value
