"""The jobs, in the order in which a tick runs them.

The order matters: expired holds are given back before crossings are judged, and what
was decided in this tick is delivered in this tick; what can wait comes last. Each job's
module is imported only when it runs, so that a tick loads no more than it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.jobs.context import JobContext, JobCounts

EVERY_TICK_SECONDS = 300
HOURLY_SECONDS = 3600
DAILY_SECONDS = 86_400


class JobModule(Protocol):
    """What each module ``worker.jobs.<name>`` offers."""

    async def run(self, ctx: JobContext) -> JobCounts:
        """Do one pass; raises only for what stops the whole job."""


class Job(NamedTuple):
    """A job and the length of its schedule's slots.

    ``every_tick`` jobs run at each tick, whatever ran before; others once per slot of
    ``interval_seconds`` (aligned to the epoch, UTC) until that slot's run is done.
    """

    name: str
    interval_seconds: int
    every_tick: bool

    async def run(self, ctx: JobContext) -> JobCounts:
        """Import the job's module and run it. Idempotent, as every job is."""
        module = cast("JobModule", import_module(f"worker.jobs.{self.name}"))
        return await module.run(ctx)


JOBS: tuple[Job, ...] = (
    Job("reconcile", EVERY_TICK_SECONDS, every_tick=True),
    Job("soft_warn", EVERY_TICK_SECONDS, every_tick=True),
    Job("watch", EVERY_TICK_SECONDS, every_tick=True),
    Job("roll_month", HOURLY_SECONDS, every_tick=False),
    Job("roi_report", HOURLY_SECONDS, every_tick=False),
    Job("diagnose", HOURLY_SECONDS, every_tick=False),
    Job("deliver", EVERY_TICK_SECONDS, every_tick=True),
    Job("upkeep", DAILY_SECONDS, every_tick=False),
)


def job_names() -> tuple[str, ...]:
    """The names of all jobs, in running order."""
    return tuple(job.name for job in JOBS)


def select_jobs(names: Sequence[str]) -> tuple[Job, ...]:
    """The named jobs in running order, each once. ``KeyError`` names an unknown one."""
    for name in names:
        if name not in job_names():
            raise KeyError(name)
    return tuple(job for job in JOBS if job.name in names)
