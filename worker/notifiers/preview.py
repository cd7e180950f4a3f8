"""What a channel would send for a message, as text: nothing is sent, no address is needed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.models import OutboxMessage
    from worker.rendering import Renderer

# By kind of channel: its templates' family and the parts that it sends.
CHANNELS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "console": ("console", ("term",)),
    "im-bot": ("im-bot", ("txt",)),
    "feishu-webhook": ("feishu", ("title", "md")),
    "feishu-app": ("feishu", ("title", "md")),
    "email": ("email", ("title", "txt", "html")),
    "webhook": ("webhook", ("txt",)),
    "apprise": ("apprise", ("title", "txt")),
}
# They show or hand on each message by itself.
WITHOUT_DIGESTS: Final = frozenset({"console", "webhook"})
# What the app's request has around its card: whom it goes to, and its id.
_APP_FRAME_BYTES: Final = 400


def preview(
    renderer: Renderer,
    messages: Sequence[OutboxMessage],
    channel: str,
    *,
    part: str | None = None,
    digest: bool = False,
) -> str:
    """The whole of it, or one part of it, as the service gets it; a card as indented JSON.

    `messages` are the digest's, else one. Raises UsageError for a part that the channel
    doesn't have, and RenderingError.
    """
    family, parts = CHANNELS[channel]
    if digest and channel in WITHOUT_DIGESTS:
        able = ", ".join(one for one in CHANNELS if one not in WITHOUT_DIGESTS)
        raise UsageError(f"{channel} collects no messages: choose one of {able}")
    if part is not None and part not in parts:
        raise UsageError(f"{channel} has no part {part!r}: choose one of {', '.join(parts)}")

    def rendered(part: str) -> str:
        if digest:
            return renderer.render_digest(messages, family, part)
        return renderer.render(messages[0], family, part)

    if part is not None:
        return rendered(part)
    if family == "feishu":
        from worker.notifiers.feishu_card import worst

        severity = worst(message.severity for message in messages)
        return _cards(channel, rendered("title"), rendered("md"), severity)
    if channel == "webhook":
        return _webhook(renderer, messages[0])
    if "title" in parts:
        return f"{rendered('title')}\n\n{rendered('txt')}"
    return rendered(parts[0])


def _cards(channel: str, title: str, markdown: str, severity: str) -> str:
    """A custom bot's request but for its signature; of an app the card alone."""
    from worker.notifiers.feishu_card import BODY_MAX_BYTES, card_bodies, cards

    if channel == "feishu-app":
        made = cards(
            title=title,
            markdown=markdown,
            severity=severity,
            max_bytes=BODY_MAX_BYTES - _APP_FRAME_BYTES,
            as_text=True,
        )
        return "\n".join(json.dumps(card, ensure_ascii=False, indent=2) for card in made)
    bodies = card_bodies(
        title=title,
        markdown=markdown,
        severity=severity,
        keyword=None,
        secret=None,
        timestamp_seconds=0,
    )
    return "\n".join(_indented(body) for body in bodies)


def _webhook(renderer: Renderer, message: OutboxMessage) -> str:
    from worker.notifiers.webhook import webhook_body

    return _indented(webhook_body(message, renderer.render(message, "webhook", "txt")))


def _indented(body: bytes) -> str:
    return json.dumps(json.loads(body), ensure_ascii=False, indent=2)
