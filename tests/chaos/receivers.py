"""The receivers' process: `python -m chaos.receivers FOLDER`; the im-bot is a program of its own.

Each looks up how it is to misbehave in a file (`fate-CHANNEL`) at each request, and writes down
what came, whether it was taken (a person sees it), and whether the answer said so. `late`: taken,
and answered after the sender's time limit; `…-taken`: taken, and answered wrongly; `lie`: HTTP 200
with an error's code that passes; `gone`, `550`: refused for good.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.journal import Journal
from contract.servers import OK, FeishuServer
from contract.servers_card import raw_text
from contract.servers_http import DROP, HANG, Request
from contract.servers_mail import OK as MAIL_OK
from contract.servers_mail import Certificates, SmtpServer
from contract.servers_webhook import TAKEN, WebhookServer

if TYPE_CHECKING:
    from aiosmtpd.smtp import SMTP, Envelope, Session

SECRET = "chaos-secret"  # noqa: S105  of a receiver on loopback
# longer than the worker waits for an answer
LATE_SECONDS = 24.0
# taken, whatever is answered
TAKING = {"ok", "late", "close-taken", "500-taken", "exit-taken"}
# by mode, in place of the usual answer
HTTP = {
    "hang": HANG,
    "late": HANG,
    "close": DROP,
    "close-taken": DROP,
    "429": (429, {}),
    "500": (500, {}),
    "500-taken": (500, {}),
}
LIE = (200, {"code": 11232, "msg": "frequency limited psm"})
GONE = (200, {"code": 19001, "msg": "param invalid: incoming webhook access token invalid"})


@dataclass
class Book:
    """Where fates are looked up and arrivals are noted."""

    folder: Path
    journal: Journal

    def mode(self, channel: str) -> str:
        file = self.folder / f"fate-{channel}"
        return file.read_text() if file.exists() else "ok"

    def note(self, channel: str, request_id: str, text: str, mode: str) -> None:
        taken = mode in TAKING
        self.journal.note(
            channel=channel, id=request_id, taken=taken, heard=mode == "ok", mode=mode, text=text
        )


@dataclass(kw_only=True)
class Feishu(FeishuServer):
    book: Book

    def judge(self, request: Request) -> tuple[int, Any]:
        mode = self.book.mode("feishu")
        answer = super().judge(request)
        card = json.loads(request.body)["card"]
        text = card["header"]["title"]["content"] + "\n" + raw_text(card)
        request_id = request.headers["x-quota-worker-message-id"]
        if answer != OK:
            # such as a signature whose time is an hour off
            self.book.note("feishu", request_id, text, f"refused {self.refused[-1]}")
            return answer
        self.book.note("feishu", request_id, text, mode)
        return {"lie": LIE, "gone": GONE}.get(mode, HTTP.get(mode, answer))


@dataclass(kw_only=True)
class Hook(WebhookServer):
    book: Book

    def judge(self, request: Request) -> tuple[int, Any]:
        mode = self.book.mode("hook")
        answer = super().judge(request)
        request_id = request.headers["webhook-id"]
        if answer != TAKEN:
            self.book.note("hook", request_id, request.body.decode(), f"refused {answer[0]}")
            return answer
        self.book.note("hook", request_id, request.body.decode(), mode)
        return HTTP.get(mode, answer)


@dataclass(kw_only=True)
class Mail(SmtpServer):
    book: Book

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        mode = self.book.mode("mail")
        answer = await super().handle_DATA(server, session, envelope)
        if answer == MAIL_OK:
            mail = self.received[-1]
            request_id = str(mail.mail["Message-ID"]).strip("<>").partition("@")[0]
            self.book.note("mail", request_id, mail.subject + "\n" + mail.part("plain"), mode)
        if mode in ("hang", "late"):
            await asyncio.sleep(LATE_SECONDS)
        if mode == "close-taken":
            server.transport.abort()
        return {"451": "451 4.3.0 later", "421": "421 4.3.2 busy", "550": "550 5.7.1 refused"}.get(
            mode, answer
        )


_BOT = """#!/bin/sh
# imbot send --group GROUP --text MESSAGE
cd '{folder}' || exit 1
mode=ok
[ ! -f fate-bot ] || mode=$(cat fate-bot)
printf '%s' "$5" > "bot/$QUOTA_WORKER_MESSAGE_ID"
echo "$(LD_PRELOAD='' date +%s.%N) $mode $QUOTA_WORKER_MESSAGE_ID" >> bot-taken
case $mode in
hang | late) exec sleep {late} ;;
exit | exit-taken) exit 1 ;;
says-error) echo 'ERROR: no such group' ; exit 0 ;;
esac
echo OK
"""


def write_bot(folder: Path) -> Path:
    """The program; it appends to a file of its own."""
    (folder / "bot").mkdir()
    program = folder / "imbot"
    program.write_text(_BOT.format(folder=folder, late=LATE_SECONDS))
    program.chmod(0o755)
    return program


def bot_arrivals(folder: Path) -> list[dict[str, Any]]:
    """What came to the im-bot, as the other receivers' journal has it."""
    file = folder / "bot-taken"
    found = []
    for line in file.read_text().splitlines() if file.exists() else []:
        at, mode, request_id = line.split()
        text = (folder / "bot" / request_id).read_text()
        taken = mode in TAKING
        found.append(
            {"t": float(at), "channel": "bot", "id": request_id, "taken": taken}
            | {"heard": mode == "ok", "mode": mode, "text": text}
        )
    return found


async def main(folder: Path) -> None:
    """Serve until SIGTERM; the ports are in `ports.json`."""
    book = Book(folder, Journal(folder / "arrivals.jsonl"))
    with tempfile.TemporaryDirectory() as place:
        certificates = Certificates(Path(place))
        feishu = Feishu(secret=SECRET, book=book)
        hook = Hook(book=book)
        mail = Mail(certificates, SECRET, security="none", logins=False, book=book)
        for server in (feishu, hook, mail):
            await server.start()
        addresses = {"feishu": feishu.url, "hook": hook.url, "hook_secret": hook.secret}
        partial = folder / "ports.partial"
        partial.write_text(json.dumps(addresses | {"mail": mail.port}))
        partial.rename(folder / "ports.json")
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
