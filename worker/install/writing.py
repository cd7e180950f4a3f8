"""Puts files into their places: all of them, or none.

A file that was written here ends with a line that holds the checksum of what stands above it,
so that one which somebody edited since is known, and is not overwritten.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from worker.errors import UsageError
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODE: Final = 0o644
SCRIPT_MODE: Final = 0o755
# Secrets stand in it: for its owner to change and its group to read.
ENV_MODE: Final = 0o640
FILE_MAX_BYTES: Final = 1 << 20
_OTHERS: Final = 0o007
_MARK_LINE: Final = (
    r"# Written by quota-worker install\. Unedited while this is its checksum: ([0-9a-f]{16})\n"
)
_MARK: Final = re.compile(rf"{_MARK_LINE}\Z")


class PlannedFile(NamedTuple):
    """A schedule's file: where it goes, and what it is to hold without the line of ours."""

    path: Path
    text: str
    mode: int = MODE

    @property
    def marked(self) -> str:
        """What is written."""
        return (
            f"{self.text}# Written by quota-worker install. "
            f"Unedited while this is its checksum: {_checksum(self.text)}\n"
        )


class EnvFile(NamedTuple):
    """The variables' file, made from a template where there is none; ``group`` may read it."""

    path: Path
    text: str
    group: int | None


class EditedFileError(UsageError):
    """A schedule's file was edited by hand: nothing was written."""

    def __init__(self, path: Path, difference: Sequence[str]) -> None:
        super().__init__(
            f"{visible(str(path))} was edited by hand: nothing was written; --force replaces it"
        )
        self.difference = tuple(difference)


class FileRefusedError(UsageError):
    """A file can't be written."""

    # it names a file, which may look like an address, and is to be copied whole
    redacted = False


def write_all(
    files: Sequence[PlannedFile], env: EnvFile | None, cure: str, *, force: bool
) -> list[tuple[str, Path]]:
    """Put all in place; returns what became of each: written, replaced, unchanged, kept.

    Nothing is changed where one of them can't be. Raises EditedFileError for one that was edited
    by hand unless ``force``, and FileRefusedError, which says ``cure``.
    """
    outcomes = [(_judged(file, force=force), file) for file in files]
    new = [(file.path, file.marked, file.mode) for was, file in outcomes if was != "unchanged"]
    told = [(was, file.path) for was, file in outcomes]
    if env is not None:
        told.append(("kept" if os.path.lexists(env.path) else "written", env.path))
    made_folders: list[Path] = []
    waiting: list[tuple[Path, Path]] = []
    path = Path()
    try:
        for path, text, mode in new:
            waiting.append((_prepared(path, text, mode, None, made_folders), path))
        if env is not None and told[-1][0] == "written":
            path = env.path
            draft = _prepared(path, env.text, ENV_MODE, env.group, made_folders)
            try:
                os.link(draft, path)  # unlike a rename it replaces nothing
            finally:
                draft.unlink()
        while waiting:
            draft, path = waiting[0]
            draft.replace(path)
            waiting.pop(0)
    except OSError as error:
        for draft, _ in waiting:
            draft.unlink(missing_ok=True)
        for folder in reversed(made_folders):
            with suppress(OSError):  # what is in use stays
                folder.rmdir()
        why = error.strerror or type(error).__name__
        raise FileRefusedError(f"{visible(str(path))} can't be written: {why}: {cure}") from None
    return told


def env_remark(path: Path) -> str | None:
    """What is wrong with the rights of a variables' file that was there already."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    if mode & _OTHERS:
        return f"{visible(str(path))} is open to everybody, and holds secrets: chmod 0640 it"
    return None


def _judged(file: PlannedFile, *, force: bool) -> str:
    """What will become of the file. Raises EditedFileError and FileRefusedError."""
    if not os.path.lexists(file.path):
        return "written"
    try:
        mode = file.path.lstat().st_mode
        # a device would be replaced; a link is one's own, such as that of a masked unit
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            raise FileRefusedError(
                f"{visible(str(file.path))} is no plain file: look what is there"
            )
        # a pipe that the link leads to would be waited for
        with open(file.path, "rb", opener=_at_once) as stream:
            there = stream.read(FILE_MAX_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise FileRefusedError(
            f"{visible(str(file.path))} can't be read: {why}: look what is there"
        ) from None
    if there == file.marked:
        return "unchanged"
    found = _MARK.search(there)
    if not force and (found is None or found[1] != _checksum(there[: found.start()])):
        raise EditedFileError(file.path, list(_difference(there, file)))
    return "replaced"


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _difference(there: str, file: PlannedFile) -> Iterator[str]:
    without_mark = re.sub(_MARK_LINE, "", there)
    name = str(file.path)
    lines = unified_diff(
        without_mark.splitlines(), file.text.splitlines(), name, f"{name} (new)", lineterm=""
    )
    for line in lines:
        shown = line.lstrip(" ")
        yield " " * (len(line) - len(shown)) + visible(shown)


def _prepared(
    path: Path, text: str, mode: int, group: int | None, made_folders: list[Path]
) -> Path:
    """A file beside the place, with its rights. cron, systemd and Hermes read no such name."""
    for folder in reversed([path.parent, *path.parent.parents]):
        if not folder.exists():
            folder.mkdir()
            made_folders.append(folder)
    draft = path.with_name(f".quota-worker-{secrets.token_hex(8)}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            if group is not None:
                os.fchown(descriptor, -1, group)
            os.fchmod(descriptor, mode)
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
