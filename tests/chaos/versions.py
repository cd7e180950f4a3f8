"""The version before: a folder with the source of an earlier commit, for an upgrade under load."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _git(*arguments: str) -> bytes | None:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def previous_version(folder: Path) -> tuple[Path, str]:
    """A folder to run from, and what it holds: the commit before the newest migration came.

    QUOTA_WORKER_CHAOS_OLD names another. Where there is no git, it is this version, twice.
    """
    commit = os.environ.get("QUOTA_WORKER_CHAOS_OLD", "")
    if not commit:
        newest = max((ROOT / "sql" / "migrations").glob("*.sql")).relative_to(ROOT)
        added = _git("log", "--diff-filter=A", "--format=%H", "-1", "--", str(newest))
        commit = added.decode().strip() + "^" if added and added.strip() else ""
    archive = _git("archive", commit, "worker", "sql", "templates") if commit else None
    named = _git("log", "-1", "--format=%h", commit) if archive else None
    if archive is None or named is None:
        return ROOT, "this version"
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder, named.decode().strip()
