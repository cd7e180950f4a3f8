"""The ways to be told, each started, killed and asked in the same manner."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

import asyncpg
import httpx

from bench.versus.processes import Peak, Process, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from bench.versus.options import Options
    from worker.postgres.queries import Queries

READY_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1


class Subject(Protocol):
    """One way to be told, for one run."""

    peak: Peak
    kills: int

    def alert_named(self, body: dict[str, Any]) -> str:
        """Which alert a request tells."""

    async def start(self, receiver: str) -> None:
        """Start the notifier, and return when it is ready."""

    def source(self) -> list[str]:
        """The command of the program that raises the alerts."""

    def kill(self, path: str) -> bool:
        """kill -9 what sent the request to `path`; False where nothing runs. It starts again."""

    async def waiting(self) -> set[str]:
        """The alerts that it still has, as far as it says."""

    async def requests_made(self) -> int | None:
        """The requests by its own count; None where it forgot some."""

    async def end(self) -> None:
        """End all its processes."""

    def settle_seconds(self) -> float:
        """How long after the last delivery a repetition may still come of itself."""


class Alertmanager:
    """`count` of them, in a cluster that gossips what was sent where there are several."""

    def __init__(self, options: Options, folder: Path, count: int) -> None:
        self._options = options
        self._folder = folder
        self._ports = [free_port() for _ in range(count)]
        self._cluster_ports = [free_port() for _ in range(count)] if count > 1 else []
        self._processes: dict[int, Process] = {}
        self._keepers: set[asyncio.Task[None]] = set()
        self._ending = False
        self.kills = 0
        self.peak = Peak(lambda: [one.pid for one in self._processes.values() if one.runs])

    def alert_named(self, body: dict[str, Any]) -> str:
        name: str = body["groupLabels"]["alert"]
        assert len(body["alerts"]) == 1
        return name

    async def start(self, receiver: str) -> None:
        for number in range(len(self._ports)):
            (self._folder / f"{number}.yml").write_text(
                self._configuration(f"{receiver}/{number}"), encoding="utf-8"
            )
            await self._launch(number)
        for number, port in enumerate(self._ports):
            await self._ready(port, f"alertmanager {number}")

    def _configuration(self, url: str) -> str:
        return (
            "route:\n  receiver: hook\n  group_by: [alert]\n  group_wait: 0s\n"
            f"  group_interval: {self._options.group_interval_seconds}s\n"
            "  repeat_interval: 1d\n"
            "receivers:\n- name: hook\n  webhook_configs:\n"
            f"  - url: {url}\n    send_resolved: false\n"
        )

    async def _launch(self, number: int) -> None:
        command = [
            self._options.alertmanager,
            f"--config.file={self._folder / f'{number}.yml'}",
            f"--storage.path={self._folder / str(number)}",
            f"--web.listen-address=127.0.0.1:{self._ports[number]}",
            "--data.maintenance-interval=1s",
        ]
        if self._cluster_ports:
            own = f"127.0.0.1:{self._cluster_ports[number]}"
            others = [port for at, port in enumerate(self._cluster_ports) if at != number]
            command += [
                f"--cluster.listen-address={own}",
                f"--cluster.advertise-address={own}",
                *(f"--cluster.peer=127.0.0.1:{port}" for port in others),
                "--cluster.gossip-interval=50ms",
                "--cluster.peer-timeout=2s",
                "--cluster.reconnect-interval=1s",
            ]
        else:
            command.append("--cluster.listen-address=")
        process = await Process.start(command, self._folder / f"{number}.log")
        self._processes[number] = process
        keeper = asyncio.create_task(self._keep(number, process))
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)

    async def _keep(self, number: int, process: Process) -> None:
        await process.ended()
        if not self._ending:
            await self._launch(number)

    async def _ready(self, port: int, name: str) -> None:
        """Until it sends, too: the first of a cluster waits until it knows the others."""
        deadline = asyncio.get_running_loop().time() + READY_SECONDS
        async with httpx.AsyncClient(trust_env=False) as client:
            while asyncio.get_running_loop().time() < deadline:
                try:
                    answer = await client.get(f"http://127.0.0.1:{port}/api/v2/status")
                    status = answer.json()["cluster"]["status"]
                except (httpx.HTTPError, ValueError):
                    status = ""
                if status == ("ready" if self._cluster_ports else "disabled"):
                    return
                await asyncio.sleep(POLL_SECONDS)
        raise RuntimeError(f"{name} does not start: see {self._folder}")

    def source(self) -> list[str]:
        return [
            *(sys.executable, "-m", "bench.versus.feeder", "--alerts", str(self._options.alerts)),
            *("--resend-seconds", str(self._options.resend_seconds)),
            *(f"http://127.0.0.1:{port}" for port in self._ports),
        ]

    def kill(self, path: str) -> bool:
        process = self._processes[int(path.rpartition("/")[2])]
        self.peak.look()
        killed = process.runs
        process.kill()
        self.kills += killed
        return killed

    async def waiting(self) -> set[str]:
        found: set[str] = set()
        async with httpx.AsyncClient(trust_env=False) as client:
            for port in self._ports:
                answer = await client.get(f"http://127.0.0.1:{port}/api/v2/alerts")
                found |= {alert["labels"]["alert"] for alert in answer.json()}
        return found

    async def requests_made(self) -> int | None:
        if self.kills:
            return None
        name = 'alertmanager_notification_requests_total{integration="webhook"}'
        total = 0
        async with httpx.AsyncClient(trust_env=False) as client:
            for port in self._ports:
                answer = await client.get(f"http://127.0.0.1:{port}/metrics")
                total += sum(
                    int(float(line.split()[1]))
                    for line in answer.text.splitlines()
                    if line.startswith(name)
                )
        return total

    async def end(self) -> None:
        self._ending = True
        for process in self._processes.values():
            await process.end()

    def settle_seconds(self) -> float:
        return self._options.resend_seconds + self._options.group_interval_seconds + 2


class QuotaWorker:
    """`ticks`: a process each `tick_seconds`, as of cron; else `quota-worker schedule`."""

    def __init__(
        self, options: Options, folder: Path, dsn: str, queries: Queries, *, ticks: bool
    ) -> None:
        self._options = options
        self._folder = folder
        self._dsn = dsn
        self._queries = queries
        self._ticks = ticks
        self._environ: dict[str, str] = {}
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ending = False
        self.kills = 0
        self.peak = Peak(
            lambda: [self._process.pid] if self._process and self._process.runs else []
        )

    def alert_named(self, body: dict[str, Any]) -> str:
        name: str = body["data"]["subject"]
        return name

    async def start(self, receiver: str) -> None:
        configuration = self._folder / "quota-worker.toml"
        configuration.write_text(
            '[channels.hook]\nkind = "webhook"\nurl = { env = "HOOK_URL" }\n', encoding="utf-8"
        )
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self._environ = kept | {
            "POSTGRES_DSN": self._dsn,
            "QUOTA_WORKER_CONFIG": str(configuration),
            "HOOK_URL": receiver,
        }
        self._keeper = asyncio.create_task(self._keep())
        async with asyncio.timeout(READY_SECONDS):
            while not self._is_ready():  # noqa: ASYNC110  others' processes tell nobody
                await asyncio.sleep(POLL_SECONDS)

    def _is_ready(self) -> bool:
        """Its first tick is over; a `schedule` listens as well."""
        if self._process is None:
            return False
        if self._ticks:
            return not self._process.runs
        text = (self._folder / "worker.log").read_text(encoding="utf-8")
        return "listening" in text

    async def _keep(self) -> None:
        command = [sys.executable, "-m", "worker", "tick" if self._ticks else "schedule"]
        loop = asyncio.get_running_loop()
        while not self._ending:
            begin, killed = loop.time(), self.kills
            self._process = await Process.start(command, self._folder / "worker.log", self._environ)
            await self._process.ended()
            if self._ticks and self.kills == killed:
                left = begin + self._options.tick_seconds - loop.time()
                await asyncio.sleep(max(0.0, left))

    def source(self) -> list[str]:
        return [
            *(sys.executable, "-m", "bench.versus.gateway", self._dsn),
            str(self._options.alerts),
        ]

    def kill(self, path: str) -> bool:
        del path
        if self._process is None or not self._process.runs:
            return False
        self.peak.look()
        self._process.kill()
        self.kills += 1
        return True

    async def waiting(self) -> set[str]:
        return {row["subject"] for row in await self._rows("waiting")}

    async def requests_made(self) -> int | None:
        return int((await self._rows("attempts"))[0][0])

    async def _rows(self, query: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self._dsn)
        try:
            return await connection.fetch(self._queries[query])
        finally:
            await connection.close()

    async def end(self) -> None:
        self._ending = True
        if self._process is not None:
            await self._process.end()
        if self._keeper is not None:
            self._keeper.cancel()

    def settle_seconds(self) -> float:
        """What a dead worker had in hand comes again after its lease: the outbox says so itself."""
        return 1.0


def find_alertmanager() -> str | None:
    """The program of Debian's package, or of the project's own archive."""
    return shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
