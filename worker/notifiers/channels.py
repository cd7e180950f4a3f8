"""The channels that are configured, each built when first used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from worker.settings import (
    CONSOLE,
    ChannelSettings,
    fallbacks_document,
    quiet_document,
    routes_document,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from worker.assets import Assets
    from worker.notifiers.base import BaseNotifier
    from worker.rendering import Renderer
    from worker.settings import DeliverySettings


class ConfiguredChannels:
    """`Channels` by name; console is always there, as the last fallback.

    `environ` is what a child process gets (less our own values), `stream` the console's.
    """

    def __init__(
        self,
        delivery: DeliverySettings,
        assets: Assets,
        *,
        environ: Mapping[str, str] | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self._delivery = delivery
        self._settings = {CONSOLE: ChannelSettings(CONSOLE, CONSOLE, {})} | {
            channel.name: channel for channel in delivery.channels
        }
        self._assets = assets
        self._environ = environ
        self._stream = stream
        self._renderer: Renderer | None = None
        self._made: dict[str, BaseNotifier] = {}

    @classmethod
    def from_delivery(
        cls,
        delivery: DeliverySettings,
        assets: Assets,
        *,
        environ: Mapping[str, str] | None = None,
        stream: TextIO | None = None,
    ) -> Self:
        """The channels of a configuration that was checked."""
        return cls(delivery, assets, environ=environ, stream=stream)

    @property
    def names(self) -> tuple[str, ...]:
        """Every configured channel; console alone where none is."""
        return tuple(channel.name for channel in self._delivery.channels) or (CONSOLE,)

    @property
    def served(self) -> tuple[str, ...]:
        """Every channel that a message may stand for here: the console always is."""
        return tuple(dict.fromkeys((*self.names, CONSOLE)))

    @property
    def routes(self) -> str:
        """Who is told on which channel, as `quota_route` reads it: JSON."""
        return routes_document(self._delivery)

    @property
    def quiet(self) -> str | None:
        """The quiet hours, as `quota_quiet` reads them: JSON, or None."""
        return quiet_document(self._delivery)

    @property
    def fallbacks(self) -> str:
        """Where a dead message is told, as `quota_outbox_fail` reads it: JSON."""
        return fallbacks_document(self._delivery)

    def notifier(self, channel: str) -> BaseNotifier:
        """The channel's notifier, made at the first call; KeyError where none is configured.

        Raises ConfigurationError for what only the channel's own library can judge.
        """
        if channel not in self._made:
            settings = self._settings[channel]
            self._made[channel] = self._make(settings)
        return self._made[channel]

    async def close(self) -> None:
        """Close every notifier that was made."""
        for notifier in self._made.values():
            await notifier.close()

    def _child_environ(self) -> dict[str, str]:
        """Less the variables that hold other channels' secrets, whatever their names."""
        environ = os.environ if self._environ is None else self._environ
        hidden = self._delivery.secret_variables
        return {name: value for name, value in environ.items() if name not in hidden}

    def _make(self, settings: ChannelSettings) -> BaseNotifier:
        # a tick without messages makes no notifier, and so doesn't pay for these imports
        from worker.notifiers.makers import MAKERS, Surroundings
        from worker.rendering import Renderer

        if self._renderer is None:
            self._renderer = Renderer(self._assets)
        around = Surroundings(self._renderer, self._child_environ(), self._stream)
        return MAKERS[settings.kind](around, settings)
