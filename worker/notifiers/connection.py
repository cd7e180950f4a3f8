"""Why there was no connection, or no secure one, in plain words. Pure.

Errors of the system and of TLS come wrapped, several times over; what they say may hold an
address, so none of their words are kept but the system's own for a number.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH: Final = 10
_ERRNO: Final = re.compile(r"\[Errno (\d{1,4})\]")
# Source: X509_verify_cert_error_string of OpenSSL.
_EXPIRED: Final = frozenset({9, 10})
_UNKNOWN_AUTHORITY: Final = range(18, 22)
_OTHER_NAME: Final = frozenset({62, 64})
_CLOSED: Final = frozenset(
    {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ENOTCONN, errno.ESHUTDOWN}
)

NO_ANSWER: Final = "the connection was closed without an answer"
BROKEN_OFF: Final = "the connection broke off before the whole answer had come"


class Reason(NamedTuple):
    """What failed, and what to do about it where the cause alone doesn't say; both plain."""

    words: str
    cure: str = ""


_BY_ERRNO: Final = {
    errno.ECONNREFUSED: Reason(
        "connection refused: nothing listens there",
        "check the host and the port, and that the service runs",
    ),
    errno.ETIMEDOUT: Reason(
        "the host did not answer",
        "check the host and the port, and that no firewall is between",
    ),
}
NO_SUCH_HOST: Final = Reason(
    "no such host: its name could not be resolved",
    "check the host's spelling in the address, and this machine's DNS",
)
OTHER_TALK: Final = Reason(
    "no TLS: the other side talks something else at this port",
    "check the port, and whether it is the one for TLS",
)


def why_not_connected(error: BaseException) -> Reason:
    """The first reason in the chain of errors that says something."""
    for one in _chain(error):
        if isinstance(one, ssl.SSLCertVerificationError):
            return _certificate(one.verify_code)
        if isinstance(one, ssl.SSLError):
            return OTHER_TALK
        if isinstance(one, socket.gaierror):
            return NO_SUCH_HOST
        number = _number(one)
        if number in _CLOSED or isinstance(one, ConnectionResetError):
            return Reason(NO_ANSWER)
        if number is not None:
            return _BY_ERRNO.get(number) or Reason(f"no connection: {os.strerror(number).lower()}")
    return Reason("no connection")


def _certificate(code: int) -> Reason:
    if code in _EXPIRED:
        words, cure = "it is out of date", "have it renewed, and check this machine's clock"
    elif code in _OTHER_NAME:
        words, cure = "it is for another name", "set the host's name that it is for"
    elif code in _UNKNOWN_AUTHORITY:
        words = "its authority is not known here"
        cure = (
            "have this machine trust the authority: `ca_file` of an e-mail channel, "
            "SSL_CERT_FILE for the others"
        )
    else:
        words, cure = "it fails the check", "have its owner look at it"
    return Reason(f"the server's certificate is not valid (verify code {code}): {words}", cure)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it; of several at once the first."""
    one: BaseException | None = error
    for _ in range(_DEPTH):
        if one is None:
            return
        yield one
        inner = one.exceptions[0] if isinstance(one, BaseExceptionGroup) else None
        one = inner or one.__cause__ or one.__context__


def _number(error: BaseException) -> int | None:
    """The system's number; asyncio has those of several addresses in its text alone."""
    if not isinstance(error, OSError):
        return None
    if error.errno is not None:
        return error.errno
    found = _ERRNO.search(str(error))
    return int(found[1]) if found else None
