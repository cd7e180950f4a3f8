"""What `install` fills in: the shipped files, and paths that mean themselves in every kind."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from schedules.world import CRON, HOME, cron_command, odd_folder, plan, program_in, run
from worker.assets import Assets
from worker.errors import UsageError
from worker.install.filling import ENV_FILE, PROGRAM, Installation
from worker.install.plan import KINDS, Asked, planned
from worker.settings import DeliverySettings

USUAL = Installation(PROGRAM, ENV_FILE)
FOLDER = Path("/to/look/at")
VARIANTS = [
    ("hermes", {}),
    ("cron", {}),
    ("systemd", {}),
    ("systemd", {"long_running": True}),
    ("kubernetes", {}),
    ("kubernetes", {"long_running": True}),
]
SHOW = '#!/bin/sh\nprintf "%s|" "$0" "$@" "$V"\n'


def test_every_shipped_file_is_one_that_install_fills_in() -> None:
    read = set()

    def reading(name: str) -> str:
        read.add(name)
        return Assets().read(name)

    for kind, variants in VARIANTS:
        planned(Asked(kind, is_root=True, folder=FOLDER, **variants), USUAL, HOME, reading)
    shipped = {f"cron.d/{p.relative_to(CRON)}" for p in CRON.rglob("*") if p.is_file()}
    assert read == shipped - {"cron.d/env.example"}
    assert {kind for kind, _ in VARIANTS} == set(KINDS)


@pytest.mark.parametrize(("kind", "variants"), VARIANTS)
def test_the_usual_installation_gets_the_shipped_files_as_they_are(
    kind: str, variants: dict[str, bool]
) -> None:
    texts = {path.read_text(encoding="utf-8") for path in CRON.rglob("*") if path.is_file()}
    for file in plan(kind, USUAL, folder=FOLDER, **variants).files:
        text = file.text.replace("* quota-worker {", "* {").replace(
            'image: "quota-worker:0.1.0"', "image: quota-worker:0.1.0"
        )
        assert text in texts, file.path


@pytest.fixture
def odd(tmp_path: Path) -> Installation:
    """A program that shows how it was called, and its variables."""
    folder = odd_folder(tmp_path)
    program = folder / "quota-worker"
    program.write_text(SHOW)
    program.chmod(0o755)
    (folder / "env").write_text("V='it is read'\n")
    return Installation(str(program), str(folder / "env"), "daemon").checked()


def test_an_odd_path_is_right_in_hermes_script(odd: Installation, tmp_path: Path) -> None:
    (file,) = plan("hermes", odd).files
    script = tmp_path / "tick.sh"
    script.write_text(file.marked)
    done = run("bash", str(script), folder=tmp_path)
    assert (done.stdout, done.stderr) == (f"{odd.program}|tick|it is read|", "")


def test_an_odd_path_is_right_in_the_job_file(odd: Installation, tmp_path: Path) -> None:
    file = plan("hermes", odd, folder=FOLDER).files[1]
    fields = dict(re.findall(r"^(\w+): (.*)$", file.text, re.MULTILINE))
    assert list(fields) == ["name", "schedule", "command", "notify_on_complete"]
    done = run(*shlex.split(json.loads(fields["command"])), folder=tmp_path)
    assert (done.stdout, done.stderr) == (f"{odd.program}|tick|it is read|", "")


@pytest.mark.parametrize("is_root", [True, False])
def test_an_odd_path_is_right_in_a_crontab(
    odd: Installation, *, is_root: bool, tmp_path: Path
) -> None:
    (file,) = plan("cron", odd, is_root=is_root).files
    line = next(line for line in file.text.splitlines() if line.startswith("2-59/5"))
    fields = line.split(maxsplit=6 if is_root else 5)
    assert fields[:5] == ["2-59/5", *"****"]
    if is_root:
        assert fields[5] == "daemon"
    command = cron_command(fields[-1])
    shown = command.replace("logger -t quota-worker", "cat")
    assert shown != command
    done = run("/bin/sh", "-c", shown, folder=tmp_path)
    assert (done.stdout, done.stderr) == (f"{odd.program}|tick|it is read|", "")


def test_crons_own_parser_takes_the_file(odd: Installation, tmp_path: Path) -> None:
    crontab = shutil.which("crontab")
    if crontab is None:
        pytest.skip("no cron is installed: the line is checked by ours alone")
    (file,) = plan("cron", odd, is_root=False).files
    for name, text in (("good", file.marked), ("bad", file.marked.replace("2-59/5", "2-99/5"))):
        (tmp_path / name).write_text(text)
    # -T of cronie and newer Debian, -n of older Debian: checks, and installs nothing
    helped = subprocess.run([crontab, "-h"], capture_output=True, text=True, check=False).stderr
    check = "-T" if re.search(r"-T\b", helped) else "-n"
    assert run(crontab, check, str(tmp_path / "good"), folder=tmp_path).returncode == 0
    assert run(crontab, check, str(tmp_path / "bad"), folder=tmp_path).returncode != 0


def test_the_line_is_put_into_a_table_in_place_of_the_last_one(tmp_path: Path) -> None:
    """The command that is shown, with a `crontab` that keeps its table in a file."""
    table = tmp_path / "table"
    table.write_text("0 1 * * * other\n")
    tool = tmp_path / "crontab"
    tool.write_text(
        f"#!/bin/sh\ncase $1 in -l) cat {table};; -) cat > {table}.new; mv {table}.new {table};; esac\n"
    )
    tool.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for program in ("/old/quota-worker", "/new/quota-worker"):
        made = Installation(program, ENV_FILE)
        planned_here = planned(
            Asked("cron", is_root=False, folder=tmp_path / "a b"), made, HOME, Assets().read
        )
        (file,) = planned_here.files
        file.path.parent.mkdir(exist_ok=True)
        file.path.write_text(file.marked)
        done = run("/bin/sh", "-c", planned_here.steps[0], folder=tmp_path, environ=path)
        assert (done.returncode, done.stderr) == (0, "")
    assert table.read_text().startswith("0 1 * * * other\n")
    assert table.read_text().count("2-59/5") == 1
    assert "/new/quota-worker tick" in table.read_text()
    assert "/old/" not in table.read_text()


def test_a_line_that_cron_would_cut_is_refused() -> None:
    with pytest.raises(UsageError, match="use shorter paths"):
        plan("cron", Installation("/" + "a" * 1000, ENV_FILE))


@pytest.mark.parametrize(
    ("name", "variants"),
    [
        ("plain", {}),
        ("with space 100%u", {"long_running": True}),
        ("odd", {}),
        ("odd", {"of_user": True}),
    ],
)
def test_systemd_reads_a_unit_as_it_is_meant(
    name: str, variants: dict[str, bool], odd: Installation, tmp_path: Path
) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze isn't installed")
    made = odd
    if name != "odd":
        folder = tmp_path / name
        folder.mkdir()
        made = Installation(str(shutil.copy(odd.program, folder)), str(folder / "env"), "daemon")
    units = tmp_path / "units"
    units.mkdir()
    files = plan("systemd", made, **variants).files
    for file in files:
        (units / file.path.name).write_text(file.marked)
    paths = [str(units / file.path.name) for file in files]
    scope = "--user" if variants.get("of_user") else "--system"
    verified = run(
        analyze,
        scope,
        "verify",
        *paths,
        folder=tmp_path,
        environ={"XDG_RUNTIME_DIR": str(tmp_path)},
    )
    ours = [line for line in verified.stderr.splitlines() if "quota-worker" in line]
    assert ours == []
    # what systemd made of it: at this level it shows each unit
    dump = run(
        analyze,
        scope,
        "verify",
        paths[0],
        folder=tmp_path,
        environ={"SYSTEMD_LOG_LEVEL": "debug", "XDG_RUNTIME_DIR": str(tmp_path)},
    ).stdout
    (command,) = re.findall(r"^\t+Command Line: (.*)$", dump, re.MULTILINE)
    # quoted for a shell; of "$$" systemd makes one when it starts the program
    shown = run("/bin/sh", "-c", f"printf '%s\n' {command}", folder=tmp_path).stdout
    assert "$" not in shown.replace("$$", "")
    words = [word.replace("$$", "$") for word in shown.splitlines()]
    verb = "schedule" if variants.get("long_running") else "tick"
    if name == "odd":
        assert words == ["/bin/sh", "-c", 'exec "$0" "$@"', made.program, verb]
        assert (
            run(*words, folder=tmp_path, environ={"V": "x"}).stdout == f"{made.program}|{verb}|x|"
        )
    else:
        assert words == [made.program, verb]
    (env,) = re.findall(r"^\t+EnvironmentFile: (.*)$", dump, re.MULTILINE)
    assert re.sub(r"\\(.)", r"\1", env) == made.env_file


def test_a_unit_sees_the_home_folder_that_its_program_lies_in() -> None:
    unit = plan("systemd", Installation("/home/Ann/v/bin/quota-worker", ENV_FILE)).files[0].text
    assert "\nProtectHome=read-only\n" in unit
    python = Installation(PROGRAM, ENV_FILE, parts=("/root/.python",))
    assert "\nProtectHome=read-only\n" in plan("systemd", python).files[0].text
    assert "\nPrivateTmp=no\n" in plan("systemd", Installation("/tmp/v/q", ENV_FILE)).files[0].text  # noqa: S108
    own = plan("systemd", USUAL, of_user=True).files[0].text
    assert not re.search(r"^(User|Wants|After|Protect\w+|PrivateTmp)=|im-bot", own, re.MULTILINE)
    assert "\nNoNewPrivileges=yes\n" in own


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (Installation("/a\nb", ENV_FILE), "/a␊b can't stand in a schedule's file"),
        (Installation(PROGRAM, "/etc/env "), "can't stand in a schedule's file"),
        (Installation(PROGRAM, ENV_FILE, "root\n* * * * * x"), "is no user's name"),
        (Installation(PROGRAM, ENV_FILE, image="a\n  x: y"), "is no image's name"),
        (Installation(PROGRAM, ENV_FILE, image=""), "is no image's name"),
    ],
)
def test_what_no_file_can_hold_is_refused(made: Installation, fault: str) -> None:
    with pytest.raises(UsageError, match=re.escape(fault)):
        made.checked()


def test_the_script_leaves_one_process(odd: Installation, tmp_path: Path) -> None:
    """Hermes and systemd end their direct child only: it must be the worker itself."""
    Path(odd.program).write_text("#!/bin/sh\necho $$\n")
    (file,) = plan("hermes", odd).files
    (tmp_path / "tick.sh").write_text(file.text)
    with subprocess.Popen(
        ["bash", str(tmp_path / "tick.sh")], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        out, _ = process.communicate(timeout=60)
    assert int(out) == process.pid


def test_the_template_of_the_variables_is_read_by_sh(tmp_path: Path) -> None:
    """As it is, and with each line switched on; none is a mistaken name."""
    from worker.configuration.variables import variable_remarks

    text = (CRON / "env.example").read_text(encoding="utf-8")
    (tmp_path / "env").write_text(re.sub(r"^#(?=[A-Z_]+=)", "", text, flags=re.MULTILINE))
    done = run("/bin/sh", "-c", "set -a; . ./env && env", folder=tmp_path)
    assert done.stderr == ""
    ours = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith("QUOTA"))
    assert len(ours) > 8
    assert variable_remarks(ours, DeliverySettings()) == []


def test_the_launcher_is_the_real_program(tmp_path: Path) -> None:
    program = program_in(odd_folder(tmp_path))
    done = run(str(program), "--version", folder=tmp_path)
    assert re.fullmatch(r"quota-worker [\d.]+\n", done.stdout)
