"""A running `quota-worker schedule`, its log, and a receiver of what it tells."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from acceptance.program import start, until
from contract.servers_webhook import WebhookServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import asyncpg

CONFIGURATION = """
[channels.hook]
kind = "webhook"
url = "{url}"
secret = {{ env = "HOOK_SECRET" }}
[channels.mail]
kind = "email"
host = "localhost"
port = 9
security = "none"
sender = "quota@example.com"
to = ["ops@example.com"]
[default]
channels = ["hook"]
[report]
channel = "mail"
to = ["cfo@example.com"]
"""
END_SECONDS = 60


class Schedule:
    """The process and the lines of its log so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip())

    def events(self, event: str) -> list[dict[str, Any]]:
        """The log's lines of this event."""
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    async def until_event(self, event: str, times: int = 1) -> None:
        async def told() -> bool:
            assert self.process.returncode is None, self.lines
            return len(self.events(event)) >= times

        await until(told)

    async def end(self, *signals: int) -> int:
        """Send the signals, one after the other; the exit code."""
        for number in signals or (signal.SIGTERM,):
            if self.process.returncode is None:
                self.process.send_signal(number)
            await asyncio.sleep(0.05)
        code = await asyncio.wait_for(self.process.wait(), END_SECONDS)
        await self._reading
        return code

    def kill(self) -> None:
        """As the machine's end would."""
        self.process.kill()


@asynccontextmanager
async def schedule(dsn: str, **environ: str) -> AsyncIterator[Schedule]:
    """`quota-worker schedule`, killed at the end where it still runs."""
    process = await start(dsn, "schedule", **environ)
    running = Schedule(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            running.kill()
            await running.end()


class Receiver:
    """A webhook's server; what came is counted by its subject."""

    def __init__(self, folder: Path) -> None:
        self.server = WebhookServer()
        self._file = folder / "quota-worker.toml"

    async def open(self) -> dict[str, str]:
        """Start it; the variables that send messages to it."""
        await self.server.start()
        self._file.write_text(CONFIGURATION.format(url=self.server.url), encoding="utf-8")
        return {"QUOTA_WORKER_CONFIG": str(self._file), "HOOK_SECRET": self.server.secret}

    def told(self) -> Counter[str | None]:
        return Counter(one["data"].get("subject") for one in self.server.requests)

    async def until_told(self, subject: str) -> float:
        """When it was told, by the monotonic clock."""

        async def is_there() -> bool:
            return subject in self.told()

        await until(is_there)
        place = [one["data"].get("subject") for one in self.server.requests].index(subject)
        return self.server.times[place]


async def crossing(conn: asyncpg.Connection[Any], tenant: str) -> float:
    """A new tenant's only request, which uses its cap up; when it had been committed."""
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, daily_input_tokens,"
        " bucket_capacity) VALUES ($1, 1, NULL, 1e9)",
        tenant,
    )
    await conn.execute("SELECT quota_reserve($1, 'r', 1, 1, 1)", tenant)
    return time.monotonic()
