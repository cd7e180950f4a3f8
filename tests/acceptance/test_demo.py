"""`quota-worker demo`: what `make demo` shows, twice in a row, from another folder."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from acceptance.program import environment

if TYPE_CHECKING:
    from asyncio.subprocess import Process

REPOSITORY = Path(__file__).parents[2]
ELSEWHERE = {
    # nobody must be told by a demo, and no database of the user's touched
    "POSTGRES_DSN": "postgresql://nobody@127.0.0.1:1/none",
    "QUOTA_WORKER_FEISHU_WEBHOOK": "http://127.0.0.1:1/hook",
    "QUOTA_WORKER_IMBOT_GROUP": "everybody",
}


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
        env=environment(None, **ELSEWHERE)
        | {"QUOTA_WORKER_DATA": str(home / "pg"), "PYTHONPATH": str(REPOSITORY)},
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
    text, alerts = shown[0]
    for told in (
        "daily_cap_reached",
        "rate_limited",
        "department_protected",
        "with the smaller model",
        "ran out without usage: charged as estimated",
        "0 holds are left",
        "6 sent",
    ):
        assert told in text
    rows = [line.split() for line in text.splitlines() if "tenant-" in line or "▪" in line][-4:]
    assert {row[0] for row in rows} & {"tenant-abuser", "tenant-free", "▪"}
    assert "[quota-warn] tenant-free at 84.0% completions / " in alerts
    assert "[quota-exhausted] tenant-abuser at 100.0% completions" in alerts
    assert "[quota-warn] department Marketing" in alerts
    assert "Traceback" not in alerts
    # the buckets in the status go on filling by the real clock
    assert text.partition("Who is hot")[0] == shown[1][0].partition("Who is hot")[0]
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  nothing else runs here


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
