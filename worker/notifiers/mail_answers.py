"""What a mail server's refusal means: its cause and plain words. Pure.

Sources: RFC 5321 (4.2, 4.3.2), RFC 4954 (6), RFC 3463 for the enhanced codes.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from worker.models import FailureCause
from worker.notifiers.base import SendFailedError

_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})\b")
_TRANSIENT: Final = range(400, 500)
_PERMANENT: Final = range(500, 600)
# mailbox busy or greylisted; too little room or too many recipients just now
_SLOW_DOWN: Final = frozenset({450, 452})
# greylisting, too; but with 4.3.x it is the server's own state
_BUSY_CODE: Final = 451
_OWN_STATE: Final = "4.3."
# wants a login or TLS; the login is too weak; it is wrong; it needs TLS
_LOGIN: Final = frozenset({530, 534, 535, 538})
_TOO_LARGE_CODE: Final = 552
_TOO_LARGE: Final = frozenset({"5.2.3", "5.3.4"})


class Step(StrEnum):
    """Where in the conversation the server answered: words for people."""

    CONNECT = "the greeting"
    HELLO = "EHLO"
    TLS = "STARTTLS"
    LOGIN = "the login"
    SENDER = "the sender"
    RECIPIENT = "the recipient"
    CONTENT = "the message"


_REFUSED: Final = {
    Step.CONNECT: (FailureCause.ADDRESS_REFUSED, "the mail server serves no one from here"),
    Step.HELLO: (FailureCause.REJECTED, "the mail server refuses this machine's greeting"),
    Step.TLS: (FailureCause.REJECTED, "the mail server refuses to begin TLS"),
    Step.LOGIN: (FailureCause.LOGIN_REFUSED, "check the username and the password"),
    Step.SENDER: (FailureCause.ADDRESS_REFUSED, "the mail server does not accept this sender"),
    Step.RECIPIENT: (
        FailureCause.RECIPIENT_REFUSED,
        "the mail server takes no mail for this address",
    ),
    Step.CONTENT: (FailureCause.CONTENT_REFUSED, "the mail server refuses what it says"),
}

_LOG_IN: Final = (
    "set username and password of the channel, and `security` starttls or tls: the server takes "
    "nothing without them"
)
# Where the step says more of what to do than the cause.
_CURES: Final = {
    (Step.CONNECT, FailureCause.ADDRESS_REFUSED): "ask who runs the server to let this machine "
    "in, or take its port for handing in mail (587 or 465) with a login",
    (Step.HELLO, FailureCause.REJECTED): "give this machine a full name (hostname -f) that the "
    "server accepts, or ask who runs it",
    (Step.TLS, FailureCause.REJECTED): 'try security = "tls" (often port 465), or ask who runs '
    "the server",
    (Step.SENDER, FailureCause.ADDRESS_REFUSED): "set `sender` of the channel "
    "(QUOTA_WORKER_SMTP_SENDER without a file) to an address that this login may send from",
    (Step.LOGIN, FailureCause.LOGIN_REFUSED): "copy username and password again; many services "
    "want a password made for programs",
}


def refusal(step: Step, code: int, text: str) -> SendFailedError:
    """The error for an answer that is no consent. Of the server's text only a code is kept."""
    match = _ENHANCED.match(text.strip())
    enhanced = match.group(1) if match else ""
    cause, meaning = _judged(step, code, enhanced)
    shown = f"{code} {enhanced}".strip() if code > 0 else "no SMTP answer"
    cure = _CURES.get((step, cause), _LOG_IN if cause == FailureCause.LOGIN_REFUSED else "")
    return SendFailedError(cause, f"{step}: {shown}: {meaning}", cure)


def _judged(step: Step, code: int, enhanced: str) -> tuple[FailureCause, str]:
    if code in _SLOW_DOWN or (code == _BUSY_CODE and not enhanced.startswith(_OWN_STATE)):
        return FailureCause.RATE_LIMITED, "the mail server is busy or greylists: repeated later"
    if code in _TRANSIENT:
        return FailureCause.SERVER_ERROR, "the mail server can't serve just now: repeated later"
    if code not in _PERMANENT:
        return FailureCause.UNKNOWN_ANSWER, "the answer was not understood"
    if code in _LOGIN and step != Step.LOGIN:
        return FailureCause.LOGIN_REFUSED, "the mail server asks for a login, or for TLS"
    size_steps = (Step.SENDER, Step.CONTENT)
    if enhanced in _TOO_LARGE or (code == _TOO_LARGE_CODE and step in size_steps):
        return FailureCause.TOO_LARGE, "the message is larger than the mail server takes"
    return _REFUSED[step]
