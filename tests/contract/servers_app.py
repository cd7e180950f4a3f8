"""Feishu's API for apps, as far as messages need it: tokens, and `im/v1/messages`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from contract.servers_card import card_fault, raw_text
from contract.servers_http import HttpServer, RateWindow, Request, next_answer

JUDGED: tuple[int, Any] = (200, "as the vendor judges it")
_TOKEN_SECONDS = 7200
_SAME_TOKEN_SECONDS = 1800
_UUID_SECONDS = 3600


@dataclass
class AppServer(HttpServer):
    """Hands out tokens, and takes one message per uuid and hour.

    `answers` and `token_answers` are given in order, the last one again and again; JUDGED:
    as the vendor would. `clock`: seconds, for what expires.
    """

    app_id: str = "cli_a1b2c3"
    app_secret: str = "app-secret-never-shown"  # noqa: S105  looked for where it must not be
    chat: str = "oc_ops"
    foreign_chat: str = "oc_without_the_bot"
    rates: tuple[int, int] | None = (5, 100)
    clock: Callable[[], float] = time.time
    answers: list[tuple[int, Any]] = field(default_factory=lambda: [JUDGED])
    token_answers: list[tuple[int, Any]] = field(default_factory=lambda: [JUDGED])
    tokens: dict[str, float] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    _taken: dict[str, tuple[float, str]] = field(default_factory=dict)
    _window: RateWindow = field(default_factory=RateWindow)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def judge(self, request: Request) -> tuple[int, Any]:
        method, target, _ = request.line.split(" ")
        path, _, query = target.partition("?")
        if method != "POST":
            return 404, {"code": 99991404}
        if path == "/open-apis/auth/v3/tenant_access_token/internal":
            status, answer = next_answer(self.token_answers)
            return self._token(request) if (status, answer) == JUDGED else (status, answer)
        if path != "/open-apis/im/v1/messages":
            return 404, {"code": 99991404}
        self.requests.append(json.loads(request.body))
        status, answer = next_answer(self.answers)
        if (status, answer) == JUDGED:
            return self._message(request, query)
        return status, answer

    def _token(self, request: Request) -> tuple[int, Any]:
        login = json.loads(request.body)
        if not str(login.get("app_id", "")).startswith("cli_"):
            return 200, {"code": 10003, "data": {}, "msg": "invalid param"}
        if login != {"app_id": self.app_id, "app_secret": self.app_secret}:
            return 200, {"code": 10014, "msg": "app secret invalid"}
        now = self.clock()
        for token, expires in self.tokens.items():
            if expires - now >= _SAME_TOKEN_SECONDS:
                return 200, _issued(token, expires - now)
        token = f"t-never-shown-{len(self.tokens)}"
        self.tokens[token] = now + _TOKEN_SECONDS
        return 200, _issued(token, _TOKEN_SECONDS)

    def _message(self, request: Request, query: str) -> tuple[int, Any]:
        authorization = request.headers.get("authorization")
        if authorization is None:
            return 400, {"code": 99991661, "msg": "Missing access token for authorization"}
        if self.tokens.get(authorization.removeprefix("Bearer "), 0) <= self.clock():
            return 400, {"code": 99991663, "msg": "Invalid access token for authorization"}
        if query not in {f"receive_id_type={one}" for one in ("chat_id", "open_id", "email")}:
            return 400, {"code": 99992402, "msg": "field validation failed"}
        message = json.loads(request.body)
        if fault := self._fault(message, request):
            return 400, fault
        uuid, now = message["uuid"], self.clock()
        taken_at, message_id = self._taken.get(uuid, (0.0, ""))
        if not message_id or now - taken_at >= _UUID_SECONDS:
            message_id = f"om_{len(self.messages)}"
            self._taken[uuid] = (now, message_id)
            self.messages[message_id] = json.loads(message["content"])
        return 200, {"code": 0, "msg": "success", "data": {"message_id": message_id}}

    def _fault(  # noqa: PLR0911  one for each code
        self, message: dict[str, Any], request: Request
    ) -> dict[str, Any] | None:
        if message.keys() != {"receive_id", "msg_type", "content", "uuid"}:
            return {"code": 230001, "msg": "Your request contains an invalid request parameter"}
        if not isinstance(message["content"], str) or len(message["uuid"]) > 50:
            return {"code": 230001, "msg": "Your request contains an invalid request parameter"}
        if message["receive_id"] == self.foreign_chat:
            return {"code": 230002, "msg": "Bot/User can NOT be out of the chat."}
        if message["receive_id"] != self.chat:
            return {"code": 230034, "msg": "The receive_id is invalid."}
        if not self._window.grants(self.rates):
            return {"code": 230020, "msg": "This operation triggers the frequency limit"}
        if len(request.body) > 20_000:
            return {"code": 230025, "msg": "The length of the message content reaches its limit."}
        if fault := card_fault(json.loads(message["content"])):
            return {
                "code": 230099,
                "msg": f"Failed to create card content, ext=ErrCode: 200861; {fault}",
            }
        return None

    def titles(self) -> list[str]:
        return [card["header"]["title"]["content"] for card in self.messages.values()]

    def texts(self) -> list[str]:
        """Each card's text with its escapes, without the layout's own marks."""
        return [raw_text(card) for card in self.messages.values()]


def _issued(token: str, seconds: float) -> dict[str, Any]:
    return {"code": 0, "msg": "ok", "tenant_access_token": token, "expire": int(seconds)}
