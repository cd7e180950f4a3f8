"""None is lost and none is told twice without need: leases, retries, fallbacks, rates, crashes."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from contract.conftest import SECRET
from contract.outbox_world import NOW, later, put, run_deliver, start_command, start_deliver, states
from contract.servers import OK
from worker.clock import monotonic_seconds

if TYPE_CHECKING:
    import asyncpg

    from contract.servers import FeishuServer, ImBot

    Connection = asyncpg.Connection[Any]

# ruff: noqa: PLR0917  fixtures are arguments
# No wait of the retry ladder fits into such a run.
SHORT_SECONDS = 28.0
ID = "QUOTA_WORKER_MESSAGE_ID"


@pytest.fixture
def imbot_env(imbot: ImBot) -> dict[str, str]:
    return {"QUOTA_WORKER_IMBOT_GROUP": "ops", "QUOTA_WORKER_IMBOT_COMMAND": str(imbot.path)}


@pytest.fixture
def feishu_env(feishu: FeishuServer) -> dict[str, str]:
    return {"QUOTA_WORKER_FEISHU_WEBHOOK": feishu.url, "QUOTA_WORKER_FEISHU_SECRET": SECRET}


def names(texts: list[str]) -> list[str]:
    """The tenants that the texts tell of, a digest's too."""
    return re.findall(r"^(?:\d+\. )?\[quota-warn\] (tenant-\d+) at", "\n".join(texts), re.MULTILINE)


async def test_sent_once(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str]
) -> None:
    await put(conn, 3)
    counts = await run_deliver(dsn, imbot_env)
    assert (counts.due, counts.sent, counts.failed, counts.leftover) == (3, 3, 0, False)
    assert (await run_deliver(dsn, imbot_env, later(minutes=5))).due == 0
    assert names(imbot.texts()) == ["tenant-000", "tenant-001", "tenant-002"]
    assert await states(conn) == {"sent": 3}
    keys = [call["env"]["QUOTA_WORKER_MESSAGE_ID"] for call in imbot.calls()]
    assert keys == ["key-000", "key-001", "key-002"]


async def test_the_most_urgent_goes_first(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str]
) -> None:
    for urgency in (3, 2, 1, 0):
        await put(conn, urgency=urgency)
    await run_deliver(dsn, imbot_env)
    assert names(imbot.texts()) == ["tenant-003", "tenant-002", "tenant-001", "tenant-000"]


async def test_a_dry_run_sends_nothing(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str]
) -> None:
    await put(conn, 2)
    counts = await run_deliver(dsn, imbot_env, dry_run=True)
    assert (counts.due, counts.sent) == (2, 0)
    assert imbot.calls() == []
    assert await states(conn) == {"pending": 2}


async def test_without_configuration_it_is_on_the_console(dsn: str, conn: Connection) -> None:
    await put(conn, channel="console")
    stream = io.StringIO()
    assert (await run_deliver(dsn, {}, stream=stream)).sent == 1
    assert stream.getvalue().startswith(
        "[quota-warn] tenant-000 at 82.0% completions / 41.0% cost\n"
    )


