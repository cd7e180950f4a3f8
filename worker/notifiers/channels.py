"""The channels that are configured, each built when first used."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, Self

from worker.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from worker.assets import Assets
    from worker.models import OutboxMessage
    from worker.notifiers.base import BaseNotifier
    from worker.rendering import Renderer
    from worker.settings import Settings

CONSOLE: Final = "console"


class ConfiguredChannels:
    """`Channels` over makers by name; console is always there, as the last fallback."""

    def __init__(
        self,
        makers: Mapping[str, Callable[[], BaseNotifier]],
        console: Callable[[], BaseNotifier],
    ) -> None:
        self._makers = {CONSOLE: console, **makers}
        self._names = tuple(makers) or (CONSOLE,)
        self._made: dict[str, BaseNotifier] = {}

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        assets: Assets,
        *,
        environ: Mapping[str, str] | None = None,
        stream: TextIO | None = None,
    ) -> Self:
        """Every channel whose variables are set. Raises ConfigurationError for a wrong one.

        `environ` is what a child process gets (less our own values), `stream` the console's.
        """

        # a tick without messages makes no notifier, and so doesn't pay for these imports
        @functools.cache
        def renderer() -> Renderer:
            from worker.rendering import Renderer

            return Renderer(assets)

        def make_console() -> BaseNotifier:
            from worker.notifiers.console import ConsoleNotifier

            return ConsoleNotifier(renderer(), stream)

        makers: dict[str, Callable[[], BaseNotifier]] = {}
        if settings.imbot_group is not None:
            group = settings.imbot_group
            if group.startswith("-"):
                raise ConfigurationError("QUOTA_WORKER_IMBOT_GROUP must not begin with '-'")
            command = _command(settings.imbot_command)

            def make_imbot() -> BaseNotifier:
                from worker.notifiers.imbot import ImBotNotifier

                return ImBotNotifier(renderer(), command, group, environ)

            makers["im-bot"] = make_imbot
        if settings.feishu_webhook is not None:
            from worker.notifiers.feishu_webhook import FeishuWebhookNotifier, check_url

            url = settings.feishu_webhook
            check_url(url)
            makers["feishu-webhook"] = lambda: FeishuWebhookNotifier(
                renderer(), url, secret=settings.feishu_secret, keyword=settings.feishu_keyword
            )
        return cls(makers, make_console)

    @property
    def names(self) -> tuple[str, ...]:
        """Every configured channel; console alone where none is."""
        return self._names

    def notifier(self, channel: str) -> BaseNotifier:
        """The channel's notifier, made at the first call; KeyError where none is configured."""
        if channel not in self._made:
            self._made[channel] = self._makers[channel]()
        return self._made[channel]

    def fallback(self, message: OutboxMessage) -> str | None:
        """Another configured channel, and for a message that is a fallback itself the console."""
        others = [] if message.is_fallback else [n for n in self._names if n != message.channel]
        for name in (*others, CONSOLE):
            if name != message.channel:
                return name
        return None

    async def close(self) -> None:
        """Close every notifier that was made."""
        for notifier in self._made.values():
            await notifier.close()


def _command(text: str) -> tuple[str, ...]:
    """The words of QUOTA_WORKER_IMBOT_COMMAND, by a shell's quoting rules and no others."""
    import shlex

    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigurationError(f"QUOTA_WORKER_IMBOT_COMMAND: {error}") from None
    if not words:
        raise ConfigurationError("QUOTA_WORKER_IMBOT_COMMAND is empty")
    return words
