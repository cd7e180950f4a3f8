"""A gateway's process: `python -m chaos.gateway FOLDER NUMBER`.

It replays the packaged trace at speed through the ledger's functions, and writes down what it asks
before it asks, and each answer. A call without an answer is made again, with the same ids, as
docs/functions.md says; by its successor, too, where it was killed. SIGTERM: it begins nothing
more and ends when each call has its answer.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg

from chaos.journal import Journal, read_journal
from chaos.plan import REQUESTS_PER_SECOND, TRACE, TTL_SECONDS, amounts
from worker.replay_trace import TraceRequest, read_trace

RESERVE = (
    "SELECT allowed, reason, replayed FROM quota_reserve($1, $2, $3, $4, $5, p_model => $6,"
    " p_app => $7, p_ttl_seconds => $8)"
)
RESERVE_BATCH = (
    "SELECT allowed, reason, replayed FROM quota_reserve_batch($1::jsonb) ORDER BY ordinal"
)
SETTLE = "SELECT outcome FROM quota_settle($1, $2, $3, $4, $5, p_usage_id => $6)"
SETTLE_BATCH = "SELECT outcome FROM quota_settle_batch($1::jsonb) ORDER BY ordinal"
RELEASE = "SELECT outcome FROM quota_release($1, $2, $3, $4, $5)"
PROGRESS = "SELECT outcome FROM quota_progress($1, $2, $3)"
INBOX = (
    "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens, cost_nanos,"
    " usage_id) VALUES ($1, $2, $3, $4, $5, $6) RETURNING 'left' AS outcome"
)
STATEMENTS = {
    "reserve": RESERVE,
    "settle": SETTLE,
    "release": RELEASE,
    "progress": PROGRESS,
    "inbox": INBOX,
}
BATCH_KEYS = {
    "reserve": ("in_tokens", "out_tokens", "cost_nanos", "model", "app", "ttl_seconds"),
    "settle": ("in_tokens", "out_tokens", "cost_nanos", "usage_id"),
}
CONNECTIONS = 8
ANSWER_SECONDS = 10.0
AGAIN_SECONDS = 0.15
# everything that says nothing about whether the call was done, or that it may be repeated
PASSING = ("08", "25", "40", "53", "55", "57", "58")
LOST = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
# how a request goes on, of a hundred
ENDINGS = (
    *["settle"] * 40,
    *["batch"] * 12,
    *["corrected"] * 6,
    *["twice"] * 5,
    *["without figures"] * 4,
    *["given back"] * 8,
    *["given up"] * 6,
    *["inbox"] * 9,
    *["silent"] * 6,
    *["late"] * 4,
)
UNRESERVED = 0.03
BATCH = 8


class Gateway:
    def __init__(self, folder: Path, number: int) -> None:
        plan = json.loads((folder / "plan.json").read_text())
        self._number = number
        self._seconds = plan["seconds"]
        self._tenants: dict[str, list[str]] = {}
        for name in plan["shares"][number]:
            self._tenants.setdefault(name.rsplit("-", 2)[0], []).append(name)
        self._dsns = json.loads((folder / "dsns.json").read_text())
        self._path = folder / f"gateway-{number}.jsonl"
        self._journal = Journal(self._path)
        self._rng = random.Random(f"{plan['seed']} {number} {uuid4().hex}")  # noqa: S311  seeds and lives
        self._idle: list[asyncpg.Connection[Any]] = []
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._batch: list[tuple[str, str, list[Any]]] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        self._resume()
        trace = read_trace(TRACE)
        span = (trace[-1].at - trace[0].at).total_seconds()
        speed = span / (len(trace) / REQUESTS_PER_SECOND)
        begun = loop.time()
        round_begun, place = begun, 0
        while not self._stop.is_set():
            one = trace[place]
            due = round_begun + (one.at - trace[0].at).total_seconds() / speed
            if due > loop.time():
                try:
                    async with asyncio.timeout(due - loop.time()):
                        await self._stop.wait()
                except TimeoutError:
                    pass
                continue
            self._begin(
                self._request(one, self._tenant(one, (loop.time() - begun) / self._seconds))
            )
            place += 1
            if place == len(trace):
                round_begun, place = loop.time(), 0
        while self._tasks or self._batch:
            await self._settle_batch()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tenant(self, one: TraceRequest, share: float) -> str:
        """They are busy one after another, so that somebody crosses all the time."""
        names = self._tenants[str(one.tenant_id)]
        place = share * len(names) + self._rng.gauss(0, 1.5)
        return names[int(place) % len(names)]

    def _resume(self) -> None:
        """Make each call again that a killed predecessor had no answer to, one after another."""
        asked: dict[str, dict[str, Any]] = {}
        for line in read_journal(self._path):
            if "call" in line:
                asked[line["n"]] = line
            else:
                asked.pop(line["n"], None)
        by_request: dict[str, list[dict[str, Any]]] = {}
        for line in asked.values():
            by_request.setdefault(line["id"], []).append(line)

        async def again(lines: list[dict[str, Any]]) -> None:
            for line in lines:
                await self._answered(
                    line["n"], line["call"], line["tenant"], line["id"], line["args"]
                )

        for lines in by_request.values():
            self._begin(again(lines))

    async def _request(self, one: TraceRequest, tenant: str) -> None:
        rng = self._rng
        request = uuid4().hex[:20]
        used = amounts(one)
        if rng.random() < UNRESERVED:
            await self._call("settle", tenant, request, [*used, f"u-{request}"])
            return
        estimate = [used[0], int(used[1] * rng.uniform(0.8, 2.0)) + 1]
        estimate.append(estimate[0] * 3_000 + estimate[1] * 15_000)
        arguments = [*estimate, one.model, one.app, TTL_SECONDS]
        if rng.random() < 0.1:
            # a batch of three: a request, the same one again, and one more
            more = uuid4().hex[:20]
            items = [
                (tenant, request, arguments),
                (tenant, request, arguments),
                (tenant, more, arguments),
            ]
            answers = await self._call_batch("reserve", items)
            answer = answers[0] if answers else None
        else:
            answer = await self._call("reserve", tenant, request, arguments)
        if answer is None or not answer["allowed"]:
            return
        await self._stream(tenant, request, used)

    async def _stream(self, tenant: str, request: str, used: tuple[int, int, int]) -> None:
        rng = self._rng
        ending = rng.choice(ENDINGS)
        streamed = 0
        for _ in range(rng.choice((0, 0, 1, 2))):
            await asyncio.sleep(rng.uniform(0.1, 1.0))
            if ending != "given back":
                streamed = min(used[1], streamed + rng.randint(1, 100))
                await self._call("progress", tenant, request, [streamed])
        await asyncio.sleep(rng.uniform(0.05, 1.0))
        await self._end(ending, tenant, request, used)

    async def _end(
        self, ending: str, tenant: str, request: str, used: tuple[int, int, int]
    ) -> None:
        usage = [*used, f"u-{request}"]
        once: dict[str, tuple[str, list[Any]]] = {
            "given back": ("release", [0, 0, 0]),
            "given up": ("release", list(used)),
            "inbox": ("inbox", usage),
            "without figures": ("settle", [None, None, None, None]),
        }
        if ending in once:
            call, arguments = once[ending]
            await self._call(call, tenant, request, arguments)
        elif ending == "batch":
            self._batch.append((tenant, request, usage))
            if len(self._batch) >= BATCH:
                await self._settle_batch()
        elif ending != "silent":
            await self._usage(ending, tenant, request, usage)

    async def _usage(self, ending: str, tenant: str, request: str, usage: list[Any]) -> None:
        if ending == "late":
            await asyncio.sleep(TTL_SECONDS + self._rng.uniform(1, 8))
        await self._call("settle", tenant, request, usage)
        if ending == "twice":
            await self._call("settle", tenant, request, usage)
        if ending == "corrected":
            await asyncio.sleep(self._rng.uniform(0, 5))
            share = self._rng.uniform(0.3, 1.5)
            other = [int(one * share) for one in usage[:3]]
            await self._call("settle", tenant, request, [*other, f"c-{request}"])

    async def _settle_batch(self) -> None:
        batch, self._batch = self._batch, []
        if batch:
            await self._call_batch("settle", batch)

    async def _call(
        self, call: str, tenant: str, request: str, arguments: list[Any]
    ) -> dict[str, Any] | None:
        number = self._ask(call, tenant, request, arguments)
        return await self._answered(number, call, tenant, request, arguments)

    def _ask(self, call: str, tenant: str, request: str, arguments: list[Any]) -> str:
        number = uuid4().hex[:12]
        self._journal.note(n=number, call=call, tenant=tenant, id=request, args=arguments)
        return number

    async def _answered(
        self, number: str, call: str, tenant: str, request: str, arguments: list[Any]
    ) -> dict[str, Any] | None:
        rows = await self._until_answered(STATEMENTS[call], (tenant, request, *arguments))
        answer = rows[0] if isinstance(rows, list) else {"error": rows}
        self._journal.note(n=number, **answer)
        return answer if isinstance(rows, list) else None

    async def _call_batch(
        self, call: str, items: list[tuple[str, str, list[Any]]]
    ) -> list[dict[str, Any]] | None:
        """Written down as single calls: a successor asks one by one what it can't know."""
        numbers = [self._ask(call, *item) for item in items]
        document = json.dumps(
            [
                {"tenant": tenant, "request_id": request}
                | dict(zip(BATCH_KEYS[call], arguments, strict=True))
                for tenant, request, arguments in items
            ]
        )
        statement = RESERVE_BATCH if call == "reserve" else SETTLE_BATCH
        rows = await self._until_answered(statement, (document,))
        for place, number in enumerate(numbers):
            self._journal.note(
                n=number, **(rows[place] if isinstance(rows, list) else {"error": rows})
            )
        return rows if isinstance(rows, list) else None

    async def _until_answered(self, statement: str, arguments: tuple[Any, ...]) -> Any:
        """The rows, or the SQLSTATE of an error that stays."""
        while True:
            async with self._slots:
                conn: asyncpg.Connection[Any] | None = None
                try:
                    conn = self._idle.pop() if self._idle else await self._connect()
                    rows = await conn.fetch(statement, *arguments, timeout=ANSWER_SECONDS)
                    self._idle.append(conn)
                    return [dict(row) for row in rows]
                except LOST:
                    pass
                except asyncpg.PostgresError as error:
                    if not str(error.sqlstate).startswith(PASSING):
                        return str(error.sqlstate)
                if conn is not None:
                    conn.terminate()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _connect(self) -> asyncpg.Connection[Any]:
        dsn = self._dsns[self._rng.randrange(len(self._dsns))] if self._number else self._dsns[0]
        return await asyncpg.connect(dsn, statement_cache_size=0, timeout=ANSWER_SECONDS)


if __name__ == "__main__":
    asyncio.run(Gateway(Path(sys.argv[1]), int(sys.argv[2])).run())
