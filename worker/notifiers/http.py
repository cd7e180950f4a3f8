"""What the channels over HTTP share: addresses, one bounded request, and what its end means.

Whether the service may have taken a request decides what becomes of the message: only a
connection that was never made is `unreachable`, everything later is `unknown_answer`.
"""

from __future__ import annotations

import ipaddress
import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from worker.errors import ConfigurationError
from worker.models import FailureCause
from worker.notifiers.base import SendFailedError
from worker.notifiers.connection import BROKEN_OFF, NO_ANSWER, Reason, why_not_connected

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

ANSWER_MAX_BYTES: Final = 65_536
# Below the limit for the whole send, so that a host that doesn't answer is known for one.
CONNECT_TIMEOUT_SECONDS: Final = 10.0
OK: Final = 200
REDIRECTS: Final = range(300, 400)
TOO_MANY: Final = 429
SERVER_ERRORS: Final = 500
PROXY_VARIABLES: Final = "HTTPS_PROXY or ALL_PROXY"
_SPACE: Final = 0x20
_DELETE: Final = 0x7F


class Answer(NamedTuple):
    """An HTTP status and the beginning of the body, as it came."""

    status: int
    body: bytes

    def json_object(self) -> dict[str, Any]:
        """The body's JSON object; empty where it is none."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):  # no JSON, or brackets without end
            return {}
        return value if isinstance(value, dict) else {}


def redirected(status: int, setting: str = "url") -> SendFailedError:
    """The error for an answer that points elsewhere: it will at each attempt."""
    return SendFailedError(
        FailureCause.REJECTED,
        f"HTTP {status}: the address redirects, which is not followed",
        f"give the final address as the channel's `{setting}`",
    )


class HttpClient:
    """Posts to one service. No redirect is followed; its address shows in no error or log.

    `on_loopback`: no proxy is used, those are for the world outside.
    """

    def __init__(self, *, on_loopback: bool) -> None:
        self._on_loopback = on_loopback
        self._client: httpx.AsyncClient | None = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send JSON once; raises SendFailedError where no whole answer came."""
        import httpx

        sent = {
            "Content-Type": "application/json; charset=utf-8",
            "Accept-Encoding": "identity",
            "User-Agent": "quota-worker",
        }
        try:
            async with self._opened().stream(
                "POST", url, content=body, headers=sent | dict(headers)
            ) as response:
                return Answer(response.status_code, await _beginning(response))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            raise SendFailedError(FailureCause.UNREACHABLE, *_why_unreachable(error)) from None
        except httpx.TimeoutException:
            raise SendFailedError(FailureCause.TIMEOUT, "the service did not answer") from None
        except (
            httpx.UnsupportedProtocol,
            httpx.LocalProtocolError,
            httpx.InvalidURL,
            UnicodeError,
        ):
            # Nothing was sent, and the next attempt would be the same. A UnicodeError is a
            # host's name that can't be coded.
            raise SendFailedError(
                FailureCause.REJECTED,
                "no request can be made for this address",
                "copy the address again, whole",
            ) from None
        except httpx.HTTPError as error:
            raise SendFailedError(FailureCause.UNKNOWN_ANSWER, _why_broken_off(error)) from None

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def open(self) -> None:
        """Load the library and make the client; what is wrong shows at the first request."""
        with suppress(SendFailedError):
            self._opened()

    def _opened(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            # They log the address of each request, and in it the token.
            for name in ("httpx", "httpcore"):
                logging.getLogger(name).setLevel(logging.WARNING)
            # The limit for the whole send is the base's.
            try:
                self._client = httpx.AsyncClient(
                    timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_SECONDS),
                    follow_redirects=False,
                    trust_env=not self._on_loopback,
                )
            except (ImportError, ValueError, httpx.InvalidURL):
                # a kind of proxy that httpx doesn't know, or only with another package
                raise SendFailedError(
                    FailureCause.UNREACHABLE,
                    f"the proxy of {PROXY_VARIABLES} can't be used",
                    "set it to an http:// or https:// address, or unset it",
                ) from None
        return self._client


async def _beginning(response: httpx.Response) -> bytes:
    """As it came: who packs an answer that was asked for plain may mean a bomb."""
    kept = b""
    async for chunk in response.aiter_raw():
        kept += chunk[: ANSWER_MAX_BYTES - len(kept)]
        if len(kept) >= ANSWER_MAX_BYTES:
            break
    return kept


def _why_unreachable(error: httpx.TransportError) -> Reason:
    """Without the address: the certificate, the name, or what the system says."""
    import httpx

    if isinstance(error, httpx.ProxyError):
        return Reason("the proxy makes no connection", f"check the proxy: {PROXY_VARIABLES}")
    if isinstance(error, httpx.ConnectTimeout):
        return Reason(
            f"no connection within {CONNECT_TIMEOUT_SECONDS:g} s",
            "check the host and the port, and that no firewall is between",
        )
    return why_not_connected(error)


def _why_broken_off(error: httpx.HTTPError) -> str:
    """Without the address, which its text may hold."""
    import httpx

    if not isinstance(error, httpx.RemoteProtocolError) or "complete message" in str(error):
        return BROKEN_OFF
    return NO_ANSWER if "without sending" in str(error) else "what came back is no HTTP"


def check_url(url: str, name: str) -> bool:
    """Whether the address is this machine's own.

    Raises ConfigurationError with the setting's `name`, without the url, for one that is
    no https address; plain http goes to this machine only.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise ConfigurationError(f"{name} is no web address: copy it whole") from None
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigurationError(f"{name} is no https address: copy it whole")
    if any(ord(one) <= _SPACE or ord(one) == _DELETE for one in url):
        raise ConfigurationError(f"{name} has a space or a line break in it: copy it again")
    on_loopback = host == "localhost" or _is_loopback(host)
    if parts.scheme == "http" and not on_loopback:
        raise ConfigurationError(f"{name} is plain http to another machine: use https")
    return on_loopback


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
