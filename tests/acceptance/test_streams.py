"""Outputs that are full, closed or too narrow, and a database that dies: one line, no traceback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import asyncpg
import pytest

from acceptance.program import UNTIL_SECONDS, environment, quota_worker, start, until
from worker.assets import Assets
from worker.postgres.embedded import EmbeddedServer
from worker.postgres.migrate import Migrator

from conftest import chosen_binaries

if TYPE_CHECKING:
    from pathlib import Path

    Connection = asyncpg.Connection[asyncpg.Record]

NARROW = {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"}
TENANT = "市场部 é 😀"


async def by_shell(dsn: str, redirection: str, *arguments: str, **more: str) -> tuple[int, str]:
    """Run the program with its streams redirected; its code, and what it wrote to stderr."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "worker"),
        *arguments,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment(dsn, **more),
    )
    _, errors = await asyncio.wait_for(process.communicate(), UNTIL_SECONDS)
    assert process.returncode is not None
    return process.returncode, errors.decode()


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("status",), ("tick", "--json"), ("migrate", "--print")])
async def test_a_full_or_closed_stdout_is_named(
    dsn: str, words: tuple[str, ...], unbuffered: str
) -> None:
    for redirection, why in ((">/dev/full", "No space left on device"), (">&-", "it is closed")):
        code, errors = await by_shell(dsn, redirection, *words, PYTHONUNBUFFERED=unbuffered)
        assert code == 1
        assert errors == f"quota-worker: stdout could not be written: {why}\n"


@pytest.mark.parametrize(
    ("words", "unbuffered", "taken"),
    [("settings", "1", 0), ("migrate --print", "", 0), ("migrate --print", "1", 10)],
)
async def test_a_reader_that_went_away_is_no_fault_of_the_database(
    dsn: str, words: str, unbuffered: str, taken: int
) -> None:
    """As `| head` does: while the command still runs, since its answer is large or sent at once."""
    reader, writer = os.pipe()
    if not taken:
        os.close(reader)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker", *words.split()),
        stdout=writer,
        stderr=asyncio.subprocess.PIPE,
        env=environment(dsn, PYTHONUNBUFFERED=unbuffered),
    )
    os.close(writer)
    if taken:
        assert len(await asyncio.to_thread(os.read, reader, taken)) == taken
        os.close(reader)
    _, errors = await asyncio.wait_for(process.communicate(), UNTIL_SECONDS)
    assert (process.returncode, errors) == (141, b"")


async def test_the_help_for_a_full_stdout(dsn: str) -> None:
    code, errors = await by_shell(dsn, ">/dev/full", "--help", PYTHONUNBUFFERED="")
    assert (code, errors) == (
        1,
        "quota-worker: stdout could not be written: No space left on device\n",
    )


async def test_without_any_stream_a_tick_does_its_work(dsn: str, conn: Connection) -> None:
    assert await by_shell(dsn, ">&- 2>&- <&-", "tick") == (0, "")
    assert await conn.fetchval("SELECT count(*) FROM job_runs WHERE outcome = 'done'") > 0
    # nobody can be told of the wrong option, but the code says it
    assert await by_shell(dsn, ">&- 2>&-", "tick", "--as-of", "x") == (2, "")


async def test_an_encoding_without_the_letters(dsn: str, conn: Connection) -> None:
    await conn.execute("INSERT INTO tenant_limits (tenant_id) VALUES ($1)", TENANT)
    shown = await quota_worker(dsn, "status", **NARROW)
    assert (shown.code, shown.err) == (0, "")
    assert "\\u5e02\\u573a\\u90e8 \\xe9 \\U0001f600" in shown.out
    document = json.loads((await quota_worker(dsn, "status", "--json", **NARROW)).out)
    assert [row["subject"] for row in document["rows"]] == [TENANT]
    # whatever the locale, the script's letters stay
    script = await quota_worker(dsn, "migrate", "--print", **NARROW)
    assert "部门" in script.out
    assert (script.code, script.err) == (0, "")
    wrong = await quota_worker(dsn, "status", "nobody", **NARROW)
    assert wrong.code == 2
    assert len(wrong.err.splitlines()) == 1


async def test_a_database_that_dies_in_mid_tick_is_one_line(server_home: Path) -> None:
    server = EmbeddedServer(server_home / "pg", binaries=chosen_binaries())
    with server:
        conn = await asyncpg.connect(server.dsn, statement_cache_size=0)
        await Migrator(conn, Assets()).migrate()
        await conn.execute("BEGIN; LOCK TABLE quota_usage_inbox IN ACCESS EXCLUSIVE MODE")
        process = await start(server.dsn, "tick")
        watch = await asyncpg.connect(server.dsn, statement_cache_size=0)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

        async def waits() -> bool:
            return bool(await watch.fetchval(waiting))

        await until(waits)
        os.kill(int((server.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        _, errors = await asyncio.wait_for(process.communicate(), UNTIL_SECONDS)
        assert process.returncode == 1
        (line,) = errors.decode().splitlines()
        assert line.startswith("quota-worker: ")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&1 >/dev/null | true"])
async def test_a_log_that_can_t_be_written_keeps_no_alert_back(
    dsn: str, conn: Connection, tmp_path: Path, redirection: str
) -> None:
    """A full disk, or a reader such as `logger` that is gone."""
    bot = tmp_path / "imbot"
    bot.write_text(f'#!/bin/sh\necho "$5" >> {tmp_path}/told\n')
    bot.chmod(0o755)
    await conn.execute("INSERT INTO tenant_limits (tenant_id, daily_completions) VALUES ('x', 1)")
    await conn.execute("SELECT quota_reserve('x', 'r', 1, 1, 1)")
    code, errors = await by_shell(
        dsn,
        redirection,
        "tick",
        QUOTA_WORKER_IMBOT_GROUP="ops",
        QUOTA_WORKER_IMBOT_COMMAND=str(bot),
    )
    assert (code, errors) == (0, "")
    assert (tmp_path / "told").read_text().startswith("[quota-exhausted] x at 100.0% completions")
    assert await conn.fetchval("SELECT count(*) FROM job_runs WHERE outcome <> 'done'") == 0


@pytest.mark.parametrize("redirection", ["", "2>/dev/full", "2>&-"])
async def test_a_tick_that_hangs_is_cut_off(redirection: str) -> None:
    """A database that takes connections and never answers."""
    short = "import sys; from worker import cli; cli.CUT_OFF_SECONDS = 2; cli.main()"
    # the system itself takes them
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", short, "tick"),
            stderr=asyncio.subprocess.PIPE,
            env=environment(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/none"),
        )
        _, errors = await asyncio.wait_for(process.communicate(), UNTIL_SECONDS)
    assert process.returncode == 1
    told = b"quota-worker: cut off after 2 s: something hangs, see README\n"
    assert errors == (b"" if redirection else told)
