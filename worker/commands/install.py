"""`quota-worker install --kind K [--print | --dir DIR] ...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from worker.answers import say, tell
from worker.errors import QuotaWorkerError, UsageError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.install.filling import Installation
    from worker.install.plan import Asked, Home, Plan
    from worker.install.writing import EnvFile

HERMES_SECONDS = 60
KINDS = "hermes | cron | systemd | kubernetes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument("--kind", required=True, metavar="K", help=KINDS)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--print", action="store_true", help="write the files to stdout alone")
    where.add_argument(
        "--dir", metavar="DIR", help="write them into this folder, nothing elsewhere"
    )
    parser.add_argument("--env-file", metavar="FILE", help="the file with the variables")
    parser.add_argument("--run-as", metavar="USER", help="who runs the ticks")
    parser.add_argument("--user", action="store_true", help="systemd: units of your own manager")
    parser.add_argument(
        "--long-running",
        action="store_true",
        help="systemd, kubernetes: run `quota-worker schedule` instead of a tick every 5 minutes",
    )
    parser.add_argument("--image", metavar="IMAGE", help="kubernetes: the image")
    parser.add_argument(
        "--create", action="store_true", help="hermes: create the job in Hermes, too"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace files that were edited by hand"
    )


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Write the files of one kind and say what is next; exit 2 where nothing could be written."""
    from worker.install.plan import ENV_TEMPLATE, KINDS, Asked, Home, planned

    if args.kind not in KINDS:
        from worker.configuration.table import meant, shown

        raise UsageError(f"--kind {shown(args.kind)} is not known: {meant(args.kind, KINDS)}")
    if args.create and (args.kind != "hermes" or args.print or args.dir):
        raise UsageError("--create is for --kind hermes, without --print and --dir")
    folder = _absolute(args.dir) if args.dir else None
    asked = Asked(args.kind, os.geteuid() == 0, args.user, args.long_running, folder)
    asked.checked(printing=args.print)
    home = Home.of(deps.environ, _home_folder())
    made = _installation(args, asked, home).checked()
    # to look at, or to copy: all forms of it
    shown_whole = asked._replace(folder=Path()) if args.print else asked
    plan = planned(shown_whole, made, home, deps.assets.read)
    if args.print:
        _print(plan)
        return 0
    env = _env_file(asked, plan, made, deps.assets.read(ENV_TEMPLATE))
    return _write(args, asked, plan, made, env)


def _absolute(path: str | Path) -> Path:
    """With its links: one may lead to the next version some day."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _home_folder() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise UsageError("this user has no home folder: set HOME") from None


def _print(plan: Plan) -> None:
    for file in plan.files:
        if len(plan.files) > 1:
            say(f"# ---- {file.path}")
        say(file.text.rstrip("\n"))


def _write(
    args: argparse.Namespace, asked: Asked, plan: Plan, made: Installation, env: EnvFile | None
) -> int:
    from worker.install.plan import first_steps
    from worker.install.writing import EditedFileError, env_remark, write_all
    from worker.untrusted import visible

    try:
        outcomes = write_all(plan.files, env, _cure(asked), force=args.force)
    except EditedFileError as error:
        for line in error.difference:
            say(line)
        raise
    for outcome, path in outcomes:
        say(f"{outcome:<10}{visible(str(path))}")
    steps = list(plan.steps)
    if args.create:
        steps = [_created(), *steps[1:]]
    if plan.reads_env:
        is_new = asked.folder is not None or ("written", env.path if env else None) in outcomes
        first = first_steps(made, is_root=asked.is_root, env_is_new=is_new)
        if asked.folder is not None and env is not None:
            first.insert(0, _copy_env(made, env.path, is_root=asked.is_root))
        steps = first + steps
        remark = env_remark(Path(made.env_file))
        for note in [*([remark] if remark else []), *_unreachable(asked, made)]:
            tell(f"note: {note}")
    say("next:")
    for step in steps:
        say(f"  {step}")
    return 0


def _unreachable(asked: Asked, made: Installation) -> list[str]:
    """What another user than root couldn't get at; files that are only laid down say nothing."""
    if not asked.is_root or asked.folder is not None or asked.of_user:
        return []
    from worker.install.reach import reach_remarks

    return reach_remarks(made.user, (made.program, *made.parts), made.env_file)


