"""Carries a plan out, on a database and receivers of its own, and says what it saw."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

from acceptance.warnings_world import World
from contract.conftest import SECRET
from crash.nursery import POINTS, Nursery
from crash.plan import REQUESTS, TIMER, Turn
from crash.receivers import App, Bot, Fates, Hook, Mailbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.servers_mail import Certificates
    from crash.plan import Fate, Plan
    from crash.receivers import Taken

MORNING = datetime(2026, 5, 15, 2, 0, tzinfo=UTC)
STEP = timedelta(minutes=5)
CAP = 100
BUDGET = 10_000
# Until nothing is due: more ticks than three lost workers and their waits can cause.
LAST_TICKS_MAX = 15
SETTLED_SECONDS = 10.0
KILLED = -9


class Death(NamedTuple):
    """Which tick died, of what, and the last point that it had passed."""

    tick: int
    kind: str
    last_point: str


@dataclass
class Seen:
    """What came of a run."""

    plan: Plan
    deaths: list[Death] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    # by tick and channel: the requests that were taken, and not noted as sent when it ended
    doubts: dict[tuple[int, str], set[str]] = field(default_factory=dict)
    # the requests whose lease a dead worker left behind, sent or not
    held_at_death: dict[tuple[int, str], set[str]] = field(default_factory=dict)
    taken: dict[str, list[Taken]] = field(default_factory=dict)
    outbox: list[asyncpg.Record] = field(default_factory=list)
    log: list[asyncpg.Record] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)


class Run:
    """One plan's world."""

    def __init__(
        self, plan: Plan, dsn: str, folder: Path, nursery: Nursery, certificates: Certificates
    ) -> None:
        self._plan = plan
        self._dsn = dsn
        self._folder = folder
        self._nursery = nursery
        self._fates = Fates()
        self._now = MORNING
        rates = {"rates": None, "fates": self._fates}
        self._hook = Hook(secret=SECRET, **rates)
        self._gone = Hook(answers=[(200, {"code": 19001, "msg": "gone"})], name="gone", **rates)
        self._app = App(clock=self._clock, **rates)
        self._mail = Mailbox(certificates, SECRET, security="none", logins=False, fates=self._fates)
        self._bot = Bot(folder)
        self._servers = (self._hook, self._gone, self._app, self._mail)
        self._seen = Seen(plan)
        self._reserved: Counter[str] = Counter()

    async def carried_out(self) -> Seen:
        """Every turn, then ticks until nothing is due."""
        for server in self._servers:
            await server.start()
        self._conn = await asyncpg.connect(self._dsn, statement_cache_size=0)
        try:
            self._environ = self._configured()
            self._world = World(self._conn, self._now)
            await self._world.department("dept00", monthly_tokens=BUDGET)
            await self._world.tenant("payer", department_id="dept00")
            for turn in self._plan.turns:
                await self._use(turn.usage)
                await self._tick(turn)
            await self._finished()
            await self._noted()
        finally:
            await self._conn.close()
            for server in self._servers:
                await server.stop()
        return self._seen

    def _clock(self) -> float:
        return self._now.timestamp()

    def _configured(self) -> dict[str, str]:
        """The file with every channel of the plan, and the environment that belongs to it."""
        quoted = json.dumps
        tables = {
            "hook": 'kind = "feishu-webhook"\nurl = { env = "HOOK_URL" }\nsecret = { env = "SECRET" }',
            "app": f'kind = "feishu-app"\napp_id = {quoted(self._app.app_id)}\n'
            f'app_secret = {{ env = "APP_SECRET" }}\nreceive_id = {quoted(self._app.chat)}\n'
            f"base_url = {quoted(self._app.url)}",
            "bot": f'kind = "im-bot"\ngroup = "ops"\ncommand = [{quoted(str(self._bot.path))}]',
            "mail": f'kind = "email"\nhost = "127.0.0.1"\nport = {self._mail.port}\nsecurity = "none"\n'
            'sender = "quota@example.com"\nto = ["ops@example.com"]',
            "gone": 'kind = "feishu-webhook"\nurl = { env = "GONE_URL" }',
        }
        text = "".join(f"[channels.{name}]\n{tables[name]}\n" for name in self._plan.channels)
        text += f"[default]\nchannels = {quoted(self._plan.channels)}\nowners = false\n"
        if "bot" in self._plan.channels:
            text += '[fallback]\nchannels = ["bot"]\n'
        path = self._folder / "quota-worker.toml"
        path.write_text(text)
        return {
            "POSTGRES_DSN": self._dsn,
            "QUOTA_WORKER_CONFIG": str(path),
            "HOOK_URL": self._hook.url,
            "GONE_URL": self._gone.url,
            "SECRET": SECRET,
            "APP_SECRET": self._app.app_secret,
        }

    async def _use(self, usage: dict[str, int]) -> None:
        """More usage, through the ledger's functions or a legacy program's own statement."""
        self._world.now = self._now
        for subject, percent in usage.items():
            if subject == "payer":
                tokens = percent * BUDGET // 100 - self._reserved[subject]
                reasons = await self._world.reserve(subject, in_tokens=tokens)
                assert reasons[0] in {"ok", "downgrade"}, reasons
                self._reserved[subject] += tokens
            else:
                if subject not in self._seen.usage:
                    await self._world.tenant(subject, daily_completions=CAP)
                await self._world.use(percent, subject)
        self._seen.usage |= usage

    async def _tick(self, turn: Turn) -> None:
        """One command line, and what its end left behind."""
        self._fates.tick += 1
        self._fates.channel, how = None, {}
        side = None
        fate = turn.fate
        if fate is not None and fate.kind in REQUESTS:
            side, _, channel = fate.kind.partition(" taking, ")
            self._fates.channel, self._fates.side, self._fates.left = channel, side, fate.number
            side = side if channel == "bot" else None
        elif fate is not None:
            how = _how(fate)
        self._bot.set_tick(self._fates.tick, side, fate.number if fate else 1)
        for name, server in (("hook", self._hook), ("app", self._app)):
            server.refusals = turn.refusals.get(name, 0)
            server.losses = turn.losses.get(name, 0)
        await self._conn.execute("UPDATE tick_lease SET expires_at = '-infinity'")
        await self._conn.execute("DELETE FROM quota_channel_rates")
        at = self._now.isoformat()
        arguments = ["tick", "--jobs", "soft_warn,deliver", "--as-of", at]
        self._fates.pid = await self._nursery.begin(arguments, self._environ, **how)
        report = await self._nursery.end()
        await self._settled()
        killed = report["ended"] == KILLED
        assert killed or report["ended"] in {0, 1}, report
        assert not killed or fate is not None
        self._seen.seconds.append(report["seconds"])
        if killed and fate is not None:
            last = report["points"][-1] if report["points"] else "start"
            self._seen.deaths.append(Death(self._fates.tick, fate.kind, last))
        await self._doubted(killed=killed)
        self._now += STEP

    async def _settled(self) -> None:
        """Until the dead worker's statements have ended, too; the nursery waits for its programs."""
        async with asyncio.timeout(SETTLED_SECONDS):
            while await self._conn.fetchval(  # noqa: ASYNC110  others' processes tell nobody
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            ):
                await asyncio.sleep(0.005)

    def _all_taken(self) -> dict[str, list[Taken]]:
        servers = {"hook": self._hook, "app": self._app, "mail": self._mail, "bot": self._bot}
        return {name: list(one.taken) for name, one in servers.items()}

    async def _doubted(self, *, killed: bool) -> None:
        """What was taken in this tick and isn't noted as sent."""
        rows = await self._conn.fetch(
            "SELECT channel, state, coalesce(request_key, dedupe_key) AS id FROM quota_outbox"
            " WHERE state IN ('pending', 'sending')"
        )
        for row in rows:
            if killed and row["state"] == "sending":
                key = (self._fates.tick, row["channel"])
                self._seen.held_at_death.setdefault(key, set()).add(row["id"])
        unsent = {(row["channel"], row["id"]) for row in rows}
        for channel, taken in self._all_taken().items():
            doubt = {
                one.request_id
                for one in taken
                if one.tick == self._fates.tick and (channel, one.request_id) in unsent
            }
            if doubt:
                self._seen.doubts[self._fates.tick, channel] = doubt

    async def _finished(self) -> None:
        """Ticks that live, until every message has ended; the waits between them are skipped."""
        for _ in range(LAST_TICKS_MAX):
            await self._tick(Turn())
            due_at = await self._conn.fetchval(
                "SELECT min(CASE WHEN state = 'pending' THEN next_attempt_at"
                " WHEN lost_workers < 2 THEN lease_until ELSE lease_until + quota_outbox_wait(attempts) END)"
                " FROM quota_outbox WHERE state IN ('pending', 'sending')"
            )
            if due_at is None:
                return
            self._now = max(self._now, due_at)

    async def _noted(self) -> None:
        self._seen.outbox = await self._conn.fetch(
            "SELECT outbox_id, subject, message_key, channel, state, superseded_by, fallback_of"
            " FROM quota_outbox ORDER BY outbox_id"
        )
        self._seen.log = await self._conn.fetch(
            "SELECT subject, threshold, state, message_key, used, cap"
            " FROM quota_warn_log ORDER BY subject, threshold"
        )
        self._seen.taken = self._all_taken()


def _how(fate: Fate) -> dict[str, Any]:
    if fate.kind == TIMER:
        return {"kill_after": (fate.number, fate.seconds)}
    assert fate.kind in POINTS
    return {"point": fate.kind, "number": fate.number}


def told_of(deaths: Sequence[Death]) -> str:
    """For people who look for a fault."""
    return "; ".join(f"tick {one.tick} died {one.kind} ({one.last_point})" for one in deaths)
