"""`quota-worker tick [--jobs a,b] [--as-of T] [--dry-run] [--json]`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from worker.answers import say, say_json, tell
from worker.errors import UsageError
from worker.settings import HEARTBEAT_VARIABLE
from worker.signals import ending_signals
from worker.telemetry import unmistaken

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from worker.bootstrap import Deps
    from worker.jobs.registry import Job
    from worker.jobs.tick import TickReport
    from worker.models import ChannelFailure, JobRun, ReportFault
    from worker.usage import SourceFailure, SourcesNotSet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("--jobs", metavar="A,B", help="only these jobs (default: all that are due)")
    add_run_arguments(parser)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What `tick` and `run` share."""
    parser.add_argument(
        "--as-of",
        metavar="T",
        help="judge by this time, such as 2026-11-30T10:05:00Z, not by the clock (replays, tests)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="change and send nothing, say what would be done"
    )
    parser.add_argument("--json", action="store_true", help="write what was done to stdout")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """One pass; exit 0 done, nothing to do, or another tick at work; 1 a job failed."""
    from worker.jobs.registry import JOBS

    jobs = JOBS if args.jobs is None else chosen_jobs(args.jobs.split(","))
    # a job asked for by name runs even when its slot is done
    return await run_jobs(args, deps, jobs, always=args.jobs is not None)


def chosen_jobs(names: Sequence[str]) -> tuple[Job, ...]:
    """The jobs of these names; raises UsageError for an unknown one."""
    from worker.jobs.registry import job_names, select_jobs

    try:
        return select_jobs([name.strip() for name in names])
    except KeyError as error:
        raise UsageError(
            f"no job is called {error.args[0]!r}: the jobs are {', '.join(job_names())}"
        ) from error


async def run_jobs(
    args: argparse.Namespace, deps: Deps, jobs: Sequence[Job], *, always: bool
) -> int:
    """Run the jobs as one tick and answer as the options ask."""
    # read first: a wrong address is told at once, and not after the first good tick
    beat = None if always or args.dry_run or args.as_of else heartbeat(deps)
    if sys.stderr.isatty():  # every five minutes in a log would be noise
        deps.tell_variables()
    report = await tick(
        deps,
        jobs,
        as_of=option_time(args.as_of, "--as-of"),
        dry_run=args.dry_run,
        always=always,
        on_run=lambda job_run: log_run(deps, job_run),
    )
    if beat is not None:
        await beat(report)
    for remark in month_remarks(report.runs):
        tell(remark)
    if always and report.granted and any(job.name == "roi_report" for job in jobs):
        _tell_idle_reports(deps, report)
    if args.json:
        say_json(as_document(report))
    elif args.dry_run:
        from worker.untrusted import for_terminal

        for job_run in report.runs:
            counts = ", ".join(
                f"{name} {number}" for name, number in job_run.counts.items() if number
            )
            say(f"{job_run.job:<12}{job_run.error or counts or 'nothing to do'}")
            for text in job_run.would:
                say(f"{'':<12}would {for_terminal(text)}")
    elif not report.granted:
        tell("another tick is at work: left to it")
    return 1 if report.failed else 0


def month_remarks(runs: Sequence[JobRun]) -> list[str]:
    """What is to be known at once of months that a roll closed, or left open, against a clock."""
    told = []
    for counts in (run.counts for run in runs):
        if early := counts.get("closed_early"):
            told.append(
                f"{_months(early)} closed for good before the end and the 72 hours after it have "
                "come: what is charged in a closed month is in no totals of it; "
                "quota-worker months marks it as early, docs/months.md says what to do"
            )
        if held := counts.get("held_back"):
            told.append(
                f"{_months(held)} not closed: by the database's clock it is time, by this "
                "machine's not; quota-worker doctor says how far they differ"
            )
    return told


def _tell_idle_reports(deps: Deps, report: TickReport) -> None:
    """Why a run of roi_report that somebody asked for made nothing."""
    if deps.delivery().report is None:
        tell(
            "no reports are made here: the configuration has no [report]; name the schedule's "
            "with --config or QUOTA_WORKER_CONFIG, or see docs/report.md"
        )
        return
    for run in report.runs:
        if run.job == "roi_report" and run.outcome == "done" and not run.counts["due"]:
            tell(
                "no report is due: each closed month's was made, or its day has not come; "
                "quota-worker months says when months close"
            )


