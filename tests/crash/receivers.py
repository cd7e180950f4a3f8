"""The other sides of the channels, which note what they took, and kill the worker when told to.

Each reads the whole request first. `before`: the worker dies, and nothing was taken; `after`:
it was taken, and the worker dies without an answer.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contract.servers import OK, FeishuServer
from contract.servers_app import AppServer
from contract.servers_card import raw_text
from contract.servers_http import DROP
from contract.servers_mail import OK as MAIL_OK
from contract.servers_mail import SmtpServer

if TYPE_CHECKING:
    from aiosmtpd.smtp import SMTP, Envelope, Session

    from contract.servers_http import Request


class Taken(NamedTuple):
    """A request that was taken in that tick; `shown` False: its id was known, so nobody sees it."""

    tick: int
    request_id: str
    text: str
    shown: bool = True


@dataclass
class Fates:
    """Who is to die, and at which request from now; shared by the receivers of a run."""

    tick: int = 0
    pid: int = 0
    channel: str | None = None
    side: str = ""
    left: int = 0

    def strikes(self, channel: str, side: str) -> bool:
        """Whether this is the moment; then the worker is dead."""
        if channel != self.channel or side != self.side or self.left == 0:
            return False
        self.left -= 1
        if self.left:
            return False
        os.kill(self.pid, signal.SIGKILL)
        return True


@dataclass(kw_only=True)
class Hook(FeishuServer):
    """A custom bot: it knows no ids, so what comes twice is seen twice.

    `refusals`: so many next requests are told to come later; `losses`: taken, and not answered.
    """

    fates: Fates
    name: str = "hook"
    taken: list[Taken] = field(default_factory=list)
    refusals: int = 0
    losses: int = 0

    def judge(self, request: Request) -> tuple[int, Any]:
        if self.fates.strikes(self.name, "before"):
            return DROP
        if self.refusals:
            self.refusals -= 1
            return self._refusal(11232, "frequency limited psm")
        answer = super().judge(request)
        if answer == OK:
            card = self.requests[-1]["card"]
            text = card["header"]["title"]["content"] + "\n" + raw_text(card)
            request_id = request.headers["x-quota-worker-message-id"]
            self.taken.append(Taken(self.fates.tick, request_id, text))
            if self.losses:
                self.losses -= 1
                return DROP
        return DROP if self.fates.strikes(self.name, "after") else answer


@dataclass(kw_only=True)
class App(AppServer):
    """Feishu's API for apps, which takes one message per uuid and hour. Faults as `Hook`."""

    fates: Fates
    taken: list[Taken] = field(default_factory=list)
    refusals: int = 0
    losses: int = 0

    def judge(self, request: Request) -> tuple[int, Any]:
        if not request.line.startswith("POST /open-apis/im/v1/messages"):
            return super().judge(request)
        if self.fates.strikes("app", "before"):
            return DROP
        if self.refusals:
            self.refusals -= 1
            return 400, {"code": 230020, "msg": "This operation triggers the frequency limit"}
        known = len(self.messages)
        status, answer = super().judge(request)
        if status == 200:
            message = json.loads(request.body)
            card = json.loads(message["content"])
            text = card["header"]["title"]["content"] + "\n" + raw_text(card)
            shown = len(self.messages) > known
            self.taken.append(Taken(self.fates.tick, message["uuid"], text, shown))
            if self.losses:
                self.losses -= 1
                return DROP
        return DROP if self.fates.strikes("app", "after") else (status, answer)


@dataclass(kw_only=True)
class Mailbox(SmtpServer):
    """A mail server: it looks at no Message-ID."""

    fates: Fates
    taken: list[Taken] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.fates.strikes("mail", "before"):
            return "451 4.3.0 later"
        answer = await super().handle_DATA(server, session, envelope)
        if answer == MAIL_OK:
            mail = self.received[-1]
            request_id = str(mail.mail["Message-ID"]).strip("<>").partition("@")[0]
            text = mail.subject + "\n" + mail.part("plain")
            self.taken.append(Taken(self.fates.tick, request_id, text))
        self.fates.strikes("mail", "after")
        return answer


_BOT = """#!/bin/sh
# imbot send --group GROUP --text MESSAGE; an id that is known is answered, and shown to nobody
cd '{folder}' || exit 1
strike() {{
    [ -f "$1" ] || return 0
    left=$(($(cat "$1") - 1))
    echo $left > "$1"
    [ $left -ne 0 ] || kill -9 "$CRASH_PID"
}}
strike before
if mkdir "ids/$QUOTA_WORKER_MESSAGE_ID" 2>/dev/null; then
    printf '%s' "$5" > "ids/$QUOTA_WORKER_MESSAGE_ID/text"
fi
echo "$(cat tick) $QUOTA_WORKER_MESSAGE_ID" >> taken
strike after
echo OK
"""


class Bot:
    """An im-bot, a program that remembers ids. It goes on when the worker is dead."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ids").mkdir(parents=True)
        self.path = folder / "imbot"
        self.path.write_text(_BOT.format(folder=folder))
        self.path.chmod(0o755)
        (folder / "taken").touch()

    def set_tick(self, tick: int, side: str | None = None, number: int = 1) -> None:
        """The tick that is next; `side`: it kills the worker at its call of that number."""
        (self.folder / "tick").write_text(str(tick))
        for one in ("before", "after"):
            (self.folder / one).unlink(missing_ok=True)
        if side is not None:
            (self.folder / side).write_text(str(number))

    @property
    def taken(self) -> list[Taken]:
        seen: set[str] = set()
        found = []
        for line in (self.folder / "taken").read_text().splitlines():
            tick, request_id = line.split()
            text = (self.folder / "ids" / request_id / "text").read_text()
            found.append(Taken(int(tick), request_id, text, request_id not in seen))
            seen.add(request_id)
        return found
