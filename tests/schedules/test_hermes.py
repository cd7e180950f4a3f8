"""A tick by the real Hermes Agent, with what `install --create` wrote."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from schedules.test_running import rewritten
from schedules.world import odd_folder, program_in, run

if TYPE_CHECKING:
    import asyncpg

HERMES = os.environ.get("QUOTA_WORKER_HERMES", "")
pytestmark = pytest.mark.skipif(
    not HERMES, reason="QUOTA_WORKER_HERMES names no hermes: `make hermes` installs one"
)


def shown(title: str, text: str) -> None:
    print(f"\n--- {title}\n{text.strip()}")  # noqa: T201  `make hermes` shows it


async def test_hermes_runs_the_tick_that_install_set_up(
    dsn: str, conn: asyncpg.Connection, tmp_path: Path
) -> None:
    folder = odd_folder(tmp_path)
    program, env = program_in(folder), folder / "env"
    env.write_text(f"POSTGRES_DSN='{dsn}'\n")
    home = tmp_path / "hermes home"
    environ = {
        "HERMES_HOME": str(home),
        "PATH": f"{Path(HERMES).parent}:/usr/bin:/bin",
        # what Hermes hands on must not be what the worker gets
        "POSTGRES_DSN": "postgresql://127.0.0.1:1/wrong",
    }
    asked = ("install", "--kind", "hermes", "--create", "--env-file", str(env))
    done = run(str(program), *asked, folder=tmp_path, environ=environ)
    shown("install", done.stdout + done.stderr)
    assert done.returncode == 0
    assert "written   the job quota-worker of Hermes" in done.stdout
    again = run(str(program), *asked, folder=tmp_path, environ=environ)
    assert "unchanged the job quota-worker of Hermes" in again.stdout

    def hermes(*words: str) -> str:
        ran = run("hermes", "cron", *words, folder=tmp_path, environ=environ)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    (job,) = json.loads((home / "cron/jobs.json").read_text())["jobs"]
    assert (job["name"], job["deliver"], job["no_agent"]) == ("quota-worker", "local", True)

    def tick() -> str:
        """As if its minute had come: the scheduler finds the job due, and runs it."""
        path = home / "cron/jobs.json"
        jobs = json.loads(path.read_text())
        jobs["jobs"][0]["next_run_at"] = "2020-01-01T00:00:00+00:00"
        jobs["jobs"][0]["last_run_at"] = "2020-01-01T00:00:00+00:00"
        path.write_text(json.dumps(jobs))
        return hermes("tick")

    shown("hermes cron run", hermes("run", "quota-worker"))
    assert await conn.fetchval("SELECT count(*) FROM job_runs") > 4
    fence = await conn.fetchval("SELECT fence FROM tick_lease")
    shown("hermes cron tick", tick())
    assert await conn.fetchval("SELECT fence FROM tick_lease") == fence + 1
    shown("hermes cron runs", hermes("runs"))
    with sqlite3.connect(home / "cron/executions.db") as book:
        states = [row[0] for row in book.execute("SELECT status FROM executions")]
    book.close()
    assert states == ["completed", "completed"]

    env.write_text("POSTGRES_DSN='postgresql://a:s3cr3t@127.0.0.1:1/x'\n")
    tick()
    runs = hermes("runs")
    shown("after a tick without its database", runs)
    (last,) = [line for line in runs.splitlines() if "quota-worker: " in line]
    notice = rewritten(HERMES, last)
    shown("the notice", notice)
    assert "provider" not in notice
    assert "s3cr3t" not in runs
