"""`quota-worker months [--last N] [--json]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from worker.answers import say, say_json
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps

DEFAULT_LAST: Final = 12
MAX_LAST: Final = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "--last",
        metavar="N",
        type=int,
        default=DEFAULT_LAST,
        help=f"the latest N months (default {DEFAULT_LAST}; 0: all)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """The billing months with their state. Raises UsageError for options that can't be."""
    from worker.months import months_document, months_text

    if not 0 <= args.last <= MAX_LAST:
        raise UsageError("--last needs a number of months, or 0 for all")
    if sys.stderr.isatty():
        deps.tell_embedded()
    report = await (await deps.months()).report(args.last)
    if args.json:
        say_json(months_document(report))
    else:
        say(months_text(report))
    return 0
