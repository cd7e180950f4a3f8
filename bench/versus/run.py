"""One run: a subject, a fault, 200 alerts, and what came of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.versus.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from bench.versus.options import Options
    from bench.versus.subjects import Subject

POLL_SECONDS: Final = 0.1
# A source whose notifier is killed again and again needs several resends.
RAISE_SECONDS: Final = 180.0
# After this the others may begin, even if this run still waits for something.
BUSY_SECONDS: Final = 25.0


@dataclass(slots=True)
class Result:
    """Seconds from an alert's raising to its first arrival; the rest are counts.

    `waiting`: not arrived at the end, and the notifier still has it; `lost`: it hasn't. `doubled`:
    taken again, in all. `requests`: what the receiver was asked, and by the notifier's own count
    where it could not be reached.
    """

    scenario: str
    subject: str
    first: float
    p50: float
    p99: float
    last: float
    arrived: int
    lost: int
    waiting: int
    doubled: int
    requests: int
    kills: int
    kibibytes: int
    server_kibibytes: int | None = None

    def as_document(self) -> dict[str, Any]:
        return asdict(self)


class Run:
    """Built once, run once."""

    def __init__(
        self,
        options: Options,
        scenario: str,
        name: str,
        subject: Subject,
        folder: Path,
        server_kibibytes: Callable[[], int] | None,
    ) -> None:
        self._options = options
        self._scenario = scenario
        self._name = name
        self._subject = subject
        self._folder = folder
        self._server_kibibytes = server_kibibytes
        self._server_peak = 0
        self._life_began = 0
        self._raised: dict[str, float] = {}
        self._kills_left = {"kills": options.kills, "both": 1}.get(scenario, 0)
        self._receiver = Receiver(
            subject.alert_named,
            answer_seconds=options.answer_seconds,
            refuse_every=3 if scenario == "refusals" else 0,
            on_request=self._on_request,
        )
        self.idle = asyncio.Event()

    async def carried_out(self) -> Result:
        """The result; `idle` is set as soon as the run does little but wait."""
        await self._receiver.open()
        url = f"http://127.0.0.1:{self._receiver.port}"
        try:
            await self._subject.start(url)
            async with self._watched():
                if self._scenario == "away":
                    await self._receiver.close()
                begin = time.monotonic()
                async with self._source_runs():
                    if self._scenario == "away":
                        self.idle.set()
                        left = begin + self._options.away_seconds - time.monotonic()
                        await asyncio.sleep(max(0.0, left))
                        await self._receiver.open()
                    await self._until_settled(begin)
                    return await self._result()
        finally:
            self.idle.set()
            await self._subject.end()
            await self._receiver.end()

    def _on_request(self, path: str, number: int) -> None:
        if (
            self._kills_left
            and number - self._life_began >= self._options.kill_at
            and self._subject.kill(path)
        ):
            self._kills_left -= 1
            self._life_began = number

    @contextlib.asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._subject.peak.watch())]
        if self._server_kibibytes is not None:
            tasks.append(asyncio.create_task(self._watch_server(self._server_kibibytes)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_server(self, kibibytes: Callable[[], int]) -> None:
        while True:  # until it is cancelled
            self._server_peak = max(self._server_peak, kibibytes())
            await asyncio.sleep(0.5)

    @contextlib.asynccontextmanager
    async def _source_runs(self) -> AsyncIterator[None]:
        """From when all alerts were raised on; dead, where that is the fault."""
        with (self._folder / "source.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *self._subject.source(), stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(RAISE_SECONDS):
                while len(self._raised) < self._options.alerts:
                    name, raised = (await process.stdout.readline()).split()
                    self._raised[name.decode()] = float(raised)
            if self._scenario in {"source", "both"}:
                process.kill()
            yield
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()

    async def _until_settled(self, begin: float) -> None:
        """Until every alert came and no repetition is to be expected, or the time is up."""
        while (now := time.monotonic()) < begin + self._options.limit_seconds:
            all_came = len(self._receiver.first) == self._options.alerts
            if all_came or now - begin > BUSY_SECONDS:
                self.idle.set()
            quiet = now - max(begin, self._receiver.last)
            if all_came and quiet > self._subject.settle_seconds() and not await self._in_hand():
                return
            if not all_came and quiet > self._options.limit_seconds / 3 and not await self._left():
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _in_hand(self) -> bool:
        """What an outbox has, it will send; an active alert of Alertmanager's is only known."""
        return self._name in {"schedule", "ticks"} and bool(await self._subject.waiting())

    async def _left(self) -> set[str]:
        return await self._subject.waiting() - set(self._receiver.first)

    async def _result(self) -> Result:
        first = self._receiver.first
        seconds = sorted(max(0.0, at - self._raised[name]) for name, at in first.items())
        missing = set(self._raised) - set(first)
        waiting = missing & await self._subject.waiting() if missing else set()
        own_count = await self._subject.requests_made()
        requests = self._receiver.requests
        if self._scenario == "away" and own_count is not None:
            requests = own_count
        return Result(
            self._scenario,
            self._name,
            first=_quantile(seconds, 0.0),
            p50=_quantile(seconds, 0.5),
            p99=_quantile(seconds, 0.99),
            last=_quantile(seconds, 1.0),
            arrived=len(first),
            lost=len(missing - waiting),
            waiting=len(waiting),
            doubled=sum(self._receiver.taken.values()) - len(first),
            requests=requests,
            kills=self._subject.kills,
            kibibytes=self._subject.peak.kibibytes,
            server_kibibytes=self._server_peak or None,
        )


def _quantile(ordered: list[float], share: float) -> float:
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
