"""Feishu / Lark custom bots: an interactive card, signed where the bot asks for it.

Feishu answers HTTP 200 also to what it refuses: only `code` in the body decides. There is
no idempotency key, so a request without an answer may have arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.clock import utc_now
from worker.models import FailureCause, SendRate
from worker.notifiers.base import BaseNotifier, SendFailedError, bot_of
from worker.notifiers.feishu_card import card_bodies, worst
from worker.notifiers.feishu_codes import WEBHOOK_CODES, failure, read_code
from worker.notifiers.http import OK, HttpClient, check_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from worker.models import Digest, OutboxMessage
    from worker.notifiers.http import Answer
    from worker.ports.delivery import Pace
    from worker.rendering import Renderer

# What code 19021 means where it is no wrong secret.
_UNSIGNED: Final = "HTTP 200, code 19021: the bot wants signed messages, and no secret is set here"
_CURE: Final = (
    "set `secret` of the channel (QUOTA_WORKER_FEISHU_SECRET without a file) to the one in the "
    "bot's security settings"
)


class FeishuWebhookNotifier(BaseNotifier):
    """One custom bot. `url` holds its token, so it shows in no error and no log.

    Raises ConfigurationError, with `setting` for its name, for a url that is no https one;
    plain http only to loopback.
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
        setting: str = "QUOTA_WORKER_FEISHU_WEBHOOK",
    ) -> None:
        super().__init__(renderer)
        self._client = HttpClient(on_loopback=check_url(url, setting))
        self._url = url
        self.bot = bot_of(url)
        self._secret = secret
        self._keyword = keyword
        self._now = now

    def warm_up(self) -> None:
        """The client too."""
        super().warm_up()
        self._client.open()

    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:
        """Post the card; further ones only where a text is too long for one."""
        bodies = self._bodies(
            self.part(message, "title"), self.part(message, "md"), message.severity
        )
        for number, body in enumerate(bodies, start=1):
            if number > 1:
                await pace()
            # a relay that drops an id it has seen must not drop the rest of the message
            suffix = f"-{number}" if len(bodies) > 1 else ""
            await self._post(body, message.dedupe_key + suffix)

    async def deliver_digest(self, digest: Digest) -> None:
        """Post one card with a line per message."""
        for body in self._digest_bodies(digest.messages):
            await self._post(body, digest.dedupe_key)

    def digest_fits(self, messages: Sequence[OutboxMessage]) -> bool:
        """Whether one request holds them."""
        return len(self._digest_bodies(messages)) == 1

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _digest_bodies(self, messages: Sequence[OutboxMessage]) -> list[bytes]:
        return self._bodies(
            self.digest_part(messages, "title"),
            self.digest_part(messages, "md"),
            worst(one.severity for one in messages),
        )

    def _bodies(self, title: str, markdown: str, severity: str) -> list[bytes]:
        return card_bodies(
            title=title,
            markdown=markdown,
            severity=severity,
            keyword=self._keyword,
            secret=self._secret,
            timestamp_seconds=int(self._now().timestamp()),
        )

    async def _post(self, body: bytes, message_id: str) -> None:
        headers = {"X-Quota-Worker-Message-Id": message_id}
        try:
            judge_answer(await self._client.post(self._url, body, headers))
        except SendFailedError as error:
            if error.cause == FailureCause.BAD_SIGNATURE and self._secret is None:
                raise SendFailedError(error.cause, _UNSIGNED, _CURE) from None
            raise


def judge_answer(answer: Answer) -> None:
    """Return when Feishu confirmed the message, else raise SendFailedError with the cause."""
    if answer.status != OK or read_code(answer.json_object()) != 0:
        raise failure(answer, WEBHOOK_CODES)
