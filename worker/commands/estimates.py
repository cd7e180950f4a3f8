"""`quota-worker estimates [--days N] [--model M] [--by model|app|key] [--top N] [--json]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from worker.answers import say, say_json
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps

DEFAULT_DAYS: Final = 30
MAX_DAYS: Final = 366
DEFAULT_TOP: Final = 20
MAX_TOP: Final = 2_147_483_647
BY: Final = ("model", "app", "key")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "--days",
        metavar="N",
        type=int,
        default=DEFAULT_DAYS,
        help=f"requests of so many days of 24 hours up to now (default {DEFAULT_DAYS})",
    )
    parser.add_argument("--model", metavar="M", help="only this one, as requests were admitted to")
    parser.add_argument(
        "--by", metavar="B", default=BY[0], help="a row per model (default), or its app or key"
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=int,
        default=DEFAULT_TOP,
        help=f"how many rows (default {DEFAULT_TOP}; 0: all)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """How far estimates lie from usage, the worst first, with a line of advice each.

    Raises UsageError for options that can't be.
    """
    from worker.estimates_report import EstimatesAsked

    if not 1 <= args.days <= MAX_DAYS:
        raise UsageError(f"--days needs a number from 1 to {MAX_DAYS}")
    if not 0 <= args.top <= MAX_TOP:
        raise UsageError("--top needs a number of rows, or 0 for all")
    if args.by not in BY:
        from worker.untrusted import for_terminal

        raise UsageError(f"no --by {for_terminal(args.by)}: choose one of {', '.join(BY)}")
    if sys.stderr.isatty():
        deps.tell_embedded()
    asked = EstimatesAsked(days=args.days, model=args.model, by=args.by, top=args.top)
    report = await (await deps.estimates()).report(asked)
    if args.json:
        from worker.estimates import estimates_document

        say_json(estimates_document(report))
        return 0
    from worker.estimates import estimates_text

    say(estimates_text(report))
    return 0
