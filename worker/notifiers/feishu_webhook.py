"""Feishu / Lark custom bots: an interactive card, signed where the bot asks for it.

Feishu answers HTTP 200 also to what it refuses: only `code` in the body decides. There is
no idempotency key, so a request without an answer may have arrived.
"""

from __future__ import annotations

import ipaddress
import json
import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from worker.clock import utc_now
from worker.errors import ConfigurationError
from worker.models import FailureCause, SendRate
from worker.notifiers.base import BaseNotifier, SendFailedError
from worker.notifiers.feishu_card import card_bodies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import httpx

    from worker.models import Digest, OutboxMessage
    from worker.ports import Pace
    from worker.rendering import Renderer

ANSWER_MAX_BYTES: Final = 65_536
_OK: Final = 200
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = 500
_MALFORMED_OR_TOO_MANY: Final = 9499
_CODE_MAX: Final = 2**31
# Source: the vendor's pages and public reports; all with HTTP 200 but some 9499.
_CAUSES: Final = {
    11232: FailureCause.RATE_LIMITED,
    2200: FailureCause.SERVER_ERROR,
    19001: FailureCause.BOT_REMOVED,
    19002: FailureCause.REJECTED,
    19021: FailureCause.BAD_SIGNATURE,
    19022: FailureCause.ADDRESS_REFUSED,
    19024: FailureCause.KEYWORD_MISSING,
    19036: FailureCause.TOO_LARGE,
}


class FeishuWebhookNotifier(BaseNotifier):
    """One custom bot. `url` holds its token, so it shows in no error and no log.

    Raises ConfigurationError for a url that is no https one; plain http only to loopback.
    """

    channel = "feishu-webhook"
    family = "feishu"
    # Half of what the bot may, which it shares with whatever else posts through it.
    rate = SendRate(per_second=3, per_minute=60)
    digest_over = 10

    def __init__(
        self,
        renderer: Renderer,
        url: str,
        *,
        secret: str | None = None,
        keyword: str | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(renderer)
        self._on_loopback = check_url(url)
        self._url = url
        self._secret = secret
        self._keyword = keyword
        self._now = now
        self._client: httpx.AsyncClient | None = None

    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:
        """Post the card; further ones only where a text is too long for one."""
        bodies = card_bodies(
            title=self.part(message, "title"),
            markdown=self.part(message, "md"),
            severity=message.severity,
            keyword=self._keyword,
            secret=self._secret,
            timestamp_seconds=int(self._now().timestamp()),
        )
        for number, body in enumerate(bodies):
            if number > 0:
                await pace()
            await self._post(body, message.dedupe_key)

    async def deliver_digest(self, digest: Digest) -> None:
        """Post one card with a line per message."""
        for body in self._digest_bodies(digest.messages):
            await self._post(body, digest.dedupe_key)

    def digest_fits(self, messages: Sequence[OutboxMessage]) -> bool:
        """Whether one request holds them."""
        return len(self._digest_bodies(messages)) == 1

    def _digest_bodies(self, messages: Sequence[OutboxMessage]) -> list[bytes]:
        return card_bodies(
            title=self.digest_part(messages, "title"),
            markdown=self.digest_part(messages, "md"),
            severity=messages[0].severity,
            keyword=self._keyword,
            secret=self._secret,
            timestamp_seconds=int(self._now().timestamp()),
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _post(self, body: bytes, dedupe_key: str) -> None:
        import httpx

        if self._client is None:
            # They log the address of each request, and in it the token.
            for name in ("httpx", "httpcore"):
                logging.getLogger(name).setLevel(logging.WARNING)
            # A proxy is for the world outside; the time limit is the base's.
            self._client = httpx.AsyncClient(
                timeout=None,  # noqa: S113
                follow_redirects=False,
                trust_env=not self._on_loopback,
            )
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Accept-Encoding": "identity",
            "X-Quota-Worker-Message-Id": dedupe_key,
        }
        try:
            async with self._client.stream(
                "POST", self._url, content=body, headers=headers
            ) as response:
                answer = b""
                # As it came: who packs an answer that was asked for plain may mean a bomb.
                async for chunk in response.aiter_raw():
                    answer += chunk[: ANSWER_MAX_BYTES - len(answer)]
                    if len(answer) >= ANSWER_MAX_BYTES:
                        break
                status = response.status_code
        except httpx.TimeoutException as error:
            raise SendFailedError(FailureCause.TIMEOUT, type(error).__name__) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # Its text may hold the address.
            raise SendFailedError(FailureCause.UNREACHABLE, type(error).__name__) from None
        judge_answer(status, answer)


def judge_answer(status: int, body: bytes) -> None:
    """Return when Feishu confirmed the message, else raise SendFailedError with the cause."""
    if status == _TOO_MANY:
        raise SendFailedError(FailureCause.RATE_LIMITED, f"HTTP {status}")
    if status >= _SERVER_ERRORS:
        raise SendFailedError(FailureCause.SERVER_ERROR, f"HTTP {status}")
    code, text = _read_code(body)
    if code is None:
        raise SendFailedError(FailureCause.UNKNOWN_ANSWER, f"HTTP {status} without a code")
    if code == 0 and status == _OK:
        return
    if code == _MALFORMED_OR_TOO_MANY:
        cause = FailureCause.RATE_LIMITED if "too many" in text else FailureCause.REJECTED
    else:
        cause = _CAUSES.get(code, FailureCause.UNKNOWN_ANSWER)
    raise SendFailedError(cause, f"HTTP {status}, code {code}")


def _read_code(body: bytes) -> tuple[int | None, str]:
    """`code`, else the older `StatusCode`, and the lower-cased `msg`."""
    try:
        answer: Any = json.loads(body)
        if not isinstance(answer, dict):
            return None, ""
        text = str(answer.get("msg", "")).lower()
    except (ValueError, RecursionError):  # no JSON, or brackets without end
        return None, ""
    for key in ("code", "StatusCode"):
        code = answer.get(key)
        if isinstance(code, int) and not isinstance(code, bool) and abs(code) <= _CODE_MAX:
            return code, text
    return None, text


def check_url(url: str) -> bool:
    """Whether the address is this machine's own. Raises ConfigurationError, without the url."""
    name = "QUOTA_WORKER_FEISHU_WEBHOOK"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise ConfigurationError(f"{name} is no web address: copy it from the bot") from None
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigurationError(f"{name} is no https address: copy it from the bot")
    on_loopback = host == "localhost" or _is_loopback(host)
    if parts.scheme == "http" and not on_loopback:
        raise ConfigurationError(f"{name} is plain http to {host}: use https")
    return on_loopback


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
