"""Carries a plan out, then lets the worker finish, and keeps what the judge needs."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from chaos.crew import HAS_FAKETIME, Crew
from chaos.journal import Journal
from chaos.plan import GATEWAYS, Fault, Plan, dump
from chaos.site import BOUNCER, Site
from chaos.versions import previous_version

SETTLE_SECONDS = 240.0
BOTH_VERSIONS_SECONDS = 8.0
MIGRATE_TRIES = 20
LOOK_SECONDS = 2.0
# more than what waits between two looks
RETRY_MOST = 500
_WAITING = """
SELECT (SELECT count(*) FROM quota_reservations WHERE state = 'open') AS open,
       (SELECT count(*) FROM quota_usage_inbox WHERE booked_at IS NULL) AS inbox,
       (SELECT count(*) FROM quota_outbox WHERE state IN ('pending', 'sending')) AS messages
"""
_LATER = """
SELECT outbox_id FROM quota_outbox
 WHERE state = 'pending' AND next_attempt_at > clock_timestamp() + interval '5 seconds'
    OR state = 'sending' AND lease_until < clock_timestamp() - interval '5 seconds'
 ORDER BY outbox_id LIMIT $1
"""


@dataclass
class Happened:
    """A fault that was made, in seconds of the real clock."""

    kind: str
    begun: float
    ended: float
    detail: tuple[str, ...] = ()


@dataclass
class Run:
    plan: Plan
    folder: Path
    happened: list[Happened] = field(default_factory=list)
    upgraded_from: str = ""
    begun: float = 0.0
    stopped: float = 0.0
    ended: float = 0.0
    waiting: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.site = Site(self.folder)
        self._database = asyncio.Lock()
        self._rng = random.Random(self.plan.seed)  # noqa: S311  a seeded test
        self._journal = Journal(self.folder / "faults.jsonl")

    async def carried_out(self) -> None:
        (self.folder / "plan.json").write_text(dump(self.plan))
        old, self.upgraded_from = previous_version(self.folder / "old")
        self.crew = Crew(self.site, self.folder, old, self._rng)
        await asyncio.to_thread(self.site.start)
        try:
            await self.crew.start_receivers()
            code, _ = await self.crew.run_worker("migrate", version="old")
            assert code == 0, "the old version can't migrate"
            await self._subjects()
            self.begun = time.time()
            await self.crew.start_gateways()
            self.crew.start_cron()
            async with asyncio.TaskGroup() as faults:
                for fault in self.plan.faults:
                    faults.create_task(self._fault(fault))
                await asyncio.sleep(self.plan.seconds)
            await self._finished()
        except BaseException:
            self.crew.kill_all()
            await asyncio.to_thread(self.site.stop)
            raise

    async def stop(self) -> None:
        await asyncio.to_thread(self.site.stop)

    async def connect(self) -> asyncpg.Connection[Any]:
        return await asyncpg.connect(self.site.dsn, statement_cache_size=0)

    async def _subjects(self) -> None:
        conn = await self.connect()
        for department, budget in self.plan.budgets.items():
            await conn.execute(
                "INSERT INTO departments (department_id, name) VALUES ($1, $1)", department
            )
            await _insert(conn, "department_budgets", {"department_id": department, **budget})
        for tenant, limits in self.plan.tenants.items():
            await _insert(conn, "tenant_limits", {"tenant_id": tenant, **limits})
        await conn.close()

    # faults -------------------------------------------------------------------------

    async def _fault(self, fault: Fault) -> None:
        await asyncio.sleep(max(0.0, self.begun + fault.at - time.time()))
        begun = time.time()
        makers: dict[str, Callable[[Fault], Awaitable[bool]]] = {
            "upgrade": self._upgrade,
            "postgres restarted": lambda _: self._server(self.site.restart),
            "postgres stopped at once": lambda _: self._server(self.site.stop_at_once),
            "postmaster killed": lambda _: self._server(self.site.kill),
            "connections cut": self._cut,
            "pgbouncer killed": self._bouncer,
            "tick killed": lambda _: self.crew.kill_tick(),
            "schedule killed": self._kill_schedule,
            "gateway killed": lambda _: self._kill(f"gateway-{self._rng.randrange(GATEWAYS)}"),
            "schedule stopped": lambda one: self.crew.pause(self._schedule(), one.seconds),
            "gateway stopped": lambda one: self.crew.pause("gateway-1", one.seconds),
            "clock an hour ahead": lambda one: self._clock(3600, one.seconds),
            "clock an hour behind": lambda one: self._clock(-3600, one.seconds),
            "log's disk full": self._full,
            "receiver": self._receiver,
        }
        if await makers[fault.kind](fault):
            self.happened.append(Happened(fault.kind, begun, time.time(), fault.detail))
            self._journal.note(kind=fault.kind, begun=begun, ended=time.time(), detail=fault.detail)

    def _schedule(self) -> str:
        return self._rng.choice(("schedule-a", "schedule-b"))

    async def _kill(self, name: str) -> bool:
        return self.crew.kill(name)

    async def _kill_schedule(self, _fault: Fault) -> bool:
        return self.crew.kill(self._schedule())

    async def _server(self, what: Callable[[], None]) -> bool:
        async with self._database:
            await asyncio.to_thread(what)
        return True

    async def _cut(self, _fault: Fault) -> bool:
        async with self._database:
            conn = await self.connect()
            await conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            await conn.close()
        return True

    async def _bouncer(self, fault: Fault) -> bool:
        async with self._database:
            self.site.kill_bouncer()
            await asyncio.sleep(fault.seconds)
            await asyncio.to_thread(self.site.start_bouncer)
        return BOUNCER is not None

    async def _clock(self, offset_seconds: int, seconds: float) -> bool:
        self.crew.set_clock(offset_seconds)
        await asyncio.sleep(seconds)
        self.crew.set_clock(0)
        return HAS_FAKETIME

    async def _full(self, fault: Fault) -> bool:
        """For the ticks, and for a scheduler that starts meanwhile."""
        self.crew.log_is_full = True
        self.crew.kill("schedule-a")
        await asyncio.sleep(fault.seconds)
        self.crew.log_is_full = False
        return True

    async def _receiver(self, fault: Fault) -> bool:
        channel, mode = fault.detail
        file = self.folder / f"fate-{channel}"
        partial = file.with_suffix(".partial")
        partial.write_text(mode)
        partial.rename(file)
        await asyncio.sleep(fault.seconds)
        if file.exists() and file.read_text() == mode:
            file.unlink()
        return True

    async def _upgrade(self, _fault: Fault) -> bool:
        """Two `migrate` of the new version beside the old one's ticks, then ticks of both, then of the new."""

        async def migrate() -> None:
            for _ in range(MIGRATE_TRIES):
                code, _ = await self.crew.run_worker("migrate")
                if code == 0:
                    return
                await asyncio.sleep(0.5)
            self.crew.faults.append("migrate never succeeds")

        await asyncio.gather(migrate(), migrate())
        self.crew.versions = ["old", "new"]
        await asyncio.sleep(BOTH_VERSIONS_SECONDS)
        self.crew.versions = ["new"]
        await self.crew.start_schedules()
        return True

    # the end ------------------------------------------------------------------------

    async def _finished(self) -> None:
        """No more faults nor traffic; until nothing waits."""
        self.stopped = time.time()
        await self.crew.end(*(f"gateway-{number}" for number in range(GATEWAYS)))
        conn = await self.connect()
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            self.waiting = dict(await conn.fetchrow(_WAITING))
            if not any(self.waiting.values()):
                break
            later = [str(row["outbox_id"]) for row in await conn.fetch(_LATER, RETRY_MOST)]
            if later:
                # what an operator does when the receivers are back
                await self.crew.run_worker("alerts", "retry", *later)
            await asyncio.sleep(LOOK_SECONDS)
        await self.crew.end("schedule-a", "schedule-b")
        await self.crew.stop_cron()
        self.ended = time.time()
        await conn.close()
        code, answer = await self.crew.run_worker("tick", "--json")
        if code != 0 or not json.loads(answer)["granted"]:
            self.crew.faults.append(f"the last tick ended with {code}: {answer.strip()}")
        await self.crew.end("receivers")


async def _insert(conn: asyncpg.Connection[Any], table: str, row: dict[str, Any]) -> None:
    marks = ", ".join(f"${number}" for number in range(1, len(row) + 1))
    await conn.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())
