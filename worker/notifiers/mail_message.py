"""A message as an e-mail: headers, a text part, an HTML part with its images, files. Pure.

Every part travels in seven bits, so that any server takes it as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    from datetime import datetime
    from email.message import EmailMessage

# Gmail cuts off what is over some 100 KB.
HTML_MAX_BYTES: Final = 80_000
SENDER_NAME: Final = "quota-worker"
LINE_MAX: Final = 998  # of a mail, by its standard (RFC 5322)
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9._-]")


class MailFile(NamedTuple):
    """What a mail carries: an image by its Content-ID, or an attachment by its ASCII name."""

    name: str
    media_type: str
    content: bytes


class Mail(NamedTuple):
    """What one message or digest became; `images` are those that the HTML shows by `cid:`."""

    subject: str
    text: str
    html: str
    images: tuple[MailFile, ...] = ()
    attachments: tuple[MailFile, ...] = ()


class Envelope(NamedTuple):
    """From whom to whom; `domain` is the Message-ID's right side. All judged before."""

    sender: str
    recipient: str
    domain: str


def mail_bytes(mail: Mail, envelope: Envelope, dedupe_key: str, at: datetime) -> bytes:
    """The whole message with CRLF line ends; its Message-ID is the same at each attempt.

    An HTML part that is too large is left out: the text says everything, too.
    """
    from email.headerregistry import Address
    from email.message import EmailMessage
    from email.policy import SMTP
    from email.utils import format_datetime

    message = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
    message["From"] = Address(SENDER_NAME, addr_spec=envelope.sender)
    message["To"] = Address(addr_spec=envelope.recipient)
    message["Subject"] = " ".join(mail.subject.splitlines())
    message["Date"] = format_datetime(at)
    message["Message-ID"] = f"<{_NOT_IN_AN_ID.sub('-', dedupe_key)}@{envelope.domain}>"
    # nobody's holiday notice answers it
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message.set_content(mail.text)
    if html_fits(mail.html):
        message.add_alternative(mail.html, subtype="html")
        html = cast("EmailMessage", cast("list[Any]", message.get_payload())[-1])
        for image in mail.images:
            main, _, sub = image.media_type.partition("/")
            html.add_related(image.content, main, sub, cid=f"<{image.name}>", disposition="inline")
    for file in mail.attachments:
        main, _, sub = file.media_type.partition("/")
        message.add_attachment(file.content, main, sub, filename=file.name)
    return message.as_bytes(policy=message.policy.clone(max_line_length=_line_length(message)))


def _line_length(message: EmailMessage) -> int | None:
    """Of the headers: a plain subject is not folded.

    The library would put one of 70 to 77 letters on a line of its own, and readers would show it
    with a blank before it, which a filter for ``[quota-…`` at the beginning doesn't find.
    """
    usual = message.policy.max_line_length
    line = f"Subject: {message['Subject']}"
    if usual is None or not line.isascii() or len(line) > LINE_MAX:
        return usual
    return max(usual, len(line))


def html_fits(html: str) -> bool:
    """Whether no reader's program cuts it short."""
    return len(html.encode()) <= HTML_MAX_BYTES
