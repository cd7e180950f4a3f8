"""A month in which everything fails now and then, against a model of what must be told.

Three workers tick at random distances, with time off now and then, while tenants and
departments live; the database, the chats and the mail server fail by a seeded weather.
After each tick the log must be the model's, and at the end everybody must have been told
all that was due to them once, and nothing else.

`make month` runs whole months from fresh seeds (QUOTA_WORKER_MONTHS of them);
QUOTA_WORKER_SEED repeats one: the same life and the same weather, while which request
meets which fault depends on the moment.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contract.servers_mail import Certificates
from contract.sides import SECRET
from month.clock import SharedClock
from month.expected import Expected
from month.judge import Judge, check_log
from month.post import Post
from month.receivers import App, Bot, Hook, MailBox, Weather
from month.routing import Receivers, read_set_up
from month.workers import Trouble, Worker
from month.world import World

from conftest import Connect

LONG = os.environ.get("QUOTA_WORKER_MONTH") == "1"
WORKERS = 3
# The eve of a month's end, by which a day of 25 or of 23 hours lies, or none; a whole month begins before it.
EVES = [
    ("Asia/Shanghai", datetime(2026, 1, 30, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 30, tzinfo=UTC)),
    ("America/New_York", datetime(2027, 2, 26, tzinfo=UTC)),
]
WHOLE = timedelta(days=31)
BEFORE_THE_EVE = timedelta(days=12)
SHORT_SEEDS = (11,)
SHORT_TICKS = 16
SOME_DAYS = timedelta(days=2)
# so long that every wait of the retry table is over, those of fallbacks too
CALM_TICKS = 12
_WAITING = "SELECT count(*) FROM quota_outbox WHERE state IN ('pending', 'sending')"


def seeds() -> list[int]:
    if not LONG:
        return list(SHORT_SEEDS)
    chosen = int(os.environ.get("QUOTA_WORKER_SEED", "0"))
    fresh = random.SystemRandom()
    count = int(os.environ.get("QUOTA_WORKER_MONTHS", "3"))
    return [chosen] if chosen else [fresh.randrange(1, 2**31) for _ in range(count)]


def fresh(rng: random.Random) -> random.Random:
    """One of its own for what depends on the moment, so that the rest is the same again."""
    return random.Random(rng.random())  # noqa: S311  a seeded test


@asynccontextmanager
async def receiving(
    folder: Path, rng: random.Random, clock: SharedClock, post: Post
) -> AsyncIterator[Receivers]:
    def weather(name: str) -> Weather:
        return Weather(fresh(rng), fresh(rng), clock, post, name)

    receivers = Receivers(
        Bot(secret=SECRET, rates=None, weather=weather("ops")),
        App(rates=None, clock=clock.timestamp, weather=weather("app")),
        Hook(weather=weather("hook")),
        MailBox(Certificates(folder), SECRET, weather=weather("mail")),
    )
    for one in receivers:
        await one.start()
    try:
        yield receivers
    finally:
        for one in receivers:
            await one.stop()


def some_hours(rng: random.Random) -> timedelta:
    """To the next tick: minutes mostly, now and then the workers are away for days."""
    low, high = rng.choices([(0.1, 0.5), (0.5, 3), (3, 9), (24, 60)], weights=[35, 35, 27, 3])[0]
    return timedelta(hours=rng.uniform(low, high))


class Month:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311  a seeded test
        self.zone, start = self.rng.choice(EVES)
        start += timedelta(hours=self.rng.uniform(0, 24)) - (
            BEFORE_THE_EVE if LONG else timedelta()
        )
        self.end = start + (WHOLE if LONG else SOME_DAYS)
        self.clock = SharedClock(start)
        self.post = Post()
        self.expected = Expected(self.zone)
        self.ticks = 0
        self.quiet = self.rng.random() < 0.5
        self.bot_dies_at = (
            start + self.rng.uniform(0.05, 0.8) * (self.end - start)
            if self.rng.random() < 0.4
            else None
        )

    async def run(self, dsn: str, connect: Connect, folder: Path) -> Judge:
        conn = await connect()
        self.troubles = [Trouble(await connect(), fresh(self.rng), self.post) for _ in range(2)]
        self.world = World(conn, self.rng, self.zone, self.clock.now)
        await self.world.begin()
        console = io.StringIO()
        async with receiving(folder, self.rng, self.clock, self.post) as self.receivers:
            for one in self.receivers:
                one.sky.cut = self.troubles[1].wish
            delivery = read_set_up(folder, self.receivers, quiet=self.quiet)
            workers = [
                await Worker.start(dsn, delivery, self.clock, self.post, console)
                for _ in range(WORKERS)
            ]
            try:
                while self.world.now < self.end if LONG else self.ticks < SHORT_TICKS:
                    await self.round(workers)
                await self.calm_down(workers)
            finally:
                for worker in workers:
                    await worker.stop()
        judge = await Judge.of(conn, self.expected, self.post, console.getvalue())
        judge.check()
        if self.quiet:
            judge.check_quiet(self.zone)
        return judge

    async def round(self, workers: list[Worker]) -> None:
        now = self.world.now + some_hours(self.rng)
        await self.world.live(now, self.rng.randint(4, 36))
        self.clock.now = now
        for one in self.receivers:
            one.sky.turn()
            await one.listen()
        if self.bot_dies_at is not None and now >= self.bot_dies_at:
            self.receivers.ops.sky.removed = True
        await self.tick(workers, troubled=self.rng.random() < 0.4)

    async def tick(self, workers: list[Worker], *, troubled: bool) -> None:
        now = self.clock.now
        for _ in range(20):
            async with asyncio.TaskGroup() as group:
                wished = asyncio.create_task(self.troubles[1].wished())
                ticks = [group.create_task(worker.tick(now)) for worker in workers]
                if troubled:
                    group.create_task(self.troubles[0].some())
            wished.cancel()
            await asyncio.wait([wished])
            if any(tick.result() for tick in ticks):
                break
            # nobody could judge: the same state again
            self.clock.now = now
        else:
            raise AssertionError("no worker could judge")
        self.ticks += 1
        self.expected.tick(now, self.world.books)
        await self.world.check_books()
        await check_log(self.world.conn, self.expected)

    async def calm_down(self, workers: list[Worker]) -> None:
        """No more use and no more faults, until all that waited has been told."""
        for one in self.receivers:
            one.sky.clear()
            await one.listen()
        for _ in range(CALM_TICKS):
            if not await self.world.conn.fetchval(_WAITING):
                break
            self.world.now += timedelta(hours=5, minutes=10)
            self.clock.now = self.world.now
            await self.tick(workers, troubled=False)


@pytest.fixture(autouse=True)
def one_ssl_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is plain http: else each run of deliver would read a hundred authorities first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr("httpx._transports.default.create_ssl_context", lambda **_: context)


@pytest.mark.parametrize("seed", seeds())
async def test_every_crossing_is_told_once(
    seed: int,
    dsn: str,
    connect: Connect,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    month = Month(seed)
    if LONG:
        with capsys.disabled():
            print(f"\nQUOTA_WORKER_SEED={seed} {month.zone}", flush=True)  # noqa: T201
    try:
        judge = await month.run(dsn, connect, tmp_path)
    except BaseException:
        print(f"seed {seed}, tick {month.ticks}, {month.clock.now}, {month.zone}")  # noqa: T201
        raise
    figures = judge.figures() | dict(sorted(month.post.faults.items()))
    if LONG:
        with capsys.disabled():
            print(f"  ticks: {month.ticks}, {figures}")  # noqa: T201
