"""The run's PostgreSQL and its pgbouncer, and what may happen to them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from worker.postgres.embedded import EmbeddedServer

from conftest import chosen_binaries

BOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
WAIT_SECONDS = 20.0
STOP_SECONDS = 30.0


class Site:
    """Commits are safe from a kill here: only the machine's own crash is left out (fsync)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = EmbeddedServer(
            folder / "pg",
            binaries=chosen_binaries(),
            options={"fsync": "off", "max_connections": "120"},
        )
        self._bouncer: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return self.server.dsn

    @property
    def bounced_dsn(self) -> str:
        """Through pgbouncer, where it is installed."""
        if BOUNCER is None:
            return self.dsn
        return f"postgresql://quota@/quota?host={self.folder / 'bouncer'}&port=6432"

    def start(self) -> None:
        self.server.start()
        self._let_in()
        self.start_bouncer()

    def stop(self) -> None:
        self.kill_bouncer()
        self.server.stop()

    def _let_in(self) -> None:
        """The bouncer runs as the server's user; only root may reach the server's socket."""
        account = self.server.account
        if account.name is not None:
            os.chown(self.server.socket_folder, account.uid, account.gid)

    def restart(self) -> None:
        self.server.stop()
        self._up()

    def stop_at_once(self) -> None:
        """As `pg_ctl stop -m immediate` does: no client's transaction is ended well."""
        self._signal(signal.SIGQUIT)
        self._up()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._up()

    def _signal(self, number: int) -> None:
        pid = int((self.server.data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.05)
        # forgets that it was started
        self.server.stop()

    def _up(self) -> None:
        self.server.start()
        self._let_in()

    def start_bouncer(self) -> None:
        if BOUNCER is None:
            return
        account = self.server.account
        run = self.folder / "bouncer"
        run.mkdir(exist_ok=True)
        (run / "users.txt").write_text('"quota" ""\n')
        (run / "bouncer.ini").write_text(
            "[databases]\n"
            f"* = host={self.server.socket_folder} port=5432\n"
            "[pgbouncer]\n"
            f"unix_socket_dir = {run}\n"
            "listen_addr =\nlisten_port = 6432\nauth_type = trust\n"
            f"auth_file = {run}/users.txt\n"
            "pool_mode = transaction\ndefault_pool_size = 8\nmax_client_conn = 200\n"
            "server_login_retry = 1\n"
            f"logfile = {run}/log\n"
        )
        other: dict[str, Any] = {}
        if account.name is not None:
            other = {"user": account.uid, "group": account.gid, "extra_groups": []}
            os.chown(run, account.uid, account.gid)
        for name in (".s.PGSQL.6432", ".s.PGSQL.6432.lock"):
            (run / name).unlink(missing_ok=True)
        self._bouncer = subprocess.Popen(
            [BOUNCER, str(run / "bouncer.ini")], cwd="/", stderr=subprocess.DEVNULL, **other
        )
        deadline = time.monotonic() + WAIT_SECONDS
        while not (run / ".s.PGSQL.6432").exists():
            assert time.monotonic() < deadline, "pgbouncer doesn't start"
            time.sleep(0.02)

    def kill_bouncer(self) -> None:
        if self._bouncer is not None:
            self._bouncer.kill()
            self._bouncer.wait()
