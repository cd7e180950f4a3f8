"""Runs every fault for each way to be told, and prints the medians: `python -m bench.versus`."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg

from bench.versus.options import read_options
from bench.versus.processes import server_kibibytes
from bench.versus.run import Run
from bench.versus.subjects import Alertmanager, QuotaWorker, find_alertmanager
from bench.versus.table import table
from worker.assets import Assets
from worker.errors import QuotaWorkerError
from worker.postgres.embedded import EmbeddedServer
from worker.postgres.migrate import Migrator
from worker.postgres.queries import parse_queries

if TYPE_CHECKING:
    from bench.versus.options import Options
    from bench.versus.run import Result
    from bench.versus.subjects import Subject

EXIT_BROKEN: Final = 2
TEMPLATE: Final = "versus"
MISSING: Final = (
    "versus: there is no Alertmanager here: install Debian's package prometheus-alertmanager"
)
# Durable as PostgreSQL is by default; the connections are for the runs that wait side by side.
SETTINGS: Final = {"max_connections": "150"}


class Versus:
    """All runs, on one server; each has a database, processes and a receiver of its own."""

    def __init__(self, options: Options, folder: Path, server: EmbeddedServer) -> None:
        self._options = options
        self._folder = folder
        self._server = server
        text = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")
        self._queries = parse_queries("versus", text)
        self._number = 0

    async def results(self) -> list[Result]:
        """Where nothing fails one run at a time; with faults others begin while one waits."""
        await self._template()
        results: list[Result] = []
        begun: list[asyncio.Task[Result]] = []
        gate = asyncio.Semaphore(self._options.side_by_side)
        for scenario in self._options.scenarios:
            for _ in range(self._options.rounds):
                for name in self._options.subjects:
                    if scenario == "calm":
                        run = await self._run(scenario, name, alone=True)
                        results.append(await _carried_out(run))
                    else:
                        await gate.acquire()
                        run = await self._run(scenario, name, alone=False)
                        task = asyncio.create_task(_carried_out(run))
                        task.add_done_callback(lambda _: gate.release())
                        begun.append(task)
                        await run.idle.wait()
        return [*results, *await asyncio.gather(*begun)]

    async def _template(self) -> None:
        await self._execute(f"CREATE DATABASE {TEMPLATE}")
        connection = await asyncpg.connect(self._server.dsn_of(TEMPLATE))
        try:
            await Migrator(connection, Assets()).migrate()
            await connection.execute(self._queries["analyze"])
            await connection.fetch(self._queries["tenants"], self._options.alerts)
        finally:
            await connection.close()

    async def _run(self, scenario: str, name: str, *, alone: bool) -> Run:
        self._number += 1
        folder = self._folder / f"{self._number}-{scenario}-{name}"
        folder.mkdir()
        subject: Subject
        watch_server = None
        if name in {"alertmanager", "pair"}:
            subject = Alertmanager(self._options, folder, 2 if name == "pair" else 1)
        else:
            database = f"run_{self._number}"
            await self._execute(f"CREATE DATABASE {database} TEMPLATE {TEMPLATE}")
            dsn = self._server.dsn_of(database)
            ticks = name == "ticks"
            subject = QuotaWorker(self._options, folder, dsn, self._queries, ticks=ticks)
            if alone:
                pid = int((self._server.data / "postmaster.pid").read_text("ascii").split()[0])
                watch_server = lambda: server_kibibytes(pid)  # noqa: E731
        return Run(self._options, scenario, name, subject, folder, watch_server)

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self._server.dsn_of("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


def main() -> int:
    """Exit 0 measured, 2 where it can't be."""
    program = find_alertmanager()
    if program is None:
        print(MISSING, file=sys.stderr)
        return EXIT_BROKEN
    options = read_options(program)
    folder = Path(tempfile.mkdtemp(prefix="qw-versus-", dir=options.data))
    folder.chmod(0o711)  # the server may run as another user
    try:
        with EmbeddedServer(folder / "pg", options=SETTINGS) as server:
            results = asyncio.run(Versus(options, folder, server).results())
    except QuotaWorkerError as error:
        print(f"versus: {error}", file=sys.stderr)
        return EXIT_BROKEN
    except BaseException:
        print(f"versus: what the programs wrote is in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    print(table(results))
    print(f"\n{_facts(program)}")
    if options.json:
        document = [result.as_document() for result in results]
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


async def _carried_out(run: Run) -> Result:
    """The run's result, told as soon as it is there."""
    result = await run.carried_out()
    print(
        f"{result.scenario} {result.subject}: {result.arrived} came, "
        f"last after {result.last:.1f} s; lost {result.lost}, waiting {result.waiting}, "
        f"doubled {result.doubled}, "
        f"requests {result.requests}, kills {result.kills}, {result.kibibytes / 1024:.0f} MB",
        file=sys.stderr,
        flush=True,
    )
    return result


def _facts(program: str) -> str:
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    words = (version.stdout or version.stderr).split()
    return (
        f"Alertmanager {words[2]}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, load before the end {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
