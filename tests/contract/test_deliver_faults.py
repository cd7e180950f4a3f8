"""A channel that breaks as nobody foresaw: its message fails, the others go on."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from contract.conftest import SECRET
from contract.outbox_world import put, run_deliver
from contract.servers import OK
from worker.settings import ChannelSettings, DeliverySettings

if TYPE_CHECKING:
    import asyncpg

    from contract.servers import FeishuServer

    Connection = asyncpg.Connection[Any]

# No wait of the retry ladder fits into such a run.
SHORT_SECONDS = 28.0


class BrokenOnce(io.StringIO):
    """A console whose first write fails as no notifier foresees."""

    broken = False

    def write(self, text: str) -> int:
        if not self.broken:
            self.broken = True
            raise ValueError(f"broken {SECRET}")
        return super().write(text)


async def test_a_channel_that_breaks_fails_one_message_and_no_other(
    dsn: str, conn: Connection, feishu: FeishuServer
) -> None:
    await put(conn, 2, channel="feishu-webhook")
    await put(conn, 2, channel="console")
    feishu.answers = [(200, b"[" * 200_000), OK]
    stream = BrokenOnce()
    environ = {"QUOTA_WORKER_FEISHU_WEBHOOK": feishu.url, "QUOTA_WORKER_FEISHU_SECRET": SECRET}
    counts = await run_deliver(dsn, environ, seconds=SHORT_SECONDS, stream=stream)
    assert (counts.due, counts.retried, counts.sent) == (4, 2, 2)
    rows = await conn.fetch(
        "SELECT state, last_failure, last_detail FROM quota_outbox ORDER BY outbox_id"
    )
    assert [tuple(row) for row in rows] == [
        ("pending", "unknown_answer", "HTTP 200 without a code"),
        ("sent", None, None),
        ("pending", "unknown_answer", "internal error: ValueError"),
        ("sent", None, None),
    ]
    assert "tenant-003" in stream.getvalue()


async def test_a_channel_that_can_t_be_made_holds_up_no_other(dsn: str, conn: Connection) -> None:
    await put(conn, 2, channel="hook")
    await put(conn, 1, channel="console")
    values = {"url": "http://127.0.0.1:9/", "secret": f"whsec_{SECRET}!"}
    delivery = DeliverySettings(channels=(ChannelSettings("hook", "webhook", values),))
    stream = io.StringIO()
    counts = await run_deliver(dsn, {}, stream=stream, delivery=delivery)
    assert (counts.dead, counts.sent, counts.failed) == (2, 3, 0)
    assert stream.getvalue().count("told here because hook failed") == 2
    assert SECRET not in str(await conn.fetch("SELECT * FROM quota_outbox"))
