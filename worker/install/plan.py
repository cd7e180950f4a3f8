"""Which files a kind of schedule needs for an installation, where they go, and what is next. Pure.

A step is a command to copy, with a remark behind it where the command doesn't say it.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from worker.errors import UsageError
from worker.install.filling import (
    SCHEDULE,
    USER,
    Installation,
    filled_crontab,
    filled_job_file,
    filled_manifest,
    filled_script,
    filled_unit,
)
from worker.install.writing import SCRIPT_MODE, PlannedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KINDS: Final = ("hermes", "cron", "systemd", "kubernetes")
ENV_TEMPLATE: Final = "cron.d/env.example"
HERMES_SCRIPT: Final = "quota-worker-tick.sh"
HERMES_JOB: Final = USER
_BEGIN, _END = "# quota-worker: begin", "# quota-worker: end"

KUBERNETES_FIRST: Final = (
    "kubectl create secret generic quota-worker --from-env-file=quota-worker.env"
)
HERMES_CREATE: Final = (
    *("hermes", "cron", "create", SCHEDULE, "--no-agent", "--script", HERMES_SCRIPT),
    *("--deliver", "local", "--name", HERMES_JOB),
)


class Asked(NamedTuple):
    """The kind and its variants. ``folder``: all files go there, and nothing elsewhere."""

    kind: str
    is_root: bool
    of_user: bool = False
    long_running: bool = False
    folder: Path | None = None

    def checked(self, *, printing: bool) -> Asked:
        """The same; raises UsageError for variants that a kind doesn't have."""
        if self.of_user and self.kind != "systemd":
            raise UsageError("--user is for systemd: other kinds are your own without it")
        if self.long_running and self.kind not in {"systemd", "kubernetes"}:
            raise UsageError(
                f"--long-running is for systemd and kubernetes: {self.kind} starts ticks"
            )
        if self.kind == "kubernetes" and self.folder is None and not printing:
            raise UsageError(
                "kubernetes has no folder of its own: say --print and pass it to "
                "kubectl apply -f -, or --dir DIR"
            )
        return self


class Plan(NamedTuple):
    """The files, and the steps after them. ``reads_env``: they read the variables' file."""

    files: tuple[PlannedFile, ...]
    steps: tuple[str, ...]
    reads_env: bool = True


class Home(NamedTuple):
    """Where a user's own files go: of systemd, and Hermes."""

    configuration: Path
    hermes: Path

    @classmethod
    def of(cls, environ: Mapping[str, str], home: Path) -> Home:
        """From XDG_CONFIG_HOME and HERMES_HOME; an empty or relative one counts as unset."""
        folders = []
        for name, default in (("XDG_CONFIG_HOME", ".config"), ("HERMES_HOME", ".hermes")):
            value = environ.get(name, "")
            folders.append(Path(value) if value.startswith("/") else home / default)
        return cls(*folders)


def planned(asked: Asked, made: Installation, home: Home, read: Callable[[str], str]) -> Plan:
    """The plan of what was asked; ``read`` gives a file of cron.d. Raises UsageError."""
    if asked.kind == "hermes":
        return _hermes(asked, made, home, read)
    if asked.kind == "cron":
        return _cron(asked, made, home, read)
    if asked.kind == "systemd":
        return _systemd(asked, made, home, read)
    return _kubernetes(asked, made, read)


def first_steps(made: Installation, *, is_root: bool, env_is_new: bool) -> list[str]:
    """What is the same for all kinds that read the variables' file."""
    program, env = shlex.quote(made.program), shlex.quote(made.env_file)
    line = shlex.quote(f"set -a; . {env} && exec {program} tick")
    who = f"runuser -u {made.user} -- " if is_root and made.user != "root" else ""
    edit = [f"editor {env}   # POSTGRES_DSN, and a channel"] if env_is_new else []
    return [*edit, f"{who}sh -c {line}   # one pass, to try it: it says what is wrong"]


