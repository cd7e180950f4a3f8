"""The default without configuration: a readable message on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from worker.notifiers.base import BaseNotifier
from worker.rendering import RenderingError

if TYPE_CHECKING:
    from worker.models import OutboxMessage
    from worker.ports.delivery import Pace
    from worker.rendering import Renderer


class ConsoleNotifier(BaseNotifier):
    """Writes to `stream`, by default stderr: stdout is for a command's answer."""

    channel = "console"
    family = "console"

    def __init__(self, renderer: Renderer, stream: TextIO | None = None) -> None:
        super().__init__(renderer)
        self._stream = stream

    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:  # noqa: ARG002  no limit
        """Write the message at once, its further lines indented."""
        try:
            text = self.part(message, "term").replace("\n", "\n  ")
        except RenderingError:
            # the last one to be told: with what is known of it
            text = self._renderer.render_line(message, "term", self.family)
        stream = self._stream or sys.stderr
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
