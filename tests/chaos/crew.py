"""The run's processes: gateways, receivers, ticks by cron, two schedulers; a killed one is started again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.journal import Journal
from chaos.plan import GATEWAYS
from chaos.receivers import SECRET, write_bot
from chaos.site import Site
from chaos.versions import ROOT

TICK_EVERY_SECONDS = 4.0
# the deadline of a tick, after which it is cut off, and some
TICK_SECONDS = 300.0
START_AGAIN_SECONDS = 1.0
END_SECONDS = 60.0
# where Debian puts it
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
HAS_FAKETIME = FAKETIME.exists()

_CONFIGURATION = """
[channels.feishu]
kind = "feishu-webhook"
url = {{ env = "FEISHU_URL" }}
secret = {{ env = "FEISHU_SECRET" }}
[channels.hook]
kind = "webhook"
url = "{hook}"
secret = {{ env = "HOOK_SECRET" }}
[channels.mail]
kind = "email"
host = "127.0.0.1"
port = {mail}
security = "none"
sender = "quota@example.com"
to = ["ops@example.com"]
[channels.bot]
kind = "im-bot"
group = "ops"
command = ["{bot}"]
[default]
channels = ["feishu", "hook", "mail", "bot"]
owners = false
[fallback]
channels = ["mail", "bot"]
"""


@dataclass
class Member:
    """A process that is to run all the time."""

    name: str
    start: Any
    process: asyncio.subprocess.Process
    # it is waited for: its end is no surprise
    ends: bool = False
    # killed on purpose, and not yet seen to be gone
    killed: bool = False


@dataclass
class Crew:
    site: Site
    folder: Path
    old: Path
    rng: random.Random
    members: dict[str, Member] = field(default_factory=dict)
    ticks: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    # what cron starts: the old version, both by turns, or the new one
    versions: list[str] = field(default_factory=lambda: ["old"])
    log_is_full: bool = False
    clock_offset_seconds: int = 0
    _stopping: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _tick_kills: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.cron = Journal(self.folder / "cron.jsonl")
        # as long as its bytes stay the same length, a reader sees the one or the other
        self.clock_file = self.folder / "clock"
        self.set_clock(0)

    # start --------------------------------------------------------------------------

    async def start_receivers(self) -> None:
        write_bot(self.folder)
        await self._start_member(
            "receivers", lambda: self._module("chaos.receivers", str(self.folder))
        )
        async with asyncio.timeout(END_SECONDS):
            while not (self.folder / "ports.json").exists():  # noqa: ASYNC110  another process's
                await asyncio.sleep(0.05)
        ports = json.loads((self.folder / "ports.json").read_text())
        configuration = self.folder / "quota-worker.toml"
        configuration.write_text(
            _CONFIGURATION.format(hook=ports["hook"], mail=ports["mail"], bot=self.folder / "imbot")
        )
        self._environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("QUOTA_WORKER_") and name not in ("POSTGRES_DSN", "PYTHONPATH")
        } | {
            "QUOTA_WORKER_CONFIG": str(configuration),
            "FEISHU_URL": ports["feishu"],
            "FEISHU_SECRET": SECRET,
            "HOOK_SECRET": ports["hook_secret"],
        }

    async def start_gateways(self) -> None:
        dsns = [self.site.dsn, self.site.bounced_dsn]
        (self.folder / "dsns.json").write_text(json.dumps(dsns))
        for number in range(GATEWAYS):

            def start(number: int = number) -> Any:
                return self._module("chaos.gateway", str(self.folder), str(number))

            await self._start_member(f"gateway-{number}", start)

    async def start_schedules(self) -> None:
        """One listens on a connection of its own, the other polls through pgbouncer by a clock that jumps."""
        await self._start_member("schedule-a", lambda: self._schedule("a", self.site.dsn))
        await self._start_member("schedule-b", lambda: self._schedule("b", self.site.bounced_dsn))

    def start_cron(self) -> None:
        self._begin(self._cron())

    async def _module(self, *arguments: str) -> asyncio.subprocess.Process:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", *arguments, stderr=log, env=os.environ | {"PYTHONPATH": path}
            )

    async def _schedule(self, letter: str, dsn: str) -> asyncio.subprocess.Process:
        environ = {"POSTGRES_DSN": dsn}
        if letter == "b" and HAS_FAKETIME:
            environ |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock_file),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        return await self._worker(f"schedule-{letter}.log", ["schedule"], environ)

    async def _worker(
        self,
        log: str,
        arguments: list[str],
        environ: dict[str, str],
        version: str = "new",
        stdout: int = asyncio.subprocess.DEVNULL,
    ) -> asyncio.subprocess.Process:
        path = Path("/dev/full") if self.log_is_full else self.folder / log
        with path.open("ab") as stderr:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "worker", *arguments),
                cwd=self.old if version == "old" else ROOT,
                env=self._environ | environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )

    async def run_worker(self, *arguments: str, version: str = "new") -> tuple[int, str]:
        """A command to its end: its exit code and what it answered."""
        process = await self._worker(
            "commands.log",
            list(arguments),
            {"POSTGRES_DSN": self.site.dsn},
            version,
            asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(process.communicate(), TICK_SECONDS)
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def _start_member(self, name: str, start: Any) -> None:
        member = self.members[name] = Member(name, start, await start())
        self._begin(self._supervise(member))

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _supervise(self, member: Member) -> None:
        while True:
            code = await member.process.wait()
            if member.ends:
                return
            if member.killed:
                member.killed = False
            else:
                self.faults.append(f"{member.name} ended by itself, with {code}")
            await asyncio.sleep(START_AGAIN_SECONDS)
            if not member.ends:
                member.process = await member.start()

    # cron ---------------------------------------------------------------------------

    async def _cron(self) -> None:
        number = 0
        while not self._stopping:
            self._begin(self._tick(number))
            number += 1
            await asyncio.sleep(TICK_EVERY_SECONDS)

    async def _tick(self, number: int) -> None:
        """One tick, as cron starts it; what is known of it goes to its journal."""
        version = self.versions[number % len(self.versions)]
        environ = {"POSTGRES_DSN": self.site.bounced_dsn if number % 3 == 2 else self.site.dsn}
        if self.clock_offset_seconds and HAS_FAKETIME:
            environ |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{self.clock_offset_seconds:+d}s"}
            environ["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
        full, offset = self.log_is_full, self.clock_offset_seconds
        begun = time.time()
        process = await self._worker(
            "cron.log", ["tick", "--json"], environ, version, asyncio.subprocess.PIPE
        )
        self.ticks[number] = process
        out, _ = await process.communicate()
        del self.ticks[number]
        answer = json.loads(out) if out.strip() else {}
        self.cron.note(
            number=number,
            begun=begun,
            version=version,
            code=process.returncode,
            killed=number in self._tick_kills,
            granted=answer.get("granted"),
            failed=[job for job in answer.get("jobs", []) if job["outcome"] == "failed"],
            log_is_full=full,
            offset=offset,
        )

    # faults -------------------------------------------------------------------------

    def kill(self, name: str) -> bool:
        """False where it isn't running just now."""
        member = self.members.get(name)
        if member is None or member.process.returncode is not None:
            return False
        member.killed = True
        member.process.kill()
        return True

    async def kill_tick(self) -> bool:
        """One that has worked for a moment."""
        deadline = time.monotonic() + 3 * TICK_EVERY_SECONDS
        while time.monotonic() < deadline:
            if self.ticks:
                await asyncio.sleep(self.rng.uniform(0, 0.7))
                running = [(n, p) for n, p in self.ticks.items() if p.returncode is None]
                if running:
                    number, process = running[-1]
                    self._tick_kills.add(number)
                    process.kill()
                    return True
            await asyncio.sleep(0.02)
        return False

    async def pause(self, name: str, seconds: float) -> bool:
        member = self.members.get(name)
        process = member.process if member else None
        if process is None or process.returncode is not None:
            return False
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
        return True

    def set_clock(self, offset_seconds: int) -> None:
        """Of cron's ticks from now on, and of schedule-b at once."""
        self.clock_offset_seconds = offset_seconds
        partial = self.clock_file.with_suffix(".partial")
        partial.write_text(f"{offset_seconds:+d}s\n")
        partial.rename(self.clock_file)

    # end ----------------------------------------------------------------------------

    async def end(self, *names: str) -> None:
        """Ask them to end, and wait; an end with another code than 0 is a fault."""
        for name in names:
            member = self.members[name]
            async with asyncio.timeout(END_SECONDS):
                # one that was killed is about to be started again
                while member.process.returncode is not None:  # noqa: ASYNC110  another process
                    await asyncio.sleep(0.05)
            member.ends = True
            process = member.process
            process.terminate()
            try:
                code = await asyncio.wait_for(process.wait(), END_SECONDS)
            except TimeoutError:
                process.kill()
                self.faults.append(f"{name} did not end within {END_SECONDS:.0f} s")
                continue
            if code != 0 and name != "receivers":
                self.faults.append(f"{name} ended with {code}")

    async def stop_cron(self) -> None:
        self._stopping = True
        async with asyncio.timeout(TICK_SECONDS):
            while self.ticks:  # noqa: ASYNC110  other processes
                await asyncio.sleep(0.1)

    def kill_all(self) -> None:
        for member in self.members.values():
            member.ends = True
            if member.process.returncode is None:
                member.process.kill()
        for process in self.ticks.values():
            if process.returncode is None:
                process.kill()
