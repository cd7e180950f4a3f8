"""The other side of e-mail, real: aiosmtpd with STARTTLS or TLS, a login, and its own judgement.

What it takes it checks as a strict server does: one recipient, seven bits, CRLF, short lines.
"""

from __future__ import annotations

import asyncio
import email
import email.policy
import re
import ssl
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import trustme
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

if TYPE_CHECKING:
    from email.message import EmailMessage

    from aiosmtpd.smtp import Envelope, Session

USER = "quota"
OK = "250 OK"
# In place of an answer: none at all, or the connection is cut.
HANG = "hang"
DROP = "drop"


class Received(NamedTuple):
    sender: str
    recipient: str
    raw: bytes
    encrypted: bool
    user: str | None

    @property
    def mail(self) -> EmailMessage:
        return email.message_from_bytes(self.raw, policy=email.policy.default)

    @property
    def subject(self) -> str:
        """As readers show it."""
        return str(self.mail["Subject"])

    def part(self, subtype: str) -> str:
        body = self.mail.get_body((subtype,))
        assert body is not None
        return str(body.get_content()).replace("\r\n", "\n").rstrip("\n")


class Certificates:
    """An authority made for the tests, and a server's certificate of it."""

    def __init__(self, folder: Path, name: str = "localhost") -> None:
        authority = trustme.CA()
        self.ca_file = str(folder / f"ca-{name}.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(self.context)


@dataclass
class SmtpServer:
    """`answers` by step (EHLO, MAIL, RCPT, DATA) are given in order, the last one again and again.

    `security` is how it is reached; `starttls` False: it doesn't offer it.
    """

    certificates: Certificates
    password: str
    security: str = "starttls"
    starttls: bool = True
    logins: bool = True
    answers: dict[str, list[str]] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    tries: list[str] = field(default_factory=list)
    size_max: int = 1_000_000
    port: int = 0

    async def start(self) -> None:
        context = self.certificates.context
        self._server = await asyncio.get_running_loop().create_server(
            self._connected, "127.0.0.1", 0, ssl=context if self.security == "tls" else None
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    def _connected(self) -> SMTP:
        self.connections += 1
        offered = self.security == "starttls" and self.starttls
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of a login without STARTTLS
            return self._conversation(offered=offered)

    def _conversation(self, *, offered: bool) -> SMTP:
        return SMTP(
            self,
            hostname="mail.test",
            tls_context=self.certificates.context if offered else None,
            require_starttls=offered,
            auth_required=self.logins,
            auth_require_tls=self.security == "starttls" and self.starttls,
            authenticator=self._judge_login if self.logins else None,
            data_size_limit=self.size_max,
            loop=asyncio.get_running_loop(),
        )

    def _judge_login(
        self, _server: Any, _session: Any, _envelope: Any, way: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.tries.append(way)
        good = data == LoginPassword(USER.encode(), self.password.encode())
        return AuthResult(success=good, handled=False, auth_data=data)

    async def _answer(self, server: SMTP, step: str) -> str:
        """What was set for the step; OK where nothing was."""
        answers = self.answers.get(step, [OK])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer == HANG:
            await asyncio.sleep(30)
        if answer == DROP:
            server.transport.abort()
        return answer

    async def handle_EHLO(  # noqa: N802  aiosmtpd's names
        self,
        server: SMTP,
        session: Session,
        _envelope: Envelope,
        hostname: str,
        responses: list[str],
    ) -> list[str]:
        session.host_name = hostname
        answer = await self._answer(server, "EHLO")
        if not self.logins:  # aiosmtpd offers them all the same
            responses = [line for line in responses if not line[4:].startswith("AUTH")]
        return responses if answer == OK else [answer]

    async def handle_MAIL(  # noqa: N802
        self, server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        envelope.mail_from = address
        return await self._answer(server, "MAIL")

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        answer = await self._answer(server, "RCPT")
        if answer == OK:
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        raw = envelope.original_content
        assert raw is not None
        (recipient,) = envelope.rcpt_tos
        if (
            not raw.isascii()
            or re.search(rb"(?<!\r)\n|\r(?!\n)", raw)
            or max(map(len, raw.split(b"\r\n"))) > 998
        ):
            return "554 5.6.0 malformed"
        answer = await self._answer(server, "DATA")
        if answer in (OK, DROP):
            user = session.auth_data.login.decode() if session.auth_data else None
            encrypted = session.ssl is not None or self.security == "tls"
            self.received.append(Received(str(envelope.mail_from), recipient, raw, encrypted, user))
        return answer


class Script:
    """A server that says the given lines, each after one line of the client's, the first at once."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, line in enumerate(self._lines):
            if number and not await reader.readline():
                break
            writer.write(line.encode() + b"\r\n")
            await writer.drain()
        writer.close()