async def test_the_ladder_and_death_at_24_hours(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str]
) -> None:
    imbot.mode("exit1")
    await put(conn)
    now, waits, stream = NOW, [], io.StringIO()
    for _ in range(12):
        counts = await run_deliver(dsn, imbot_env, now, seconds=SHORT_SECONDS, stream=stream)
        if counts.dead:
            break
        assert counts.retried == 1
        due = await conn.fetchval("SELECT next_attempt_at FROM quota_outbox WHERE outbox_id = 1")
        # less the moments that the run itself took
        waits.append(int((due - now).total_seconds()) // 5 * 5)
        now = due
    # the last attempt is at 24 h
    assert waits[:6] == [5, 30, 300, 1800, 7200, 18000]
    assert waits[6:-1] == [18000] * 3
    assert abs((now - NOW).total_seconds() - 86400) < 2
    assert (counts.dead, counts.failed) == (1, 0)
    assert counts.failures == (("im-bot", "command_failed", 1),)
    row = await conn.fetchrow(
        "SELECT state, last_failure, attempts FROM quota_outbox WHERE outbox_id = 1"
    )
    assert tuple(row) == ("dead", "command_failed", 11)
    assert "told here because im-bot failed: the command failed" in stream.getvalue()
    assert await states(conn) == {"dead": 1, "sent": 1}


async def test_short_retries_happen_within_the_run(
    dsn: str, conn: Connection, feishu: FeishuServer, feishu_env: dict[str, str]
) -> None:
    feishu.answers = [(200, {"code": 11232, "msg": "frequency limited"}), OK]
    await put(conn, channel="feishu-webhook")
    began = monotonic_seconds()
    counts = await run_deliver(dsn, feishu_env)
    assert 5.0 <= monotonic_seconds() - began < 9.0
    assert (counts.sent, counts.retried) == (1, 1)
    assert len(feishu.requests) == 2


async def test_case_21_refused_twice_then_taken_is_delivered_once(
    dsn: str, conn: Connection, feishu: FeishuServer, feishu_env: dict[str, str]
) -> None:
    slow = (200, {"code": 11232, "msg": "frequency limited"})
    feishu.answers = [slow, slow, OK]
    await put(conn, channel="feishu-webhook")
    sent = 0
    for now in (NOW, later(seconds=6), later(seconds=40), later(minutes=5)):
        sent += (await run_deliver(dsn, feishu_env, now, seconds=SHORT_SECONDS)).sent
    assert sent == 1
    assert len(feishu.requests) == 3
    ids = {headers["x-quota-worker-message-id"] for headers in feishu.headers}
    assert ids == {"key-000"}


@pytest.mark.parametrize(
    ("answer", "cause", "words"),
    [
        ((200, {"code": 19024}), "keyword_missing", "the bot asks for a keyword"),
        ((200, {"code": 19021}), "bad_signature", "the signature was refused"),
        (
            (400, {"code": 9499, "msg": "Bad Request"}),
            "rejected",
            "the service refused the request",
        ),
    ],
)
async def test_case_21_a_permanent_error_is_told_on_the_fallback_at_once_and_once(
    dsn: str,
    conn: Connection,
    feishu: FeishuServer,
    feishu_env: dict[str, str],
    imbot: ImBot,
    imbot_env: dict[str, str],
    answer: tuple[int, dict[str, Any]],
    cause: str,
    words: str,
) -> None:
    feishu.answers = [answer]
    await put(conn, channel="feishu-webhook")
    environ = feishu_env | imbot_env
    counts = await run_deliver(dsn, environ, seconds=SHORT_SECONDS)
    assert (counts.sent, counts.dead, counts.failed) == (1, 1, 0)
    for minutes in (5, 600, 1500):
        assert (await run_deliver(dsn, environ, later(minutes=minutes))).due == 0
    assert len(feishu.requests) == 1
    (text,) = imbot.texts()
    assert f"told here because feishu-webhook failed: {words}" in text
    row = await conn.fetchrow("SELECT state, last_failure FROM quota_outbox WHERE outbox_id = 1")
    assert tuple(row) == ("dead", cause)


async def test_when_the_fallback_fails_too_the_console_tells(
    dsn: str,
    conn: Connection,
    feishu: FeishuServer,
    feishu_env: dict[str, str],
    imbot: ImBot,
    imbot_env: dict[str, str],
) -> None:
    feishu.answers = [(200, {"code": 19001})]
    imbot.path.unlink()
    await put(conn, channel="feishu-webhook")
    stream = io.StringIO()
    counts = await run_deliver(dsn, feishu_env | imbot_env, stream=stream)
    assert (counts.dead, counts.sent, counts.failed) == (2, 1, 0)
    assert stream.getvalue().count("[quota-warn] tenant-000") == 1
    assert "told here because im-bot failed: the command was not found" in stream.getvalue()


async def test_what_can_t_be_rendered_is_told_in_the_end(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str]
) -> None:
    await put(conn)
    await conn.execute("UPDATE quota_outbox SET kind = 'unheard-of'")
    stream = io.StringIO()
    counts = await run_deliver(dsn, imbot_env, stream=stream)
    assert (counts.dead, counts.sent, counts.failed) == (1, 1, 0)
    assert "a message of kind unheard-of that could not be rendered: quota-worker alerts 2" in (
        stream.getvalue()
    )


async def test_a_channel_that_is_gone_is_told_elsewhere_after_an_hour(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str]
) -> None:
    await put(conn, channel="feishu-webhook")
    assert (await run_deliver(dsn, imbot_env, later(minutes=59))).dead == 0
    counts = await run_deliver(dsn, imbot_env, later(minutes=61))
    assert (counts.dead, counts.sent) == (1, 1)
    assert "the channel is not configured" in imbot.texts()[0]


async def test_two_workers_share_the_work(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str]
) -> None:
    await put(conn, 10)
    runs = await asyncio.gather(*(run_deliver(dsn, imbot_env) for _ in range(2)))
    assert sum(run.sent for run in runs) == 10
    assert Counter(names(imbot.texts())) == {f"tenant-{n:03}": 1 for n in range(10)}


@pytest.mark.parametrize("count", [1, 20])
async def test_case_18_killed_between_claiming_and_sending(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str], count: int
) -> None:
    await put(conn, count)
    imbot.mode("hang")
    worker = await start_deliver(dsn, imbot_env)
    await until(imbot.calls)
    os.kill(worker.pid, signal.SIGKILL)
    await worker.wait()
    (lost,) = imbot.calls()
    os.kill(lost["pid"], signal.SIGKILL)
    assert await states(conn) == {"sending": count}
    imbot.mode("ok")
    assert (await run_deliver(dsn, imbot_env, later(seconds=30))).sent == 0
    await put(conn, 1)
    assert (await run_deliver(dsn, imbot_env, later(seconds=90))).sent == count + 1
    again = imbot.calls()[1:]
    assert Counter(names([call["argv"][4] for call in again])) == {
        f"tenant-{n:03}": 1 for n in range(count + 1)
    }
    # what may have arrived is repeated as it was, under its id
    assert [call["argv"] for call in again if call["env"][ID] == lost["env"][ID]] == [lost["argv"]]


