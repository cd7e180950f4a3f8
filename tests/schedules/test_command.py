"""`quota-worker install` from outside, called by a path that no quoting may be careless with."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from pathlib import Path

import pytest

from schedules.world import odd_folder, program_in, run
from worker import cli
from worker.install.reach import reach_remarks

HERMES = """#!/bin/sh
# keeps its jobs in a file, as far as `install` asks for them
case "$2" in
list) cat "$HERMES_HOME/jobs" 2>/dev/null; true;;
create) echo "    Name:      quota-worker" >> "$HERMES_HOME/jobs"; shift 2; echo "$*" >> "$HERMES_HOME/made";;
esac
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return program_in(odd_folder(tmp_path))


def install(program: Path, folder: Path, *arguments: str, **environ: str):
    return run(str(program), "install", *arguments, folder=folder, environ=environ)


def test_hermes_is_installed_once_and_an_edit_is_kept(program: Path, tmp_path: Path) -> None:
    (tmp_path / "hermes home").mkdir()
    tool = tmp_path / "hermes"
    tool.write_text(HERMES)
    tool.chmod(0o755)
    env = tmp_path / "variables file"
    asked = ("--kind", "hermes", "--create", "--env-file", str(env))
    environ = {
        "HERMES_HOME": str(tmp_path / "hermes home"),
        "PATH": f"{tmp_path}:/usr/bin:/bin",
    }
    done = install(program, tmp_path, *asked, **environ)
    script = tmp_path / "hermes home/scripts/quota-worker-tick.sh"
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:4] == [
        f"written   {script}",
        f"written   {env}",
        "written   the job quota-worker of Hermes",
        "next:",
    ]
    assert f"  editor '{env}'   # POSTGRES_DSN, and a channel" in done.stdout
    assert env.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "hermes home/made").read_text() == (
        "2-59/5 * * * * --no-agent --script quota-worker-tick.sh --deliver local --name quota-worker\n"
    )
    again = install(program, tmp_path, *asked, **environ)
    assert again.returncode == 0
    assert [line.split()[0] for line in again.stdout.splitlines()[:3]] == [
        "unchanged",
        "kept",
        "unchanged",
    ]
    assert "editor" not in again.stdout
    script.write_text(script.read_text().replace("set -a", "set -ax"))
    edited = install(program, tmp_path, *asked, **environ)
    assert edited.returncode == 2
    assert edited.stderr == (
        f"quota-worker: {script} was edited by hand: nothing was written; --force replaces it\n"
    )
    assert "\n-set -ax\n+set -a\n" in edited.stdout
    forced = install(program, tmp_path, *asked, "--force", **environ)
    assert forced.stdout.startswith(f"replaced  {script}\n")


