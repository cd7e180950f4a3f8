"""`quota-worker status [SUBJECT] [--json] [--top N]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from worker.answers import say, say_json
from worker.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.postgres.reports import PostgresReports

DEFAULT_TOP = 20
MAX_SUGGESTIONS = 3
MAX_TOP = 2_147_483_647


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "subject",
        metavar="SUBJECT",
        nargs="?",
        help="a tenant or department: only its rows, with its last hour by app, key and model",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--top",
        metavar="N",
        type=int,
        default=DEFAULT_TOP,
        help="how many rows (default 20; 0: all)",
    )


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """One row per tenant and department, worst first, and the worker's own state.

    A subject may be named as an alert shows it. Raises UnknownNameError for one that nobody has.
    """
    if not 0 <= args.top <= MAX_TOP:
        raise UsageError("--top needs a number of rows, or 0 for all")
    if sys.stderr.isatty():
        deps.tell_embedded()
    reports = await deps.reports()
    report = await reports.status(args.top or None, args.subject)
    if args.subject is not None and not report.rows:
        name = await _shown_as(args.subject, reports)
        report = await reports.status(args.top or None, name)
    if args.json:
        from worker.status import as_document

        say_json(as_document(report))
        return 0
    from worker.periods import load_zone
    from worker.status import render_text

    say(render_text(report, load_zone(report.billing_zone)))
    return 0


async def _shown_as(subject: str, reports: PostgresReports) -> str:
    """The one name that an alert shows as this. Raises UnknownNameError."""
    from worker.status_names import as_argument, pattern_of, shown_as

    pattern = pattern_of(subject)
    names = [] if pattern is None else shown_as(subject, await reports.names_like(pattern))
    if not names:
        raise UnknownNameError(_unknown(subject, await reports.similar_names(subject)))
    if len(names) > 1:
        meant = ", ".join(map(as_argument, names))
        raise UnknownNameError(f"{len(names)} names are shown so, choose one of {meant}")
    return names[0]


def _unknown(subject: str, names: list[str]) -> str:
    import difflib

    from worker.status_text import clipped, visible
    from worker.telemetry import redact

    folded = {name.lower(): name for name in reversed(names)}
    wanted = subject.lower()
    near = difflib.get_close_matches(wanted, folded, n=MAX_SUGGESTIONS)
    # a part of a name is as good a guess as a typing error
    near += [name for name in folded if wanted in name and name not in near]
    meant = ", ".join(clipped(visible(folded[name])) for name in near[:MAX_SUGGESTIONS])
    cure = f"did you mean {meant}?" if meant else "quota-worker status --top 0 shows all"
    # what was typed may be an address with its password
    name = redact(clipped(visible(subject)))
    return f"no tenant, and no department with a budget, is called {name}: {cure}"