def _cure(asked: Asked) -> str:
    if asked.folder is not None:
        return "name another folder with --dir"
    own = {
        "systemd": "run it with sudo, or with --user for units of your own, or with --dir DIR",
        "cron": "run it with sudo, or with --dir DIR",
        "hermes": "run it as the user of Hermes, set HERMES_HOME, or say --dir DIR",
    }
    if asked.of_user:
        return "set HOME or XDG_CONFIG_HOME to a folder of yours, or say --dir DIR"
    return own[asked.kind] + ", or name another --env-file"


def _copy_env(made: Installation, template: Path, *, is_root: bool) -> str:
    import shlex

    group = f" -g {made.user}" if is_root else ""
    source, target = shlex.quote(str(template)), shlex.quote(made.env_file)
    return f"test -e {target} || install -D -m 0640{group} {source} {target}"


def _installation(args: argparse.Namespace, asked: Asked, home: Home) -> Installation:
    """This program, its variables' file and its user, as the options say or as is usual."""
    import getpass

    from worker.install.filling import ENV_FILE, IMAGE, USER, Installation

    of_system = asked.is_root or (asked.kind == "systemd" and not asked.of_user)
    if args.run_as is not None:
        user = args.run_as
    elif of_system and asked.kind in {"cron", "systemd"} and not asked.of_user:
        user = USER
    else:
        user = getpass.getuser()
    default = ENV_FILE if of_system and not asked.of_user else None
    env_file = args.env_file or default or str(home.configuration / "quota-worker/env")
    package = str(Path(__file__).resolve().parents[2])
    return Installation(
        program=_program(),
        env_file=str(_absolute(env_file)),
        user=user,
        image=args.image or IMAGE,
        parts=(sys.prefix, sys.base_prefix, package),
    )


def _program() -> str:
    """The path of this program. Raises UsageError where it isn't installed as one."""
    called = Path(sys.argv[0])
    beside = Path(sys.prefix) / "bin" / "quota-worker"
    for path in (called, beside):
        if path.name != "__main__.py" and path.is_file() and os.access(path, os.X_OK):
            return str(_absolute(path))
    raise UsageError(f"{beside} is missing: install quota-worker with pip, and call it from there")


def _env_file(asked: Asked, plan: Plan, made: Installation, text: str) -> EnvFile | None:
    """The variables' file that is made where there is none; None: the kind reads none."""
    import pwd

    from worker.install.writing import EnvFile

    if not plan.reads_env:
        return None
    if asked.folder is not None:
        return EnvFile(asked.folder / "env.example", text, None)
    if not asked.is_root:
        return EnvFile(Path(made.env_file), text, None)
    try:
        group = pwd.getpwnam(made.user).pw_gid
    except KeyError:
        raise UsageError(
            f"there is no user {made.user}: useradd --system {made.user}, "
            "or name another with --run-as"
        ) from None
    return EnvFile(Path(made.env_file), text, group)


def _created() -> str:
    """Create the job in Hermes unless it is there; returns the step that is left of it."""
    import shutil
    import subprocess

    from worker.install.plan import HERMES_CREATE, HERMES_JOB
    from worker.untrusted import visible

    program = shutil.which("hermes")
    if program is None:
        import shlex

        tell("note: hermes is not on PATH: the job is left to you")
        return shlex.join(HERMES_CREATE)

    def hermes(*arguments: str) -> str:
        try:
            done = subprocess.run(
                (program, *arguments),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=HERMES_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise QuotaWorkerError(
                f"hermes could not be run ({type(error).__name__}): create the job by hand"
            ) from None
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
            raise QuotaWorkerError(f"hermes refused the job: {visible(last[-1])}")
        return done.stdout

    names = [line.split("Name:", 1)[1].strip() for line in _named(hermes("cron", "list"))]
    if HERMES_JOB in names:
        say(f"{'unchanged':<10}the job {HERMES_JOB} of Hermes")
    else:
        hermes(*HERMES_CREATE[1:])
        say(f"{'written':<10}the job {HERMES_JOB} of Hermes")
    return "hermes cron status   # whether Hermes's gateway runs, which starts the jobs"


def _named(text: str) -> list[str]:
    return [line for line in text.splitlines() if "Name:" in line]
