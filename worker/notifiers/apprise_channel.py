"""WeCom, DingTalk, Slack, Teams and a hundred more, through the Apprise library.

An optional extra. Apprise says only whether a service took a message, so each failure is
an unknown answer, and no id goes along: a message may come twice.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from worker.errors import ConfigurationError
from worker.models import FailureCause, SendRate
from worker.notifiers.base import BaseNotifier, SendFailedError, bot_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from apprise import Apprise

    from worker.models import Digest, OutboxMessage
    from worker.ports.delivery import Pace
    from worker.rendering import Renderer

# Apprise's word, and with it the colour or the icon where the service has one.
_TYPES: Final = {"exhausted": "failure", "protected": "failure"}
_OTHER_TYPE: Final = "warning"
# Of a digest, for what Apprise and the service add to title and text.
_FRAME_LETTERS: Final = 100
# Both may log addresses, and in them tokens.
_LOGGERS: Final = ("apprise", "urllib3")
_SILENT: Final = logging.CRITICAL + 1


class AppriseNotifier(BaseNotifier):
    """One service by its Apprise address, which holds its secrets and shows nowhere.

    Raises ConfigurationError without the package, and for what is no such address. Whether
    Apprise can use it is known at the first message only: loading it takes a while.
    """

    channel = "apprise"
    family = "apprise"
    # What WeCom's and DingTalk's bots bear; Slack's a little more.
    rate = SendRate(per_second=1, per_minute=20)
    digest_over = 10

    def __init__(self, renderer: Renderer, url: str) -> None:
        super().__init__(renderer)
        check_url(url)
        self._url = url
        self.bot = bot_of(url)
        self._loaded: tuple[Apprise, int] | None = None

    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:  # noqa: ARG002  Apprise's own
        """Notify; Apprise splits what is too long for the service, and leaves nothing out."""
        title, text = self.part(message, "title"), self.part(message, "txt")
        await self._notify(title, text, message.severity)

    async def deliver_digest(self, digest: Digest) -> None:
        """Notify once, with a line per message."""
        title, text = (self.digest_part(digest.messages, part) for part in ("title", "txt"))
        await self._notify(title, text, digest.messages[0].severity)

    def digest_fits(self, messages: Sequence[OutboxMessage]) -> bool:
        """Within what the service takes at once."""
        title, text = (self.digest_part(messages, part) for part in ("title", "txt"))
        try:
            _, room = self._load()
        except SendFailedError:
            return True  # sending says why not, for all of them at once
        return len(title) + len(text) + _FRAME_LETTERS <= room

    async def _notify(self, title: str, text: str, severity: str) -> None:
        apprise, _ = await asyncio.to_thread(self._load)
        result = await apprise.async_notify(
            body=text,
            title=title,
            notify_type=_TYPES.get(severity, _OTHER_TYPE),
            body_format="text",
        )
        if not result:
            raise SendFailedError(
                FailureCause.UNKNOWN_ANSWER,
                "Apprise says that the service did not take it, or did not answer",
            )

    def _load(self) -> tuple[Apprise, int]:
        """The service, and how many letters it takes at once."""
        if self._loaded is None:
            for name in _LOGGERS:
                logging.getLogger(name).setLevel(_SILENT)
            from apprise import Apprise, AppriseAsset
            from apprise.common import OverflowMode

            asset = AppriseAsset(
                app_id="quota-worker",
                storage_mode="memory",
                http_redirects=False,
                allow_templates=False,
            )
            service: Any = Apprise.instantiate(self._url, asset=asset)
            if service is None:
                raise SendFailedError(
                    FailureCause.NOT_CONFIGURED, *_why_unusable(self._url.partition("://")[0])
                )
            service.overflow_mode = OverflowMode.SPLIT
            self._loaded = Apprise(service, asset=asset), int(service.body_maxlen)
        return self._loaded


def _why_unusable(scheme: str) -> tuple[str, str]:
    """What is wrong with the address, and what to do; of the address the scheme alone."""
    from difflib import get_close_matches

    from apprise.manager_plugins import NotificationManager

    services: Any = NotificationManager
    known = set(services().schemas())
    if scheme.lower() in known:
        return (
            f"Apprise can't use this {scheme}:// address: a part is missing or of another form",
            "compare the address with the service's page on appriseit.com, part by part",
        )
    near = get_close_matches(scheme.lower(), sorted(known), n=1)
    hint = f"did you mean {near[0]}://? " if near else ""
    return (
        f"Apprise knows no service {scheme}://",
        f"{hint}the word before :// names the service, as its page on appriseit.com says",
    )


def check_url(url: str) -> None:
    """Raise ConfigurationError, without the url, where it can't be one or nothing could use it."""
    from importlib.util import find_spec

    if find_spec("apprise") is None:
        from worker.configuration.kinds import APPRISE_CURE

        raise ConfigurationError(f"the channel kind apprise needs a package: {APPRISE_CURE}")
    scheme, separator, rest = url.partition("://")
    if not separator or not rest.strip() or not scheme.isalnum() or not url.isprintable():
        raise ConfigurationError(
            "the apprise url is none: it looks like slack://…, one service's address"
        )
