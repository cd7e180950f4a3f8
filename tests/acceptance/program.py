"""Runs the real program as a process, as cron or a person would."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PROCESS_SECONDS = 300.0
UNTIL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run of the program ended."""

    code: int
    out: str
    err: str


def environment(dsn: str | None, **more: str) -> dict[str, str]:
    """The test's environment without what would configure the program."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("QUOTA_WORKER_") and name != "POSTGRES_DSN"
    }
    return kept | ({"POSTGRES_DSN": dsn} if dsn else {}) | more


async def start(dsn: str | None, *arguments: str, **more: str) -> asyncio.subprocess.Process:
    """Start `quota-worker ARGUMENTS`."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "worker",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(dsn, **more),
    )


async def quota_worker(dsn: str | None, *arguments: str, **more: str) -> Finished:
    """Run `quota-worker ARGUMENTS` to its end."""
    process = await start(dsn, *arguments, **more)
    out, err = await asyncio.wait_for(process.communicate(), PROCESS_SECONDS)
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the condition holds; fails after UNTIL_SECONDS."""
    async with asyncio.timeout(UNTIL_SECONDS):
        while not await condition():  # noqa: ASYNC110  what is asked is another process
            await asyncio.sleep(0.005)
