"""One tick: take the lease, run what is due, write down how it went.

Correctness never rests on the lease: it only keeps two ticks from doing the same work
twice. A job that fails stops no other. The database's own trouble stops the tick:
nothing is marked done, and the next tick finds everything as it was.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from worker.errors import DatabaseUnreachableError, QuotaWorkerError
from worker.jobs.context import JobContext
from worker.models import JobRun, JobSchedule

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from worker.jobs.context import Deadline, JobPorts
    from worker.jobs.registry import Job
    from worker.models import TickLease
    from worker.ports.jobs import JobRuns

    OpenPorts = Callable[[], Awaitable[JobPorts]]

DEADLINE_SECONDS = 240.0
LEASE_SECONDS = 60
RENEW_EVERY_SECONDS = 20.0
ERROR_CHARACTERS = 500


class TickReport(NamedTuple):
    """``granted`` False: another tick is at work and nothing was done."""

    granted: bool
    runs: tuple[JobRun, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether any job failed: the process then ends with 1."""
        return any(run.outcome == "failed" for run in self.runs)


class TickAsked(NamedTuple):
    """How a tick is to run: ``now`` and ``dry_run`` as of ``JobContext``; ``always``: all jobs."""

    now: datetime | None
    deadline: Deadline
    dry_run: bool
    always: bool

    def context(self, ports: JobPorts) -> JobContext:
        """What the jobs are handed."""
        return JobContext(self.now, self.deadline, self.dry_run, ports)


class Tick:
    """Runs jobs under the lease. Built once, run once."""

    def __init__(
        self,
        job_runs: JobRuns,
        owner: str,
        monotonic: Callable[[], float],
        on_run: Callable[[JobRun], None],
    ) -> None:
        """``on_run`` hears of each job as it ends (logs); ``owner`` names this process."""
        self._job_runs = job_runs
        self._owner = owner
        self._monotonic = monotonic
        self._on_run = on_run

    async def run(self, jobs: Sequence[Job], asked: TickAsked, open_ports: OpenPorts) -> TickReport:
        """One pass over those of ``jobs`` that are due, or over all when ``asked.always``.

        A dry run takes no lease and writes nothing down. ``open_ports`` is called only when
        a job is to run: an idle tick doesn't pay for it.
        """
        schedules = [
            JobSchedule(job.name, job.interval_seconds, asked.always or job.every_tick)
            for job in jobs
        ]
        if asked.dry_run:
            due = await self._job_runs.due(schedules, asked.now)
            ctx = asked.context(await open_ports())
            runs = [
                await run_job(job, ctx, self._monotonic, self._on_run)
                for job in jobs
                if job.name in due
            ]
            return TickReport(granted=True, runs=tuple(runs))
        lease = await self._job_runs.begin(
            self._owner, LEASE_SECONDS, schedules, asked.now, may_idle=not asked.always
        )
        if lease is None:
            return TickReport(granted=False)
        if lease.idle:
            return TickReport(
                granted=True, runs=tuple(JobRun(job, "done", {}, 0.0) for job in lease.due_jobs)
            )
        renewal = asyncio.create_task(self._keep(lease, asked.deadline))
        try:
            return await self._run_due(jobs, asked, lease, open_ports)
        finally:
            renewal.cancel()

    async def _run_due(
        self, jobs: Sequence[Job], asked: TickAsked, lease: TickLease, open_ports: OpenPorts
    ) -> TickReport:
        """Run each due job; the record and the lease's end are written in one go.

        A job's record is held back only while the jobs after it run: should the process
        die meanwhile, those slots are due again, and every job is idempotent.
        """
        runs: list[JobRun] = []
        try:
            ctx = asked.context(await open_ports())
            for job in jobs:
                if job.name in lease.due_jobs:
                    run = await run_job(job, ctx, self._monotonic, self._on_run)
                    runs.append(run)
        finally:
            idle = not asked.always and {job.name for job in jobs if job.every_tick} <= {
                run.job for run in runs if run.outcome == "done" and not any(run.counts.values())
            }
            await self._job_runs.record(lease, runs, release=True, now=asked.now, idle=idle)
        return TickReport(granted=True, runs=tuple(runs))

    async def _keep(self, lease: TickLease, deadline: Deadline) -> None:
        """Renew the lease until cancelled; losing it asks the jobs to stop."""
        while True:  # bounded by the tick, which cancels it
            await asyncio.sleep(RENEW_EVERY_SECONDS)
            try:
                kept = await self._job_runs.renew(lease, LEASE_SECONDS)
            except QuotaWorkerError:
                continue
            if not kept:
                deadline.stop()
                return


async def run_job(
    job: Job,
    ctx: JobContext,
    monotonic: Callable[[], float],
    on_run: Callable[[JobRun], None],
) -> JobRun:
    """Run one job and tell how it ended; by itself it needs no lease, as its own keys carry it.

    Raises DatabaseUnreachableError: then nobody could tell how far it came.
    """
    started = monotonic()
    if ctx.deadline.reached():
        run = JobRun(job.name, "unfinished", {}, 0.0)
    else:
        try:
            counts = await job.run(ctx)
        except DatabaseUnreachableError:
            raise
        except QuotaWorkerError as error:
            run = JobRun(job.name, "failed", {}, 0.0, _one_line(error))
        except Exception as error:  # noqa: BLE001  the loop's edge: no job stops another
            run = JobRun(job.name, "failed", {}, 0.0, f"{type(error).__name__}: {_one_line(error)}")
        else:
            outcome = "failed" if counts.failed else "unfinished" if counts.leftover else "done"
            run = JobRun(
                job.name,
                outcome,
                counts.as_counts(),
                0.0,
                failures=counts.failures,
                would=counts.would,
            )
    run = run._replace(seconds=monotonic() - started)
    on_run(run)
    return run


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:ERROR_CHARACTERS] or type(error).__name__