async def test_case_19_killed_after_its_request(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str]
) -> None:
    await put(conn, 50)
    # half of them are about to be sent alone, as after an attempt that may have arrived
    await conn.execute("UPDATE quota_outbox SET request_key = dedupe_key WHERE outbox_id % 2 = 0")
    workers = [await start_deliver(dsn, imbot_env) for _ in range(2)]
    # both at work, then one is killed in the middle of it
    await until(lambda: len({call["ppid"] for call in imbot.calls()}) == 2)
    workers[0].kill()
    for worker in workers:
        await worker.communicate()
    await run_deliver(dsn, imbot_env, later(seconds=240))
    assert await states(conn) == {"sent": 50}
    told = Counter(names(imbot.texts()))
    assert len(told) == 50
    ids = Counter(call["env"][ID] for call in imbot.calls())
    assert sum(ids.values()) - len(ids) <= 1


async def test_case_20_the_deadline_leaves_the_rest_cleanly(
    dsn: str, conn: Connection, imbot: ImBot, imbot_env: dict[str, str]
) -> None:
    await put(conn, 200)
    await conn.execute("UPDATE quota_outbox SET request_key = dedupe_key WHERE outbox_id <= 40")
    first = await run_deliver(dsn, imbot_env, seconds=25.9)
    assert first.leftover
    assert 0 < first.sent < 200
    assert await states(conn) == {"sent": first.sent, "pending": 200 - first.sent}
    await conn.execute("UPDATE quota_outbox SET request_key = NULL")
    second = await run_deliver(dsn, imbot_env, later(minutes=5))
    assert first.sent + second.sent == 200
    assert Counter(names(imbot.texts())) == {f"tenant-{n:03}": 1 for n in range(200)}


async def test_case_22_never_more_than_the_bot_may(
    dsn: str, conn: Connection, feishu: FeishuServer, feishu_env: dict[str, str]
) -> None:
    await put(conn, 10, channel="feishu-webhook")
    runs = await asyncio.gather(*(run_deliver(dsn, feishu_env) for _ in range(2)))
    assert sum(run.sent for run in runs) == 10
    await put(conn, 40, channel="feishu-webhook")
    runs = await asyncio.gather(*(run_deliver(dsn, feishu_env) for _ in range(2)))
    assert sum(run.sent for run in runs) == 40
    times = sorted(feishu.times)
    assert 10 < len(times) < 15
    assert all(later_ - now >= 1.0 for now, later_ in zip(times, times[5:], strict=False))


async def test_the_rate_is_an_exact_window(conn: Connection) -> None:
    ask = "SELECT quota_channel_slot('bot', 3, 5, $1)"
    waits = [
        await conn.fetchval(ask, later(seconds=s)) for s in (0, 0, 0, 0, 0.7, 1.2, 1.2, 2, 59, 60)
    ]
    assert waits == [0, 0, 0, 1.2, 0.5, 0, 0, 58, 1, 0]
    # another bot has its own; a clock set back does not block
    assert await conn.fetchval("SELECT quota_channel_slot('bot2', 3, 5, $1)", NOW) == 0
    assert await conn.fetchval(ask, later(hours=-5)) == 0


async def test_a_hanging_channel_holds_up_no_other(
    dsn: str,
    conn: Connection,
    feishu: FeishuServer,
    feishu_env: dict[str, str],
    imbot: ImBot,
    imbot_env: dict[str, str],
) -> None:
    imbot.mode("hang")
    await put(conn, 1, channel="im-bot")
    await put(conn, 3, channel="feishu-webhook")
    running = asyncio.create_task(run_deliver(dsn, feishu_env | imbot_env))
    await until(lambda: len(feishu.requests) == 3)
    assert (
        await conn.fetchval("SELECT state FROM quota_outbox WHERE channel = 'im-bot'") == "sending"
    )
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_no_secret_on_any_stream(
    dsn: str,
    conn: Connection,
    feishu: FeishuServer,
    feishu_env: dict[str, str],
    imbot_env: dict[str, str],
) -> None:
    feishu.answers = [(200, {"code": 19021, "msg": f"sign match fail {SECRET}"})]
    await put(conn, channel="feishu-webhook")
    worker = await start_command(dsn, feishu_env)
    out, err = await worker.communicate()
    assert worker.returncode == 0
    assert out == b""
    shown = (out + err).decode()
    assert "told here because feishu-webhook failed" in shown
    stored = str(await conn.fetch("SELECT * FROM quota_outbox"))
    for secret in (SECRET, feishu.token):
        assert secret not in shown
        assert secret not in stored


async def until(condition: Any, seconds: float = 20.0) -> None:
    """Wait until the condition is true."""
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    pytest.fail("it did not happen in time")
