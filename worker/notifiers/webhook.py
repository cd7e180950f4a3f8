"""Webhooks for programs: JSON, signed after the standard-webhooks specification.

The body of a message is the same, byte for byte, at each attempt; only the signature and
its time are new. A receiver that remembers `webhook-id` acts once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from datetime import UTC
from typing import TYPE_CHECKING, Final

from worker.clock import utc_now
from worker.errors import ConfigurationError
from worker.models import FailureCause
from worker.notifiers.base import BaseNotifier, SendFailedError
from worker.notifiers.http import REDIRECTS, SERVER_ERRORS, HttpClient, check_url, redirected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from worker.models import OutboxMessage
    from worker.ports.delivery import Pace
    from worker.rendering import Renderer

SECRET_PREFIX: Final = "whsec_"  # noqa: S105  the specification's, no secret
# The specification's bounds of a key.
_KEY_BYTES: Final = range(24, 65)
_DELIVERED: Final = range(200, 300)
_CAUSES: Final = {
    401: (FailureCause.LOGIN_REFUSED, "the receiver does not take the signature or the login"),
    403: (FailureCause.LOGIN_REFUSED, "the receiver forbids it, by the signature or who sends"),
    404: (FailureCause.BOT_REMOVED, "nothing is at this address any more, or never was"),
    408: (FailureCause.TIMEOUT, "the receiver waited too long for the request"),
    410: (FailureCause.BOT_REMOVED, "the address is gone: the receiver wants no more messages"),
    413: (FailureCause.TOO_LARGE, "the message is too large for the receiver"),
    425: (FailureCause.RATE_LIMITED, "too early, it asks to repeat it later"),
    429: (FailureCause.RATE_LIMITED, "too many requests"),
}


class WebhookNotifier(BaseNotifier):
    """One receiver. `url` may hold a token, so it shows in no error and no log.

    `secret` is `whsec_` and base64, or several of them with spaces between while one takes
    the other's place; None: not signed. Raises ConfigurationError, with `setting` for the
    name of the channel, for a url that is no https one (plain http only to loopback) and
    for a secret of another form.
    """

    channel = "webhook"
    family = "webhook"

    def __init__(
        self,
        renderer: Renderer,
        url: str,
        secret: str | None = None,
        *,
        now: Callable[[], datetime] = utc_now,
        setting: str = "the webhook",
    ) -> None:
        super().__init__(renderer)
        self._client = HttpClient(on_loopback=check_url(url, f"{setting}'s url"))
        self._url = url
        self._keys = read_keys(secret, f"{setting}'s secret")
        self._now = now

    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:  # noqa: ARG002  one request
        """Post the message's facts and its text; any answer of 2xx confirms them."""
        body = webhook_body(message, self.part(message, "txt"))
        headers = signed_headers(message.dedupe_key, int(self._now().timestamp()), body, self._keys)
        answer = await self._client.post(self._url, body, headers)
        judge_status(answer.status)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def webhook_body(message: OutboxMessage, text: str) -> bytes:
    """The request's JSON, in ASCII: the same bytes whenever the message is the same.

    In `data` names are as they were chosen; in `text` they are made safe to show.
    """
    body = {
        "type": message.kind,
        "id": message.dedupe_key,
        "timestamp": message.created_at.astimezone(UTC).isoformat(),
        "severity": message.severity,
        "language": message.locale,
        "data": json.loads(message.facts),
        "text": text,
    }
    return json.dumps(body, sort_keys=True).encode("ascii")


def signed_headers(
    message_id: str, timestamp_seconds: int, body: bytes, keys: Sequence[bytes]
) -> dict[str, str]:
    """The specification's headers; a signature by each key, none without keys."""
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp_seconds)}
    if keys:
        content = f"{message_id}.{timestamp_seconds}.".encode() + body
        signatures = (hmac.new(key, content, hashlib.sha256).digest() for key in keys)
        headers["webhook-signature"] = " ".join(
            f"v1,{base64.b64encode(signature).decode('ascii')}" for signature in signatures
        )
    return headers


def read_keys(secret: str | None, name: str) -> tuple[bytes, ...]:
    """The keys of a secret. Raises ConfigurationError, which shows none of it."""
    if secret is None:
        return ()
    keys = tuple(_key(word, name) for word in secret.split())
    if not keys:
        raise ConfigurationError(f"{name} is empty")
    return keys


def _key(word: str, name: str) -> bytes:
    wanted = f"{SECRET_PREFIX} and the base64 of {_KEY_BYTES.start} to {_KEY_BYTES.stop - 1} bytes"
    coded = word.removeprefix(SECRET_PREFIX)
    if coded == word:
        raise ConfigurationError(f"{name} must be {wanted}")
    try:
        # padding may be left out
        key = base64.b64decode(
            coded.rstrip("=") + "=" * (-len(coded.rstrip("=")) % 4), validate=True
        )
    except (binascii.Error, ValueError):
        raise ConfigurationError(f"{name} has something else than base64 in it: {wanted}") from None
    if len(key) not in _KEY_BYTES:
        raise ConfigurationError(f"{name} has a key of another length: {wanted}")
    return key


def judge_status(status: int) -> None:
    """Return for 2xx, else raise SendFailedError with the cause."""
    if status in _DELIVERED:
        return
    if status in REDIRECTS:
        raise redirected(status)
    if status >= SERVER_ERRORS:
        cause, words = FailureCause.SERVER_ERROR, "an error of the receiver's own"
    else:
        cause, words = _CAUSES.get(status, (FailureCause.REJECTED, "the receiver refuses it"))
    raise SendFailedError(cause, f"HTTP {status}: {words}")
