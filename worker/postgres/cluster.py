"""One cluster's folder: made whole or not at all, and run by the right user."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from worker.assets import Assets
from worker.errors import DataFolderError, EmbeddedServerError

if TYPE_CHECKING:
    from pathlib import Path

    from worker.postgres.accounts import Account
    from worker.postgres.binaries import Binaries

SUPERUSER = "quota"
DATABASE = "quota"
INIT_SECONDS = 120.0


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
                f"{last_line(done.stderr)} (or set POSTGRES_DSN)"
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
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PG") and name not in {"LD_PRELOAD", "PYTHONPATH"}
        }
        environment |= {"LC_ALL": "C", "TZ": "UTC"}
        other = None if self.is_own else self.account
        try:
            return subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
                cwd="/",  # the caller's folder may be closed to the server's user
                env=environment,
                umask=0o077,
                user=other.uid if other else None,
                group=other.gid if other else None,
                extra_groups=[] if other else None,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EmbeddedServerError(f"{command[0]} does not run: {error}") from error


def last_line(text: str) -> str:
    """The line of a program's output that tells most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "FATAL" in line or "error" in line.lower()]
    return (telling or lines or ["no reason given"])[-1]
