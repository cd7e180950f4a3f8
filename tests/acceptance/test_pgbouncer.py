"""Everything works through pgbouncer in transaction mode, where sessions are shared."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from acceptance.here import quota_worker_here
from acceptance.program import until
from acceptance.schedule_world import crossing, schedule
from worker.assets import Assets
from worker.postgres.migrate import Migrator
from worker.postgres.pool import connect, open_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.postgres.embedded import EmbeddedServer

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")
START_SECONDS = 10


@pytest.fixture
def bouncer(pg_server: EmbeddedServer, server_home: Path) -> Iterator[Path]:
    """The folder of a bouncer's socket; two server connections a database."""
    account = pg_server.account
    # Its own folder: another user may have to write there, and to reach the server.
    run = server_home / "bouncer"
    run.mkdir()
    (run / "users.txt").write_text('"quota" ""\n')
    (run / "bouncer.ini").write_text(
        "[databases]\n"
        f"* = host={pg_server.socket_folder} port=5432\n"
        "[pgbouncer]\n"
        f"unix_socket_dir = {run}\n"
        "listen_addr =\n"
        "listen_port = 6432\n"
        "auth_type = trust\n"
        f"auth_file = {run}/users.txt\n"
        "pool_mode = transaction\n"
        "default_pool_size = 2\n"
        "max_client_conn = 100\n"
        f"logfile = {run}/log\n"
    )
    other = (
        {}
        if account.name is None
        else {"user": account.uid, "group": account.gid, "extra_groups": []}
    )
    if other:
        os.chown(run, account.uid, account.gid)
        # Only root may reach the server's socket; here the bouncer is let in.
        os.chown(pg_server.socket_folder, account.uid, account.gid)
    process = subprocess.Popen(
        [PROGRAM, str(run / "bouncer.ini")], cwd="/", stderr=subprocess.DEVNULL, **other
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (run / ".s.PGSQL.6432").exists():
            assert time.monotonic() < deadline, (run / "log").read_text()
            time.sleep(0.02)
        yield run
    finally:
        process.terminate()
        process.wait(timeout=20)
        if other:
            os.chown(pg_server.socket_folder, 0, 0)


def through(bouncer: Path, dsn: str) -> str:
    database = dsn.split("@/")[1].split("?", maxsplit=1)[0]
    return f"postgresql://quota@/{database}?host={bouncer}&port=6432"


async def test_the_premise_plain_asyncpg_breaks(bouncer: Path, dsn: str) -> None:
    """Without our settings a kept statement is looked for on another server connection."""
    first = await asyncpg.connect(through(bouncer, dsn))
    second = await asyncpg.connect(through(bouncer, dsn))
    assert await first.fetchval("SELECT $1::int", 1) == 1
    async with second.transaction():
        await second.execute("SELECT 1")  # holds the connection that has the statement
        with pytest.raises(asyncpg.InvalidSQLStatementNameError):
            await first.fetchval("SELECT $1::int", 2)
    for connection in (first, second):
        connection.terminate()


async def test_migrate_reserve_and_settle(bouncer: Path, new_database) -> None:
    dsn = through(bouncer, await new_database())
    connections = [await connect(dsn) for _ in range(3)]
    results = await asyncio.gather(*(Migrator(c, Assets()).migrate() for c in connections))
    assert sum(bool(result.applied) for result in results) == 1
    for connection in connections:
        await connection.close()
    pool = await open_pool(dsn, max_size=8)
    await pool.execute(
        "INSERT INTO tenant_limits (tenant_id, bucket_capacity, daily_completions) VALUES ('t', 1e6, NULL)"
    )

    async def one(n: int) -> str:
        reserved = await pool.fetchrow(
            "SELECT * FROM quota_reserve('t', $1, 100, 50, 1000)", f"r{n}"
        )
        assert reserved["reason"] == "ok"
        settled = await pool.fetchrow("SELECT * FROM quota_settle('t', $1, 90, 40, 900)", f"r{n}")
        return settled["outcome"]

    assert await asyncio.gather(*(one(n) for n in range(150))) == ["settled"] * 150
    used = await pool.fetchrow(
        "SELECT completions, input_tokens, held_input_tokens FROM quota_usage"
    )
    assert tuple(used) == (150, 13500, 0)
    await pool.close()


async def test_doctor_notices_the_pooler(bouncer: Path, dsn: str) -> None:
    pooled = through(bouncer, dsn)
    done = await quota_worker_here(pooled, "doctor")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^note +pooler ", done.out, re.MULTILINE)
    assert "could not be looked at" not in done.out
    done = await quota_worker_here(pooled, "doctor", QUOTA_WORKER_LISTEN_DSN=dsn)
    assert re.search(r"^ok .*\bpooler\b", done.out, re.MULTILINE)
    direct = (await quota_worker_here(dsn, "doctor")).out
    assert re.search(r"^ok .*\bpooler\b", direct, re.MULTILINE)


async def test_commands_and_ticks(bouncer: Path, new_database) -> None:
    dsn = through(bouncer, await new_database())
    for command in (
        ["migrate"],
        ["tick"],
        ["tick"],
        ["settings", "set", "zone", "Asia/Shanghai"],
        ["status"],
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "worker",
            *command,
            env=os.environ | {"POSTGRES_DSN": dsn},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, (command, errors.decode())


async def test_schedule_polls_through_it_and_listens_past_it(
    bouncer: Path, dsn: str, conn: asyncpg.Connection
) -> None:
    """A LISTEN on a shared connection would stay there, for whoever gets it next: none is made."""
    for environ, mode in (({}, "polling"), ({"QUOTA_WORKER_LISTEN_DSN": dsn}, "listening")):
        async with schedule(through(bouncer, dsn), **environ) as running:
            await running.until_event("watching for crossings")
            assert running.events("watching for crossings")[0]["mode"] == mode
            await crossing(conn, mode)

            async def told(subject: str = mode) -> bool:
                query = "SELECT count(*) FROM quota_outbox WHERE state = 'sent' AND subject = $1"
                return await conn.fetchval(query, subject) == 1

            await until(told)
            assert await running.end() == 0
    shared = await connect(through(bouncer, dsn))
    assert await shared.fetch("SELECT * FROM pg_listening_channels()") == []
    await shared.close()
