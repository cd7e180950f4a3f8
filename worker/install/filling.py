"""Fills the schedules' files in: the program's path, the variables' file, the user. Pure.

The files of `cron.d/` hold the paths of the README. Each kind reads a path in its own way: what
is put in is quoted for that kind, so that spaces, quotes and % mean themselves.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from worker.errors import UsageError
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

# What stands in the files.
PROGRAM: Final = "/opt/quota-worker/.venv/bin/quota-worker"
ENV_FILE: Final = "/etc/quota-worker/env"
USER: Final = "quota-worker"
SCHEDULE: Final = "2-59/5 * * * *"
IMAGE: Final = "quota-worker:0.1.0"
# Debian's cron cuts a longer command.
CRON_COMMAND_LETTERS: Final = 999
_HIDDEN_HOMES: Final = ("/home/", "/root/", "/run/user/")
_HIDDEN_TEMPORARY: Final = ("/tmp/", "/var/tmp/")  # noqa: S108  nothing is made there
_USER_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_IMAGE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,499}")
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_@+=:,./%-]+")


class Installation(NamedTuple):
    """What the files are filled in with: absolute paths, and who runs the ticks.

    ``parts``: every folder that the program is made of, such as its Python's.
    """

    program: str
    env_file: str
    user: str = USER
    image: str = IMAGE
    parts: tuple[str, ...] = ()

    def checked(self) -> Installation:
        """The same; raises UsageError for what no file can hold."""
        for path in (self.program, self.env_file):
            if not path.isprintable() or path != path.strip():
                raise UsageError(
                    f"{visible(path)} can't stand in a schedule's file: "
                    "use a path of printable letters, without spaces at its ends"
                )
        if not _USER_NAME.fullmatch(self.user):
            raise UsageError(f"{visible(self.user)} is no user's name")
        if not _IMAGE_NAME.fullmatch(self.image):
            raise UsageError(
                f"{visible(self.image)} is no image's name: one such as {IMAGE} is needed"
            )
        return self


def filled_script(text: str, made: Installation) -> str:
    """A script for sh or bash."""
    return _put(text, {ENV_FILE: shlex.quote(made.env_file), PROGRAM: shlex.quote(made.program)})


def filled_crontab(text: str, made: Installation, *, with_user: bool) -> str:
    """A user's crontab, or with the user's name a file of /etc/cron.d. Raises UsageError."""
    filled = _put(text, {ENV_FILE: _in_crontab(made.env_file), PROGRAM: _in_crontab(made.program)})
    *_, line = filled.splitlines()
    command = line.removeprefix(f"{SCHEDULE} ")
    if len(command) > CRON_COMMAND_LETTERS:
        raise UsageError(
            f"the line for cron would have more than {CRON_COMMAND_LETTERS} letters, "
            "which cron cuts: use shorter paths"
        )
    if with_user:
        filled = filled.replace(f"\n{SCHEDULE} ", f"\n{SCHEDULE} {made.user} ")
    return filled


def filled_job_file(text: str, made: Installation) -> str:
    """The YAML of name, schedule, command and notify_on_complete."""

    def command(found: re.Match[str]) -> str:
        words = [filled_script(word, made) for word in shlex.split(json.loads(found[1]))]
        # JSON's quotes and escapes are YAML's, too
        return f"command: {json.dumps(shlex.join(words), ensure_ascii=False)}"

    return re.sub(r'^command: (".*")$', command, text, flags=re.MULTILINE)


def filled_unit(text: str, made: Installation, *, of_user: bool) -> str:
    """A systemd service; with ``of_user`` one of that user's own manager."""
    filled = _put(text, {ENV_FILE: _env_of_unit(made.env_file), PROGRAM: _exec(made.program)})
    if of_user:
        # a user's manager knows no network target, no other user, and shuts nothing in
        filled = re.sub(r"^(?:Wants|After|User)=.*\n", "", filled, flags=re.MULTILINE)
        filled = re.sub(
            r"^# These hold for.*?(?=^NoNew)", "", filled, flags=re.MULTILINE | re.DOTALL
        )
        filled = re.sub(
            r"^(?:ProtectSystem|ProtectHome|PrivateTmp)=.*\n", "", filled, flags=re.MULTILINE
        )
        return filled.replace("WantedBy=multi-user.target", "WantedBy=default.target")
    filled = filled.replace(f"User={USER}\n", f"User={made.user}\n")
    paths = [f"{path}/" for path in (made.program, made.env_file, *made.parts)]
    if any(path.startswith(_HIDDEN_HOMES) for path in paths):
        filled = filled.replace("ProtectHome=yes", "ProtectHome=read-only")
    if any(path.startswith(_HIDDEN_TEMPORARY) for path in paths):
        filled = filled.replace("PrivateTmp=yes", "PrivateTmp=no")
    return filled


def filled_manifest(text: str, made: Installation) -> str:
    """A manifest of Kubernetes: only the image is the installation's."""
    return text.replace(f"image: {IMAGE}\n", f"image: {json.dumps(made.image)}\n")


def _put(text: str, values: Mapping[str, str]) -> str:
    """In one pass: what is put in may hold what is looked for."""
    looked_for = re.compile("|".join(map(re.escape, values)))
    return looked_for.sub(lambda found: values[found[0]], text)


def _in_crontab(path: str) -> str:
    """A word for sh in a crontab, where a bare % begins the command's input."""
    word = shlex.quote(path)
    # outside of quotes, lest a backslash of the name stand before it
    return word.replace("%", r"'\%'" if word.startswith("'") else r"\%")


def _exec(path: str) -> str:
    """A program for ExecStart=.

    systemd takes no quote, backslash or variable in a program's own path; an argument may hold
    all of them.
    """
    if set(path) & set("\"'\\$"):
        argument = path.replace("$", "$$")
        return f"""/bin/sh -c 'exec "$$0" "$$@"' {_word_of_unit(argument)}"""
    return _word_of_unit(path)


def _word_of_unit(text: str) -> str:
    text = text.replace("%", "%%")
    if _PLAIN_WORD.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _env_of_unit(path: str) -> str:
    """EnvironmentFile= takes the rest of the line, as a pattern for file names."""
    return re.sub(r"([\\*?\[{])", r"\\\1", path).replace("%", "%%")