def _hermes(asked: Asked, made: Installation, home: Home, read: Callable[[str], str]) -> Plan:
    folder = asked.folder or home.hermes / "scripts"
    script = PlannedFile(
        folder / HERMES_SCRIPT,
        filled_script(read("cron.d/hermes/quota-worker-tick.sh"), made),
        SCRIPT_MODE,
    )
    create = shlex.join(HERMES_CREATE)
    look = f"hermes cron run {HERMES_JOB}; hermes cron runs   # one pass by Hermes itself"
    if asked.folder is None:
        return Plan((script,), (create, look))
    job = PlannedFile(
        folder / "quota-worker.yaml", filled_job_file(read("cron.d/hermes/quota-worker.yaml"), made)
    )
    scripts = shlex.quote(str(home.hermes / "scripts"))
    copy = f"mkdir -p {scripts}; cp {shlex.quote(str(script.path))} {scripts}/"
    yaml = f"cp {shlex.quote(str(job.path))} DIR/   # instead, where a scheduler reads such files"
    return Plan((script, job), (copy, create, look, yaml))


def _cron(asked: Asked, made: Installation, home: Home, read: Callable[[str], str]) -> Plan:
    text = read("cron.d/crontab")
    if asked.is_root:
        path = (asked.folder or Path("/etc/cron.d")) / "quota-worker"
        file = PlannedFile(path, filled_crontab(text, made, with_user=True))
        look = "journalctl -t quota-worker   # or the system's log"
        if asked.folder is None:
            return Plan((file,), (look,))
        put = f"install -m 0644 {shlex.quote(str(path))} /etc/cron.d/quota-worker"
        return Plan((file,), (put, look))
    # a file of its own, which takes the place of its last version in the user's table
    path = (asked.folder or home.configuration / "quota-worker") / "crontab"
    body = f"{_BEGIN}\n{filled_crontab(text, made, with_user=False)}{_END}\n"
    put = (
        f"{{ crontab -l 2>/dev/null | sed '/^{_BEGIN}/,/^{_END}/d'; "
        f"cat {shlex.quote(str(path))}; }} | crontab -"
    )
    return Plan((PlannedFile(path, body),), (put, "crontab -l"))


def _systemd(asked: Asked, made: Installation, home: Home, read: Callable[[str], str]) -> Plan:
    place = home.configuration / "systemd/user" if asked.of_user else Path("/etc/systemd/system")
    folder = asked.folder or place
    names = (
        ("quota-worker-schedule.service",)
        if asked.long_running
        else ("quota-worker.service", "quota-worker.timer")
    )
    files = tuple(
        PlannedFile(
            folder / name,
            filled_unit(read(f"cron.d/systemd/{name}"), made, of_user=asked.of_user),
        )
        for name in names
    )
    user = " --user" if asked.of_user else ""
    unit = names[-1]
    steps = [
        f"systemctl{user} daemon-reload",
        f"systemctl{user} enable --now {unit}",
        f"systemctl{user} list-timers {unit}; journalctl{user} -u quota-worker"
        if not asked.long_running
        else f"systemctl{user} status {unit}; journalctl{user} -u {unit}",
    ]
    if asked.folder is not None:
        named = " ".join(shlex.quote(str(file.path)) for file in files)
        target = shlex.quote(str(place))
        steps.insert(0, f"install -D -m 0644 -t {target} {named}")
    if asked.of_user:
        steps.append("loginctl enable-linger   # so that it runs while you aren't logged in")
    return Plan(files, tuple(steps))


def _kubernetes(asked: Asked, made: Installation, read: Callable[[str], str]) -> Plan:
    name = "deployment.yaml" if asked.long_running else "cronjob.yaml"
    path = (asked.folder or Path()) / name
    file = PlannedFile(path, filled_manifest(read(f"cron.d/kubernetes/{name}"), made))
    steps = (
        f"{KUBERNETES_FIRST}   # POSTGRES_DSN and a channel, NAME=value without quotes",
        f"kubectl apply -f {shlex.quote(str(path))}",
        "kubectl logs -l app.kubernetes.io/name=quota-worker --tail=20",
    )
    return Plan((file,), steps, reads_env=False)
