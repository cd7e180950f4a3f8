"""A race: gateways and the worker side by side through the phases of a plan."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Container
from datetime import date, datetime, timedelta
from typing import Any

import asyncpg

from reconcile.gateway import WAYS, Gateway, side_by_side
from reconcile.plan import (
    BATCH,
    DECEMBER,
    INBOX,
    MOVED,
    MOVES_IN_PHASE,
    NOVEMBER,
    PHASES,
    TENANTS,
    WAVES,
    WAVES_LATER,
    Arrival,
    Plan,
    Request,
    department_of,
    policy_of,
)
from reconcile.truth import Sums, Truth
from worker.bootstrap import build_deps
from worker.commands.tick import chosen_jobs, tick
from worker.errors import QuotaWorkerError
from worker.jobs.tick import TickReport

from sql.calls import Calls

GATEWAYS = 8
BATCH_SIZE = 12
MAX_PASSES = 30
MAX_PASSES_BESIDE = 10_000
PEACE_SECONDS = 0.5
MAX_EXPIRIES = 10_000
ALL_IS_OVERDUE = timedelta(days=3)
JOBS = ("reconcile", "roll_month")
# closed at the beginning of the phase
CLOSES = {2: NOVEMBER, 3: DECEMBER}
_RETRIED = (asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError)

Work = Callable[[Gateway], Awaitable[None]]


async def worker_pass(dsn: str, now: datetime) -> TickReport:
    """The jobs once, as `tick --jobs` runs them. Raises QuotaWorkerError."""
    async with build_deps(environ={"POSTGRES_DSN": dsn}) as deps:
        return await tick(
            deps,
            chosen_jobs(JOBS),
            as_of=now,
            dry_run=False,
            always=True,
            on_run=lambda _: None,
        )


class World:
    """One database. `closes_amid`: the months that close while usage for them arrives, not before it."""

    def __init__(self, dsn: str, plan: Plan, *, closes_amid: Container[date]) -> None:
        self._dsn = dsn
        self._plan = plan
        self._closes_amid = closes_amid
        self.truth = Truth()
        self.frozen: dict[date, list[tuple[Any, ...]]] = {}
        self.met: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self._pool: asyncpg.Pool[Any]
        self._gateways: list[Gateway] = []

    async def run(self) -> None:
        self._pool = await asyncpg.create_pool(
            self._dsn, min_size=2, max_size=8, statement_cache_size=0
        )
        rng = self._plan.rng
        ways = itertools.cycle(WAYS)
        self._gateways = [
            Gateway(self._dsn, self._pool, random.Random(rng.random()), ways)  # noqa: S311
            for _ in range(GATEWAYS)
        ]
        try:
            for gateway in self._gateways:
                await gateway.start()
            for phase in range(len(PHASES)):
                await self._phase(phase)
            last = len(PHASES) - 1
            await self._settle_down(PHASES[last] + ALL_IS_OVERDUE, last)
        finally:
            for gateway in self._gateways:
                await gateway.close()
                self.met += gateway.met
            await self._pool.close()

    async def set_up(self, conn: asyncpg.Connection[Any]) -> None:
        calls = Calls(conn)
        for department in ("d1", "d2"):
            await calls.department(department, monthly_tokens=10**15, monthly_cost_cents=10**15)
        for tenant in TENANTS:
            await calls.tenant(
                tenant, stale_policy=policy_of(tenant), department_id=department_of(tenant, 0)
            )

    async def _phase(self, phase: int) -> None:
        now = PHASES[phase] + WAVES_LATER
        if phase == MOVES_IN_PHASE:
            sql = "UPDATE tenant_limits SET department_id = $2 WHERE tenant_id = $1"
            await self._pool.execute(sql, MOVED, department_of(MOVED, phase))
        closes = CLOSES.get(phase)
        if closes is not None and closes not in self._closes_amid:
            await self._settle_down(PHASES[phase], phase)
            await self._check_closed(closes)
        requests = self._plan.reserved_in(phase, late=False)
        await self._do([self._reserve(request, PHASES[phase]) for request in requests])
        for wave in range(WAVES):
            work = self._usages(phase, wave, now)
            beside: list[Awaitable[object]] = []
            if wave == 1:
                late = self._plan.reserved_in(phase, late=True)
                work += [self._reserve(request, now) for request in late]
                work += [self._release(request, now) for request in self._plan.released_in(phase)]
                self._plan.rng.shuffle(work)
                beside += [self._expire(now), self._expire(now)]
            gateways = asyncio.ensure_future(self._do(work))
            if wave == 1:
                beside.append(self._end_sessions_until(gateways))
            await asyncio.gather(gateways, self._passes_until(gateways, now), *beside)
            if wave == 1:
                await self._expire(now)
            async with self._pool.acquire() as conn:
                await self.truth.hear_inbox(conn, phase)
        await self._settle_down(now, phase)
        if closes is not None and closes in self._closes_amid:
            await self._freeze(closes)

    async def _do(self, work: list[Work]) -> None:
        await side_by_side(self._gateways, work)

    # gateways ---------------------------------------------------------------------

    def _reserve(self, request: Request, now: datetime) -> Work:
        async def reserve(gateway: Gateway) -> None:
            await gateway.reserve(request, now)
            self.truth.of(request).reserved = True

        return reserve

    def _release(self, request: Request, now: datetime) -> Work:
        async def release(gateway: Gateway) -> None:
            answer = await gateway.release(request, now)
            self.outcomes[answer.outcome] += 1
            self.truth.hear_release(request, answer)

        return release

    def _usages(self, phase: int, wave: int, now: datetime) -> list[Work]:
        arrivals = self._plan.arrivals[phase, wave]
        batched = [arrival for arrival in arrivals if arrival.way == BATCH]
        batches = [batched[n : n + BATCH_SIZE] for n in range(0, len(batched), BATCH_SIZE)]
        work: list[Work] = [self._settle_batch(batch, phase, now) for batch in batches]
        for arrival in arrivals:
            if arrival.way == INBOX:
                work.append(self._leave(arrival))
            elif arrival.way != BATCH:
                work.append(self._settle(arrival, phase, now))
        self._plan.rng.shuffle(work)
        return work

    def _settle(self, arrival: Arrival, phase: int, now: datetime) -> Work:
        async def settle(gateway: Gateway) -> None:
            answer = await gateway.settle(arrival, now)
            self.outcomes[answer.outcome] += 1
            self.truth.hear_usage(arrival, answer, phase)

        return settle

    def _settle_batch(self, batch: list[Arrival], phase: int, now: datetime) -> Work:
        async def settle(gateway: Gateway) -> None:
            answers = await gateway.settle_batch(batch, now)
            for arrival, answer in zip(batch, answers, strict=True):
                self.outcomes[answer.outcome] += 1
                self.truth.hear_usage(arrival, answer, phase)

        return settle

    def _leave(self, arrival: Arrival) -> Work:
        async def leave(gateway: Gateway) -> None:
            for inbox_id in await gateway.leave(arrival):
                self.truth.left[inbox_id] = arrival

        return leave

    # the worker -------------------------------------------------------------------

    async def _pass(self, now: datetime) -> bool:
        """Whether all is done; a session may be lost on the way."""
        try:
            report = await worker_pass(self._dsn, now)
        except QuotaWorkerError as error:
            self.met[type(error).__name__] += 1
            return False
        self.met.update(f"{run.job} {run.outcome}" for run in report.runs)
        return report.granted and all(run.outcome == "done" for run in report.runs)

    async def _passes_until(self, over: asyncio.Future[None], now: datetime) -> None:
        """At least one."""
        for _ in range(MAX_PASSES_BESIDE):
            await self._pass(now)
            if over.done():
                return

    async def _settle_down(self, now: datetime, phase: int) -> None:
        """Ticks until one has done everything; those before it may have failed."""
        for _ in range(MAX_PASSES):
            if await self._pass(now):
                async with self._pool.acquire() as conn:
                    await self.truth.hear_inbox(conn, phase)
                return
        raise AssertionError(f"{MAX_PASSES} passes, and not done: {dict(self.met)}")

    async def _expire(self, now: datetime) -> None:
        """In small batches beside others, until nothing is overdue."""
        for _ in range(MAX_EXPIRIES):
            try:
                sql = "SELECT tenant_id FROM quota_expire_stale(p_limit => 7, p_now => $1)"
                if not await self._pool.fetch(sql, now):
                    return
            except _RETRIED as error:
                self.met[str(error.sqlstate)] += 1
        raise AssertionError("always something overdue")

    async def _end_sessions_until(self, over: asyncio.Future[None]) -> None:
        """The worker's, now and then, in the middle of its work if it is caught there."""
        sql = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'quota-worker' AND datname = current_database() LIMIT 1"
        )
        while not over.done():  # bounded by the wave
            if await self._pool.fetchval(sql):
                self.met["worker's session ended"] += 1
                await asyncio.sleep(PEACE_SECONDS)
            await asyncio.sleep(0)

    # closed months ----------------------------------------------------------------

    async def _check_closed(self, month: date) -> None:
        """What is frozen is the truth of this moment, and earlier months' corrections in rows of their own."""
        await self._freeze(month)
        expected = {key[:2]: sums for key, sums in self.truth.months().items() if key[2] == month}
        found: dict[tuple[str, str], Sums] = {}
        for row in self.frozen[month]:
            if row[3] == month:
                found[row[0], row[1]] = (int(row[4]), int(row[5]), int(row[6]), int(row[7]))
        assert without_zeros(found) == without_zeros(expected)

    async def _freeze(self, month: date) -> None:
        rows = await totals_of(self._pool, month)
        assert rows
        assert all(row[-1] for row in rows), "closed"
        self.frozen[month] = rows


async def totals_of(conn: Any, month: date) -> list[tuple[Any, ...]]:
    sql = (
        "SELECT tenant_id, department_id, environment, belongs_to, completions, input_tokens,"
        " output_tokens, cost_nanos, stale_count, stale_cost_nanos, peak_day, closed_at, closed"
        " FROM quota_monthly_totals WHERE month = $1 ORDER BY 1, 2, 3, 4"
    )
    return [tuple(row) for row in await conn.fetch(sql, month)]


def without_zeros(sums: dict[Any, Sums]) -> dict[Any, Sums]:
    return {key: value for key, value in sums.items() if any(value)}
