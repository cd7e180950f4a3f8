"""Makes each kind's notifier from its settings; the adapter is imported with the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.notifiers.base import BaseNotifier
    from worker.rendering import Renderer
    from worker.settings import ChannelSettings


class Surroundings(NamedTuple):
    """What notifiers share: `environ` for child processes, `stream` for the console."""

    renderer: Renderer
    environ: Mapping[str, str]
    stream: TextIO | None


def _console(around: Surroundings, _channel: ChannelSettings) -> BaseNotifier:
    from worker.notifiers.console import ConsoleNotifier

    return ConsoleNotifier(around.renderer, around.stream)


def _imbot(around: Surroundings, channel: ChannelSettings) -> BaseNotifier:
    from worker.notifiers.imbot import ImBotNotifier

    values = channel.values
    return ImBotNotifier(around.renderer, values["command"], values["group"], around.environ)


def _feishu_webhook(around: Surroundings, channel: ChannelSettings) -> BaseNotifier:
    from worker.notifiers.feishu_webhook import FeishuWebhookNotifier

    values = channel.values
    return FeishuWebhookNotifier(
        around.renderer,
        values["url"],
        secret=values["secret"],
        keyword=values["keyword"],
        setting=f"the url of {channel.name}",
    )


def _feishu_app(around: Surroundings, channel: ChannelSettings) -> BaseNotifier:
    from worker.notifiers.feishu_app import FeishuAppNotifier

    return FeishuAppNotifier(
        around.renderer, **channel.values, setting=f"the base_url of {channel.name}"
    )


def _email(around: Surroundings, channel: ChannelSettings) -> BaseNotifier:
    from worker.notifiers.mail import MailNotifier, MailServer

    values = channel.values
    server = MailServer(**{key: values[key] for key in MailServer._fields})
    return MailNotifier(around.renderer, server, values["sender"])


def _webhook(around: Surroundings, channel: ChannelSettings) -> BaseNotifier:
    from worker.notifiers.webhook import WebhookNotifier

    values = channel.values
    return WebhookNotifier(around.renderer, values["url"], values["secret"], setting=channel.name)


def _apprise(around: Surroundings, channel: ChannelSettings) -> BaseNotifier:
    from worker.notifiers.apprise_channel import AppriseNotifier

    return AppriseNotifier(around.renderer, channel.values["url"])


MAKERS: Final[Mapping[str, Callable[[Surroundings, ChannelSettings], BaseNotifier]]] = {
    "console": _console,
    "im-bot": _imbot,
    "feishu-webhook": _feishu_webhook,
    "feishu-app": _feishu_app,
    "email": _email,
    "webhook": _webhook,
    "apprise": _apprise,
}