@pytest.mark.parametrize("kind", ["hermes", "cron", "systemd", "kubernetes"])
def test_a_folder_gets_all_files_and_nothing_else_is_touched(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("HERMES_HOME", raising=False)
    folder = tmp_path / "a 'folder'"
    assert cli.run(["install", "--kind", kind, "--dir", str(folder)]) == 0
    out = capsys.readouterr().out
    assert list(home.iterdir()) == []
    written = {line.split(maxsplit=1)[1] for line in out.splitlines() if line[:4] == "writ"}
    assert written == {str(path) for path in folder.iterdir()}
    steps = out.partition("next:\n")[2].splitlines()
    assert any(shlex.quote(str(path)) in step for path in folder.iterdir() for step in steps)
    for step in steps:
        assert run("/bin/sh", "-n", "-c", step, folder=home).returncode == 0, step


def test_what_is_printed_is_a_file_and_writes_none(program: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = install(
        program, tmp_path, "--kind", "cron", "--print", "--env-file", "e f", "--run-as", "ann"
    )
    assert done.returncode == 0
    assert done.stdout.startswith("# quota-worker: one pass every 5 minutes")
    assert f"{tmp_path}/e f" in done.stdout.splitlines()[-1 if os.geteuid() == 0 else -2]
    manifest = install(
        program, tmp_path, "--kind", "kubernetes", "--print", "--image", "r.example/q:1"
    )
    assert '\n              image: "r.example/q:1"\n' in manifest.stdout
    both = install(program, tmp_path, "--kind", "systemd", "--print")
    assert re.findall("^# ---- (.*)", both.stdout, re.MULTILINE) == [
        "quota-worker.service",
        "quota-worker.timer",
    ]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("--kind crontab", "--kind 'crontab' is not known: did you mean cron?"),
        ("--kind kubernetes", "kubernetes has no folder of its own: say --print"),
        ("--kind cron --user", "--user is for systemd"),
        ("--kind hermes --long-running", "--long-running is for systemd and kubernetes"),
        ("--kind cron --create", "--create is for --kind hermes"),
        ("--kind hermes --create --print", "--create is for --kind hermes"),
        ("--kind systemd --print --run-as a;b", "a;b is no user's name"),
        ("--kind hermes", "can't be written: "),
        ("", "--kind"),
        ("--kind cron --print --dir x", "not allowed with argument"),
    ],
)
def test_a_wrong_wish_is_one_line_and_2(
    arguments: str,
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HERMES_HOME", f"{tmp_path}/file")
    try:
        code = cli.run(["install", *shlex.split(arguments)])
    except SystemExit as end:  # argparse's own
        code = end.code
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert fault in err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs for others")
def test_a_user_who_is_missing_is_told_before_anything_is_written(
    program: Path, tmp_path: Path
) -> None:
    env = tmp_path / "env"
    asked = ("--kind", "systemd", "--env-file", str(env), "--run-as", "no-such-user")
    done = install(program, tmp_path, *asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "there is no user no-such-user: useradd --system no-such-user, or name another"
        in done.stderr
    )
    assert not env.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs for others")
def test_what_the_user_cannot_enter_or_read_is_told(tmp_path: Path) -> None:
    for folder in [tmp_path, *tmp_path.parents][:4]:
        folder.chmod(folder.stat().st_mode | 0o011)
    closed = tmp_path / "closed"
    (closed / "venv").mkdir(parents=True)
    env = tmp_path / "env"
    env.touch()
    parts = [str(closed / "venv"), str(closed / "venv/program"), str(tmp_path)]
    closed.chmod(0o755)
    env.chmod(0o644)
    assert reach_remarks("daemon", parts, str(env)) == []
    closed.chmod(0o700)
    env.chmod(0o600)
    told = reach_remarks("daemon", parts, str(env))
    assert [note.partition(":")[0] for note in told] == [
        f"daemon can't enter {closed}, which the program needs",
        f"daemon can't read {env}",
    ]
    env.chmod(0o640)
    os.chown(env, 0, pwd.getpwnam("daemon").pw_gid)
    os.chown(closed, pwd.getpwnam("daemon").pw_uid, 0)
    assert reach_remarks("daemon", parts, str(env)) == []
    assert reach_remarks("root", parts, str(env)) == []


def test_units_of_ones_own(program: Path, tmp_path: Path) -> None:
    env = tmp_path / "config/quota-worker/env"
    done = install(
        program,
        tmp_path,
        "--kind",
        "systemd",
        "--user",
        "--long-running",
        XDG_CONFIG_HOME=str(tmp_path / "config"),
    )
    assert done.returncode == 0, done.stderr
    unit = tmp_path / "config/systemd/user/quota-worker-schedule.service"
    assert "User=" not in unit.read_text()
    assert env.exists()
    assert "  systemctl --user enable --now quota-worker-schedule.service\n" in done.stdout


def test_a_hermes_that_refuses_is_quoted(program: Path, tmp_path: Path) -> None:
    tool = tmp_path / "hermes"
    tool.write_text("#!/bin/sh\necho it broke >&2\nexit 3\n")
    tool.chmod(0o755)
    done = install(
        program,
        tmp_path,
        "--kind",
        "hermes",
        "--create",
        "--env-file",
        str(tmp_path / "env"),
        PATH=f"{tmp_path}:/usr/bin:/bin",
    )
    assert done.returncode == 1
    assert done.stderr == "quota-worker: hermes refused the job: it broke\n"
    alone = install(
        program, tmp_path, "--kind", "hermes", "--create", "--env-file", str(tmp_path / "env")
    )
    assert alone.returncode == 0
    assert alone.stderr == "note: hermes is not on PATH: the job is left to you\n"
    assert "  hermes cron create '2-59/5 * * * *' --no-agent" in alone.stdout
