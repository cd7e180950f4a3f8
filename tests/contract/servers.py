"""The other side of the chats, real: a custom bot's endpoint, and an im-bot program."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import stat
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.servers_card import card_fault, raw_text
from contract.servers_http import HttpServer, RateWindow, Request, next_answer

OK = (200, {"StatusCode": 0, "StatusMessage": "success", "code": 0, "data": {}, "msg": "success"})


@dataclass
class FeishuServer(HttpServer):
    """A custom bot's endpoint. It checks the signature by its own computation.

    `answers` are given in order, the last one again and again; where it is OK, the request
    is judged as the vendor judges it. `rates`: of a second and a minute, None: no limit.
    """

    secret: str | None = None
    keyword: str | None = None
    rates: tuple[int, int] | None = (5, 100)
    answers: list[tuple[int, Any]] = field(default_factory=lambda: [OK])
    requests: list[dict[str, Any]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    _window: RateWindow = field(default_factory=RateWindow)
    token: str = "t0ken-never-shown"  # noqa: S105  looked for where it must not be

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/open-apis/bot/v2/hook/{self.token}"

    def judge(self, request: Request) -> tuple[int, Any]:  # noqa: PLR0911  one for each code
        if request.line != f"POST /open-apis/bot/v2/hook/{self.token} HTTP/1.1":
            return self._refusal(19001, "param invalid: incoming webhook access token invalid")
        message = json.loads(request.body)
        self.requests.append(message)
        status, answer = next_answer(self.answers)
        if (status, answer) != OK:
            return status, answer
        if not self._window.grants(self.rates):
            return self._refusal(11232, "frequency limited psm")
        if self.secret is not None and not self._signed(message):
            return self._refusal(19021, "sign match fail or timestamp is not within one hour")
        if self.keyword is not None and self.keyword not in json.dumps(message, ensure_ascii=False):
            return self._refusal(19024, "Key Words Not Found")
        if len(request.body) > 20_000:
            return self._refusal(19036, "exceeds the size limit")
        if fault := card_fault(message.get("card")):
            return self._refusal(19002, f"unknown card value: {fault}")
        return status, answer

    def _refusal(self, code: int, text: str) -> tuple[int, Any]:
        self.refused.append(code)
        return 200, {"code": code, "msg": text}

    def _signed(self, message: dict[str, Any]) -> bool:
        timestamp = message.get("timestamp")
        if not isinstance(timestamp, str) or abs(time.time() - int(timestamp)) > 3600:
            return False
        key = (timestamp + "\n" + str(self.secret)).encode("utf-8")
        expected = base64.b64encode(hmac.new(key, digestmod=hashlib.sha256).digest()).decode()
        return bool(message.get("sign") == expected)

    def titles(self) -> list[str]:
        return [r["card"]["header"]["title"]["content"] for r in self.requests]

    def texts(self) -> list[str]:
        """Each card's text with its escapes, without the layout's own marks."""
        return [raw_text(r["card"]) for r in self.requests]


_IMBOT = """#!{python}
import json, os, sys, time
folder = {folder!r}
mode = open(folder + "/mode").read()
with open(folder + "/log", "a") as log:
    log.write(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid(), "ppid": os.getppid()}}) + "\\n")
if mode == "hang":
    time.sleep(60)
if mode.startswith("exit"):
    print("secret-on-stderr", file=sys.stderr)
    sys.exit(int(mode[4:]))
if mode == "says-error":
    print("ERROR: no such group")
    sys.exit(0)
if mode == "leaves-a-child" and os.fork() == 0:
    time.sleep(15)
    os._exit(0)
if mode == "floods":
    print("OK" * 1000000)
    sys.exit(0)
print("OK")
"""


class ImBot:
    """A real program in a folder of its own, which writes down what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "imbot"
        self.path.write_text(_IMBOT.format(python=sys.executable, folder=str(folder)))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)
        self.mode("ok")

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    def calls(self) -> list[dict[str, Any]]:
        log = self.folder / "log"
        if not log.exists():
            return []
        return [json.loads(line) for line in log.read_text().splitlines()]

    def texts(self) -> list[str]:
        return [call["argv"][4] for call in self.calls()]
