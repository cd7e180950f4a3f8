"""`quota-worker audit [--month M] [--repair] [--top N] [--json]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from worker.answers import say, say_json
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from datetime import date

    from worker.bootstrap import Deps

DEFAULT_TOP: Final = 50
MAX_TOP: Final = 2_147_483_647
DRIFT_FOUND: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("--month", metavar="M", help="a billing month like 2026-10 (the open one)")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="mend what is off, in one transaction; each mend is a row of quota_repairs",
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=int,
        help=f"how many rows (default {DEFAULT_TOP}, with --json all; 0: all)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Every drift of the month with its place and its likely cause.

    Exit code 1 where there is one, after a repair where one is left. Raises UsageError.
    """
    from worker.postgres.audit import MAX_ROWS

    if args.top is not None and not 0 <= args.top <= MAX_TOP:
        raise UsageError("--top needs a number of rows, or 0 for all")
    month = _month(args.month)
    if sys.stderr.isatty():
        deps.tell_embedded()
    audit = await deps.audit()
    top = args.top if args.top is not None else (0 if args.json else DEFAULT_TOP)
    repair = await audit.repair(month, None) if args.repair else None
    report = await audit.report(month, top or MAX_ROWS, None)
    if args.json:
        from worker.audit import as_document

        say_json(as_document(report, repair))
    else:
        from worker.audit import render_text

        say(render_text(report, repair, top))
    return DRIFT_FOUND if report.drifts else 0


def _month(text: str | None) -> date | None:
    """Its first day; None: the open one. Raises UsageError."""
    if text is None:
        return None
    from worker.periods import parse_month
    from worker.untrusted import for_terminal

    try:
        return parse_month(text)
    except ValueError:
        raise UsageError(f"--month {for_terminal(text)} is no month like 2026-10") from None
