"""Three workers in one process: real jobs on a pool of their own, by the shared clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import cache, wraps
from typing import Any, cast

import asyncpg

from month.clock import SharedClock
from month.post import Post, Rows
from worker.assets import Assets
from worker.errors import QuotaWorkerError
from worker.jobs import deliver, soft_warn
from worker.jobs.context import Deadline, JobContext, JobPorts
from worker.models import Claim, CrossingCounts, Delivery, FailedAttempt, SendRate
from worker.notifiers.base import BaseNotifier
from worker.notifiers.channels import ConfiguredChannels
from worker.notifiers.feishu_app import FeishuAppNotifier
from worker.postgres.outbox import OutboxRules, PostgresOutbox, PostgresWarnings
from worker.postgres.pool import open_pool
from worker.postgres.queries import load_queries
from worker.rendering import Renderer
from worker.settings import DeliverySettings

TICK_SECONDS = 240.0


@cache
def renderer() -> Renderer:
    """One for all: each would compile the templates anew."""
    return Renderer(Assets())


class Warnings(PostgresWarnings):
    clock: SharedClock

    async def decide(self, limit: int, now: datetime | None) -> CrossingCounts:
        with self.clock.working():
            return await super().decide(limit, now)


class Outbox(PostgresOutbox):
    """Takes its slots by the simulated clock, and notes what it holds."""

    clock: SharedClock
    post: Post
    # what each lease was given for one request, until what came of it is recorded
    leased: dict[str, Rows]

    async def count_due(self, now: datetime | None) -> int:
        with self.clock.working():
            return await super().count_due(now)

    async def take_slot(self, channel: str, rate: SendRate) -> float:
        with self.clock.working():
            wait_seconds: float = await self._translated(
                "SELECT quota_channel_slot($1, $2, $3, $4)",
                channel,
                rate.per_second,
                rate.per_minute,
                self.clock.now,
            )
        return wait_seconds

    async def _translated(self, sql: str, *values: Any) -> Any:
        from worker.postgres.errors import translated

        with translated():
            return await self._pool.fetchval(sql, *values)

    async def claim(
        self, channel: str | None, digest_over: int | None, lease_seconds: int, now: datetime | None
    ) -> Claim | None:
        with self.clock.working():
            claim = await super().claim(channel, digest_over, lease_seconds, now)
        if claim is not None:
            if len(claim.messages) == 1:
                self.post.lease(claim.messages[0].dedupe_key, claim.message_ids, self.clock.now)
            if claim.digest_key is not None:
                self.post.lease(claim.digest_key, claim.message_ids, self.clock.now)
            if claim.digest_key is not None or len(claim.messages) == 1:
                self._begun(claim, len(claim.messages))
        return claim

    def _begun(self, claim: Claim, count: int) -> None:
        rows = tuple(claim.message_ids[:count])
        self.leased[claim.lease_token] = rows
        self.post.in_doubt.update(rows)

    def _recorded(self, claim: Claim) -> None:
        self.post.in_doubt.subtract(self.leased.pop(claim.lease_token, ()))

    async def keep(self, claim: Claim, count: int) -> str | None:
        with self.clock.working():
            key = await super().keep(claim, count)
        if key is not None:
            self.post.lease(key, claim.message_ids[:count], self.clock.now)
            self._begun(claim, count)
        return key

    async def finish(self, claim: Claim, now: datetime | None) -> int:
        with self.clock.working():
            finished = await super().finish(claim, now)
        self._recorded(claim)
        return finished

    async def fail(self, claim: Claim, delivery: Delivery, now: datetime | None) -> FailedAttempt:
        with self.clock.working():
            failed = await super().fail(claim, delivery, now)
        self._recorded(claim)
        return failed


class Channels(ConfiguredChannels):
    """Whose requests count as work, so that the clock waits for them."""

    clock: SharedClock

    def notifier(self, channel: str) -> BaseNotifier:
        made = super().notifier(channel)
        if not hasattr(made, "_worked"):
            made.send = self._working(made.send)  # type: ignore[method-assign]
            made.send_digest = self._working(made.send_digest)  # type: ignore[method-assign]
            made._worked = True  # type: ignore[attr-defined]
            if isinstance(made, FeishuAppNotifier):
                # its server forgets tokens by the simulated clock
                made._now = lambda: self.clock.now
        return made

    def _working(self, sending: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(sending)
        async def work(*values: Any) -> Any:
            with self.clock.working():
                return await sending(*values)

        return work

    async def close(self) -> None:
        with self.clock.working():
            await super().close()


class Worker:
    """One worker's process: its pool and its channels."""

    def __init__(self, pool: asyncpg.Pool[Any], ports: JobPorts, clock: SharedClock) -> None:
        self._pool = pool
        self._ports = ports
        self._clock = clock

    @classmethod
    async def start(
        cls, dsn: str, delivery: DeliverySettings, clock: SharedClock, post: Post, stream: Any
    ) -> Worker:
        assets = Assets()
        queries = load_queries(assets, "outbox")
        channels = Channels(delivery, assets, environ={}, stream=stream)
        channels._renderer = renderer()
        pool = await open_pool(dsn)
        warnings = Warnings(pool, queries, channels.routes)
        rules = OutboxRules((*channels.names, "console"), channels.fallbacks, channels.quiet)
        outbox = Outbox(pool, queries, rules)
        for one in (warnings, outbox, channels):
            one.clock = clock
        outbox.post, outbox.leased = post, {}
        nobody = cast("Any", None)
        return cls(
            pool,
            JobPorts(
                nobody,
                nobody,
                nobody,
                warnings,
                outbox,
                channels,
                diagnosis=nobody,
                outlook=nobody,
                watch=nobody,
                upkeep=nobody,
            ),
            clock,
        )

    async def stop(self) -> None:
        await self._pool.close()

    async def tick(self, now: datetime) -> bool:
        """soft_warn, then deliver; whether the first said that it was done."""
        deadline = Deadline(TICK_SECONDS, self._clock.monotonic)
        ctx = JobContext(
            now, deadline, False, self._ports, self._clock.monotonic, self._clock.sleep
        )
        judged = False
        for job in (soft_warn, deliver):
            try:
                await job.run(ctx)
            except QuotaWorkerError:
                # the next tick does it
                continue
            judged = judged or job is soft_warn
        return judged


