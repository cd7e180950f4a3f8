"""The long-running process: when a tick is due, when a crossing is looked for, and how it all ends.

APScheduler fires the tick; what is due then the database decides, as under cron. Crossings are
told as they are made: judged and delivered outside the tick's lease and its record, which the
rows' own keys allow, so that a tick that works for minutes holds up no alert. No job's logic
is here.
"""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, Protocol

from worker.backoff import exponential_seconds
from worker.clock import monotonic_seconds, utc_now
from worker.errors import DatabaseError, QuotaWorkerError
from worker.jobs.context import Deadline
from worker.jobs.tick import DEADLINE_SECONDS
from worker.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from apscheduler.triggers.base import BaseTrigger

    from worker.ports.jobs import Crossings
    from worker.telemetry import Log

# Feishu throttles whole and half hours: 2, 7, 12, ...
MINUTES: Final = "2-59/5"
# A tick ends by itself at its deadline; this is for one that can't, as the alarm is under cron.
CUT_OFF_SECONDS: Final = 270.0
GIVE_UP_SECONDS: Final = 15.0
# Longer than a send, which takes 20 s at most; shorter than supervisors wait.
DRAIN_SECONDS: Final = 40
CANCEL_SECONDS: Final = 3.0
# Deliver begins nothing in the last 25 s of its deadline, so it takes up messages for 30 s.
TELL_SECONDS: Final = 55.0
# While one waits for a slow channel, others serve what comes next.
DELIVERIES_MAX: Final = 3
PAUSE_SECONDS: Final = 0.2
# What a killed process left behind, and what is to be tried again, waits for no tick.
SWEEP_SECONDS: Final = 15.0
RETRY_SECONDS_MAX: Final = 30.0
CLOCK_LOOK_SECONDS: Final = 10.0
# More than what a daemon of time corrects bit by bit between two looks.
CLOCK_SET_SECONDS: Final = 2.0


class Work(Protocol):
    """What is done; the composition root builds it."""

    async def open(self) -> None:
        """Look whether work is possible; raises QuotaWorkerError where it isn't."""

    async def tick(self, deadline: Deadline) -> None:
        """One tick, as of cron. Raises DatabaseError where it can't be begun or written down."""

    async def judge(self, deadline: Deadline) -> bool:
        """Decide what crossings tell; False: it failed, and the log says why."""

    async def deliver(self, deadline: Deadline) -> None:
        """Send what waits."""

    async def close(self) -> None:
        """Release what the work opened, but for the database. Idempotent."""


