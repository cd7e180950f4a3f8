"""Waits for crossings: by LISTEN on a connection of its own, else by a look each second.

LISTEN belongs to a session, so it needs a connection that no pooler shares. What is heard is
only a reason to look: the rows of `quota_crossings` say whether something waits, so nothing is
missed while nobody listened, and others' notifications do no harm.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from worker.backoff import exponential_seconds
from worker.errors import CannotListenError, QuotaWorkerError
from worker.postgres.errors import translated
from worker.postgres.pool import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import asyncpg

    from worker.postgres.queries import Queries

CHANNEL: Final = "quota_crossing"
POLL_SECONDS: Final = 1.0
# Listening, a look now and then finds a connection that is dead without having been closed.
LOOK_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 10.0
PROBE_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 60.0
# Notifications in a burst are answered by one look.
GATHER_SECONDS: Final = 0.05
# What errors advise to look at; here another may be meant.
ADVISED: Final = "POSTGRES_DSN"
POOLED: Final = "a pooler lies in between: QUOTA_WORKER_LISTEN_DSN needs a direct connection"
UNHEARD: Final = "no notification comes through it: is it the same database's primary?"


class PostgresCrossings:
    """``Crossings``; `pool` gives the pool for looks, `dsn` leads to where is listened.

    `variable` names where `dsn` is set. `on_mode` hears ``listening`` or ``polling``, with the
    reason of the latter, at each change.
    """

    def __init__(
        self,
        pool: Callable[[], Awaitable[asyncpg.Pool[asyncpg.Record]]],
        queries: Queries,
        dsn: str,
        monotonic: Callable[[], float],
        on_mode: Callable[[str, str | None], None],
        *,
        variable: str = ADVISED,
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._dsn = dsn
        self._monotonic = monotonic
        self._on_mode = on_mode
        self._variable = variable
        self._heard = asyncio.Event()
        self._probes: set[str] = set()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._mode: tuple[str, str | None] = ("", None)
        self._told_mode: tuple[str, str | None] = ("", None)
        self._failures = 0
        self._listen_at = float("-inf")

    async def wait(self) -> bool:
        """Return when it is time to look, with whether something waits; after a reconnect at once.

        Raises DatabaseError where the database can't be asked.
        """
        if self._connection is None:
            if self._monotonic() >= self._listen_at:
                await self._try_to_listen()
            if self._connection is None:
                await asyncio.sleep(POLL_SECONDS)
        else:
            await self._hear(self._connection)
        return await self._look()

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # its end is no news any more; nor does a server that hangs hold us up
            connection.remove_termination_listener(self._on_end)
            connection.terminate()

    async def _look(self) -> bool:
        pool = await self._pool()
        with translated():
            waiting: bool = await pool.fetchval(
                self._queries["crossings_wait"], timeout=ANSWER_SECONDS
            )
        # not before: with the database away its mode is no news
        if self._mode != self._told_mode:
            self._told_mode = self._mode
            self._on_mode(*self._mode)
        return waiting

    async def _hear(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Wait for a notification or the connection's end, at most LOOK_SECONDS."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._heard.wait()
            await asyncio.sleep(GATHER_SECONDS)
        except TimeoutError:
            with suppress(QuotaWorkerError), translated():
                await connection.fetchval(self._queries["server_process"], timeout=ANSWER_SECONDS)
                return
            connection.terminate()
        self._heard.clear()
        if connection.is_closed():
            self._connection = None
            self._listen_at = float("-inf")
            await self._try_to_listen()

    async def _try_to_listen(self) -> None:
        """Listen, or say why not and when to try again: it is polled meanwhile."""
        try:
            self._connection = await self._listening()
        except QuotaWorkerError as error:
            self._failures += 1
            wait_seconds = exponential_seconds(
                self._failures, base_seconds=1.0, max_seconds=RETRY_SECONDS_MAX
            )
            self._listen_at = self._monotonic() + wait_seconds
            self._mode = ("polling", " ".join(str(error).split()).replace(ADVISED, self._variable))
        else:
            self._failures = 0
            self._mode = ("listening", None)

    async def _listening(self) -> asyncpg.Connection[asyncpg.Record]:
        """A connection on which a notification was heard. Raises QuotaWorkerError."""
        connection = await connect(self._dsn, ANSWER_SECONDS)
        try:
            with translated():
                # before LISTEN: on a pooler's connection that would stay, for whoever gets it next
                await self._check_direct(connection)
                connection.add_termination_listener(self._on_end)
                await connection.add_listener(CHANNEL, self._on_notification)
            await self._probe()
        except BaseException:
            connection.remove_termination_listener(self._on_end)
            connection.terminate()
            raise
        return connection

    async def _check_direct(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        pid = await connection.fetchval(self._queries["server_process"])
        if pid != connection.get_server_pid():
            raise CannotListenError(POOLED)

    async def _probe(self) -> None:
        """Send a notification where charges are made, and wait until it is heard."""
        word = f"probe {uuid4().hex}"
        self._probes.add(word)
        try:
            pool = await self._pool()
            with translated():
                await pool.fetchval(self._queries["probe"], word, timeout=ANSWER_SECONDS)
            async with asyncio.timeout(PROBE_SECONDS):
                while word in self._probes:
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise CannotListenError(UNHEARD) from None
        finally:
            self._probes.discard(word)

    def _on_notification(self, *arguments: object) -> None:
        self._probes.discard(str(arguments[-1]))
        self._heard.set()

    def _on_end(self, _connection: object) -> None:
        self._heard.set()