class Trouble:
    """With the database: backends end and tables are locked while the workers are at it."""

    def __init__(self, conn: asyncpg.Connection[Any], rng: random.Random, post: Post) -> None:
        self._conn = conn
        self._rng = rng
        self._post = post
        self._wished = asyncio.Event()

    def wish(self) -> None:
        """A receiver's: just now, when it has taken something and the answer is on its way."""
        self._wished.set()

    async def some(self) -> None:
        """At a few random moments of a tick."""
        for _ in range(self._rng.randint(1, 5)):
            await asyncio.sleep(self._rng.uniform(0, 0.1))
            if self._rng.random() < 0.75:
                await self._end_backends(self._rng.choice([1, 1, 1, 3]))
                continue
            table = self._rng.choice(["quota_outbox", "quota_warn_log", "quota_channel_rates"])
            async with self._conn.transaction():
                await self._conn.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                await asyncio.sleep(self._rng.uniform(0, 0.03))
            self._post.faults["tables locked"] += 1

    async def wished(self) -> None:
        """As often as a receiver wishes; until cancelled."""
        while True:
            await self._wished.wait()
            self._wished.clear()
            await self._end_backends(100)

    async def _end_backends(self, most: int) -> None:
        self._post.faults["backends ended"] += await self._conn.fetchval(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(one.pid)) FROM (SELECT pid"
            " FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'quota-worker' ORDER BY random() LIMIT $1) one",
            most,
        )
