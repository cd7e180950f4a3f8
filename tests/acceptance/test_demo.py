"""`quota-worker demo`: what `make demo` shows, twice in a row, from another folder."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from acceptance.program import environment
from worker.assets import Assets
from worker.postgres.queries import load_queries

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

REPOSITORY = Path(__file__).parents[2]
ELSEWHERE = {
    # nobody must be told by a demo, and no database of the user's touched
    "POSTGRES_DSN": "postgresql://nobody@127.0.0.1:1/none",
    "QUOTA_WORKER_FEISHU_WEBHOOK": "http://127.0.0.1:1/hook",
    "QUOTA_WORKER_IMBOT_GROUP": "everybody",
}


def environment_of(home: Path) -> dict[str, str]:
    return environment(
        None, **ELSEWHERE, QUOTA_WORKER_DATA=str(home / "pg"), PYTHONPATH=str(REPOSITORY)
    )


async def start_demo(home: Path, folder: Path) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "worker",
        "demo",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=environment_of(home),
    )


async def test_shows_refusals_alerts_expiry_and_status_twice(
    server_home: Path, tmp_path: Path
) -> None:
    shown = []
    for _ in range(2):
        begin = time.monotonic()
        process = await start_demo(server_home, tmp_path)
        out, err = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode == 0, err.decode()
        assert time.monotonic() - begin < 60
        shown.append((out.decode(), err.decode()))
    text = shown[0][0]
    assert [err for _, err in shown] == ["", ""]  # alerts are part of the story
    for told in (
        "daily_cap_reached",
        "rate_limited",
        "department_protected",
        "with the smaller model",
        "ran out without usage: charged as estimated",
        "0 holds are left",
        "[quota-usage-missing] 5 of 38 requests of 24 hours came without usage (13.2%)",
        "7 sent",
    ):
        assert told in text
    rows = [line.split() for line in text.splitlines() if "tenant-" in line or "▪" in line][-4:]
    assert {row[0] for row in rows} & {"tenant-abuser", "tenant-free", "▪"}
    assert "[quota-warn] tenant-free at 84.0% completions / " in text
    assert "[quota-exhausted] tenant-abuser at 100.0% completions" in text
    assert "[quota-warn] department Marketing" in text
    head = next(line for line in text.splitlines() if line.split()[:2] == ["subject", "worst"])
    last = [line for line in text.splitlines() if "▪" in line][-1]
    refused = last[: head.index("refused") + len("refused")].rsplit(maxsplit=1)[-1]
    assert int(refused) == 26  # its tenants' refusals
    decided = [re.findall(r"^   ..:..  (.*)$", out, re.MULTILINE) for out, _ in shown]
    assert decided[0] == decided[1]  # whatever time it is
    assert len(decided[0]) > 14
    told = re.search(r"last tick  (\S+ \S+) ([^\s,]+)", text)
    assert told is not None
    last_tick = datetime.fromisoformat(told[1]).replace(tzinfo=ZoneInfo(told[2]))
    age = datetime.now(UTC) - last_tick
    assert timedelta() <= age < timedelta(minutes=3)
    await look_around(text.partition("Look around\n")[2], server_home, tmp_path)
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  nothing else runs here


async def look_around(text: str, home: Path, folder: Path) -> None:
    """The commands that were shown do what they say, pasted into the demo's shell."""
    commands = [line.strip() for line in text.splitlines() if "DATA=" in line]
    assert [command.rpartition("worker ")[2] for command in commands] == [
        "status tenant-abuser",
        "status marketing",
        "status --json",
        "alerts",
    ]
    for command in commands:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder,
            env=environment_of(home),
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, err.decode()) == (0, "")
        assert "tenant-abuser" in out.decode() or "marketing" in out.decode()
        assert "no requests" not in out.decode()  # within the last hour


@pytest.mark.parametrize("start", ["2026-11-30 00:00", "2026-12-31 00:00"])
async def test_it_never_runs_across_a_billing_midnight(conn: Connection, start: str) -> None:
    queries = load_queries(Assets(), "demo")
    for minutes in range(0, 1440, 7):
        now = datetime.fromisoformat(start).replace(tzinfo=UTC) + timedelta(minutes=minutes)
        zone = ZoneInfo(await conn.fetchval(queries["zone"], now))
        begin = await conn.fetchval(queries["begin"], now)
        assert timedelta(minutes=82) < now - begin < timedelta(minutes=89)
        over = now + timedelta(minutes=5)
        assert begin.astimezone(zone).date() == over.astimezone(zone).date()


async def test_a_second_demo_at_the_same_time_is_refused(server_home: Path, tmp_path: Path) -> None:
    first = await start_demo(server_home, tmp_path)
    assert first.stdout is not None
    async with asyncio.timeout(60):
        while b"quota-worker migrate" not in await first.stdout.readline():
            pass
    second = await start_demo(server_home, tmp_path)
    _, err = await asyncio.wait_for(second.communicate(), 60)
    assert second.returncode == 1
    assert err.decode().splitlines() == ["quota-worker: another demo runs right now: wait a minute"]
    out, _ = await asyncio.wait_for(first.communicate(), 60)
    assert first.returncode == 0
    assert "0 holds are left" in out.decode()
