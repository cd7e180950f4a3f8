"""An embedded PostgreSQL: own data folder, unix socket only, several users at once.

The folder (`home`) holds `data/` (the cluster), `run/` (the socket), `server.log`,
`starter.lock` and `users.lock`. A started server outlives the process that
started it for as long as another process of ours uses it: every user holds a
shared lock on `users.lock`, and whoever leaves last stops the server.

As root the server runs as another user; then the folder must be one which
that user can enter, so it moves below /var/lib when the wanted one can't be
(a home of mode 0700), and the socket's folder is closed to all but root.
No existing folder's owner or mode is ever changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from worker.errors import DataFolderError, EmbeddedServerError, StarterBusyError
from worker.postgres.accounts import (
    default_home,
    reachable_home,
    server_account,
    var_lib_home,
)
from worker.postgres.binaries import Binaries, copy_binaries, find_binaries, may_run
from worker.postgres.cluster import (
    DATABASE,
    SUPERUSER,
    Cluster,
    Started,
    last_line,
    may_hold_programs,
)
from worker.postgres.home import make_folder, refuse_foreign_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

__all__ = ["EmbeddedServer", "default_home"]

PORT = 5432
# sun_path holds 108 bytes with the closing NUL; the lock file's name is longer
# than the socket's but is no socket.
SOCKET_PATH_MAX_BYTES = 107
LOCK_WAIT_SECONDS = 120.0
LOCK_POLL_SECONDS = 0.05
# After a kill -9 of the postmaster its orphans hold the shared memory for a
# second or two, and a start fails until they are gone.
START_ATTEMPTS = 40
START_PAUSE_SECONDS = 0.25
START_SECONDS = 120.0
# pg_isready's answer of a server that starts, stops or recovers
REJECTING = 1
STOP_SECONDS = 60.0
READY_CALL_SECONDS = 10.0
READY_POLL_SECONDS = 0.02
LOG_MAX_BYTES = 10_000_000
# Where a DSN's host is a folder, a comma divides hosts; the others are trouble in shells.
_NOT_IN_HOSTS = frozenset(',"$`\\%')
_ORPHANS_REMAIN = ("pre-existing shared memory block", "lock file", "is still in use")
_THROW_AWAY = ("fsync", "synchronous_commit", "full_page_writes", "jit")


class EmbeddedServer:
    """A server in `home`, started if it doesn't run yet.

    Usable as a context manager: `with EmbeddedServer(home) as server: server.dsn`.
    Leaving stops the server unless another process still uses it or
    `keep_running` is set. `options` are server settings by name;
    `durable=False` is for throw-away clusters of tests.
    """

    def __init__(
        self,
        home: Path,
        *,
        binaries: Binaries | None = None,
        keep_running: bool = False,
        durable: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.account = server_account(home)
        self.home = reachable_home(home.absolute(), self.account)
        self.keep_running = keep_running
        self._wanted_binaries = binaries
        self._durable = durable
        self._options = dict(options or {})
        self.cluster = Cluster(self.home, self.account, durable=durable)
        self._users_lock: int | None = None

    @property
    def data(self) -> Path:
        """The cluster's folder."""
        return self.cluster.data

    @property
    def log_file(self) -> Path:
        """What the server itself wrote."""
        return self.home / "server.log"

    @property
    def socket_folder(self) -> Path:
        """Where the socket lies: `run/`, or a short path where no DSN can hold that one."""
        usual = self.home / "run"
        fits = len(os.fsencode(usual / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_MAX_BYTES
        if fits and not _NOT_IN_HOSTS & set(str(usual)):
            return usual
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        # /tmp is swept of old files; root's /run is not.
        base = Path("/run") if os.geteuid() == 0 and Path("/run").is_dir() else Path("/tmp")  # noqa: S108
        return base / f"quota-worker-{os.geteuid()}-{digest}"

    @property
    def dsn(self) -> str:
        """How to connect, for asyncpg, psql and any libpq client."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str, user: str = SUPERUSER) -> str:
        """The DSN of another database of this server."""
        from urllib.parse import quote

        return f"postgresql://{user}@/{database}?host={quote(str(self.socket_folder))}&port={PORT}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def start(self) -> None:
        """Start the server, or join one that runs. Idempotent.

        Raises BinariesMissingError, DataFolderError (another major version,
        a folder that can't be used), StarterBusyError, EmbeddedServerError.
        """
        if self._users_lock is not None:
            return
        try:
            self._start()
        except OSError as error:
            raise DataFolderError(
                f"{self.home} can't be used: {error.strerror or error}{self.cluster.scarcity()}: "
                "choose another folder with QUOTA_WORKER_DATA"
            ) from error

    def _start(self) -> None:
        self._prepare_home()
        with self._starter_lock():
            users = self._open_lock("users.lock")
            try:
                self._start_locked()
                fcntl.flock(users, fcntl.LOCK_SH)
            except BaseException:
                os.close(users)
                raise
            self._users_lock = users

    def leave(self) -> None:
        """Stop using the server; the last to leave stops it unless `keep_running`."""
        users, self._users_lock = self._users_lock, None
        if users is None:
            return
        try:
            if self.keep_running:
                return
            with self._starter_lock(), contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._stop_locked()
        finally:
            os.close(users)

    def stop(self) -> None:
        """Stop the server whoever uses it. Idempotent; a stopped server is no error."""
        if self._users_lock is not None:
            os.close(self._users_lock)
            self._users_lock = None
        if self.home.is_dir():
            with self._starter_lock():
                self._stop_locked()

    def is_ready(self) -> bool:
        """Whether the server accepts connections now."""
        # pg_ctl status believes a dead pid; this asks the server itself.
        return self._readiness(self._binaries()) == 0

    def _is_up(self, binaries: Binaries) -> bool:
        """Whether a server accepts connections; one that recovers from a crash is waited for."""
        deadline = time.monotonic() + START_SECONDS
        while (readiness := self._readiness(binaries)) == REJECTING:
            if time.monotonic() >= deadline:
                break
            time.sleep(START_PAUSE_SECONDS)
        return readiness == 0

    def _readiness(self, binaries: Binaries) -> int:
        if not (self.socket_folder / f".s.PGSQL.{PORT}").exists():
            return 2
        try:
            return subprocess.run(
                [
                    binaries.program("pg_isready"),
                    *("-q", "-t", "5", "-h", str(self.socket_folder), "-p", str(PORT)),
                    *("-U", SUPERUSER, "-d", DATABASE),
                ],
                capture_output=True,
                timeout=READY_CALL_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return 2

    def _start_locked(self) -> None:
        binaries = self._binaries()
        self.cluster.refuse_other_major(binaries)
        if self._is_up(binaries):
            self._shorten_log()
            return
        runnable = binaries
        if not self.cluster.is_own and not may_run(binaries, self.account):
            runnable = copy_binaries(binaries, self._copies)
        self._trim_log()
        self.cluster.ensure(runnable)
        self._make_socket_folder()
        self._launch(runnable)
        if not self.cluster.is_own:
            # The server has its socket; from here on only root may reach it.
            os.chown(self.socket_folder, 0, 0)

    def _launch(self, binaries: Binaries) -> None:
        settings = {
            "listen_addresses": "",
            # a list: quoted, a name with blanks is one of it
            "unix_socket_directories": '"' + str(self.socket_folder).replace('"', '""') + '"',
            "unix_socket_permissions": "0700",
            "port": str(PORT),
            "timezone": "UTC",
            "log_timezone": "UTC",
            "logging_collector": "off",
            # jit compiles for half a second over tables that nobody analyzed
            **({} if self._durable else dict.fromkeys(_THROW_AWAY, "off")),
            **self._options,
        }
        # Not by pg_ctl, which hands the paths to a shell.
        command = [binaries.program("postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        detail = ""
        for _attempt in range(START_ATTEMPTS):
            begin = self.log_file.stat().st_size if self.log_file.exists() else 0
            self.cluster.drop_broken_locks(self.socket_folder / f".s.PGSQL.{PORT}.lock")
            if self._comes_up(self.cluster.launch(command, self.log_file, START_SECONDS), binaries):
                return
            detail = self._log_tail(begin)
            if not any(sign in detail for sign in _ORPHANS_REMAIN):
                break
            time.sleep(START_PAUSE_SECONDS)
            # what was in the way may have been a living server amid its recovery
            if self._is_up(binaries):
                return
        raise EmbeddedServerError(
            f"the embedded PostgreSQL does not start: {last_line(detail)}{self.cluster.scarcity()} "
            f"(see {self.log_file}, or set POSTGRES_DSN)"
        )

    def _comes_up(self, started: Started, binaries: Binaries) -> bool:
        """Wait until the server accepts connections; False when it ended, or is too slow."""
        deadline = time.monotonic() + START_SECONDS
        try:
            while time.monotonic() < deadline:
                if started.has_ended(READY_POLL_SECONDS):
                    return False
                if self.cluster.is_accepting() and self._readiness(binaries) == 0:
                    return True
        finally:
            started.close()
        return False

    def _stop_locked(self) -> None:
        if not (self.data / "postmaster.pid").is_file():
            return
        binaries = self._binaries()
        if self._readiness(binaries) != 0:
            return
        runnable = binaries
        if not self.cluster.is_own and not may_run(binaries, self.account):
            runnable = copy_binaries(binaries, self._copies)
        done = self.cluster.run(
            [
                runnable.program("pg_ctl"),
                *("stop", "-w", "-s", "-m", "fast", "-t", str(int(STOP_SECONDS))),
                *("-D", str(self.data)),
            ],
            STOP_SECONDS + 10,
        )
        if done.returncode != 0 and self._readiness(binaries) == 0:
            raise EmbeddedServerError(
                f"the embedded PostgreSQL does not stop: {last_line(done.stderr)}"
            )
        # As another user it can't remove these from the closed folder, and their
        # pid keeps the next start waiting for as long as init hasn't reaped it.
        for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
            (self.socket_folder / name).unlink(missing_ok=True)

    def _prepare_home(self) -> None:
        if self.home.is_dir():
            refuse_foreign_home(self.home)
        else:
            make_folder(self.home, self.account)

    @property
    def _copies(self) -> Path:
        """Where copied programs go: not below a name that initdb's shell would read."""
        if may_hold_programs(self.home):
            return self.home
        elsewhere = var_lib_home(self.home)
        make_folder(elsewhere, self.account)
        return elsewhere

    def _make_socket_folder(self) -> None:
        folder = self.socket_folder
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
        allowed = {os.geteuid(), self.account.uid}
        if folder.is_symlink() or not folder.is_dir() or status.st_uid not in allowed:
            raise DataFolderError(f"{folder} belongs to somebody else: remove it")
        self.cluster.give(folder)

    def _trim_log(self) -> None:
        if not self.log_file.exists():
            self.log_file.touch(mode=0o600)
        if self.log_file.stat().st_size > LOG_MAX_BYTES:
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
            self.log_file.touch(mode=0o600)
        if not self.cluster.is_own:
            os.chown(self.log_file, self.account.uid, self.account.gid)

    def _shorten_log(self) -> None:
        """The same beside a running server: it appends, wherever the file ends by then."""
        with contextlib.suppress(OSError):  # a full disk is no reason not to work
            if self.log_file.stat().st_size > LOG_MAX_BYTES:
                (older := self.log_file.with_suffix(".log.1")).touch(mode=0o600)
                with self.log_file.open("rb") as log:
                    log.seek(-LOG_MAX_BYTES, os.SEEK_END)
                    older.write_bytes(log.read(LOG_MAX_BYTES))
                os.truncate(self.log_file, 0)

    def _log_tail(self, begin: int) -> str:
        with self.log_file.open("rb") as log:
            log.seek(begin)
            return log.read(20_000).decode("utf-8", "replace")

    def _binaries(self) -> Binaries:
        if self._wanted_binaries is None:
            self._wanted_binaries = find_binaries()
        return self._wanted_binaries

    def _is_own_user(self) -> bool:
        return self.account.name is None

    def _open_lock(self, name: str) -> int:
        try:
            return os.open(self.home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DataFolderError(
                f"{self.home / name} can't be written ({error.strerror}): "
                "choose another folder with QUOTA_WORKER_DATA"
            ) from error

    @contextlib.contextmanager
    def _starter_lock(self) -> Iterator[None]:
        lock = self._open_lock("starter.lock")
        try:
            deadline = time.monotonic() + LOCK_WAIT_SECONDS
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise StarterBusyError from None
                    time.sleep(LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(lock)
