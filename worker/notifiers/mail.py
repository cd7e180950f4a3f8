"""E-mail over SMTP: a text and an HTML part, to one recipient at a time.

The way is encrypted and the server's certificate checked, or nothing is sent. Servers
don't look at a Message-ID twice: a mail whose acceptance was not heard may come twice.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from worker.clock import utc_now
from worker.configuration.addresses import email_fault, is_loopback
from worker.errors import ConfigurationError
from worker.models import FailureCause
from worker.notifiers.base import BaseNotifier, SendFailedError
from worker.notifiers.connection import NO_ANSWER, Reason, why_not_connected
from worker.notifiers.mail_answers import Step, refusal
from worker.notifiers.mail_message import Envelope, Mail, html_fits, mail_bytes

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from aiosmtplib import SMTP

    from worker.models import Digest, OutboxMessage
    from worker.ports.delivery import Pace
    from worker.rendering import Renderer

# By security, each with its usual port.
PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}
QUIT_SECONDS: Final = 2.0
PARTS: Final = ("title", "txt", "html")
REPORT: Final = "roi-report"  # a kind whose mail is no template's
_HOST_NAME = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
# Which the server offers; the first that it knows decides.
_LOGINS: Final = ("plain", "login", "cram-md5")
_METHOD_UNKNOWN: Final = frozenset({500, 502, 503, 504})


class MailServer(NamedTuple):
    """Where mail is handed in. `port` None is the usual one of its `security`.

    `security`: starttls, tls, or none, which only this machine's own server may have.
    `ca_file`: the authorities to trust instead of the system's, PEM.
    """

    host: str
    port: int | None = None
    security: str = "starttls"
    username: str | None = None
    password: str | None = None
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"MailServer(host={self.host!r}, port={self.port}, security={self.security!r})"


class MailNotifier(BaseNotifier):
    """One mail server; one connection serves all messages of a run, one after the other.

    `sender` is a plain address; `domain` is that of the Message-IDs, by default the
    sender's. Raises ConfigurationError for a server or a sender that can't be used.
    """

    channel = "email"
    family = "email"
    digest_over = 10

    def __init__(
        self,
        renderer: Renderer,
        server: MailServer,
        sender: str,
        *,
        domain: str | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(renderer)
        _check(server, sender)
        self._server = server
        self._sender = sender
        self._domain = domain or sender.rpartition("@")[2]
        self._now = now
        self._client: SMTP | None = None
        self._turn = asyncio.Lock()

    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:  # noqa: ARG002  one request
        """Send one mail to the message's recipient."""
        if message.kind == REPORT and not message.is_fallback:
            from worker.notifiers.mail_report import report_mail

            title = self.part(message, "title")
            # charts and a workbook: other channels go on meanwhile
            mail = await asyncio.to_thread(report_mail, message, title)
        else:
            title, text, html = (self.part(message, part) for part in PARTS)
            mail = Mail(title, text, html)
        await self._send(mail, message.recipient, message.dedupe_key)

    async def deliver_digest(self, digest: Digest) -> None:
        """Send one mail with a line per message, to the recipient of them all."""
        title, text, html = (self.digest_part(digest.messages, part) for part in PARTS)
        mail = Mail(title, text, html)
        await self._send(mail, digest.messages[0].recipient, digest.dedupe_key)

    def digest_fits(self, messages: Sequence[OutboxMessage]) -> bool:
        """Within what a reader's program shows of one mail."""
        return html_fits(self.digest_part(messages, "html"))

    async def close(self) -> None:
        """Say goodbye and close the connection."""
        client, self._client = self._client, None
        if client is None:
            return
        from aiosmtplib import SMTPException

        try:
            with suppress(SMTPException, OSError, TimeoutError):
                async with asyncio.timeout(QUIT_SECONDS):
                    await client.quit()
        finally:
            client.close()

    async def _send(self, mail: Mail, recipient: str | None, dedupe_key: str) -> None:
        if recipient is None:
            raise SendFailedError(
                FailureCause.NOT_CONFIGURED,
                "there is no address to send to",
                "set the channel's `to`",
            )
        if (fault := email_fault(recipient)) is not None:
            raise SendFailedError(FailureCause.RECIPIENT_REFUSED, f"the address {fault}")
        envelope = Envelope(self._sender, recipient, self._domain)
        content = mail_bytes(mail, envelope, dedupe_key, self._now())
        async with self._turn:
            try:
                await self._hand_in(envelope, content)
            except _RefusedError as error:
                # it may say yes to the next one
                if error.code < 0:
                    self._drop()
                raise
            except BaseException:
                # What the server would say next belongs to this message.
                self._drop()
                raise

    async def _hand_in(self, envelope: Envelope, content: bytes) -> None:
        """One transaction; on a connection that was idle too long it begins anew once."""
        kept, self._client = self._client, None
        if kept is not None and kept.is_connected:
            self._client = kept
            if await self._still_serves(kept):
                await self._transact(kept, envelope, content)
                return
            self._drop()
        self._client = await self._connected()
        await self._transact(self._client, envelope, content)

    async def _still_serves(self, client: SMTP) -> bool:
        from aiosmtplib import SMTPException

        try:
            await client.rset()
        except (SMTPException, OSError):
            return False
        return True

    async def _transact(self, client: SMTP, envelope: Envelope, content: bytes) -> None:
        size = [f"SIZE={len(content)}"] if client.supports_extension("size") else []
        await _answered(Step.SENDER, client.mail(envelope.sender, options=size))
        await _answered(Step.RECIPIENT, client.rcpt(envelope.recipient))
        await _answered(Step.CONTENT, client.data(content))

    async def _connected(self) -> SMTP:
        """A connection that is encrypted and logged in as configured."""
        from aiosmtplib import SMTP

        server = self._server
        encrypted = server.security != "none"
        client = SMTP(
            hostname=server.host,
            port=server.port or PORTS[server.security],
            local_hostname=_own_name(),
            use_tls=server.security == "tls",
            start_tls=False,  # done below, where its refusal can be told from others
            tls_context=await asyncio.to_thread(_tls_context, server) if encrypted else None,
            timeout=None,  # the limit is the base's
        )
        try:
            await _answered(Step.CONNECT, client.connect())
            await _answered(Step.HELLO, client.ehlo())
            if server.security == "starttls":
                if not client.supports_extension("starttls"):
                    raise SendFailedError(  # noqa: TRY301  one place closes
                        FailureCause.REJECTED,
                        "the mail server offers no STARTTLS here: nothing was sent in the clear",
                        'take its port for STARTTLS (often 587), or security = "tls" (often 465)',
                    )
                await _answered(Step.TLS, client.starttls())
                await _answered(Step.HELLO, client.ehlo())
            if server.username is not None:
                await self._log_in(client, server.username, server.password or "")
        except BaseException:
            client.close()
            raise
        return client

    async def _log_in(self, client: SMTP, username: str, password: str) -> None:
        """By the first way that the server knows: a wrong password is said once, not thrice."""
        ways = {
            "plain": client.auth_plain,
            "login": client.auth_login,
            "cram-md5": client.auth_crammd5,
        }
        offered = [way for way in _LOGINS if way in client.server_auth_methods]
        for way in offered:
            try:
                await _answered(Step.LOGIN, ways[way](username, password))
            except _RefusedError as error:
                if error.code in _METHOD_UNKNOWN and way != offered[-1]:
                    continue
                raise
            return
        raise SendFailedError(
            FailureCause.LOGIN_REFUSED,
            "the mail server offers no login that is known here (PLAIN, LOGIN, CRAM-MD5)",
            "leave username and password out, or take the port for handing in mail (587 or 465)",
        )

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class _RefusedError(SendFailedError):
    """The server answered, and no: `code` says why, negative where it was no SMTP."""

    def __init__(self, step: Step, code: int, text: str) -> None:
        judged = refusal(step, code, text)
        super().__init__(judged.cause, str(judged), judged.cure)
        self.code = code


