"""One cluster's folder: made whole or not at all, and run by the right user."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from worker.assets import Assets
from worker.errors import DataFolderError, EmbeddedServerError

if TYPE_CHECKING:
    from pathlib import Path

    from worker.postgres.accounts import Account
    from worker.postgres.binaries import Binaries

SUPERUSER = "quota"
DATABASE = "quota"
INIT_SECONDS = 120.0
FIRST_LINE_BYTES = 64
# A new cluster, or a start after a crash, wants about so much.
SCARCE_BYTES = 64_000_000
# initdb hands the programs' own path to a shell, between double quotes.
_SHELLS_OWN = frozenset('"$`\\')


class Cluster:
    """The folder `home/data` and the user it belongs to."""

    def __init__(self, home: Path, account: Account, *, durable: bool = True) -> None:
        self.home = home
        self.data = home / "data"
        self.account = account
        self._durable = durable

    @property
    def is_own(self) -> bool:
        """Whether the server runs as the caller itself."""
        return self.account.name is None

    def ensure(self, binaries: Binaries) -> None:
        """Make the cluster if there is none. The caller holds the starter's lock.

        Raises DataFolderError where other files lie, EmbeddedServerError where initdb fails.
        """
        if (self.data / "PG_VERSION").is_file():
            return
        if self.data.exists() and any(self.data.iterdir()):
            raise DataFolderError(
                f"{self.data} holds other files: choose another folder with QUOTA_WORKER_DATA"
            )
        if not may_hold_programs(binaries.folder):
            raise EmbeddedServerError(
                f"PostgreSQL's programs lie in {binaries.folder}, and initdb can't run in a folder "
                "with such a name: install quota-worker elsewhere, or set POSTGRES_DSN"
            )
        # Made beside and renamed, so that a killed initdb leaves no half cluster.
        fresh = self.home / "data.partial"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        self.give(fresh)
        done = self.run(
            [
                binaries.program("initdb"),
                *("-D", str(fresh), "-U", SUPERUSER, "--encoding=UTF8", "--locale=C"),
                *("--auth-local=trust", "--auth-host=reject"),
                *(() if self._durable else ("--no-sync",)),
            ],
            INIT_SECONDS,
        )
        if done.returncode != 0:
            raise EmbeddedServerError(
                f"a PostgreSQL cluster can't be made in {self.home}: "
                f"{last_line(done.stderr)}{self.scarcity()} (or set POSTGRES_DSN)"
            )
        self._create_database(binaries, fresh)
        if self.data.exists():
            self.data.rmdir()
        fresh.rename(self.data)

    def _create_database(self, binaries: Binaries, folder: Path) -> None:
        # Single-user mode needs no server: the cluster appears with its database.
        done = self.run(
            [binaries.program("postgres"), "--single", "-D", str(folder), "template1"],
            INIT_SECONDS,
            Assets().read("sql/embedded/create.sql"),
        )
        if done.returncode != 0 or "ERROR" in done.stderr:
            raise EmbeddedServerError(
                f"the database can't be made in {self.home}: {last_line(done.stderr)}"
            )

    def refuse_other_major(self, binaries: Binaries) -> None:
        """Raise DataFolderError where another PostgreSQL's cluster lies."""
        version_file = self.data / "PG_VERSION"
        try:
            found = version_file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise DataFolderError(f"{version_file} can't be read: {error}") from error
        if found != str(binaries.major):
            raise DataFolderError(
                f"{self.data} was made by PostgreSQL {found} and the programs here are "
                f"{binaries.major}: move it with pg_dumpall, or choose another folder "
                "with QUOTA_WORKER_DATA"
            )

    def give(self, folder: Path) -> None:
        """Hand a folder of our own making to the server's user."""
        if not self.is_own:
            os.chown(folder, self.account.uid, self.account.gid)

    def run(
        self, command: list[str], seconds: float, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of PostgreSQL as the server's user, within the time limit.

        Raises EmbeddedServerError if it can't be run or takes too long.
        """
        try:
            return subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
                **self._as_server(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EmbeddedServerError(f"{command[0]} does not run: {error}") from error

    def launch(self, command: list[str], log: Path, seconds: float) -> Started:
        """Start a server as a process of its own that outlives us; its output goes to `log`.

        Raises EmbeddedServerError if it can't be started within the time limit.
        """
        # Its own copy of `held` closes when it ends: nobody needs to be its parent for that,
        # and as init's child it leaves no zombie whose pid would look alive.
        ended, held = os.pipe()
        try:
            with log.open("ab") as output:
                subprocess.run(
                    ["/bin/sh", "-c", '"$@" &', "sh", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=seconds,
                    check=True,
                    pass_fds=(held,),
                    start_new_session=True,
                    **self._as_server(),
                )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(ended)
            raise EmbeddedServerError(f"{command[0]} does not run: {error}") from error
        finally:
            os.close(held)
        return Started(ended)

    def is_accepting(self) -> bool:
        """Whether the server that wrote the pid file says that it is ready."""
        try:
            lines = (self.data / "postmaster.pid").read_text(errors="replace").splitlines()
        except OSError:
            return False
        return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"

    def drop_broken_locks(self, socket_lock: Path) -> None:
        """Remove lock files without a pid, as a power cut leaves them.

        The caller holds the starter's lock and found no server. Should one live all the
        same, PostgreSQL finds its shared memory in use and doesn't start.
        """
        for lock in (self.data / "postmaster.pid", socket_lock):
            with contextlib.suppress(FileNotFoundError):
                with lock.open("rb") as file:
                    words = file.read(FIRST_LINE_BYTES).split()
                # the socket's has a minus before the pid of a server in single-user mode
                if not words or not words[0].removeprefix(b"-").isdigit() or int(words[0]) == 0:
                    lock.unlink()

    def scarcity(self) -> str:
        """A remark where the disk is (nearly) full: a program's own last words may be cut."""
        try:
            disk = os.statvfs(self.data if self.data.is_dir() else self.home)
        except OSError:
            return ""
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes >= SCARCE_BYTES:
            return ""
        return f"; the disk is full: {free_bytes // 1_000_000} MB are free in {self.home}"

    def _as_server(self) -> dict[str, Any]:
        """How every program of PostgreSQL is run."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PG") and name not in {"LD_PRELOAD", "PYTHONPATH"}
        }
        other = None if self.is_own else self.account
        return {
            "cwd": "/",  # the caller's folder may be closed to the server's user
            "env": environment | {"LC_ALL": "C", "TZ": "UTC"},
            "umask": 0o077,
            "user": other.uid if other else None,
            "group": other.gid if other else None,
            "extra_groups": [] if other else None,
        }


class Started:
    """A server that was started, and whether it still runs."""

    def __init__(self, ended: int) -> None:
        self._ended = ended

    def has_ended(self, wait_seconds: float) -> bool:
        """Whether it ended, asked for at most so long."""
        return bool(select.select([self._ended], [], [], wait_seconds)[0])

    def close(self) -> None:
        """Stop watching; the server goes on."""
        os.close(self._ended)


_STATUS_LINE = 7


def may_hold_programs(folder: Path) -> bool:
    """Whether initdb can run from a folder of such a name."""
    return not _SHELLS_OWN & set(str(folder))


def last_line(text: str) -> str:
    """The line of a program's output that tells most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "FATAL" in line or "error" in line.lower()]
    return (telling or lines or ["no reason given"])[-1]
