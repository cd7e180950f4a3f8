"""`quota-worker metrics [--output FILE] [--top N]`."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.answers import say
from worker.errors import OutputError, QuotaWorkerError, UsageError
from worker.untrusted import visible

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps

DEFAULT_TOP: Final = 20
# Each is a series or two, kept for weeks.
TOP_MAX: Final = 1_000
MODE: Final = 0o644  # node_exporter is another user


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write FILE in one step, for a textfile collector (default: stdout)",
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=int,
        default=DEFAULT_TOP,
        help=f"series of the N worst tenants (default {DEFAULT_TOP}, at most {TOP_MAX}; "
        "0: none, and no totals of the day)",
    )


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """The metrics of now. Raises UsageError, OutputError, and what the database raises.

    Where the database told nothing, that is what is written: nothing stale stays.
    """
    if not 0 <= args.top <= TOP_MAX:
        raise UsageError(f"--top needs a number of tenants from 0 to {TOP_MAX}")
    if args.output is not None and not args.output:
        raise UsageError("--output needs a file's name, and got an empty one")
    place = None if args.output is None else _place(args.output)
    if sys.stderr.isatty():
        deps.tell_embedded()
    from worker.metrics import unreachable_text

    try:
        text = await _look(args.top, deps)
    except (QuotaWorkerError, OSError) as error:
        _write(unreachable_text(), place)
        raise error from None
    _write(text, place)
    return 0


async def _look(top: int, deps: Deps) -> str:
    from worker.clock import monotonic_seconds
    from worker.jobs.registry import JOBS
    from worker.metrics import metrics_text

    begin = monotonic_seconds()
    metrics = await deps.metrics()
    intervals = {job.name: job.interval_seconds for job in JOBS}
    facts = await metrics.look(list(intervals), top)
    return metrics_text(facts, monotonic_seconds() - begin, intervals)


def _place(output: str) -> Path:
    """Where the file lies, or will: of a link what it leads to. Raises OutputError.

    The file is replaced, which would take a device such as /dev/null from the whole machine.
    """
    try:
        is_file = stat.S_ISREG(Path(output).stat().st_mode)
    except FileNotFoundError:
        is_file = True  # to be made
    except (OSError, ValueError) as error:
        raise _refused(output, error) from error
    if not is_file:
        raise OutputError(
            f"{visible(output)} can't be written: it is no plain file, and stays as it is; name a "
            "file, or leave --output out for stdout"
        )
    return Path(os.path.realpath(output))


def _refused(output: str, error: OSError | ValueError) -> OutputError:
    number = error.errno if isinstance(error, OSError) else None
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    is_full = number in {errno.ENOSPC, errno.EDQUOT}
    cure = "make room there" if is_full else "choose a folder that this user may write to"
    return OutputError(f"{visible(output)} can't be written: {reason.lower()}; {cure}")


def _write(text: str, path: Path | None) -> None:
    """To stdout, or as a whole file: whoever reads FILE meanwhile has the one before."""
    if path is None:
        say(text.removesuffix("\n"))
        return
    try:
        # not .prom: a collector reads every file of that name
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            Path(name).chmod(MODE)
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except (OSError, ValueError) as error:
        raise _refused(str(path), error) from error