class Daemon:
    """Runs until a signal comes. Built once, run once, in the main thread."""

    def __init__(
        self,
        work: Work,
        crossings: Crossings,
        log: Log,
        *,
        trigger: BaseTrigger | None = None,
        cut_off_seconds: float = CUT_OFF_SECONDS,
    ) -> None:
        """`trigger` None: every five minutes at minute 2, in UTC."""
        self._work = work
        self._crossings = crossings
        self._log = log
        self._trigger = trigger
        self._cut_off_seconds = cut_off_seconds
        self._stop = asyncio.Event()
        self._exit_code = 0
        self._running: dict[asyncio.Task[Any], Deadline] = {}
        self._deliveries = 0
        self._deliver_again = False
        self._away_since: float | None = None

    async def run(self) -> int:
        """Work until asked to end; 0, or 1 where a hung tick is to be left behind.

        Raises what makes the start impossible: a wrong configuration, or a database that
        can't be used as it is. One that can't be reached is waited for.
        """
        loop = asyncio.get_running_loop()
        with Signals(loop, self.stop, DRAIN_SECONDS):
            await self._open()
            scheduler = self._schedule()
            loops = {
                asyncio.create_task(loop_of)
                for loop_of in (self._watch(), self._sweep(), self._keep_time(scheduler))
            }
            await self._stop.wait()
            scheduler.pause()
            await self._drain(loops)
            scheduler.shutdown(wait=False)
            await self._crossings.close()
            await self._work.close()
        return self._exit_code

    def stop(self) -> None:
        """Begin nothing more, finish what is held, end. Idempotent."""
        self._stop.set()
        for deadline in self._running.values():
            deadline.stop()

    async def _open(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                await self._until_stop(self._work.open())
            except DatabaseError as error:
                # what was set wrong stays so; all else may pass
                if error.exit_code != 1:
                    raise
                self._away(error)
                failures += 1
                await self._nap(_wait_seconds(failures))
            else:
                self._back()
                return

    def _schedule(self) -> Any:  # noqa: ANN401  APScheduler has no types
        from apscheduler.schedulers.asyncio import AsyncIOScheduler
        from apscheduler.triggers.cron import CronTrigger

        scheduler = AsyncIOScheduler(timezone=UTC)
        scheduler.add_job(
            self._tick,
            self._trigger or CronTrigger(minute=MINUTES, timezone=UTC),
            id="tick",
            coalesce=True,
            max_instances=1,
            # a tick that is late is run all the same: by default one second late would drop it
            misfire_grace_time=None,
            # what was missed is caught up at once
            next_run_time=utc_now(),
        )
        scheduler.start()
        return scheduler

    async def _tick(self) -> None:
        if self._stop.is_set():
            return
        deadline = Deadline(DEADLINE_SECONDS, monotonic_seconds)
        task = self._start(self._work.tick(deadline), deadline)
        done, _ = await asyncio.wait({task}, timeout=self._cut_off_seconds)
        if not done:
            self._log.error("tick cut off", seconds=self._cut_off_seconds)
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=GIVE_UP_SECONDS)
            if not done:
                self._log.error("a tick hangs: the process ends, to be started again")
                self._exit_code = 1
                self.stop()
        elif not task.cancelled():
            self._note(task.exception())

    async def _watch(self) -> None:
        """Look for crossings until asked to end."""
        failures = 0
        while not self._stop.is_set():
            found = True
            try:
                found = bool(await self._until_stop(self._crossings.wait()))
                self._back()
                failed = found and not self._stop.is_set() and not await self._tell()
            except Exception as error:  # noqa: BLE001  the loop's edge: alerts go on
                self._note(error)
                failed = True
            failures = failures + 1 if failed else 0
            if failed:
                await self._nap(_wait_seconds(failures))
            elif found:
                await self._nap(PAUSE_SECONDS)

    async def _sweep(self) -> None:
        """Deliver what is due, whoever queued it: at the start, and now and then."""
        while not self._stop.is_set():
            self._deliver_again = True
            self._deliver()
            await self._nap(SWEEP_SECONDS)

    async def _keep_time(self, scheduler: Any) -> None:  # noqa: ANN401  as of _schedule
        """Reckon anew when the clock was set: APScheduler would wait for the old time."""
        before = _clock_offset_seconds()
        while not self._stop.is_set():
            await self._nap(CLOCK_LOOK_SECONDS)
            offset = _clock_offset_seconds()
            if abs(offset - before) > CLOCK_SET_SECONDS and not self._stop.is_set():
                self._log.warning("clock set", seconds=round(offset - before))
                scheduler.modify_job("tick", next_run_time=utc_now())
            before = offset

    async def _tell(self) -> bool:
        """Judge now, and deliver beside whatever else is delivered; False: the judging failed."""
        deadline = Deadline(TELL_SECONDS, monotonic_seconds)
        judged = await self._start(self._work.judge(deadline), deadline)
        if judged:
            self._deliver_again = True
            self._deliver()
        return bool(judged)

    def _deliver(self) -> None:
        if not self._deliver_again or self._deliveries >= DELIVERIES_MAX or self._stop.is_set():
            return
        self._deliver_again = False
        self._deliveries += 1
        deadline = Deadline(TELL_SECONDS, monotonic_seconds)
        task = self._start(self._work.deliver(deadline), deadline)
        task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[Any]) -> None:
        self._deliveries -= 1
        if not task.cancelled():
            self._note(task.exception())
        self._deliver()

    def _start(self, work: Coroutine[Any, Any, Any], deadline: Deadline) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._running[task] = deadline
        task.add_done_callback(lambda ended: self._running.pop(ended, None))
        return task

    async def _drain(self, loops: set[asyncio.Task[None]]) -> None:
        """Wait for what runs, which was asked to end; cut off what doesn't within the bound."""
        left: set[asyncio.Task[Any]] = {*loops, *self._running}
        _, left = await asyncio.wait(left, timeout=DRAIN_SECONDS if self._exit_code == 0 else 0)
        if left:
            self._log.warning("cut off at the end", running=len(left), seconds=DRAIN_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=CANCEL_SECONDS)

    async def _until_stop(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401  the work's own
        """The work's answer; None where the end came first, and the work was cancelled."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return await task
            return None
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CANCEL_SECONDS)

    async def _nap(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    def _note(self, error: BaseException | None) -> None:
        """Tell how something ended, unless that is known."""
        if error is None:
            self._back()
        elif isinstance(error, DatabaseError):
            self._away(error)
        elif isinstance(error, QuotaWorkerError):
            self._log.error("failed", error=" ".join(str(error).split()))
        else:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self._log.error("internal error", error=text)

    def _away(self, error: DatabaseError) -> None:
        """One line when the database goes, however often it is tried again."""
        if self._away_since is None:
            self._away_since = monotonic_seconds()
            self._log.warning("database away", error=" ".join(str(error).split()))

    def _back(self) -> None:
        if self._away_since is not None:
            seconds = round(monotonic_seconds() - self._away_since, 1)
            self._away_since = None
            self._log.info("database back", seconds=seconds)


def _clock_offset_seconds() -> float:
    """Stays as it is, until somebody sets the clock or the machine sleeps."""
    return utc_now().timestamp() - monotonic_seconds()


def _wait_seconds(failures: int) -> float:
    return exponential_seconds(failures, base_seconds=1.0, max_seconds=RETRY_SECONDS_MAX)
