"""E-mail's and Apprise's other sides: a mail server, and a receiver of Apprise's `json` service."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from contract.mail_world import SENDER, TO, reached
from contract.servers_http import HttpServer, Request, next_answer
from contract.servers_mail import HANG, Certificates, SmtpServer
from contract.sides import SECRET, HttpSide, Side
from worker.models import FailureCause
from worker.notifiers.apprise_channel import AppriseNotifier
from worker.notifiers.mail import MailNotifier

if TYPE_CHECKING:
    from worker.models import OutboxMessage
    from worker.ports.delivery import Pace

TAKEN: tuple[int, Any] = (200, {})


class _Addressed(MailNotifier):
    """A row of e-mail's has an address, which the suite's messages for all channels lack."""

    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:
        await super().deliver(replace(message, recipient=TO), pace)


class MailSide(Side):
    async def start(self) -> None:
        self.server = SmtpServer(Certificates(self.folder), SECRET)
        await self.server.start()
        self.notifier = _Addressed(self.renderer, reached(self.server), SENDER)
        self.texts: list[str] = []

    def arrived(self) -> list[str]:
        self.texts += [one.part("plain") for one in self.server.received[len(self.texts) :]]
        return self.texts

    async def silence(self) -> None:
        self.server.answers["DATA"] = [HANG]

    async def vanish(self) -> None:
        await self.server.stop()

    async def stop(self) -> None:
        await super().stop()
        await self.server.stop()


@dataclass
class AppriseServer(HttpServer):
    """Takes what Apprise's `json` service posts; `answers` as those of the other servers."""

    token: str = "apprise-t0ken-never-shown"  # noqa: S105  looked for where it must not be
    answers: list[tuple[int, Any]] = field(default_factory=lambda: [TAKEN])
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"json://me:{SECRET}@127.0.0.1:{self.port}/{self.token}?rto=1"

    def judge(self, request: Request) -> tuple[int, Any]:
        if request.line != f"POST /{self.token} HTTP/1.1":
            return 404, {}
        self.requests.append(json.loads(request.body))
        return next_answer(self.answers)


class AppriseSide(HttpSide):
    # Apprise doesn't tell one failure from another
    absent = FailureCause.UNKNOWN_ANSWER

    async def start(self) -> None:
        self.server = AppriseServer()
        await self.server.start()
        self.notifier = AppriseNotifier(self.renderer, self.server.url)
        self.secrets = (SECRET, self.server.token)

    def arrived(self) -> list[str]:
        return [f"{one['title']}\n{one['message']}" for one in self.server.requests]

    def shown(self) -> list[str]:
        twins = str.maketrans({"\uff20": "@", "\uff1c": "<", "\uff3d": "]"})
        return [text.translate(twins) for text in self.arrived()]

    def check_tame(self) -> None:
        super().check_tame()
        assert not re.search(r"@|<|\]\(", "\n".join(self.arrived()))


MORE_SIDES: dict[str, type[Side]] = {"email": MailSide, "apprise": AppriseSide}
