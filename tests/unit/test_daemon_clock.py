"""A clock that is set while `schedule` runs: APScheduler reckons by it, and would wait for the old time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

import apscheduler.schedulers.base
import apscheduler.triggers.cron
import pytest
from apscheduler.triggers.cron import CronTrigger

import worker.daemon
from worker.clock import utc_now
from worker.daemon import Daemon
from worker.telemetry import Log

if TYPE_CHECKING:
    from worker.jobs.context import Deadline

HOUR = timedelta(hours=1)


class Wall:
    """The clock as the process reads it: the real one, and what it was set by."""

    by = timedelta()

    def now(self) -> datetime:
        return utc_now() + self.by


@dataclass
class Counted:
    """Work that is done at once; the ticks are counted."""

    ticks: list[float] = field(default_factory=list)

    async def open(self) -> None:
        """Nothing to open."""

    async def tick(self, _deadline: Deadline) -> None:
        self.ticks.append(asyncio.get_running_loop().time())

    async def judge(self, _deadline: Deadline) -> bool:
        return True

    async def deliver(self, _deadline: Deadline) -> None:
        """Nothing to deliver."""

    async def wait(self) -> bool:
        await asyncio.Event().wait()
        return True

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    wall = Wall()

    class Read(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return wall.now().astimezone(tz)

    for module in (apscheduler.schedulers.base, apscheduler.triggers.cron):
        monkeypatch.setattr(module, "datetime", Read)
    monkeypatch.setattr(worker.daemon, "utc_now", wall.now)
    monkeypatch.setattr(worker.daemon, "CLOCK_LOOK_SECONDS", 0.1)
    return wall


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
async def test_ticks_go_on_when_the_clock_is_set(wall: Wall, set_by: timedelta) -> None:
    work = Counted()
    each_second = CronTrigger(second="*", timezone=UTC)
    daemon = Daemon(work, work, Log(), trigger=each_second)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    loop.call_later(1.3, setattr, wall, "by", set_by)
    # and right again, after a tick by the wrong time
    loop.call_later(3.3, setattr, wall, "by", timedelta())
    loop.call_later(5.4, daemon.stop)
    assert await daemon.run() == 0
    for first in (1.5, 3.5):
        assert sum(first < at - begun < first + 1.9 for at in work.ticks) >= 1, work.ticks
    # no storm of what was missed
    assert len(work.ticks) <= 10
