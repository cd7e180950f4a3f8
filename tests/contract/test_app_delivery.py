"""Case 22 with an app's bot, and an answer that is lost: everybody is told, and once."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

from contract.outbox_world import NOW, later, put, run_deliver, states
from contract.servers_app import AppServer
from contract.servers_http import DROP
from worker.settings import ChannelSettings, DeliverySettings, RouteRule

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[Any]


class LossyServer(AppServer):
    """Takes every message; the answers to the first two are lost on the way."""

    def judge(self, request: Any) -> tuple[int, Any]:
        status, answer = super().judge(request)
        lost = "message_id" in str(answer) and len(self.requests) <= 2
        return DROP if lost else (status, answer)


async def test_50_alerts_at_once_are_told_once_though_answers_are_lost(
    dsn: str, conn: Connection
) -> None:
    server = LossyServer()
    await server.start()
    channel = ChannelSettings(
        "ops",
        "feishu-app",
        {
            "app_id": server.app_id,
            "app_secret": server.app_secret,
            "receive_id": server.chat,
            "receive_id_type": "chat_id",
            "base_url": server.url,
        },
    )
    delivery = DeliverySettings(channels=(channel,), default=RouteRule(channels=("ops",)))
    await put(conn, 50, channel="ops")
    for now in (NOW, later(seconds=6), later(seconds=40)):
        # too short for the waits within a run
        await run_deliver(dsn, {}, now, seconds=28.0, delivery=delivery)
        # more of them meanwhile: what may have arrived is repeated as it was
        if now == NOW:
            await put(conn, 3, channel="ops", created_at=NOW)
    await server.stop()
    assert await states(conn) == {"sent": 53}
    cards = [set(re.findall(r"tenant-\d{3}", html.unescape(text))) for text in server.texts()]
    assert sum(len(names) for names in cards) == len(set().union(*cards)) == 53
    # the lost ones came again under their ids, and were taken once
    assert len(server.messages) + 2 == len(server.requests) <= 6
