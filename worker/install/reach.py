"""Whether the user who runs the ticks can get at the program and its variables."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

_ENTER, _READ = 0o1, 0o4


def reach_remarks(user: str, programs: Iterable[str], env_file: str) -> list[str]:
    """What the user can't enter or read, by the modes of the files; empty for root.

    Raises KeyError where there is no such user.
    """
    entry = pwd.getpwnam(user)
    if entry.pw_uid == 0:
        return []
    groups = frozenset(os.getgrouplist(user, entry.pw_gid))

    def may(path: Path, right: int) -> bool:
        try:
            found = path.stat()
        except OSError:
            return True  # what isn't there, its own message tells
        if found.st_uid == entry.pw_uid:
            return bool(found.st_mode & (right << 6))
        if found.st_gid in groups:
            return bool(found.st_mode & (right << 3))
        return bool(found.st_mode & right)

    def closed_folder(path: Path) -> Path | None:
        folders = reversed([path, *path.parents] if _is_folder(path) else path.parents)
        return next((folder for folder in folders if not may(folder, _ENTER)), None)

    closed = [closed_folder(Path(name).resolve()) for name in programs]
    told = [
        f"{user} can't enter {visible(str(folder))}, which the program needs: "
        "install it elsewhere, such as in /opt/quota-worker/.venv with the system's Python, "
        "or let another user run it with --run-as"
        for folder in dict.fromkeys(closed)
        if folder is not None
    ]
    env = Path(env_file)
    if closed_folder(env) is not None or not may(env, _READ):
        told.append(
            f"{user} can't read {visible(env_file)}: "
            f"chgrp {user} it, and chmod 0640 it; its folders must be open to that user"
        )
    return told


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False
