"""The files that `install` wrote run the real worker: healthy, failing, and as a real Hermes runs it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.servers_http import HttpServer, Request
from schedules.world import MISTAKEN, ODD, cron_command, odd_folder, program_in, run
from worker.errors import QuotaWorkerError
from worker.telemetry import unmistaken

if TYPE_CHECKING:
    import asyncpg

    from conftest import NewDatabase

# Every word that Hermes makes another fault of.
RAISES = (
    "BEGIN RAISE EXCEPTION 'canceling statement due to statement timeout, authentication timed out,"
    " unauthorized, usage limit, rate limit'; END"
)


def installed(tmp_path: Path, dsn: str, kind: str, **variables: str) -> Path:
    """Install by an odd path, with an odd variables' file; the script or crontab that was written."""
    folder = odd_folder(tmp_path)
    values = {"POSTGRES_DSN": dsn} | variables
    (folder / "env").write_text("".join(f"{name}='{value}'\n" for name, value in values.items()))
    (folder / "env").chmod(0o640)
    home = tmp_path / "hermes"
    done = run(
        str(program_in(folder)),
        *("install", "--kind", kind, "--env-file", str(folder / "env")),
        *(("--dir", str(tmp_path / "out")) if kind == "cron" else ()),
        folder=tmp_path,
        environ={"HERMES_HOME": str(home)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    (written,) = re.findall(
        r"^written   (.*(?:-tick\.sh|crontab|out/quota-worker))$", done.stdout, re.MULTILINE
    )
    return Path(written)


def as_cron(written: Path) -> list[str]:
    line = next(x for x in written.read_text().splitlines() if x.startswith("2-59/5"))
    command = cron_command(line.split(maxsplit=6 if os.geteuid() == 0 else 5)[-1])
    # the system's log is a file here
    return ["/bin/sh", "-c", command.replace("logger -t quota-worker", "cat >&2")]


@pytest.mark.parametrize("kind", ["cron", "hermes"])
async def test_a_healthy_tick_and_one_without_its_database(
    kind: str, dsn: str, conn: asyncpg.Connection, tmp_path: Path
) -> None:
    written = installed(tmp_path, dsn, kind)
    command = as_cron(written) if kind == "cron" else ["bash", str(written)]
    done = run(*command, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert await conn.fetchval("SELECT count(*) FROM job_runs WHERE outcome <> 'done'") == 0
    assert await conn.fetchval("SELECT count(*) FROM job_runs") > 4
    env = tmp_path / ODD / "env"
    env.write_text("POSTGRES_DSN='postgresql://a:s3cr3t@127.0.0.1:1/x'\n")
    done = run(*command, folder=tmp_path)
    assert done.stdout == ""
    # a pipe's end is its last program's: cron's mail is for others
    assert kind == "cron" or done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "quota-worker: " in done.stderr
    assert not MISTAKEN.search(done.stderr), done.stderr


class Refusing(HttpServer):
    """A bot that refuses for good, in words that Hermes reads, too."""

    def judge(self, _request: Request) -> tuple[int, dict[str, object]]:
        return 200, {"code": 19024, "msg": "HTTP 403: rate limit, timeout"}


async def test_no_failing_tick_is_taken_for_another_fault(
    dsn: str, conn: asyncpg.Connection, new_database: NewDatabase, tmp_path: Path
) -> None:
    """Jobs that fail, channels that are dead, a login that is refused; in Hermes all of stderr counts."""
    service = Refusing()
    await service.start()
    written = installed(
        tmp_path,
        dsn,
        "hermes",
        QUOTA_WORKER_FEISHU_WEBHOOK=f"http://127.0.0.1:{service.port}/hook/s3cr3t",
    )
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions) VALUES ('t', 1);"
        "SELECT quota_settle('t', 'r', 1, 1, 1)"
    )
    name = await conn.fetchval(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'quota_months_to_roll'"
    )
    definition = await conn.fetchval("SELECT pg_get_functiondef($1::regprocedure)", name)
    await conn.execute(
        re.sub(
            r"AS \$function\$.*",
            f"AS $function$ {RAISES} $function$",
            re.sub(r"LANGUAGE \w+", "LANGUAGE plpgsql", definition),
            flags=re.DOTALL,
        )
    )
    done = await asyncio.to_thread(run, "bash", str(written), folder=tmp_path)
    await service.stop()
    assert service.times
    assert done.returncode == 1, done.stderr
    # what the bot refused is told on the console, which is stderr
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert "[quota-exhausted] t at " in done.stderr
    assert {line["event"] for line in lines} == {"job failed"}
    assert lines[0]["job"] == "roll_month"
    assert "canceling statement" in lines[0]["error"]
    texts = [done.stderr]
    env = tmp_path / ODD / "env"
    for wrong in (
        dsn.replace("//quota@", "//no-such-user:s3cr3t@"),
        dsn.replace("?", "-missing?"),
        "host=wrong",
        await new_database(),
    ):
        env.write_text(f"POSTGRES_DSN='{wrong}'\n")
        failing = run("bash", str(written), folder=tmp_path)
        assert failing.returncode in {1, 2}, failing.stderr
        texts.append(failing.stderr)
    for text in texts:
        assert not MISTAKEN.search(text), text
        assert "s3cr3t" not in text
    hermes = os.environ.get("QUOTA_WORKER_HERMES")
    if hermes:
        for text in texts:
            print(rewritten(hermes, text))  # noqa: T201  `make hermes` shows it
            assert "provider" not in rewritten(hermes, text)


@pytest.mark.parametrize(
    "text",
    [
        'password authentication failed for user "a"',
        "connection timed out",
        "canceling statement due to lock timeout",
        "TimeoutError: ReadTimeout",
        "Unauthorized: usage limit, Rate Limit",
        "lock_timeouts",
    ],
)
def test_words_that_are_mistaken_are_put_in_others(text: str) -> None:
    assert MISTAKEN.search(text)
    assert not MISTAKEN.search(unmistaken(text))


def test_our_own_words_are_not_mistaken() -> None:
    """Each error's own message; it is what a tick's last line ends with."""

    def tree(kind: type[QuotaWorkerError]) -> list[type[QuotaWorkerError]]:
        return [kind, *(sub for child in kind.__subclasses__() for sub in tree(child))]

    said = [kind.default_message() for kind in tree(QuotaWorkerError)]
    assert [text for text in said if MISTAKEN.search(text)] == []


def rewritten(hermes: str, stderr: str) -> str:
    """The notice that the real Hermes makes of it."""
    script = (
        "import sys; from cron.scheduler import _summarize_cron_failure_for_delivery as notice;"
        "print(notice({'name': 'quota-worker'}, 'Script exited with code 1\\nstderr:\\n' + sys.argv[1]))"
    )
    python = str(Path(hermes).parent / "python")
    done = subprocess.run(
        [python, "-c", script, stderr], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()
