"""`quota-worker run JOB`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.commands.tick import add_run_arguments, chosen_jobs, run_jobs

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("job", metavar="JOB", help="the job's name, such as reconcile")
    add_run_arguments(parser)


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Run one job whether it is due or not; exit codes as of `tick`."""
    return await run_jobs(args, deps, chosen_jobs([args.job]), always=True)
