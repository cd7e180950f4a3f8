"""Folders with names that a shell would read, that are somebody else's, broken, or full."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import asyncpg
import pytest

from acceptance.program import quota_worker
from worker.errors import DataFolderError, EmbeddedServerError
from worker.postgres.embedded import EmbeddedServer

from conftest import chosen_binaries

HOSTILE = (
    'a"b',
    "a$HOME b",
    "a`touch EXECUTED`b",
    "a$(touch EXECUTED)b",
    "a,b",
    "it's 部门",
    "a;touch EXECUTED&",
    "a\\b %41",
)


def make_server(home: Path) -> EmbeddedServer:
    return EmbeddedServer(home, binaries=chosen_binaries())


async def one(server: EmbeddedServer) -> int:
    connection = await asyncpg.connect(server.dsn, statement_cache_size=0, timeout=10)
    try:
        return int(await connection.fetchval("SELECT 1"))
    finally:
        await connection.close()


def executed(folder: Path) -> list[Path]:
    """What a shell would have made, in the folder or where the server runs."""
    return [*folder.rglob("EXECUTED"), *Path("/").glob("EXECUTED")]


@pytest.mark.parametrize("name", [*HOSTILE, " ".join(HOSTILE)])
async def test_no_shell_reads_the_folders_name(server_home: Path, name: str) -> None:
    home = server_home / name / "pg"
    with make_server(home) as server:
        assert await one(server) == 1
        socket_folder = server.socket_folder
    assert not server.is_ready()
    assert executed(server_home) == []
    if socket_folder.parent != home:
        shutil.rmtree(socket_folder)


def test_a_folder_with_a_line_break_is_refused(server_home: Path) -> None:
    with pytest.raises(DataFolderError, match="control character") as caught:
        make_server(server_home / "a\nb").start()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"garbage\n/x\n", b"\x00" * 40, b"0\n"])
async def test_a_broken_pid_file_is_no_server(server_home: Path, content: bytes) -> None:
    with make_server(server_home / "pg") as server:
        pass
    pid_file = server.data / "postmaster.pid"
    pid_file.write_bytes(content)
    shutil.chown(pid_file, server.account.uid, server.account.gid)
    socket_lock = server.socket_folder / ".s.PGSQL.5432.lock"
    socket_lock.write_bytes(content)
    with make_server(server_home / "pg") as server:
        assert await one(server) == 1


async def test_a_living_server_survives_a_lost_pid_file(server_home: Path) -> None:
    with make_server(server_home / "pg") as server:
        pid_file = server.data / "postmaster.pid"
        pid = int(pid_file.read_text().split()[0])
        whole = pid_file.read_text()
        try:
            pid_file.write_text("")
            # its socket is gone, so it can't be asked whether it lives
            (server.socket_folder / ".s.PGSQL.5432").rename(server.socket_folder / "hidden")
            (server.socket_folder / ".s.PGSQL.5432.lock").unlink()
            os.kill(pid, signal.SIGSTOP)  # or it would end itself for want of its pid file
            second = make_server(server_home / "pg")
            with pytest.raises(EmbeddedServerError, match=r"does not start|is still in use"):
                second.start()
        finally:
            pid_file.write_text(whole)
            shutil.chown(pid_file, server.account.uid, server.account.gid)
            (server.socket_folder / "hidden").rename(server.socket_folder / ".s.PGSQL.5432")
            os.kill(pid, signal.SIGCONT)
        assert await one(server) == 1


async def test_a_folder_of_somebody_else_is_refused_in_one_line(server_home: Path) -> None:
    (server_home / "letter.txt").write_text("mine")
    for home in ("/", str(server_home)):
        done = await quota_worker(None, "settings", QUOTA_WORKER_DATA=home)
        assert (done.code, done.out) == (2, "")
        (line,) = done.err.splitlines()
        assert f"{home} holds other files" in line
        assert "QUOTA_WORKER_DATA" in line
    assert os.listdir(server_home) == ["letter.txt"]  # noqa: PTH208


async def test_a_folder_that_is_a_file(server_home: Path) -> None:
    (server_home / "file").write_text("mine")
    done = await quota_worker(None, "settings", QUOTA_WORKER_DATA=str(server_home / "file"))
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "choose another folder with QUOTA_WORKER_DATA" in done.err


@pytest.fixture
def small_disk(server_home: Path):
    disk = server_home / "disk"
    disk.mkdir(mode=0o711)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=120m,mode=0711", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_named(small_disk: Path) -> None:
    home = small_disk / "pg"
    with make_server(home):
        pass
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(65_536)):
                pass
        except OSError:
            pass
    with pytest.raises(EmbeddedServerError, match="the disk is full: 0 MB are free in") as caught:
        make_server(home).start()
    assert "\n" not in str(caught.value)
    filler.unlink()
    with make_server(home) as server:
        assert server.is_ready()
