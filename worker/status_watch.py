"""`status --watch`: the same answer again and again, on a terminal in place.

A terminal gets the alternate screen, each frame in one write and over the last one, so that
nothing flickers; at the end it is as it was. Elsewhere frames follow one another as plain text.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from worker.errors import DatabaseError
from worker.status_text import cells
from worker.telemetry import redact, remark

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from worker.status_report import StatusReport

EVERY_SECONDS: Final = 2.0
# A look that takes long isn't had more often than for this share of the time.
PAUSE_TO_READ: Final = 4.0
ESCAPE: Final = "\x1b["
# Alternate screen, no cursor, no wrapping; and back.
ENTER: Final = f"{ESCAPE}?1049h{ESCAPE}?25l{ESCAPE}?7l"
LEAVE: Final = f"{ESCAPE}?7h{ESCAPE}?25h{ESCAPE}?1049l"
# A terminal that knows them shows a frame only when it is whole; others ignore them.
BEGIN: Final = f"{ESCAPE}?2026h{ESCAPE}H"
END: Final = f"{ESCAPE}J{ESCAPE}?2026l"
TO_LINE_END: Final = f"{ESCAPE}K"
DEFAULT_SIZE: Final = (80, 24)


class Render(Protocol):
    """Makes a report text for so many columns; None: as many as it needs."""

    def __call__(self, report: StatusReport, columns: int | None) -> str:
        """The whole answer, without a last line break."""


class Watch:
    """Reads every two seconds, or less often where a read takes long, until cancelled."""

    def __init__(
        self,
        read: Callable[[], Awaitable[StatusReport]],
        render: Render,
        monotonic: Callable[[], float],
        stream: TextIO,
    ) -> None:
        self._read = read
        self._render = render
        self._monotonic = monotonic
        self._stream = stream
        self._report: StatusReport | None = None
        self._trouble = ""

    async def on_terminal(self) -> None:
        """Until SIGTERM, SIGHUP or SIGQUIT, or cancelled; the terminal is then as it was.

        Raises OSError where the terminal goes away.
        """
        loop = asyncio.get_running_loop()
        resized = asyncio.Event()
        drawing = asyncio.ensure_future(self._on_screen(resized))
        signals: dict[int, Callable[[], object]] = {
            signal.SIGWINCH: resized.set,
            signal.SIGTERM: drawing.cancel,
            signal.SIGHUP: drawing.cancel,
            signal.SIGQUIT: drawing.cancel,
        }
        for number, act in signals.items():
            loop.add_signal_handler(number, act)
        try:
            # in a wait, its own end by a signal is no cancelling of ours
            await asyncio.wait({drawing})
            if not drawing.cancelled():
                drawing.result()
        finally:
            drawing.cancel()
            await asyncio.wait({drawing})
            for number in signals:
                loop.remove_signal_handler(number)

    async def _on_screen(self, resized: asyncio.Event) -> None:
        with _quiet_keyboard(), self._screen():
            await self._loop(resized)

    async def as_lines(self, say: Callable[[StatusReport], None]) -> None:
        """Say each report, until cancelled. Raises what the first read raises."""
        say(await self._read())
        while True:  # bounded by its caller, who cancels it
            begin = self._monotonic()
            try:
                report = await self._read()
            except DatabaseError as error:
                remark(_told(error))
            else:
                say(report)
            await asyncio.sleep(_pause(self._monotonic() - begin))

    async def _loop(self, resized: asyncio.Event) -> None:
        while True:  # bounded by its caller, who cancels it
            begin = self._monotonic()
            reading = asyncio.ensure_future(self._read())
            try:
                while not (await asyncio.wait({reading}, timeout=EVERY_SECONDS))[0]:
                    seconds = self._monotonic() - begin
                    self._draw(f"the database has not answered for {seconds:.0f} s")
                self._report, self._trouble = reading.result(), ""
            except DatabaseError as error:
                self._trouble = _told(error)
            finally:
                reading.cancel()
            seconds = _pause(self._monotonic() - begin)
            self._draw(self._trouble)
            deadline = self._monotonic() + seconds
            while (left := deadline - self._monotonic()) > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(resized.wait(), left)
                    resized.clear()
                    self._draw(self._trouble)

    def _draw(self, trouble: str) -> None:
        columns, rows = _size(self._stream)
        lines = [f"{ESCAPE}7m{_cut(trouble, columns)}{ESCAPE}0m"] if trouble else []
        if self._report is not None:
            at = f"{self._report.at:%H:%M:%S} UTC"
            lines.append(_cut(f"{at}  quota-worker status, Ctrl-C ends", columns))
            lines.extend(self._render(self._report, columns).splitlines())
        elif not trouble:
            lines.append("asking the database …")
        shown = lines if len(lines) <= rows else [*lines[: rows - 3], "…", *lines[-2:]]
        body = f"{TO_LINE_END}\r\n".join(shown[:rows])
        self._stream.write(f"{BEGIN}{body}{TO_LINE_END}{END}")
        self._stream.flush()

    @contextmanager
    def _screen(self) -> Iterator[None]:
        self._stream.write(ENTER)
        self._stream.flush()
        try:
            self._draw("")
            yield
        finally:
            with suppress(OSError):
                self._stream.write(LEAVE)
                self._stream.flush()


def _told(error: DatabaseError) -> str:
    """The wish first: a narrow terminal cuts the end."""
    return f"trying again: {redact(str(error))}"


def _pause(read_seconds: float) -> float:
    """Until the next read: two seconds from the last one's begin, longer after a long one."""
    return max(EVERY_SECONDS - read_seconds, PAUSE_TO_READ * read_seconds, 0.1)


def _size(stream: TextIO) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return DEFAULT_SIZE
    return size.columns or DEFAULT_SIZE[0], size.lines or DEFAULT_SIZE[1]


def _cut(text: str, columns: int) -> str:
    while cells(text) > columns:
        text = text[:-1]
    return text


@contextmanager
def _quiet_keyboard() -> Iterator[None]:
    """What is typed isn't shown meanwhile, nor left for the shell."""
    try:
        import termios

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError, AttributeError, termios.error):
        yield  # no terminal to type on
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
