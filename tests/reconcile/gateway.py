"""A gateway on a bad line: it repeats what it can't know to be done, as docs/functions.md says.

Every call is a transaction of its own, of which the gateway keeps the answers and their place in
the database's order. Some are lost at COMMIT: the server ends the session before it, or the line
is cut with COMMIT sent or unsent.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from reconcile.cutter import SENT, UNSENT, Cutter
from reconcile.plan import LONG_SECONDS, NO_FIGURES, RELEASE, SHORT_SECONDS, Arrival, Request

from sql.calls import RELEASE as RELEASE_CALL
from sql.calls import RESERVE, SETTLE

TERMINATED = "terminated"
WAYS = (TERMINATED, UNSENT, SENT)
# the share of calls
LOSES = 0.08
MAX_TRIES = 30
CONFLICT, DEADLOCK, LOCKED = "QW001", "40P01", "55P03"
LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the end of the session came before the question
    OSError,
)
# outcomes that change the charge, and those that say that nothing was done
TAKEN = ("settled", "corrected", "estimated", "unreserved", "released")
REFUSED = ("conflict", "invalid", "already_final", "unknown")

_ORDERED = "SELECT s.*, nextval('race_order') AS place FROM ({0}) s"
_BATCH = "SELECT * FROM quota_settle_batch(p_usages => $1::jsonb, p_now => $2)"
_LEAVE = (
    "INSERT INTO quota_usage_inbox (tenant_id, request_id, usage_id, input_tokens, output_tokens,"
    " cost_nanos) VALUES ($1, $2, $3, $4, $5, $6) RETURNING inbox_id"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the database said last, and when what it said was done: the place among all answers.

    `taken` None: nothing was changed. `sure`: no try of it was lost.
    """

    outcome: str
    charged: tuple[Any, ...] | None
    place: int
    taken: tuple[int, str] | None
    sure: bool


def resolved(tries: Sequence[dict[str, Any]]) -> Answer:
    """Of one call's tries that may have been committed, the last of which was.

    A try after which the repeat is a replay was committed, or somebody else did the same.
    """
    taken = None
    for one in tries:
        if one["outcome"] in TAKEN:
            taken = (one["place"], one["outcome"])
        elif one["outcome"] in REFUSED:
            taken = None
    last = tries[-1]
    charged = tuple(last.get(name) for name in ("in_tokens", "out_tokens", "cost_nanos"))
    return Answer(last["outcome"], charged, last["place"], taken, sure=len(tries) == 1)


def is_recognised(arrival: Arrival) -> bool:
    """Whether the answers to its repeats tell which try was taken, and as what."""
    return arrival.usage != NO_FIGURES and not arrival.request.late


class Gateway:
    """One connection, made anew when it is lost."""

    def __init__(
        self, dsn: str, admin: asyncpg.Pool[Any], rng: random.Random, ways: Iterator[str]
    ) -> None:
        """`ways`: how connections are lost, one after another, shared by all."""
        self._cutter = Cutter(dsn)
        self._ways = ways
        self._admin = admin
        self._rng = rng
        self._conn: asyncpg.Connection[Any] | None = None
        self.met: Counter[str] = Counter()

    async def start(self) -> None:
        await self._cutter.start()

    async def close(self) -> None:
        if self._conn is not None:
            self._conn.terminate()
        await self._cutter.close()

    async def reserve(self, request: Request, now: datetime) -> dict[str, Any]:
        ttl = LONG_SECONDS if request.end == RELEASE else SHORT_SECONDS
        arguments = (request.tenant, request.name, *request.estimate)
        arguments += (None, None, None, None, "normal", ttl, now)  # type: ignore[assignment]
        tries = await self._call(_ORDERED.format(RESERVE), arguments)
        assert tries[-1][0]["allowed"], tries
        return tries[-1][0]

    async def release(self, request: Request, now: datetime) -> Answer:
        arguments = (request.tenant, request.name, *request.stated, now)
        tries = await self._call(_ORDERED.format(RELEASE_CALL), arguments)
        return resolved([rows[0] for rows in tries])

    async def settle(self, arrival: Arrival, now: datetime) -> Answer:
        """A conflict raises, and is an outcome here."""
        key = (arrival.request.tenant, arrival.request.name)
        arguments = (*key, *arrival.usage, arrival.usage_id, None, None, now)
        may_lose = is_recognised(arrival)
        tries = await self._call(_ORDERED.format(SETTLE), arguments, may_lose=may_lose)
        return resolved([rows[0] for rows in tries])

    async def settle_batch(self, arrivals: Sequence[Arrival], now: datetime) -> list[Answer]:
        items = [
            {"tenant": a.request.tenant, "request_id": a.request.name, "usage_id": a.usage_id}
            | dict(zip(("in_tokens", "out_tokens", "cost_nanos"), a.usage, strict=True))
            for a in arrivals
        ]
        may_lose = all(is_recognised(a) for a in arrivals)
        call = _ORDERED.format(_BATCH) + " ORDER BY s.ordinal"
        tries = await self._call(call, (json.dumps(items), now), may_lose=may_lose)
        return [resolved([rows[n] for rows in tries]) for n in range(len(arrivals))]

    async def leave(self, arrival: Arrival) -> list[int]:
        """Puts it into the inbox; what was lost on the way may be there twice. Answers all ids."""
        key = (arrival.request.tenant, arrival.request.name, arrival.usage_id)
        tries = await self._call(_LEAVE, (*key, *arrival.usage))
        return [rows[0]["inbox_id"] for rows in tries]

    async def _call(
        self, sql: str, arguments: Sequence[object], *, may_lose: bool = True
    ) -> list[list[dict[str, Any]]]:
        """The rows of each try that may have been committed."""
        tries = []
        for _ in range(MAX_TRIES):
            rows: list[dict[str, Any]] | None = None
            loses = may_lose and self._rng.random() < LOSES
            try:
                conn = await self._connection()
                await conn.execute("BEGIN")
                rows = [dict(row) for row in await conn.fetch(sql, *arguments)]
                if loses:
                    await self._lose(conn)
                await conn.execute("COMMIT")
            except LOST:
                self.met["lost"] += 1
                if rows is not None:
                    tries.append(rows)
                self._conn = None
            except asyncpg.PostgresError as error:
                state = str(error.sqlstate)
                self.met[state] += 1
                if rows is None:
                    await (await self._connection()).execute("ROLLBACK")
                if state == CONFLICT:
                    return [*tries, [{"outcome": "conflict", "place": 0}]]
                if state not in (DEADLOCK, LOCKED):
                    raise
            else:
                assert rows is not None
                return [*tries, rows]
        raise AssertionError(f"in vain {MAX_TRIES} times: {dict(self.met)}")

    async def _connection(self) -> asyncpg.Connection[Any]:
        if self._conn is None or self._conn.is_closed():
            self._conn = await self._cutter.connect()
        return self._conn

    async def _lose(self, conn: asyncpg.Connection[Any]) -> None:
        how = next(self._ways)
        self.met[how] += 1
        if how == TERMINATED:
            await self._admin.execute("SELECT pg_terminate_backend($1)", conn.get_server_pid())
        else:
            self._cutter.cut_at_next(how)


async def side_by_side(
    gateways: Sequence[Gateway], work: Sequence[Callable[[Gateway], Awaitable[None]]]
) -> None:
    """Each piece of work on the next gateway that is free, in order."""
    waiting = iter(work)

    async def client(gateway: Gateway) -> None:
        for piece in waiting:
            await piece(gateway)

    await asyncio.gather(*(client(gateway) for gateway in gateways))
