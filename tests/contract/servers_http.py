"""HTTP/1.1 on loopback, written out: what a service's endpoint stands on."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# In place of an answer: none at all, or the connection is closed when the request is read.
HANG = (0, {})
DROP = (-1, {})


class Request(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


class RateWindow:
    """Grants so many requests in any second and in any minute; all where there is no rate."""

    def __init__(self) -> None:
        self._granted: list[float] = []

    def grants(self, rates: tuple[int, int] | None) -> bool:
        now = time.monotonic()
        self._granted = [at for at in self._granted if now - at < 60.0]
        for seconds, limit in zip((1.0, 60.0), rates or (), strict=False):
            if sum(now - at < seconds for at in self._granted) >= limit:
                return False
        self._granted.append(now)
        return True


@dataclass
class HttpServer(ABC):
    """Answers what `judge` says; `times` are those at which requests had come in whole."""

    times: list[float] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    more_headers: str = ""
    # bytes that an answer announces beyond what it sends
    owed: int = 0
    delay_seconds: float = 0.0
    port: int = 0

    @abstractmethod
    def judge(self, request: Request) -> tuple[int, Any]:
        """The status and the body of the answer."""

    async def start(self, encryption: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=encryption)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.times.append(time.monotonic())
        self.headers.append(headers)
        self.sizes.append(len(body))
        status, answer = self.judge(Request(lines[0], headers, body))
        if status == HANG[0]:
            await asyncio.sleep(30)
            return False
        if status == DROP[0]:
            return False
        await asyncio.sleep(self.delay_seconds)
        payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
            f"{self.more_headers}Content-Length: {len(payload) + self.owed}\r\n\r\n".encode()
            + payload
        )
        await writer.drain()
        return True


def next_answer(answers: list[tuple[int, Any]]) -> tuple[int, Any]:
    """They are given in order, the last one again and again."""
    return answers.pop(0) if len(answers) > 1 else answers[0]
