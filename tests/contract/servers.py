"""The other side of each channel, real: an HTTP server, a program, a stream."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import stat
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OK = (200, {"StatusCode": 0, "StatusMessage": "success", "code": 0, "data": {}, "msg": "success"})
HANG = (0, {})


@dataclass
class FeishuServer:
    """A custom bot's endpoint. It checks the signature by its own computation.

    `answers` are given in order, the last one again and again.
    """

    secret: str | None = None
    keyword: str | None = None
    answers: list[tuple[int, Any]] = field(default_factory=lambda: [OK])
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    token: str = "t0ken-never-shown"  # noqa: S105  looked for where it must not be
    port: int = 0
    more_headers: str = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/open-apis/bot/v2/hook/{self.token}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.times.append(time.monotonic())
        status, answer = self._answer(lines[0], headers, body)
        if status == 0:
            await asyncio.sleep(30)
            return False
        payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
            f"{self.more_headers}Content-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )
        await writer.drain()
        return True

    def _answer(self, line: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        if line != f"POST /open-apis/bot/v2/hook/{self.token} HTTP/1.1":
            return 200, {
                "code": 19001,
                "msg": "param invalid: incoming webhook access token invalid",
            }
        request = json.loads(body)
        self.requests.append(request)
        self.headers.append(headers)
        self.sizes.append(len(body))
        status, answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if (status, answer) == OK:
            if self.secret is not None and not self._signed(request):
                return 200, {
                    "code": 19021,
                    "msg": "sign match fail or timestamp is not within one hour",
                }
            if self.keyword is not None and self.keyword not in json.dumps(
                request, ensure_ascii=False
            ):
                return 200, {"code": 19024, "msg": "Key Words Not Found"}
            if len(body) > 20_000:
                return 200, {"code": 19036, "msg": "exceeds the size limit"}
        return status, answer

    def _signed(self, request: dict[str, Any]) -> bool:
        timestamp = request.get("timestamp")
        if not isinstance(timestamp, str) or abs(time.time() - int(timestamp)) > 3600:
            return False
        key = (timestamp + "\n" + str(self.secret)).encode("utf-8")
        expected = base64.b64encode(hmac.new(key, digestmod=hashlib.sha256).digest()).decode()
        return bool(request.get("sign") == expected)

    def titles(self) -> list[str]:
        return [r["card"]["header"]["title"]["content"] for r in self.requests]

    def texts(self) -> list[str]:
        return [
            "\n".join(e["content"] for e in r["card"]["body"]["elements"] if e["tag"] == "markdown")
            for r in self.requests
        ]


_IMBOT = """#!{python}
import json, os, sys, time
folder = {folder!r}
mode = open(folder + "/mode").read()
with open(folder + "/log", "a") as log:
    log.write(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid(), "ppid": os.getppid()}}) + "\\n")
if mode == "hang":
    time.sleep(60)
if mode.startswith("exit"):
    print("secret-on-stderr", file=sys.stderr)
    sys.exit(int(mode[4:]))
if mode == "says-error":
    print("ERROR: no such group")
    sys.exit(0)
if mode == "leaves-a-child" and os.fork() == 0:
    time.sleep(15)
    os._exit(0)
if mode == "floods":
    print("OK" * 1000000)
    sys.exit(0)
print("OK")
"""


class ImBot:
    """A real program in a folder of its own, which writes down what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "imbot"
        self.path.write_text(_IMBOT.format(python=sys.executable, folder=str(folder)))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)
        self.mode("ok")

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    def calls(self) -> list[dict[str, Any]]:
        log = self.folder / "log"
        if not log.exists():
            return []
        return [json.loads(line) for line in log.read_text().splitlines()]

    def texts(self) -> list[str]:
        return [call["argv"][4] for call in self.calls()]
