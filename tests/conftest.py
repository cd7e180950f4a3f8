"""A real PostgreSQL for every test.

- `pg_server`: one throw-away cluster per session (per xdist worker). Which
  PostgreSQL says QUOTA_WORKER_TEST_PG: `18` (the wheel, the default), `system`
  (the newest installed one), a major version like `15`, or a folder of programs.
- `dsn`: a fresh clone of the migrated template (about 12 ms), dropped afterwards.
- `conn`: a connection to it; `connect`: an async function that opens more.
- `new_database`: an async function that makes an empty database, or with
  `migrated=True` a further clone, and returns its DSN.

Durability is off here. A test that kills the server makes its own
EmbeddedServer with `server_home`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import asyncpg
import pytest

from worker.assets import Assets
from worker.postgres.binaries import Binaries, find_binaries, inspect, installed_folders
from worker.postgres.embedded import EmbeddedServer
from worker.postgres.migrate import Migrator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    Connection = asyncpg.Connection[asyncpg.Record]

TEMPLATE = "quota_template"
# mkdtemp makes folders of our own in them
DISK, MEMORY = "/tmp", "/dev/shm"  # noqa: S108
MEMORY_BYTES = 4 * 2**30
SUPPORTED_MAJORS = range(15, 19)


class Connect(Protocol):
    """Opens one more connection to the test's database, closed after the test."""

    def __call__(self, **arguments: Any) -> Awaitable[Connection]: ...


class NewDatabase(Protocol):
    """Makes one more database, dropped after the test; returns its DSN."""

    def __call__(self, *, migrated: bool = False) -> Awaitable[str]: ...


def system_binaries(major: int | None = None) -> Binaries | None:
    """The newest installed PostgreSQL, or the installed one of a major version."""
    for folder, root in installed_folders():
        found = inspect(folder, root)
        if found and found.major in SUPPORTED_MAJORS and major in {None, found.major}:
            return found
    return None


def chosen_binaries() -> Binaries:
    """What QUOTA_WORKER_TEST_PG asks for."""
    wanted = os.environ.get("QUOTA_WORKER_TEST_PG", "18")
    if wanted == "18":
        return find_binaries()
    if wanted == "system" or wanted.isdigit():
        found = system_binaries(int(wanted) if wanted.isdigit() else None)
    else:
        found = inspect(Path(wanted))
    if found is None:
        raise RuntimeError(f"QUOTA_WORKER_TEST_PG={wanted}: no such PostgreSQL here")
    return found


def make_server_home(folder: str = DISK) -> Path:
    """A folder that the server's user may enter, unlike pytest's tmp_path."""
    home = Path(tempfile.mkdtemp(prefix="qw-test-", dir=folder))
    home.chmod(0o711)
    return home


def fastest_folder(*, programs: bool = False) -> str:
    """Memory where there is plenty: a cluster's files take a tenth of the time there.

    `programs`: some are to be run from it.
    """
    with suppress(OSError):
        runs = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
        roomy = shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
        if roomy and os.access(MEMORY, os.W_OK) and (runs or not programs):
            return MEMORY
    return DISK


@pytest.fixture
def server_home() -> Iterator[Path]:
    """A folder for a test's own EmbeddedServer, removed afterwards."""
    home = make_server_home(fastest_folder(programs=True))
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def pg_server() -> Iterator[EmbeddedServer]:
    home = make_server_home(fastest_folder())
    server = EmbeddedServer(
        home / "pg",
        binaries=chosen_binaries(),
        durable=False,
        options={"max_connections": "120", "max_prepared_transactions": "0"},
    )
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def template_database(pg_server: EmbeddedServer) -> str:
    """The name of a database with the real migrations applied, made once."""

    async def make() -> None:
        admin = await asyncpg.connect(pg_server.dsn, statement_cache_size=0)
        await admin.execute(f"CREATE DATABASE {TEMPLATE}")
        await admin.close()
        connection = await asyncpg.connect(pg_server.dsn_of(TEMPLATE), statement_cache_size=0)
        await Migrator(connection, Assets()).migrate()
        await connection.close()

    # A loop of its own: asyncio.run would unset pytest-asyncio's.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(make())
    finally:
        loop.close()
    return TEMPLATE


@pytest.fixture
async def new_database(
    pg_server: EmbeddedServer, request: pytest.FixtureRequest
) -> AsyncIterator[NewDatabase]:
    names: list[str] = []
    admin = await asyncpg.connect(pg_server.dsn_of("postgres"), statement_cache_size=0)

    async def make(*, migrated: bool = False) -> str:
        name = f"t_{uuid.uuid4().hex}"
        source = TEMPLATE if migrated else "template0"
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {source} STRATEGY file_copy")
        names.append(name)
        return pg_server.dsn_of(name)

    try:
        yield make
    finally:
        for name in names:
            await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await admin.close()


@pytest.fixture
async def dsn(template_database: str, new_database: NewDatabase) -> str:
    return await new_database(migrated=True)


@pytest.fixture
async def connect(dsn: str) -> AsyncIterator[Connect]:
    opened: list[Connection] = []

    async def open_one(**arguments: Any) -> Connection:
        connection = await asyncpg.connect(dsn, statement_cache_size=0, **arguments)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        if not connection.is_closed():
            await connection.close()


@pytest.fixture
async def conn(connect: Callable[..., Awaitable[Connection]]) -> Connection:
    return await connect()


if __name__ == "__main__":
    # For the Makefile: is there a second PostgreSQL to test on?
    sys.exit(0 if sys.argv[1:] == ["has-system-postgres"] and system_binaries() else 1)
