"""What both deliver to: a webhook that notes each request by the alert that it tells."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

REASONS: Final = {200: "OK", 500: "Internal Server Error"}
BODY_BYTES_MAX: Final = 1_000_000


class Receiver:
    """Answers after `answer_seconds`; what it answered with 2xx, or died unanswered, it has taken.

    `named` finds the alert in a request's JSON. `refuse_every`: the n-th, 2n-th, … request is
    answered 500 and not taken. `on_request` hears each request, before its answer, with its path
    and how many came so far.
    """

    def __init__(
        self,
        named: Callable[[dict[str, Any]], str],
        *,
        answer_seconds: float,
        refuse_every: int = 0,
        on_request: Callable[[str, int], None] = lambda _path, _number: None,
    ) -> None:
        self._named = named
        self._answer_seconds = answer_seconds
        self._refuse_every = refuse_every
        self._on_request = on_request
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        # bound and not listening while away: refused, and nobody else gets the port
        self._place = _bound(0)
        self.port = int(self._place.getsockname()[1])
        self.requests = 0
        self.first: dict[str, float] = {}
        self.taken: Counter[str] = Counter()
        self.last = 0.0

    async def open(self) -> None:
        """Listen; after `close` on the same port again."""
        self._server = await asyncio.start_server(self._serve, sock=self._place, backlog=1024)

    async def close(self) -> None:
        """Away: who connects is refused, and who is connected is cut off."""
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.transport.abort()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 1)
            self._server = None
            self._place = _bound(self.port)

    async def end(self) -> None:
        """Away for good."""
        await self.close()
        self._place.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while True:
                path, body = await _request(reader)
                status = self._take(path, body)
                await asyncio.sleep(self._answer_seconds)
                writer.write(
                    f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Length: 0\r\n\r\n".encode()
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        finally:
            self._connections.discard(writer)
            writer.transport.abort()

    def _take(self, path: str, body: bytes) -> int:
        name = self._named(json.loads(body))
        self.requests += 1
        self.last = time.monotonic()
        status = 200
        if self._refuse_every and self.requests % self._refuse_every == 0:
            status = 500
        else:
            self.first.setdefault(name, time.time())
            self.taken[name] += 1
        self._on_request(path, self.requests)
        return status


def _bound(port: int) -> socket.socket:
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", port))
    return place


async def _request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.split("\r\n")
    lengths = [f for f in fields if f.lower().startswith("content-length:")]
    length = int(lengths[0].partition(":")[2])
    assert length <= BODY_BYTES_MAX
    return line.split(" ")[1], await reader.readexactly(length)
