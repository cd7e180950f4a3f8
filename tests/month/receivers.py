"""Real receivers that verify what the vendors do, and fail as they do, by a seeded weather."""

from __future__ import annotations

import asyncio
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from contract.servers import FeishuServer
from contract.servers_app import AppServer
from contract.servers_card import shown_text
from contract.servers_http import DROP, Request
from contract.servers_mail import DROP as CUT
from contract.servers_mail import OK, SmtpServer
from contract.servers_webhook import WebhookServer
from month.clock import SharedClock
from month.post import Post

REMOVED = (200, {"code": 19001, "msg": "param invalid: incoming webhook access token invalid"})


@dataclass
class Weather:
    """How one receiver fares: a share of its requests fails, or nobody listens for hours."""

    seasons: random.Random
    rng: random.Random
    clock: SharedClock
    post: Post
    name: str
    share: float = 0.0
    out_until: datetime | None = None
    removed: bool = False
    # ends the workers' database connections
    cut: Callable[[], None] | None = None

    def turn(self) -> None:
        """Between two rounds."""
        self.share = self.seasons.choice([0.0, 0.0, 0.1, 0.3])
        if self.out_until is not None and self.out_until <= self.clock.now:
            self.out_until = None
        if self.out_until is None and self.seasons.random() < 0.04:
            hours = self.seasons.choice([0.2, 2, 9])
            self.out_until = self.clock.now + timedelta(hours=hours)
            self.post.faults[f"{self.name} out"] += 1

    def clear(self) -> None:
        self.share, self.out_until = 0.0, None

    @property
    def is_out(self) -> bool:
        return self.out_until is not None

    def taken(self, request_id: str, text: str, **more: Any) -> None:
        """Note it; now and then the worker loses its database at this very moment."""
        self.post.take(self.name, request_id, self.clock.now, text, **more)
        if self.cut is not None and self.rng.random() < 0.2 * self.share:
            self.post.faults[f"{self.name} taken, database lost"] += 1
            self.cut()

    def fault(self, *kinds: str) -> str | None:
        if self.rng.random() >= self.share:
            return None
        kind = self.rng.choice(kinds)
        self.post.faults[f"{self.name} {kind}"] += 1
        return kind


@dataclass
class Listening(ABC):
    """A receiver whose listener comes and goes with the weather, always on one port."""

    weather: Weather | None = None

    @property
    def sky(self) -> Weather:
        assert self.weather is not None
        return self.weather

    async def listen(self) -> None:
        """Open or closed, as the weather is; nobody may be connected."""
        server: asyncio.Server = self._server  # type: ignore[attr-defined]
        if self.sky.is_out and server.is_serving():
            server.close()
            await server.wait_closed()
        elif not self.sky.is_out and not server.is_serving():
            await self.reopen()

    @abstractmethod
    async def reopen(self) -> None:
        """Listen again on the same port."""


class HttpListening(Listening):
    busy: tuple[tuple[int, Any], ...] = ((429, {}),)

    async def reopen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)  # type: ignore[attr-defined]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.sky.rng.random() < 0.3 and self.sky.fault("unread"):
            # reset before a byte was read
            writer.transport.abort()
            return
        await super()._serve(reader, writer)  # type: ignore[misc]

    def judge(self, request: Request) -> tuple[int, Any]:
        """The vendor's own answer, or a fault before it or after it."""
        fault = self.sky.fault("error", "busy", "lost", "swallowed")
        if fault == "error":
            return 500, {}
        if fault == "busy":
            return self.sky.rng.choice(self.busy)
        if fault == "lost":
            return DROP
        status, answer = super().judge(request)  # type: ignore[misc]
        if status < 300 and self.took(request, answer, heard=fault is None) and fault is not None:
            return DROP
        return status, answer

    @abstractmethod
    def took(self, request: Request, answer: Any, *, heard: bool) -> bool:
        """Note what was taken; whether it was a message at all."""


@dataclass
class Bot(HttpListening, FeishuServer):
    """A custom bot: it knows no ids."""

    busy = (
        (200, {"code": 11232, "msg": "frequency limited psm"}),
        (400, {"code": 9499, "msg": "too many request"}),
    )

    def judge(self, request: Request) -> tuple[int, Any]:
        self.sky.post.asked[self.sky.name].append(self.sky.clock.now)
        return REMOVED if self.sky.removed else super().judge(request)

    def took(self, request: Request, answer: Any, *, heard: bool) -> bool:
        if answer.get("code") == 0:
            self.sky.taken(
                request.headers["x-quota-worker-message-id"],
                shown_text(json.loads(request.body)["card"]),
                heard=heard,
            )
        return True


@dataclass
class App(HttpListening, AppServer):
    """An app's bot: of one uuid it takes one message within an hour."""

    busy = ((400, {"code": 230020, "msg": "limit"}), (429, {"code": 99991400, "msg": "limit"}))

    def judge(self, request: Request) -> tuple[int, Any]:
        if "/im/v1/messages" in request.line:
            self.sky.post.asked[self.sky.name].append(self.sky.clock.now)
        self.before = len(self.messages)
        return super().judge(request)

    def took(self, request: Request, answer: Any, *, heard: bool) -> bool:
        if "message_id" not in answer.get("data", {}):
            return False
        message = json.loads(request.body)
        self.sky.taken(
            message["uuid"],
            shown_text(json.loads(message["content"])),
            heard=heard,
            again=len(self.messages) == self.before,
        )
        return True


@dataclass
class Hook(HttpListening, WebhookServer):
    """A signed webhook whose receiver drops an id that it has seen, as the specification asks."""

    known: set[str] = field(default_factory=set)

    def took(self, request: Request, answer: Any, *, heard: bool) -> bool:  # noqa: ARG002  one kind of answer
        document = json.loads(request.body)
        request_id = request.headers["webhook-id"]
        self.sky.taken(
            request_id,
            document["text"],
            heard=heard,
            again=request_id in self.known,
            document=document,
        )
        self.known.add(request_id)
        return True


@dataclass
class MailBox(Listening, SmtpServer):
    """A mail server with STARTTLS and a login: it doesn't look at ids."""

    async def reopen(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            self._connected, "127.0.0.1", self.port
        )

    async def _answer(self, server: SMTP, step: str) -> str:
        if step == "EHLO":
            return OK
        if step != "DATA":
            busy = self.sky.rng.random() < 0.3 and self.sky.fault("busy")
            return "450 4.2.1 later" if busy else OK
        fault = self.sky.fault("error", "closing", "swallowed")
        if fault == "swallowed":
            server.transport.abort()
            return CUT
        return {"error": "451 4.3.0 no", "closing": "421 4.3.2 bye"}.get(fault or "", OK)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  aiosmtpd's
        have = len(self.received)
        answer = await super().handle_DATA(server, session, envelope)
        for one in self.received[have:]:
            request_id = str(one.mail["Message-ID"]).strip("<>").partition("@")[0]
            self.sky.taken(
                request_id,
                one.part("plain"),
                heard=answer == OK,
            )
        self.received.clear()
        return answer
