"""Feishu / Lark apps: the same card, sent by the app's bot to a group or a person.

Each request carries a `uuid`: of those with the same one the service takes one within an
hour, so a repetition in that time is never seen twice.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from worker.clock import utc_now
from worker.errors import ConfigurationError
from worker.models import FailureCause, SendRate
from worker.notifiers.base import BaseNotifier, SendFailedError, bot_of
from worker.notifiers.feishu_card import BODY_MAX_BYTES, cards, worst
from worker.notifiers.feishu_codes import (
    APP_CODES,
    TOKEN_CODES,
    TOKEN_REFUSED,
    failure,
    read_code,
)
from worker.notifiers.http import OK, HttpClient, check_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from worker.models import Digest, OutboxMessage
    from worker.notifiers.http import Answer
    from worker.ports.delivery import Pace
    from worker.rendering import Renderer

RECEIVE_ID_TYPES: Final = ("chat_id", "open_id", "user_id", "union_id", "email")
# From then on the service hands out a new token beside the old one.
RENEW_BEFORE: Final = timedelta(minutes=30)
_RECEIVE_ID_MAX: Final = 200
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,8192}")
_EXPIRE_MAX_SECONDS: Final = 86_400
# The longest id is reckoned with, so that a card fits under any.
_LONGEST_UUID: Final = "x" * 50


class FeishuAppNotifier(BaseNotifier):
    """One app's bot and whom it writes to. The secret and the token show nowhere.

    Raises ConfigurationError, with `setting` for the address's name, for a `base_url` that
    is no https one, an unknown `receive_id_type` or a `receive_id` that can be none.
    """

    channel = "feishu-app"
    family = "feishu"
    # A group takes 5 a second from all bots together.
    rate = SendRate(per_second=3, per_minute=60)
    digest_over = 10

    def __init__(  # noqa: PLR0913  what the vendor asks for, each a setting of its own
        self,
        renderer: Renderer,
        app_id: str,
        app_secret: str,
        receive_id: str,
        receive_id_type: str = "chat_id",
        base_url: str = "https://open.feishu.cn",
        *,
        now: Callable[[], datetime] = utc_now,
        setting: str = "base_url",
    ) -> None:
        super().__init__(renderer)
        if receive_id_type not in RECEIVE_ID_TYPES:
            raise ConfigurationError(f"receive_id_type is none of {', '.join(RECEIVE_ID_TYPES)}")
        if not 0 < len(receive_id) <= _RECEIVE_ID_MAX:
            raise ConfigurationError(f"receive_id is empty or over {_RECEIVE_ID_MAX} characters")
        self._client = HttpClient(on_loopback=check_url(base_url, setting))
        self._api = f"{base_url.rstrip('/')}/open-apis"
        self._login = {"app_id": app_id, "app_secret": app_secret}
        self._receive_id = receive_id
        self.bot = bot_of(base_url, app_id, receive_id)
        self._receive_id_type = receive_id_type
        self._now = now
        self._token = ""
        self._renew_at: datetime | None = None

    def warm_up(self) -> None:
        """The client too."""
        super().warm_up()
        self._client.open()

    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:
        """Send the card; further ones only where a text is too long for one."""
        contents = self._contents(
            self.part(message, "title"), self.part(message, "md"), message.severity
        )
        for number, content in enumerate(contents, start=1):
            if number > 1:
                await pace()
            suffix = f"-{number}" if len(contents) > 1 else ""
            await self._send(content, message.dedupe_key + suffix)

    async def deliver_digest(self, digest: Digest) -> None:
        """Send one card with a line per message."""
        for content in self._digest_contents(digest.messages):
            await self._send(content, digest.dedupe_key)

    def digest_fits(self, messages: Sequence[OutboxMessage]) -> bool:
        """Whether one request holds them."""
        return len(self._digest_contents(messages)) == 1

    async def close(self) -> None:
        """Close the connections; the token stays for the next ones."""
        await self._client.close()

    def _digest_contents(self, messages: Sequence[OutboxMessage]) -> list[str]:
        return self._contents(
            self.digest_part(messages, "title"),
            self.digest_part(messages, "md"),
            worst(one.severity for one in messages),
        )

    def _contents(self, title: str, markdown: str, severity: str) -> list[str]:
        """The cards' JSON, such that each request is under 20,000 bytes."""
        made = cards(
            title=title,
            markdown=markdown,
            severity=severity,
            max_bytes=BODY_MAX_BYTES - len(self._body("", _LONGEST_UUID)),
            as_text=True,
        )
        return [json.dumps(card, ensure_ascii=False) for card in made]

    def _body(self, content: str, uuid: str) -> bytes:
        body = {
            "receive_id": self._receive_id,
            "msg_type": "interactive",
            "content": content,
            "uuid": uuid,
        }
        return json.dumps(body, ensure_ascii=False).encode()

    async def _send(self, content: str, uuid: str) -> None:
        """Post one message; once more where the token is refused that was taken for good.

        A refused token never reaches the group, so its rate isn't asked again.
        """
        body = self._body(content, uuid)
        answer = await self._post_message(body)
        if read_code(answer.json_object()) == TOKEN_REFUSED:
            self._renew_at = None
            answer = await self._post_message(body)
        judge_answer(answer)

    async def _post_message(self, body: bytes) -> Answer:
        return await self._client.post(
            f"{self._api}/im/v1/messages?receive_id_type={self._receive_id_type}",
            body,
            {"Authorization": f"Bearer {await self._current_token()}"},
        )

    async def _current_token(self) -> str:
        """The token in memory, else a new one. Its request counts against no rate."""
        if self._renew_at is None or self._now() >= self._renew_at:
            answer = await self._client.post(
                f"{self._api}/auth/v3/tenant_access_token/internal",
                json.dumps(self._login).encode(),
                {},
            )
            self._token, lifetime = read_token(answer)
            self._renew_at = self._now() + lifetime - RENEW_BEFORE
        return self._token


def read_token(answer: Answer) -> tuple[str, timedelta]:
    """The token and how long it is good for; raises SendFailedError where there is none."""
    value = answer.json_object()
    if answer.status != OK or read_code(value) != 0:
        raise failure(answer, TOKEN_CODES, "base_url")
    token, expire = value.get("tenant_access_token"), value.get("expire")
    if not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        raise SendFailedError(FailureCause.UNKNOWN_ANSWER, "code 0 without a token")
    if isinstance(expire, bool) or not isinstance(expire, int):
        raise SendFailedError(FailureCause.UNKNOWN_ANSWER, "a token without its lifetime")
    return token, timedelta(seconds=max(0, min(expire, _EXPIRE_MAX_SECONDS)))


def judge_answer(answer: Answer) -> None:
    """Return when Feishu confirmed the message, else raise SendFailedError with the cause."""
    value = answer.json_object()
    if answer.status != OK or read_code(value) != 0:
        raise failure(answer, APP_CODES, "base_url")
    data: Any = value.get("data")
    if not (isinstance(data, dict) and isinstance(data.get("message_id"), str)):
        raise SendFailedError(FailureCause.UNKNOWN_ANSWER, "code 0 without a message's id")
