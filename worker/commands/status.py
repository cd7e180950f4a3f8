"""`quota-worker status [--json] [--top N]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.bootstrap import Deps, say
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse

DEFAULT_TOP = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--top",
        metavar="N",
        type=int,
        default=DEFAULT_TOP,
        help="how many rows (default 20; 0: all)",
    )


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """One row per tenant and department, worst first, and the worker's own state."""
    if args.top < 0:
        raise UsageError("--top needs a number of rows, or 0 for all")
    report = await (await deps.reports()).status(args.top or None)
    if args.json:
        import json

        from worker.status import as_document

        say(json.dumps(as_document(report), ensure_ascii=False))
        return 0
    from worker.periods import load_zone
    from worker.status import render_text

    say(render_text(report, load_zone(report.billing_zone)))
    return 0
