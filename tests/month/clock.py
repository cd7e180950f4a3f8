"""Simulated time that several workers share: it moves only while all of them sleep.

So a request that is on its way takes no time, a wait takes as long as it says, and
nobody's lease runs out because another waits.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any


class SharedClock:
    def __init__(self, now: datetime) -> None:
        self.now = now
        self._began = now
        self._working: Counter[asyncio.Task[Any] | None] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()
        self._sleepers: list[tuple[datetime, int]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return (self.now - self._began).total_seconds()

    def timestamp(self) -> float:
        return self.now.timestamp()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around whatever waits for the database or the network."""
        task = asyncio.current_task()
        self._working[task] += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._working[task] -= 1
            self._rest(task)

    def _rest(self, task: asyncio.Task[Any] | None) -> None:
        if self._working[task] <= 0:
            del self._working[task]
        if not self._working:
            self._idle.set()

    async def sleep(self, seconds: float) -> None:
        """Until the clock has come so far; the earliest sleeper moves it."""
        task = asyncio.current_task()
        # a pause between two requests of one message is no work
        paused = self._working.pop(task, 0)
        self._rest(task)
        # a microsecond more: what was rounded down would be slept again
        due = (self.now + timedelta(seconds=seconds, microseconds=1), next(self._numbers))
        heapq.heappush(self._sleepers, due)
        try:
            while self.now < due[0]:
                await asyncio.sleep(0)
                await self._idle.wait()
                await asyncio.sleep(0)
                if not self._working and self._sleepers[0] == due:
                    self.now = due[0]
        finally:
            self._sleepers.remove(due)
            heapq.heapify(self._sleepers)
            if paused:
                self._working[task] = paused
                self._idle.clear()