def _months(count: int) -> str:
    return "1 month was" if count == 1 else f"{count} months were"


def heartbeat(deps: Deps) -> Callable[[TickReport], Awaitable[None]] | None:
    """What to call with each tick's report; None: nobody is to be told. For whole ticks of now.

    Raises ConfigurationError for a wrong address.
    """
    if not deps.environ.get(HEARTBEAT_VARIABLE, "").strip():
        return None  # the usual case imports nothing
    from worker.heartbeat import heartbeat_url, tell_heartbeat

    url = heartbeat_url(deps.environ)
    return lambda report: tell_heartbeat(url, report, deps.log)


async def tick(
    deps: Deps,
    jobs: Sequence[Job],
    *,
    as_of: datetime | None,
    dry_run: bool,
    always: bool,
    on_run: Callable[[JobRun], None],
) -> TickReport:
    """One tick with its lease, deadline and signals; raises only for the database's trouble."""
    from worker.clock import monotonic_seconds
    from worker.jobs.context import Deadline
    from worker.jobs.tick import DEADLINE_SECONDS, Tick, TickAsked

    # a wrong channel is told even when there is nothing to send
    channels = deps.channels()
    deadline = Deadline(DEADLINE_SECONDS, monotonic_seconds)
    loop = asyncio.get_running_loop()
    ending = ending_signals()
    for number in ending:
        loop.add_signal_handler(number, deadline.stop)
    try:
        runner = Tick(
            await deps.job_runs(),
            f"{os.uname().nodename}:{os.getpid()}",
            monotonic_seconds,
            on_run,
        )
        asked = TickAsked(as_of, deadline, dry_run, always)
        return await runner.run(jobs, asked, lambda: deps.job_ports(channels))
    finally:
        for number in ending:
            loop.remove_signal_handler(number)
        await channels.close()


def option_time(text: str | None, option: str) -> datetime | None:
    """The option's time; one without an offset is UTC. Raises UsageError."""
    if text is None:
        return None
    from worker.replay_trace import END_OF_TIME, FIRST_TIME, parse_time

    try:
        at = parse_time(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text!r} is no time: one such as 2026-11-30T10:05:00Z is needed"
        ) from error
    if not FIRST_TIME <= at < END_OF_TIME:
        raise UsageError(f"{option} {text!r} is out of range: the years 2000 to 2199")
    return at


def as_document(report: TickReport) -> dict[str, object]:
    """For JSON."""
    return {
        "granted": report.granted,
        "failed": report.failed,
        "jobs": [
            {
                "job": job_run.job,
                "outcome": job_run.outcome,
                "seconds": round(job_run.seconds, 4),
                "error": job_run.error,
                **job_run.counts,
                **({"would": list(job_run.would)} if job_run.would else {}),
                **(
                    {"failures": [failure._asdict() for failure in job_run.failures]}
                    if job_run.failures
                    else {}
                ),
            }
            for job_run in report.runs
        ],
    }


def _event(failure: ChannelFailure | SourceFailure | SourcesNotSet | ReportFault) -> str:
    if hasattr(failure, "channel"):
        return "channel failing"
    if hasattr(failure, "department"):
        return "report can't be built"
    return "source failing" if hasattr(failure, "source") else "no usage source configured"


def log_run(deps: Deps, job_run: JobRun) -> None:
    """A line per job that did something; a healthy tick without work stays silent and fast."""
    seconds = round(job_run.seconds, 3)
    counts = job_run.counts
    for failure in job_run.failures:
        deps.log.warning(_event(failure), job=job_run.job, **failure._asdict())
    if job_run.outcome == "failed":
        # without what isn't: its name alone, lock_timeouts 0, would be read as a cause
        counts = {unmistaken(name): number for name, number in counts.items() if number}
        error = job_run.error and unmistaken(job_run.error)
        seconds = round(seconds, 1)
        deps.log.error("job failed", job=job_run.job, seconds=seconds, error=error, **counts)
    elif any(counts.values()) or job_run.outcome != "done":
        deps.log.info(
            "job ran", job=job_run.job, outcome=job_run.outcome, seconds=seconds, **counts
        )
