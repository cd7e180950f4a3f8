"""The long-running process's signals: how it is asked to end, and what ends one that hangs.

The first SIGTERM, SIGINT or SIGHUP (its terminal was closed, or a supervisor wants its files read
anew) asks for a clean end, a second one ends the process at once. SIGALRM is a watchdog: now and
then it asks the event loop for a sign of life. A loop that is blocked for good (a log pipe that
nobody reads, a library that hangs) can't be helped from inside: the process ends, and whoever
supervises it starts another. What it held is done again, as after a kill.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from worker.telemetry import remark

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType, TracebackType

ASK_EVERY_SECONDS: Final = 60
# Beyond this a loop is hung: no step of a job blocks it for so long.
ANSWER_SECONDS: Final = 240
# Beyond the drain's own bound, for what is closed after it.
CLOSE_SECONDS: Final = 10
EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130


def ending_signals() -> tuple[signal.Signals, ...]:
    """Those that ask for an end: SIGHUP, too, but where it is ignored, as under nohup."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP


class Signals:
    """A context manager of the main thread; `on_stop` is called once, on the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_stop: Callable[[], None], drain_seconds: int
    ) -> None:
        self._loop = loop
        self._on_stop = on_stop
        self._drain_seconds = drain_seconds
        self._is_stopping = False
        self._is_asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # not the loop's own handlers: these work while it is blocked, too
        for number in ending_signals():
            self._before[number] = signal.signal(number, self._end)
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._watch)
        signal.alarm(ASK_EVERY_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_stopping:  # else the alarm bounds what is closed from here on
            signal.alarm(0)
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_stopping:
            os._exit(EXIT_INTERRUPTED)
        self._is_stopping = True
        signal.alarm(self._drain_seconds + CLOSE_SECONDS)
        self._call(self._on_stop)

    def _watch(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_stopping:
            os._exit(0)
        if self._is_asked:
            remark(f"quota-worker: its loop was blocked for {ANSWER_SECONDS} s: ended, see README")
            os._exit(EXIT_FAILED)
        self._is_asked = True
        signal.alarm(ANSWER_SECONDS)
        self._call(self._answer)

    def _answer(self) -> None:
        self._is_asked = False
        if not self._is_stopping:
            signal.alarm(ASK_EVERY_SECONDS)

    def _call(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(what)
