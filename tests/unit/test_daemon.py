"""The daemon alone, with work that the test watches: late ticks, hung ones, the end."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import apscheduler.schedulers.asyncio  # noqa: F401  here, and not while the clock runs
import pytest
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

import worker.daemon
from worker.clock import utc_now
from worker.daemon import DELIVERIES_MAX, Daemon
from worker.errors import DatabaseUnreachableError, SchemaMissingError
from worker.signals import ending_signals
from worker.telemetry import Log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.jobs.context import Deadline

BLOCKED_SECONDS = 3.0


async def nothing(_deadline: Deadline) -> None:
    """Work that is done at once."""


@dataclass
class Watched:
    """Work and crossings: what each does is the test's to say, and what was called is counted."""

    on_tick: Callable[[Deadline], Awaitable[None]] = nothing
    on_deliver: Callable[[Deadline], Awaitable[None]] = nothing
    open_fault: Exception | None = None
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    called: list[str] = field(default_factory=list)

    async def open(self) -> None:
        if self.open_fault is not None:
            raise self.open_fault

    async def tick(self, deadline: Deadline) -> None:
        self.called.append("tick")
        await self.on_tick(deadline)
        self.called.append("ticked")

    async def judge(self, deadline: Deadline) -> bool:
        del deadline
        self.called.append("judge")
        return True

    async def deliver(self, deadline: Deadline) -> None:
        self.called.append("deliver")
        await self.on_deliver(deadline)

    async def wait(self) -> bool:
        await self.waiting.wait()
        return True

    async def close(self) -> None:
        self.called.append("close")


def a_daemon(work: Watched, log: Log | None = None, **plan: Any) -> Daemon:
    # the first tick at the start, the second one within 1 to 2 s, no third
    at = (utc_now() + timedelta(seconds=2)).replace(microsecond=0)
    once = CronTrigger(hour=at.hour, minute=at.minute, second=at.second, timezone=UTC)
    plan.setdefault("trigger", once)
    return Daemon(work, work, log or Log(), **plan)


async def test_case_28_a_loop_that_was_blocked_at_fire_time_runs_the_tick_once() -> None:
    work = Watched()
    daemon = a_daemon(work)
    loop = asyncio.get_running_loop()
    loop.call_later(0.3, time.sleep, BLOCKED_SECONDS)
    loop.call_later(0.3 + BLOCKED_SECONDS + 0.3, daemon.stop)
    assert await daemon.run() == 0
    assert work.called.count("ticked") == 2


async def test_a_hung_tick_is_cut_off_and_the_next_one_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def hangs(_deadline: Deadline) -> None:
        await asyncio.sleep(3600)

    work = Watched(on_tick=hangs)
    daemon = a_daemon(work, cut_off_seconds=0.1)
    asyncio.get_running_loop().call_later(2.8, daemon.stop)
    assert await daemon.run() == 0
    assert work.called.count("tick") == 2
    assert capsys.readouterr().err.count('"tick cut off"') == 2


async def test_a_tick_that_can_not_be_ended_ends_the_process_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("GIVE_UP_SECONDS", "CANCEL_SECONDS"):
        monkeypatch.setattr(worker.daemon, name, 0.1)
    let_go = asyncio.Event()

    async def ignores(_deadline: Deadline) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(10):
        assert await a_daemon(Watched(on_tick=ignores), cut_off_seconds=0.1).run() == 1
    let_go.set()
    await asyncio.sleep(0)


async def test_the_end_waits_for_what_runs_and_asks_it_to_stop() -> None:
    async def until_asked(deadline: Deadline) -> None:
        while not deadline.stopped:  # noqa: ASYNC110  a deadline is asked, as jobs do
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    work = Watched(on_tick=until_asked)
    daemon = a_daemon(work)
    asyncio.get_running_loop().call_later(0.3, daemon.stop)
    assert await daemon.run() == 0
    assert [one for one in work.called if one != "deliver"] == ["tick", "ticked", "close", "close"]


async def test_what_was_left_behind_is_delivered_at_the_start_and_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker.daemon, "SWEEP_SECONDS", 0.2)
    let_go = asyncio.Event()

    async def holds(_deadline: Deadline) -> None:
        await let_go.wait()

    work = Watched(on_tick=holds)
    daemon = a_daemon(work)
    loop = asyncio.get_running_loop()
    loop.call_later(1.2, let_go.set)
    loop.call_later(1.2, daemon.stop)
    assert await daemon.run() == 0
    assert 2 <= work.called.count("deliver") <= 7
    assert "judge" not in work.called


async def test_a_slow_channel_holds_up_no_later_crossing_and_few_deliver_at_once() -> None:
    most = 0
    running = 0

    async def slow(deadline: Deadline) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        while not deadline.stopped:  # noqa: ASYNC110  a deadline is asked, as jobs do
            await asyncio.sleep(0.01)
        running -= 1

    work = Watched(on_deliver=slow)
    work.waiting.set()
    daemon = a_daemon(work)
    asyncio.get_running_loop().call_later(1.4, daemon.stop)
    assert await daemon.run() == 0
    assert work.called.count("judge") > DELIVERIES_MAX
    assert most == DELIVERIES_MAX


async def test_a_database_away_is_one_line_however_often_it_is_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def away(_deadline: Deadline) -> None:
        raise DatabaseUnreachableError

    work = Watched(on_tick=away)
    daemon = a_daemon(work, trigger=IntervalTrigger(seconds=1))
    asyncio.get_running_loop().call_later(2.5, daemon.stop)
    assert await daemon.run() == 0
    assert work.called.count("tick") >= 2
    assert capsys.readouterr().err.count("database away") == 1


async def test_what_was_set_wrong_ends_the_start() -> None:
    with pytest.raises(SchemaMissingError):
        await a_daemon(Watched(open_fault=SchemaMissingError())).run()


def test_sighup_asks_for_an_end_but_where_it_is_ignored_as_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert ending_signals() == (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert ending_signals() == (signal.SIGTERM, signal.SIGINT)
    finally:
        signal.signal(signal.SIGHUP, before)
