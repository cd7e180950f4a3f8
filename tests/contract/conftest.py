"""Each channel with its real other side."""

from __future__ import annotations

import html
import io
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from contract.servers import FeishuServer, ImBot
from worker.assets import Assets
from worker.notifiers.console import ConsoleNotifier
from worker.notifiers.feishu_webhook import FeishuWebhookNotifier
from worker.notifiers.imbot import ImBotNotifier
from worker.rendering import Renderer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from worker.notifiers.base import BaseNotifier

SECRET = "s3cret-never-shown"  # noqa: S105  the tests look for it where it must not be


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(Assets())


@pytest.fixture
async def feishu() -> AsyncIterator[FeishuServer]:
    server = FeishuServer(secret=SECRET)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def imbot(tmp_path: Path) -> ImBot:
    return ImBot(tmp_path)


@dataclass
class Side:
    """A notifier and a way to read what arrived on its other side, as a person sees it."""

    notifier: BaseNotifier
    feishu: FeishuServer
    imbot: ImBot
    stream: io.StringIO

    def arrived(self) -> list[str]:
        """Each message's text as it was sent, escapes and all."""
        match self.notifier.channel:
            case "console":
                return [self.stream.getvalue()] if self.stream.getvalue() else []
            case "im-bot":
                return self.imbot.texts()
            case _:
                return self.feishu.texts()

    def shown(self) -> list[str]:
        """Each message's text as the channel shows it."""
        match self.notifier.channel:
            case "console":
                return self.arrived()
            case "im-bot":
                # The full-width twins are read as what they stand for.
                twins = str.maketrans({"\uff20": "@", "\uff1c": "<", "\uff3d": "]"})
                return [text.translate(twins) for text in self.arrived()]
            case _:
                return [html.unescape(text).replace("\u223c", "~") for text in self.arrived()]


@pytest.fixture(params=["console", "im-bot", "feishu-webhook"])
async def side(
    request: pytest.FixtureRequest, renderer: Renderer, feishu: FeishuServer, imbot: ImBot
) -> AsyncIterator[Side]:
    stream = io.StringIO()
    notifier: BaseNotifier
    match request.param:
        case "console":
            notifier = ConsoleNotifier(renderer, stream)
        case "im-bot":
            # Found on PATH, as an operator has it.
            environ = {"PATH": f"{imbot.folder}{os.pathsep}{os.environ['PATH']}"}
            environ |= {"POSTGRES_DSN": SECRET, "QUOTA_WORKER_FEISHU_SECRET": SECRET}
            notifier = ImBotNotifier(renderer, ("imbot",), "ops", environ)
        case _:
            notifier = FeishuWebhookNotifier(renderer, feishu.url, secret=SECRET)
    yield Side(notifier, feishu, imbot, stream)
    await notifier.close()
