"""What the tests of e-mail share: a server that runs, a notifier that reaches it, a message."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from contract.samples import AT, message
from contract.servers_mail import USER, Certificates, SmtpServer
from contract.sides import SECRET
from worker.notifiers.mail import MailNotifier, MailServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from worker.models import OutboxMessage
    from worker.rendering import Renderer

SENDER = "quota@example.com"
TO = "ops@example.com"
LIMIT_SECONDS = 10.0


@asynccontextmanager
async def serving(certificates: Certificates, **changes: Any) -> AsyncIterator[SmtpServer]:
    server = SmtpServer(certificates, SECRET, **changes)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def reached(server: SmtpServer, **changes: Any) -> MailServer:
    values: dict[str, Any] = {
        "host": "localhost",
        "port": server.port,
        "security": server.security,
        "username": USER,
        "password": SECRET,
        "ca_file": server.certificates.ca_file,
    }
    return MailServer(**values | changes)


def mail(facts: dict[str, Any] | None = None, **changes: Any) -> OutboxMessage:
    return message(facts, **{"channel": "mail", "recipient": TO} | changes)


@asynccontextmanager
async def notifying(
    renderer: Renderer, server: MailServer, **more: Any
) -> AsyncIterator[MailNotifier]:
    notifier = MailNotifier(renderer, server, SENDER, now=lambda: AT, **more)
    try:
        yield notifier
    finally:
        await notifier.close()
