"""Each channel with its real other side, and a way to read what arrived there.

A further channel is a class here and a row in SIDES.
"""

from __future__ import annotations

import html
import io
import os
import re
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contract.servers import FeishuServer, ImBot
from contract.servers_app import AppServer
from contract.servers_http import HANG
from contract.servers_webhook import WebhookServer
from worker.models import FailureCause
from worker.notifiers.console import ConsoleNotifier
from worker.notifiers.feishu_app import FeishuAppNotifier
from worker.notifiers.feishu_webhook import FeishuWebhookNotifier
from worker.notifiers.imbot import ImBotNotifier
from worker.notifiers.webhook import WebhookNotifier

if TYPE_CHECKING:
    from worker.notifiers.base import BaseNotifier
    from worker.rendering import Renderer

SECRET = "s3cret-never-shown"  # noqa: S105  the tests look for it where it must not be
_TWINS = str.maketrans({"\uff20": "@", "\uff1c": "<", "\uff3d": "]"})
# What a name must have lost wherever it arrives.
_UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069]")


class Side(ABC):
    """A notifier and its other side. `start` before the first use, `stop` after the last."""

    notifier: BaseNotifier
    # the cause when there is nothing on the other side
    absent = FailureCause.UNREACHABLE
    secrets: tuple[str, ...] = (SECRET,)

    def __init__(self, renderer: Renderer, folder: Path) -> None:
        self.renderer = renderer
        self.folder = folder

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    def arrived(self) -> list[str]:
        """Each message's text as it was sent, escapes and all."""

    def shown(self) -> list[str]:
        """Each message's text as the channel shows it."""
        return self.arrived()

    def check_tame(self) -> None:
        """Nothing that arrived pings, links, hides or draws."""
        assert not _UNSEEN.search("\n".join(self.arrived()))

    async def silence(self) -> None:
        """From now on the other side takes what comes and doesn't answer."""
        pytest.skip("stderr has no other side that could be silent")

    @abstractmethod
    async def vanish(self) -> None:
        """From now on nothing is there."""

    async def stop(self) -> None:
        await self.notifier.close()


class ConsoleSide(Side):
    async def start(self) -> None:
        self.stream = io.StringIO()
        self.pipe: io.TextIOWrapper | None = None
        self.notifier = ConsoleNotifier(self.renderer, self.stream)

    def arrived(self) -> list[str]:
        # Its further lines are indented, so each message begins where a line does.
        return [one for one in re.split(r"\n(?! )", self.stream.getvalue()) if one]

    async def vanish(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        self.pipe = os.fdopen(writer, "w")
        self.notifier = ConsoleNotifier(self.renderer, self.pipe)

    async def stop(self) -> None:
        if self.pipe is not None:
            with suppress(BrokenPipeError):
                self.pipe.close()


class ImBotSide(Side):
    absent = FailureCause.COMMAND_MISSING
    secrets = (SECRET, "secret-on-stderr")

    async def start(self) -> None:
        self.imbot = ImBot(self.folder)
        # Found on PATH, as an operator has it.
        environ = {"PATH": f"{self.imbot.folder}{os.pathsep}{os.environ['PATH']}"}
        environ |= {"POSTGRES_DSN": SECRET, "QUOTA_WORKER_FEISHU_SECRET": SECRET}
        self.notifier = ImBotNotifier(self.renderer, ("imbot",), "ops", environ)

    def arrived(self) -> list[str]:
        return self.imbot.texts()

    def shown(self) -> list[str]:
        # The full-width twins are read as what they stand for.
        return [text.translate(_TWINS) for text in self.arrived()]

    def check_tame(self) -> None:
        super().check_tame()
        assert not re.search(r"@|<|\]\(", "\n".join(self.arrived()))

    async def silence(self) -> None:
        self.imbot.mode("hang")

    async def vanish(self) -> None:
        self.imbot.path.unlink()


class HttpSide(Side):
    """What the channels over HTTP have in common: a server that may fall silent or stop."""

    server: Any

    async def silence(self) -> None:
        self.server.answers = [HANG]

    async def vanish(self) -> None:
        await self.server.stop()

    async def stop(self) -> None:
        await super().stop()
        await self.server.stop()


class CardSide(HttpSide):
    """Feishu, by whichever of its two ways."""

    def arrived(self) -> list[str]:
        return list(self.server.texts())

    def shown(self) -> list[str]:
        return [html.unescape(text).replace("\u223c", "~") for text in self.arrived()]

    def check_tame(self) -> None:
        super().check_tame()
        for text in self.arrived():
            assert not re.search(r"[<>*_\[\]`$~]", text)
        for title in self.server.titles():
            assert "<" not in title
            assert not re.search(r":\w+:", title)


class FeishuWebhookSide(CardSide):
    async def start(self) -> None:
        self.server = FeishuServer(secret=SECRET, rates=None)
        await self.server.start()
        self.notifier = FeishuWebhookNotifier(self.renderer, self.server.url, secret=SECRET)
        self.secrets = (SECRET, self.server.token)


class FeishuAppSide(CardSide):
    async def start(self) -> None:
        self.server = AppServer(rates=None)
        await self.server.start()
        self.notifier = FeishuAppNotifier(
            self.renderer,
            self.server.app_id,
            self.server.app_secret,
            self.server.chat,
            base_url=self.server.url,
        )
        self.secrets = (self.server.app_secret, "t-never-shown")


class WebhookSide(HttpSide):
    async def start(self) -> None:
        self.server = WebhookServer()
        await self.server.start()
        self.notifier = WebhookNotifier(self.renderer, self.server.url, self.server.secret)
        self.secrets = (self.server.token, self.server.secret, self.server.secret[6:])

    def arrived(self) -> list[str]:
        return [request["text"] for request in self.server.requests]

    def check_tame(self) -> None:
        super().check_tame()
        # not in the other members either, where names are as they were chosen
        assert all(body.isascii() and body.isascii() for body in self.server.bodies)
        assert not any(re.search(rb"[\x00-\x1f\x7f]", body) for body in self.server.bodies)


HTTP_SIDES: dict[str, type[HttpSide]] = {
    "feishu-webhook": FeishuWebhookSide,
    "feishu-app": FeishuAppSide,
    "webhook": WebhookSide,
}
SIDES: dict[str, type[Side]] = {"console": ConsoleSide, "im-bot": ImBotSide, **HTTP_SIDES}
