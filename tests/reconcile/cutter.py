"""A line to the server that can be cut at the moment of COMMIT, before it or after it was passed on.

The client then can't know whether its transaction was committed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg

UNSENT, SENT = "unsent", "sent"
CHUNK = 65_536
OPEN_SECONDS = 10.0


class Cutter:
    """Listens on loopback and passes everything on to the server's socket; one client at a time."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        place = parse_qs(urlsplit(dsn).query)
        self._socket = f"{place['host'][0]}/.s.PGSQL.{place['port'][0]}"
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut: str | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def connect(self) -> asyncpg.Connection[Any]:
        assert self._server is not None
        return await asyncpg.connect(
            self._dsn,
            host="127.0.0.1",
            port=self._server.sockets[0].getsockname()[1],
            ssl="disable",
            timeout=OPEN_SECONDS,
            statement_cache_size=0,
        )

    def cut_at_next(self, how: str) -> None:
        """The client's next bytes are the last: passed on (SENT) or not (UNSENT)."""
        self._cut = how

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(self._socket)
        self._writers = [writer, forth]
        answers = asyncio.create_task(self._pass_answers(back, writer))
        self._tasks.add(answers)
        answers.add_done_callback(self._tasks.discard)
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                how, self._cut = self._cut, None
                if how is not None:
                    answers.cancel()
                    if how == SENT:
                        forth.write(data)
                        await forth.drain()
                    break
                forth.write(data)
                await forth.drain()
        forth.close()
        writer.transport.abort()

    async def _pass_answers(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await back.read(CHUNK):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)
