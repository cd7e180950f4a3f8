"""A small OpenAI-compatible model server on the loopback, with faults on demand."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROMPT_TOKENS = 17


@dataclass
class ModelServer:
    """Answers `words` pieces; then usage if asked for, unless a fault says otherwise."""

    words: int = 10
    status: int = 200
    break_after: int | None = None  # pieces until the connection drops
    hang_after: int | None = None  # pieces until nothing more comes
    forget_usage: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            body = json.loads(await reader.readexactly(length))
            self.requests.append(body)
            await self._answer(body, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 {self.status} X\r\nContent-Type: text/event-stream\r\n"
            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
        )
        if self.status == 200:
            for number in range(self.words):
                if number == self.break_after:
                    return
                if number == self.hang_after:
                    await writer.drain()
                    await asyncio.sleep(60)
                _event(writer, {"choices": [{"delta": {"content": f"word{number} "}}]})
                await writer.drain()
            if body.get("stream_options", {}).get("include_usage") and not self.forget_usage:
                usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": self.words + 3}
                _event(writer, {"choices": [], "usage": usage})
            _chunk(writer, b"data: [DONE]\n\n")
        _chunk(writer, b"")
        await writer.drain()


def _event(writer: asyncio.StreamWriter, document: dict[str, Any]) -> None:
    _chunk(writer, b"data: " + json.dumps(document).encode() + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


@asynccontextmanager
async def model_server(**faults: Any) -> AsyncIterator[ModelServer]:
    """A server with these faults, on a free port."""
    model = ModelServer(**faults)
    connections: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await model.serve(reader, writer)
        except asyncio.CancelledError:
            writer.close()
        finally:
            connections.discard(task)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/"
    try:
        yield model
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
