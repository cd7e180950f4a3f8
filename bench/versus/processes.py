"""Processes that are measured and killed, and what memory they had."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

SAMPLE_SECONDS: Final = 0.05
END_SECONDS: Final = 60.0


class Process:
    """A program under our eyes; its output goes to a file."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    @classmethod
    async def start(
        cls, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
    ) -> Process:
        with log.open("ab") as output:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=None if environ is None else dict(environ),
            )
        return cls(child)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def runs(self) -> bool:
        return self._child.returncode is None

    def kill(self) -> None:
        """kill -9, now."""
        if self.runs:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def ended(self) -> int:
        return await self._child.wait()

    async def end(self) -> None:
        """Ask it to end, and wait."""
        if self.runs:
            with suppress(ProcessLookupError):
                self._child.terminate()
            try:
                await asyncio.wait_for(self._child.wait(), END_SECONDS)
            except TimeoutError:
                self.kill()
                await self._child.wait()


class Peak:
    """The highest sum, over the processes that live at one moment, of each one's peak RSS."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self.kibibytes = 0

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(SAMPLE_SECONDS)

    def look(self) -> None:
        """What stands there now; to be called before a kill, too."""
        total = sum(_field(f"/proc/{pid}/status", "VmHWM:") for pid in self._pids())
        self.kibibytes = max(self.kibibytes, total)


def server_kibibytes(postmaster: int) -> int:
    """What a PostgreSQL server's processes use together: shared pages are counted once."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii")
    pids = [postmaster, *map(int, children.split())]
    return sum(_field(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in pids)


def _field(path: str, name: str) -> int:
    with suppress(OSError):
        for line in Path(path).read_text(encoding="ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0


def free_port() -> int:
    """A port of the loopback that nobody listens on at this moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
