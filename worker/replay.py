"""Replays planned requests through reserve, progress, settle and release.

Requests that share a budget share a lane; a lane's calls are made one after another in
the order of their times, and lanes are spread over so many workers. So with the trace's
own times as ``p_now`` the outcome is the same at every run, whatever the concurrency.
Idempotent: the same run again gets the same answers and charges nothing twice.
"""

from __future__ import annotations

import asyncio
import heapq
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from worker.errors import DatabaseError, LockTimeoutError, SerializationError
from worker.replay_plan import ABORTED, COMPLETE, LOST

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from datetime import datetime

    from worker.ports.ledger import Traffic
    from worker.replay_plan import PlannedRequest
    from worker.traffic import Decision

T = TypeVar("T")

RETRIES = 6
RETRY_WAIT_SECONDS = 0.1
_START, _PROGRESS, _END = 0, 1, 2


@dataclass(slots=True)
class Sums:
    """Requests with their tokens and cost in nanos of the billing currency."""

    requests: int = 0
    in_tokens: int = 0
    out_tokens: int = 0
    cost_nanos: int = 0

    def add(self, in_tokens: int, out_tokens: int, cost_nanos: int) -> None:
        """Count one request more."""
        self.requests += 1
        self.in_tokens += in_tokens
        self.out_tokens += out_tokens
        self.cost_nanos += cost_nanos

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return {
            "requests": self.requests,
            "in_tokens": self.in_tokens,
            "out_tokens": self.out_tokens,
            "cost_nanos": self.cost_nanos,
        }


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One decided request: what was planned for it and what the ledger said."""

    request: PlannedRequest
    decision: Decision


@dataclass(slots=True)
class ReplaySummary:
    """What was asked, decided and sent.

    ``admitted`` and ``lost`` are sums of estimates, ``settled`` and ``aborted`` of what was
    consumed, ``refused`` of refused estimates.
    """

    reasons: dict[str, int] = field(default_factory=dict)
    observed: dict[str, int] = field(default_factory=dict)
    tiers: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    replayed: int = 0
    lock_retries: int = 0
    asked: Sums = field(default_factory=Sums)
    admitted: Sums = field(default_factory=Sums)
    refused: Sums = field(default_factory=Sums)
    settled: Sums = field(default_factory=Sums)
    lost: Sums = field(default_factory=Sums)
    aborted: Sums = field(default_factory=Sums)

    def as_dict(self) -> dict[str, object]:
        """For JSON; reasons and outcomes by name."""
        return {
            "reasons": dict(sorted(self.reasons.items())),
            "observed_reasons": dict(sorted(self.observed.items())),
            "tiers": dict(sorted(self.tiers.items())),
            "outcomes": dict(sorted(self.outcomes.items())),
            "replayed": self.replayed,
            "lock_retries": self.lock_retries,
            **{
                name: getattr(self, name).as_dict()
                for name in ("asked", "admitted", "refused", "settled", "lost", "aborted")
            },
        }


def count(counts: dict[str, int], name: str) -> None:
    """One more of that name."""
    counts[name] = counts.get(name, 0) + 1


class Pace:
    """When a moment of the trace comes in real time: ``speed`` times as fast.

    ``speed`` None: at once, and the trace's times are passed on as ``p_now``.
    """

    def __init__(
        self, first: datetime, speed: float | None, monotonic: Callable[[], float]
    ) -> None:
        self._first = first
        self._speed = speed
        self._monotonic = monotonic
        self._started = monotonic()

    async def reach(self, at: datetime) -> datetime | None:
        """Wait for the moment; returns the ``p_now`` to pass on."""
        if self._speed is None:
            return at
        due = self._started + (at - self._first).total_seconds() / self._speed
        wait = due - self._monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        return None


class Replay:
    """A replay that can be advanced in steps (``until``), with other work between them."""

    def __init__(
        self,
        requests: Sequence[PlannedRequest],
        lanes: Mapping[str, str],
        traffic: Traffic,
        pace: Pace,
        *,
        concurrency: int,
        progress_every: int,
        on_decided: Callable[[JournalLine], None] | None = None,
    ) -> None:
        """``lanes`` names each tenant's lane (its department, else itself)."""
        self.summary = ReplaySummary()
        self._traffic = traffic
        self._pace = pace
        self._progress_every = progress_every
        self._on_decided = on_decided
        # per worker a heap of (when, index, step, output tokens so far)
        self._agendas: list[list[tuple[datetime, int, int, int]]] = [[] for _ in range(concurrency)]
        self._requests = requests
        for index, request in enumerate(requests):
            lane = lanes.get(request.ask.tenant_id, request.ask.tenant_id)
            worker = zlib.crc32(lane.encode()) % concurrency
            self._agendas[worker].append((request.at, index, _START, 0))
        for agenda in self._agendas:
            heapq.heapify(agenda)

    def next_at(self) -> datetime | None:
        """When the next call is due, None when all is done."""
        return min((agenda[0][0] for agenda in self._agendas if agenda), default=None)

    async def advance(self, until: datetime | None = None) -> None:
        """Make every call that is due before ``until`` (None: to the end).

        Raises the first error of a call; what other workers had begun is abandoned.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for agenda in self._agendas:
                    if agenda:
                        group.create_task(self._work(agenda, until))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _work(
        self, agenda: list[tuple[datetime, int, int, int]], until: datetime | None
    ) -> None:
        while agenda and (until is None or agenda[0][0] < until):
            at, index, step, tokens = heapq.heappop(agenda)
            now = await self._pace.reach(at)
            if step == _START:
                following = await self._start(index, now)
            elif step == _PROGRESS:
                request = self._requests[index]
                outcome = await self._call(
                    lambda: self._traffic.progress(request.ask, tokens, now)  # noqa: B023
                )
                count(self.summary.outcomes, f"progress_{outcome}")
                following = self._next_step(index, tokens)
            else:
                following = None
                await self._end(index, now)
            if following is not None:
                heapq.heappush(agenda, following)

    async def _start(
        self, index: int, now: datetime | None
    ) -> tuple[datetime, int, int, int] | None:
        request = self._requests[index]
        ask = request.ask
        decision = await self._call(lambda: self._traffic.reserve(ask, now))
        summary = self.summary
        summary.asked.add(ask.in_tokens, ask.out_tokens, ask.cost_nanos)
        count(summary.reasons, decision.reason)
        count(summary.tiers, decision.tier or "normal")
        if decision.observed_reason:
            count(summary.observed, decision.observed_reason)
        summary.replayed += decision.replayed
        if self._on_decided is not None:
            self._on_decided(JournalLine(request, decision))
        if not decision.allowed:
            summary.refused.add(ask.in_tokens, ask.out_tokens, ask.cost_nanos)
            return None
        summary.admitted.add(ask.in_tokens, ask.out_tokens, ask.cost_nanos)
        if request.fate == LOST:
            summary.lost.add(ask.in_tokens, ask.out_tokens, ask.cost_nanos)
        return self._next_step(index, 0)

    def _next_step(self, index: int, tokens: int) -> tuple[datetime, int, int, int] | None:
        """The next progress call, or the end; nothing after a lost stream's last word."""
        request = self._requests[index]
        following = tokens + self._progress_every
        if self._progress_every and following < request.consumed_out:
            return request.streamed_at(following), index, _PROGRESS, following
        if request.fate == LOST:
            return None
        return request.streamed_at(request.consumed_out), index, _END, tokens

    async def _end(self, index: int, now: datetime | None) -> None:
        request = self._requests[index]
        consumed = (request.consumed_in, request.consumed_out, request.consumed_cost_nanos)
        if request.fate == COMPLETE:
            outcome = await self._call(lambda: self._traffic.settle(request.ask, *consumed, now))
            self.summary.settled.add(*consumed)
        else:
            assert request.fate == ABORTED  # noqa: S101  a lost stream has no end
            outcome = await self._call(lambda: self._traffic.release(request.ask, *consumed, now))
            self.summary.aborted.add(*consumed)
        count(self.summary.outcomes, outcome)

    async def _call(self, call: Callable[[], Coroutine[object, object, T]]) -> T:
        """Repeat a call whose lock wasn't free; the same request id makes that safe."""
        last: DatabaseError | None = None
        for attempt in range(RETRIES):
            try:
                return await call()
            except (LockTimeoutError, SerializationError) as error:
                last = error
                self.summary.lock_retries += 1
                await asyncio.sleep(RETRY_WAIT_SECONDS * 2**attempt)
        raise last or DatabaseError
