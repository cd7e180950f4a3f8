"""`quota-worker status [SUBJECT] [--json] [--watch] [--top N]`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from worker.answers import flush_answers, say, say_json
from worker.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.postgres.reports import PostgresReports
    from worker.status_report import StatusReport

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
    parser.add_argument(
        "--watch",
        action="store_true",
        help="again every 2 s until Ctrl-C: on a terminal in place, else one after the other",
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
    name = args.subject
    if name is not None and not report.rows:
        name = await _shown_as(name, reports)
        report = await reports.status(args.top or None, name)
    if args.watch:
        return await _watch(args, deps, reports, name)
    _say(report, deps, as_json=args.json)
    return 0


def _say(report: StatusReport, deps: Deps, *, as_json: bool) -> None:
    if as_json:
        from worker.status import as_document

        say_json(as_document(report))
        return
    from worker.periods import load_zone
    from worker.status import render_text
    from worker.status_text import Palette, wants_colour

    columns = None
    if sys.stdout is not None and sys.stdout.isatty():
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(sys.stdout.fileno()).columns or None
    palette = Palette(coloured=wants_colour(sys.stdout, deps.environ))
    say(render_text(report, load_zone(report.billing_zone), palette, columns))


async def _watch(
    args: argparse.Namespace, deps: Deps, reports: PostgresReports, name: str | None
) -> int:
    """Until interrupted; the terminal is left as it was."""
    from worker.clock import monotonic_seconds
    from worker.periods import load_zone
    from worker.status import render_text
    from worker.status_text import Palette, wants_colour
    from worker.status_watch import Watch

    palette = Palette(coloured=wants_colour(sys.stdout, deps.environ))

    def render(report: StatusReport, columns: int | None) -> str:
        return render_text(report, load_zone(report.billing_zone), palette, columns)

    async def read() -> StatusReport:
        return await reports.status(args.top or None, name)

    watch = Watch(read, render, monotonic_seconds, sys.stdout)
    # a dumb terminal has no screen to go back to
    in_place = not args.json and deps.environ.get("TERM") != "dumb"
    if in_place and sys.stdout is not None and sys.stdout.isatty():
        await watch.on_terminal()
        return 0

    def say_one(report: StatusReport) -> None:
        _say(report, deps, as_json=args.json)
        if not args.json:
            say("")
        flush_answers()

    await watch.as_lines(say_one)
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
