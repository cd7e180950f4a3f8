"""`quota-worker status --watch` on a real terminal, and without one."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import asyncpg
import pytest

from acceptance.program import environment

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
SECONDS = 60.0
TENANT = "INSERT INTO tenant_limits (tenant_id, daily_completions) VALUES ($1, $2)"


class Terminal:
    """A pseudo-terminal with the program on it."""

    def __init__(self, dsn: str, *arguments: str, **more: str) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(24, 100)
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        os.set_blocking(self.master, False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "worker", "status", *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=environment(dsn, **{"TERM": "xterm", **more}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no threads here
        )

    def resize(self, rows: int, columns: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def frames(self) -> list[str]:
        return self.text.split("\x1b[?2026h\x1b[H")[1:]

    def read(self) -> None:
        with suppress(BlockingIOError, OSError):
            self.text += os.read(self.master, 1 << 16).decode(errors="replace")

    async def until(self, wanted: str, after: int = 0) -> str:
        """The first whole frame from number ``after`` on that has the text."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            self.read()
            for frame in self.frames()[after:]:
                if wanted in frame and "\x1b[?2026l" in frame:
                    return frame
            assert self.process.poll() is None, self.text
            await asyncio.sleep(0.02)
        raise AssertionError(f"no {wanted!r} in {self.text[-2000:]!r}")

    async def ended(self) -> int:
        end = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
            await asyncio.sleep(0.02)
        self.read()
        assert self.process.returncode is not None
        return self.process.returncode


@contextmanager
def terminal(dsn: str, *arguments: str, **more: str) -> Iterator[Terminal]:
    one = Terminal(dsn, *arguments, **more)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        os.close(one.master)
        os.close(one.slave)


async def test_the_screen_follows_and_ctrl_c_leaves_the_terminal_as_it_was(
    dsn: str, conn: asyncpg.Connection
) -> None:
    await conn.execute(TENANT, "hot", 2)
    await conn.execute(TENANT, "evil\x1b[2J", 2)
    with terminal(dsn, "--watch") as one:
        first = await one.until("evil\\x1b[2J")
        assert one.text.count(ENTER) == 1
        assert "\x1b[2J" not in one.text  # nothing is wiped: no flicker, and names can't
        assert not termios.tcgetattr(one.slave)[3] & termios.ECHO
        assert " 0.0" in first
        await conn.execute("SELECT quota_reserve('hot', 'a', 1, 1, 1)")
        await conn.execute("SELECT quota_reserve('hot', 'b', 1, 1, 1)")
        full = await one.until("100.0")
        assert "\x1b[31mhot" in full  # red
        assert "█" in full
        # a smaller terminal at once, and nothing beyond its lines
        seen = len(one.frames())
        one.resize(6, 44)
        os.kill(one.process.pid, signal.SIGWINCH)
        small = await one.until("100.0", seen)
        lines = re.sub(r"\x1b\[[0-9?;]*[a-zA-Z]", "", small).replace("\r", "").split("\n")
        assert len(lines) <= 6
        assert max(map(len, lines)) <= 44
        os.write(one.master, b"typed\x03")
        assert await one.ended() == 130
        # what is said at the end is said on the screen that was there before
        assert one.text.partition(LEAVE)[2].split() == ["quota-worker:", "interrupted"]
        assert one.text.partition(LEAVE)[0].endswith("\x1b[?7h\x1b[?25h")
        assert termios.tcgetattr(one.slave) == one.before
        assert "Traceback" not in one.text
        assert "typed" not in one.text


async def test_ctrl_backslash_leaves_the_terminal_as_it_was(
    dsn: str, conn: asyncpg.Connection
) -> None:
    await conn.execute(TENANT, "hot", 2)
    with terminal(dsn, "--watch") as one:
        await one.until("hot")
        os.write(one.master, b"\x1c")
        assert await one.ended() == 0
        assert LEAVE in one.text
        assert termios.tcgetattr(one.slave) == one.before


async def test_a_dumb_terminal_gets_plain_text(dsn: str, conn: asyncpg.Connection) -> None:
    await conn.execute(TENANT, "hot", 2)
    with terminal(dsn, "--watch", TERM="dumb") as one:
        end = time.monotonic() + SECONDS
        while one.text.count("hot") < 2 and time.monotonic() < end:
            one.read()
            await asyncio.sleep(0.02)
        assert one.text.count("hot") >= 2
        assert "\x1b" not in one.text


async def test_a_database_that_goes_away_is_told_and_comes_back(
    dsn: str, conn: asyncpg.Connection, pg_server
) -> None:
    await conn.execute(TENANT, "steady", 10)
    name = await conn.fetchval("SELECT current_database()")
    with terminal(dsn, "--watch", NO_COLOR="1") as one:
        await one.until("steady")
        admin = await asyncpg.connect(pg_server.dsn_of("postgres"), statement_cache_size=0)
        try:
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
            )
            gone = await one.until("trying again")
            assert "steady" in gone  # the last that was known stays in sight, with its time
            seen = len(one.frames())
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await one.until("steady", seen)
            while "trying again" in one.frames()[-1]:
                seen = len(one.frames())
                await one.until("steady", seen)
        finally:
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await admin.close()
        assert "\x1b[31m" not in one.text
        one.process.send_signal(signal.SIGTERM)
        assert await one.ended() == 0
        assert one.text.endswith(LEAVE)


@pytest.mark.parametrize("arguments", [(), ("--json",)])
async def test_without_a_terminal_answers_follow_one_another(
    dsn: str, conn: asyncpg.Connection, arguments: tuple[str, ...]
) -> None:
    await conn.execute(TENANT, "one", 10)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker", "status", "--watch", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=environment(dsn),
    )
    assert process.stdout is not None
    seen = b""
    async with asyncio.timeout(SECONDS):
        while seen.count(b"outbox") < 2 * (1 + 2 * bool(arguments)):
            seen += await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, _ = await process.communicate()
    assert process.returncode == 130
    text = (seen + rest).decode()
    assert "\x1b" not in text
    if arguments:
        assert {json.loads(line)["rows"][0]["subject"] for line in text.splitlines()} == {"one"}


def test_a_database_that_was_never_there_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "worker", "status", "--watch"],
        env=environment("postgresql://nobody@127.0.0.1:1/none"),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
