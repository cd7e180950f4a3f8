"""A channel that breaks as nobody foresaw: its message fails, the others go on."""

from __future__ import annotations

import asyncio
import io
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from contract.conftest import SECRET
from contract.outbox_world import put, run_deliver
from contract.servers import OK
from worker.configuration import load_delivery
from worker.settings import ChannelSettings, DeliverySettings

if TYPE_CHECKING:
    from contract.servers import FeishuServer, ImBot

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


async def test_a_lock_while_it_is_noted_repeats_nothing(
    dsn: str, conn: Connection, feishu: FeishuServer
) -> None:
    await put(conn, 1, channel="feishu-webhook")
    await put(conn, 1, channel="console")
    environ = {"QUOTA_WORKER_FEISHU_WEBHOOK": feishu.url, "QUOTA_WORKER_FEISHU_SECRET": SECRET}
    other = await asyncpg.connect(dsn)
    lock = other.transaction()

    async def hold() -> None:
        while not feishu.times:  # noqa: ASYNC110  the request is on its way
            await asyncio.sleep(0.01)

    feishu.delay_seconds = 0.5
    running = asyncio.create_task(run_deliver(dsn, environ, stream=io.StringIO()))
    await hold()
    await lock.start()
    await other.execute("LOCK TABLE quota_outbox IN SHARE MODE")
    # longer than one attempt to note it waits for the lock
    await asyncio.sleep(2.5)
    await lock.rollback()
    await other.close()
    counts = await running
    assert (counts.sent, counts.lost, len(feishu.requests)) == (2, 0, 1)


async def test_the_fallback_is_told_at_once_though_another_channel_hangs(
    dsn: str, conn: Connection, feishu: FeishuServer, imbot: ImBot
) -> None:
    imbot.mode("hang")
    feishu.answers = [(200, {"code": 19001})]
    await put(conn, 1, channel="im-bot")
    await put(conn, 1, channel="feishu-webhook")
    stream = io.StringIO()
    environ = {
        "QUOTA_WORKER_FEISHU_WEBHOOK": feishu.url,
        "QUOTA_WORKER_IMBOT_GROUP": "ops",
        "QUOTA_WORKER_IMBOT_COMMAND": str(imbot.path),
    }
    delivery = load_delivery(environ)._replace(fallback=("console",))
    running = asyncio.create_task(run_deliver(dsn, environ, stream=stream, delivery=delivery))
    for _ in range(100):
        if "tenant-001" in stream.getvalue():
            break
        await asyncio.sleep(0.1)
    assert "told here because feishu-webhook failed" in stream.getvalue()
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_what_is_queued_while_another_channel_hangs_is_sent_at_once(
    dsn: str, conn: Connection, feishu: FeishuServer, imbot: ImBot
) -> None:
    imbot.mode("hang")
    await put(conn, 1, channel="im-bot")
    environ = {
        "QUOTA_WORKER_FEISHU_WEBHOOK": feishu.url,
        "QUOTA_WORKER_FEISHU_SECRET": SECRET,
        "QUOTA_WORKER_IMBOT_GROUP": "ops",
        "QUOTA_WORKER_IMBOT_COMMAND": str(imbot.path),
    }
    running = asyncio.create_task(run_deliver(dsn, environ))
    async with asyncio.timeout(10):
        while not imbot.calls():  # noqa: ASYNC110  another process
            await asyncio.sleep(0.05)
    # the other channel has had its turn, and found nothing
    await asyncio.sleep(0.5)
    for sent in (1, 2):
        await put(conn, 1, channel="feishu-webhook")
        async with asyncio.timeout(5):
            while len(feishu.requests) < sent:  # noqa: ASYNC110  another task's
                await asyncio.sleep(0.05)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_one_bot_under_two_names_has_one_rate(
    dsn: str, conn: Connection, feishu: FeishuServer
) -> None:
    values = {"url": feishu.url, "secret": SECRET, "keyword": None}
    delivery = DeliverySettings(
        channels=tuple(ChannelSettings(name, "feishu-webhook", values) for name in ("a", "b"))
    )
    await put(conn, 3, channel="a")
    await put(conn, 3, channel="b")
    assert (await run_deliver(dsn, {}, delivery=delivery)).sent == 6
    # the grants, since a machine that is busy delays one request and not the next
    (rates,) = await conn.fetch("SELECT channel, granted_at FROM quota_channel_rates")
    granted = sorted(rates["granted_at"])
    assert len(granted) == len(feishu.times) == 6
    assert granted[3] - granted[0] >= timedelta(seconds=1.2)
    assert "t0ken" not in str(rates)


async def test_a_digest_on_the_fallback_says_why(
    dsn: str, conn: Connection, feishu: FeishuServer, imbot: ImBot
) -> None:
    feishu.answers = [(200, {"code": 19001})]
    await put(conn, 12, channel="feishu-webhook")
    environ = {
        "QUOTA_WORKER_FEISHU_WEBHOOK": feishu.url,
        "QUOTA_WORKER_IMBOT_GROUP": "ops",
        "QUOTA_WORKER_IMBOT_COMMAND": str(imbot.path),
    }
    assert (await run_deliver(dsn, environ)).dead == 12
    (digest,) = imbot.texts()
    assert digest.startswith("[quota-digest] 12 quota alerts")
    assert "told here because feishu-webhook failed for 12 of them: " in digest
    assert len(feishu.requests) == 1