async def _answered(step: Step, asking: Awaitable[object]) -> None:
    """Await one exchange; whatever is no consent becomes a SendFailedError of this step."""
    import ssl

    from aiosmtplib import SMTPException, SMTPResponseException

    try:
        await asking
    except SMTPResponseException as error:
        raise _RefusedError(step, error.code, str(error.message)) from None
    except (SMTPException, OSError) as error:
        cause = error if isinstance(error, ssl.SSLError) else error.__cause__
        if isinstance(cause, ssl.SSLError):
            # A certificate may be renewed within the day: tried again, told in words.
            raise SendFailedError(FailureCause.UNREACHABLE, *_why_no_tls(cause)) from None
        if step == Step.CONTENT:
            # It may have been accepted, and the answer lost.
            raise SendFailedError(
                FailureCause.UNKNOWN_ANSWER, "the connection ended before the message was answered"
            ) from None
        raise SendFailedError(
            FailureCause.UNREACHABLE, *_why_unreachable(step, cause or error)
        ) from None


def _why_no_tls(error: ssl.SSLError) -> Reason:
    """What failed in TLS, without the certificate's own words."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return why_not_connected(error)
    return Reason(
        "no TLS with the mail server: is it the right port for it?",
        'security = "tls" is for a port that begins with it (often 465), "starttls" for one that '
        "turns to it (often 587)",
    )


def _why_unreachable(step: Step, error: BaseException) -> Reason:
    """Why there was no connection; where one was lost, at which step."""
    from aiosmtplib import SMTPException

    if isinstance(error, SMTPException):  # it has no error of the system behind it
        return Reason(f"{step}: {NO_ANSWER}")
    reason = why_not_connected(error)
    return reason if step == Step.CONNECT else Reason(f"{step}: {reason.words}", reason.cure)


def _tls_context(server: MailServer) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=server.ca_file)
    except ssl.SSLError:
        raise SendFailedError(
            FailureCause.NOT_CONFIGURED,
            "ca_file can't be used: there is no certificate in it",
            "put the authority's certificate into it, as PEM: -----BEGIN CERTIFICATE-----",
        ) from None
    except OSError as error:
        raise SendFailedError(
            FailureCause.NOT_CONFIGURED,
            f"ca_file can't be used: {(error.strerror or 'it can not be read').lower()}",
            "set `ca_file` of the channel (QUOTA_WORKER_SMTP_CA_FILE without a file) to a file "
            "that this user may read",
        ) from None


def _own_name() -> str:
    """What EHLO says: the host's full name, else an address as the RFC has it."""
    import socket

    name = socket.gethostname()
    return name if _HOST_NAME.fullmatch(name) else "[127.0.0.1]"


def _check(server: MailServer, sender: str) -> None:
    if server.security not in PORTS:
        raise ConfigurationError(f"the mail server's security is none of {', '.join(PORTS)}")
    if server.security == "none" and not is_loopback(server.host):
        raise ConfigurationError(
            "mail without encryption goes to this machine only: set security to starttls or tls"
        )
    if server.username is not None and server.password is None:
        raise ConfigurationError("the mail server's username has no password")
    if (fault := email_fault(sender)) is not None:
        raise ConfigurationError(f"the mail's sender {fault}")
