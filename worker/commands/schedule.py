"""`quota-worker schedule`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from worker.commands.tick import heartbeat, log_run

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.jobs.context import Deadline, JobPorts
    from worker.models import JobRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no options of its own: what is due is the database's to say."""
    del parser


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Run the jobs until asked to end; exit 0 then, 1 where a tick hangs for good."""
    del args
    from worker.daemon import Daemon

    deps.tell_variables()
    work = DeployedWork(deps)
    daemon = Daemon(work, deps.crossings(), deps.log)
    return await daemon.run()


class DeployedWork:
    """``Work`` with this deployment's channels and database."""

    def __init__(self, deps: Deps) -> None:
        """Raises ConfigurationError, so that a wrong one ends the start."""
        self._deps = deps
        self._heartbeat = heartbeat(deps)
        self._channels = deps.channels()
        self._ports: JobPorts | None = None

    async def open(self) -> None:
        """The database answers and has our schema; what sending needs is loaded."""
        from worker.errors import ConfigurationError

        for name in self._channels.served:
            try:
                self._channels.notifier(name).warm_up()
            except ConfigurationError as error:  # what only the channel's own library knows
                self._deps.log.warning("channel can't be used", channel=name, reason=str(error))
        runs = await self._deps.job_runs()
        await runs.due([], None)
        self._ports = await self._deps.job_ports(self._channels)

    async def tick(self, deadline: Deadline) -> None:
        """One tick with channels of its own, as of cron."""
        from worker.clock import monotonic_seconds
        from worker.jobs.registry import JOBS
        from worker.jobs.tick import Tick, TickAsked

        channels = self._deps.channels()
        try:
            runner = Tick(
                await self._deps.job_runs(),
                f"{os.uname().nodename}:{os.getpid()}",
                monotonic_seconds,
                self._log,
            )
            asked = TickAsked(None, deadline, dry_run=False, always=False)
            report = await runner.run(JOBS, asked, lambda: self._deps.job_ports(channels))
        finally:
            await channels.close()
        if self._heartbeat is not None:
            await self._heartbeat(report)

    async def judge(self, deadline: Deadline) -> bool:
        """soft_warn, outside the lease: its rows' keys let one of several passes tell."""
        if self._ports is None:
            self._ports = await self._deps.job_ports(self._channels)
        return await self._run("soft_warn", deadline, self._ports)

    async def deliver(self, deadline: Deadline) -> None:
        """Deliver, outside the lease: each message has one of its own."""
        if self._ports is not None:
            # of its own: what ends first closes its connections
            channels = self._deps.channels()
            try:
                await self._run("deliver", deadline, self._ports._replace(channels=channels))
            finally:
                await channels.close()

    async def close(self) -> None:
        """Close the channels that were only warmed up."""
        await self._channels.close()

    async def _run(self, name: str, deadline: Deadline, ports: JobPorts) -> bool:
        from worker.clock import monotonic_seconds
        from worker.jobs.context import JobContext
        from worker.jobs.registry import select_jobs
        from worker.jobs.tick import run_job

        (job,) = select_jobs([name])
        ctx = JobContext(None, deadline, dry_run=False, ports=ports)
        return (await run_job(job, ctx, monotonic_seconds, self._log)).outcome != "failed"

    def _log(self, job_run: JobRun) -> None:
        log_run(self._deps, job_run)
