"""Who the embedded server runs as, and where its folder may lie.

PostgreSQL refuses to run as root: then another user runs it, in a folder that
this user can enter. No existing folder's owner or mode is ever changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from worker.errors import DataFolderError, EmbeddedServerError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT_HOMES = Path("/var/lib/quota-worker")
_SERVER_USERS = ("postgres", "nobody")
_ENTER = 1
_READ = 4
_READ_AND_ENTER = 5


@dataclass(frozen=True, slots=True)
class Account:
    """The user a server runs as. `name` is None for the caller itself."""

    uid: int
    gid: int
    name: str | None = None


def default_home(environ: Mapping[str, str]) -> Path:
    """QUOTA_WORKER_DATA, else `quota-worker` below XDG_STATE_HOME or ~/.local/state.

    Raises DataFolderError for a user without a home.
    """
    chosen = environ.get("QUOTA_WORKER_DATA")
    state = environ.get("XDG_STATE_HOME") or ""
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        base = Path(state) if state.startswith("/") else Path("~/.local/state").expanduser()
    except RuntimeError:
        raise DataFolderError(
            "no home for the embedded server's data: set QUOTA_WORKER_DATA or POSTGRES_DSN"
        ) from None
    return base / "quota-worker"


def may_reach(path: Path, account: Account) -> bool:
    """Whether the account may enter every folder above `path`, and read `path` itself.

    Judged by the mode bits alone (supplementary groups and ACLs are left out,
    so the answer may be a needless no).
    """
    resolved = path.resolve()
    for parent in resolved.parents:
        if not _permits(parent, account, _ENTER):
            return False
    if not resolved.exists():
        return True
    return _permits(
        resolved, account, 5 if resolved.is_dir() or os.access(resolved, os.X_OK) else _READ
    )


def _permits(path: Path, account: Account, wanted: int) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_uid == account.uid:
        granted = status.st_mode >> 6
    elif status.st_gid == account.gid:
        granted = status.st_mode >> 3
    else:
        granted = status.st_mode
    return granted & wanted == wanted


def server_account(home: Path) -> Account:
    """The caller itself; for root the owner of an existing cluster, else postgres or nobody.

    Raises EmbeddedServerError for root on a machine that has neither.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    # A cluster that exists says who runs it.
    for data in (home / "data", var_lib_home(home) / "data"):
        with contextlib.suppress(OSError, KeyError):
            status = data.stat()
            if status.st_uid != 0:
                return Account(status.st_uid, status.st_gid, pwd.getpwuid(status.st_uid).pw_name)
    for name in _SERVER_USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)
    raise EmbeddedServerError(
        "PostgreSQL does not run as root, and there is no user postgres or nobody: "
        "create one, or set POSTGRES_DSN"
    )


def var_lib_home(home: Path) -> Path:
    """A folder that every user may enter, of this home's own."""
    digest = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:12]
    return _ROOT_HOMES / digest


def reachable_home(home: Path, account: Account) -> Path:
    """The folder itself, or one below /var/lib where the account can't enter it."""
    if account.name is None or _may_enter(home, account):
        return home
    return var_lib_home(home)


def _may_enter(home: Path, account: Account) -> bool:
    # Folders that are still to be made will be open to the server's user.
    nearest = next(folder for folder in (home, *home.parents) if folder.is_dir())
    data = home / "data"
    return may_reach(data / "PG_VERSION" if data.is_dir() else nearest / "-", account)
