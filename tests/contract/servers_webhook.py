"""A receiver of webhooks that verifies them with the specification's own library."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from contract.servers_http import HttpServer, Request, next_answer

TAKEN: tuple[int, Any] = (204, b"")


@dataclass
class WebhookServer(HttpServer):
    """Takes what is signed by `secret`; `answers` as those of the other servers."""

    secret: str = "whsec_bmV2ZXItc2hvd24tYXMtaXQtaXMtYS1zZWNyZXQ="  # noqa: S105  looked for where it must not be
    token: str = "hook-t0ken-never-shown"  # noqa: S105  same
    answers: list[tuple[int, Any]] = field(default_factory=lambda: [TAKEN])
    requests: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/{self.token}"

    def judge(self, request: Request) -> tuple[int, Any]:
        if request.line != f"POST /hooks/{self.token} HTTP/1.1":
            return 404, b""
        self.requests.append(json.loads(request.body))
        self.bodies.append(request.body)
        status, answer = next_answer(self.answers)
        if (status, answer) != TAKEN:
            return status, answer
        try:
            Webhook(self.secret).verify(request.body, request.headers)
        except WebhookVerificationError:
            return 401, b""
        return status, answer
