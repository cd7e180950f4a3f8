"""The Feishu custom bot: signature, decision table, card and size."""

from __future__ import annotations

import html
import json
import re
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from contract.conftest import SECRET
from contract.samples import department_facts, dimension, message, tenant_facts
from worker.errors import ConfigurationError
from worker.models import Digest, FailureCause
from worker.notifiers.feishu_card import sign
from worker.notifiers.feishu_codes import WEBHOOK_CODES
from worker.notifiers.feishu_webhook import FeishuWebhookNotifier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.servers import FeishuServer
    from worker.rendering import Renderer


@pytest.fixture
async def bot(renderer: Renderer, feishu: FeishuServer) -> AsyncIterator[FeishuWebhookNotifier]:
    notifier = FeishuWebhookNotifier(renderer, feishu.url, secret=SECRET)
    yield notifier
    await notifier.close()


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (100, "jquNHnVOwmDRfw+vqTIrY5dooJAgi5EcRtLsQE4wfXg="),
        (1599360473, "l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8="),
    ],
)
def test_the_signature_has_the_known_values(timestamp: int, expected: str) -> None:
    assert sign("demo", timestamp) == expected


def test_the_signature_is_not_the_other_vendors() -> None:
    assert sign("demo", 100) != "DkEDUyVoOOJ539qBvUgMyzkzIdRWlf4e/V3Rq+ONJnQ="


async def test_a_signed_card(bot: FeishuWebhookNotifier, feishu: FeishuServer) -> None:
    assert (await bot.send(message(), 10)).delivered
    (request,) = feishu.requests
    assert request["msg_type"] == "interactive"
    assert request["card"]["schema"] == "2.0"
    assert request["card"]["header"]["template"] == "yellow"
    assert request["timestamp"].isdigit()
    assert feishu.titles() == ["[quota-warn] tenant-free at 82.0% completions"]
    assert feishu.headers[0]["x-quota-worker-message-id"] == "qw-0123456789abcdef"


async def test_a_wrong_secret_is_permanent(renderer: Renderer, feishu: FeishuServer) -> None:
    bot = FeishuWebhookNotifier(renderer, feishu.url, secret=SECRET[::-1])
    answer = await bot.send(message(), 10)
    await bot.close()
    assert (answer.cause, answer.retryable) == (FailureCause.BAD_SIGNATURE, False)


async def test_the_keyword_is_in_every_card(renderer: Renderer, feishu: FeishuServer) -> None:
    feishu.keyword = "配额: [告警]"
    bare = FeishuWebhookNotifier(renderer, feishu.url, secret=SECRET)
    answer = await bare.send(message(), 10)
    assert (answer.cause, answer.retryable) == (FailureCause.KEYWORD_MISSING, False)
    await bare.close()
    bot = FeishuWebhookNotifier(renderer, feishu.url, secret=SECRET, keyword=feishu.keyword)
    assert (await bot.send(message(), 10)).delivered
    await bot.close()


TABLE: list[tuple[int, Any, FailureCause, bool]] = [
    (200, {"code": 11232, "msg": "frequency limited"}, FailureCause.RATE_LIMITED, True),
    (400, {"code": 9499, "msg": "too many request"}, FailureCause.RATE_LIMITED, True),
    (200, {"code": 9499, "msg": "Too Many Requests"}, FailureCause.RATE_LIMITED, True),
    (429, b"slow down", FailureCause.RATE_LIMITED, True),
    (200, {"code": 2200, "msg": "internal"}, FailureCause.SERVER_ERROR, True),
    (500, b"", FailureCause.SERVER_ERROR, True),
    (502, b"<html>bad gateway</html>", FailureCause.SERVER_ERROR, True),
    (200, b"<html>a captive portal</html>", FailureCause.UNKNOWN_ANSWER, True),
    (200, b"", FailureCause.UNKNOWN_ANSWER, True),
    (200, {}, FailureCause.UNKNOWN_ANSWER, True),
    (200, [0], FailureCause.UNKNOWN_ANSWER, True),
    (200, {"code": True}, FailureCause.UNKNOWN_ANSWER, True),
    (200, {"code": "0"}, FailureCause.UNKNOWN_ANSWER, True),
    (200, {"code": 77777}, FailureCause.UNKNOWN_ANSWER, True),
    (200, {"code": 10**4000}, FailureCause.UNKNOWN_ANSWER, True),
    (200, b'{"code": ' + b"9" * 60_000 + b"}", FailureCause.UNKNOWN_ANSWER, True),
    (200, b"[" * 200_000, FailureCause.UNKNOWN_ANSWER, True),
    (200, b"[" * 60_000, FailureCause.UNKNOWN_ANSWER, True),
    (200, b"\xff\xfe\x00", FailureCause.UNKNOWN_ANSWER, True),
    (302, {"code": 0}, FailureCause.UNKNOWN_ANSWER, True),
    (200, {"code": 9499, "msg": "Bad Request"}, FailureCause.REJECTED, False),
    (200, {"code": 19001, "msg": "param invalid"}, FailureCause.BOT_REMOVED, False),
    (200, {"code": 19002, "msg": "params error"}, FailureCause.REJECTED, False),
    (200, {"code": 19021, "msg": "sign match fail"}, FailureCause.BAD_SIGNATURE, False),
    (200, {"code": 19022, "msg": "Ip Not Allowed"}, FailureCause.ADDRESS_REFUSED, False),
    (200, {"code": 19024, "msg": "Key Words Not Found"}, FailureCause.KEYWORD_MISSING, False),
    (200, {"StatusCode": 19024}, FailureCause.KEYWORD_MISSING, False),
    (200, {"StatusCode": 0, "code": 19024}, FailureCause.KEYWORD_MISSING, False),
    (200, {"code": 19036, "msg": "exceeds"}, FailureCause.TOO_LARGE, False),
]


@pytest.mark.parametrize(("status", "body", "cause", "retryable"), TABLE)
async def test_what_a_failure_means(
    bot: FeishuWebhookNotifier,
    feishu: FeishuServer,
    status: int,
    body: Any,
    cause: FailureCause,
    retryable: bool,  # noqa: FBT001
) -> None:
    feishu.answers = [(status, body)]
    answer = await bot.send(message(), 10)
    assert (answer.delivered, answer.cause, answer.retryable) == (False, cause, retryable)
    assert len(feishu.requests) == 1
    code = body.get("code", body.get("StatusCode")) if isinstance(body, dict) else None
    if code in WEBHOOK_CODES:
        # the vendor's code, and its meaning in words
        assert re.fullmatch(rf"HTTP \d+, code {code}: [^:]{{10,}}.*", answer.detail)
    shown = repr(answer) + repr(bot)
    assert SECRET not in shown
    assert feishu.token not in shown


async def test_a_signature_that_is_wanted_and_not_set(
    renderer: Renderer, feishu: FeishuServer
) -> None:
    unsigned = FeishuWebhookNotifier(renderer, feishu.url)
    answer = await unsigned.send(message(), 10)
    await unsigned.close()
    assert answer.cause == FailureCause.BAD_SIGNATURE
    assert answer.detail.endswith(
        "code 19021: the bot wants signed messages, and no secret is set here"
    )
    assert answer.cure.startswith("set `secret` of the channel (QUOTA_WORKER_FEISHU_SECRET ")


async def test_the_older_success_form(bot: FeishuWebhookNotifier, feishu: FeishuServer) -> None:
    feishu.answers = [(200, {"StatusCode": 0, "StatusMessage": "success"})]
    # This answer is given unseen, so the signature isn't judged here.
    assert (await bot.send(message(), 10)).delivered


async def test_an_endless_answer_is_cut(bot: FeishuWebhookNotifier, feishu: FeishuServer) -> None:
    feishu.answers = [(200, b"x" * 10_000_000)]
    feishu.owed = 1_000_000
    answer = await bot.send(message(), 10)
    assert answer.cause == FailureCause.UNKNOWN_ANSWER


async def test_a_packed_bomb_is_not_unpacked(
    bot: FeishuWebhookNotifier, feishu: FeishuServer
) -> None:
    assert (await bot.send(message(), 10)).delivered
    assert feishu.headers[0]["accept-encoding"] == "identity"
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1_000_000)
    bomb = b"".join(packer.compress(zeros) for _ in range(50)) + packer.flush()
    feishu.answers = [(200, bomb)]
    feishu.more_headers = "Content-Encoding: gzip\r\n"
    tracemalloc.start()
    answer = await bot.send(message(), 10)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (answer.cause, answer.retryable) == (FailureCause.UNKNOWN_ANSWER, True)
    assert peak_bytes < 2_000_000


def long_facts() -> tuple[dict[str, Any], list[str]]:
    """A message that no single card holds, and names that must all be in it."""
    names = [f"{'<*_[]>' * 700}app{number}" for number in range(5)]
    facts = department_facts(
        "rnd",
        department_name='"<' * 9_000,
        top_apps=[
            {"app": name, "tokens": 1, "cost_nanos": 1, "share_pct": 20.0, "models": [name]}
            for name in names
        ],
    )
    return facts, names


async def test_nothing_is_left_out_of_a_long_message(
    bot: FeishuWebhookNotifier, feishu: FeishuServer
) -> None:
    facts, names = long_facts()
    feishu.rates = None
    paces = []

    async def pace() -> None:
        paces.append(len(feishu.requests))

    answer = await bot.send(message(facts), 10, pace)
    assert answer.delivered, answer
    count = len(feishu.requests)
    assert count > 1
    # asked for before each request but the first
    assert paces == list(range(1, count))
    assert max(feishu.sizes) < 20_000
    ids = [headers["x-quota-worker-message-id"] for headers in feishu.headers]
    assert ids == [f"qw-0123456789abcdef-{number}" for number in range(1, count + 1)]
    # Cut lines are put together again by dropping the breaks.
    whole = html.unescape("".join(feishu.texts())).replace("\n", "")
    for name in names:
        assert whole.count(name) == 2
    for text in feishu.texts():
        assert not re.search(r"&#?\w*$", text)
    assert feishu.titles()[0].endswith(f"(1/{count})")


async def test_a_card_is_laid_out(bot: FeishuWebhookNotifier, feishu: FeishuServer) -> None:
    refused = dimension(threshold=100, refused_at="2026-11-30T09:59:00+00:00")
    facts = department_facts(dimensions=[refused], severity="exhausted")
    labels = {
        "en": ("completions, day", "callers", "top apps of the last 24 hours", "decided"),
        "zh-CN": ("当日请求数", "调用方", "近 24 小时用量前列的应用", "判定时间"),
    }
    for locale, expected in labels.items():
        assert (await bot.send(message(facts, locale=locale), 10)).delivered
        elements = feishu.requests[-1]["card"]["body"]["elements"]
        assert [one["tag"] for one in elements[-2:]] == ["hr", "markdown"]
        assert elements[-1]["text_size"] == "notation"
        assert elements[-1]["content"].startswith("<font color='grey'>")
        contents = [one["content"] for one in elements if one["tag"] == "markdown"]
        # a time in a line makes no label of what is before it
        found = [label for one in contents for label in re.findall(r"\*\*(.*?)\*\*", one)]
        assert found == list(expected)
        # the apps are one list
        assert [one.count("\n") for one in contents if one.startswith("1. ")] == [1]


async def test_a_digest_names_everybody_in_one_card_of_the_worst_colour(
    bot: FeishuWebhookNotifier, feishu: FeishuServer
) -> None:
    messages = [
        message(tenant_facts(f"{'租户<' * 40}{number}"), dedupe_key=f"qw-{number}")
        for number in range(50)
    ]
    messages[30] = message(tenant_facts("tenant-full", severity="exhausted"))
    sent = 0
    while sent < len(messages):
        count = bot.fit(messages[sent:])
        digest = Digest(tuple(messages[sent : sent + count]), f"digest-{sent}")
        assert (await bot.send_digest(digest, 10)).delivered
        sent += count
    assert len(feishu.requests) > 1
    assert all(15_000 < size < 20_000 for size in feishu.sizes[:-1])
    text = html.unescape("\n".join(feishu.texts()))
    for number in (*range(30), *range(31, 50)):
        assert f"{'租户<' * 40}{number} at" in text
    assert "tenant-full" in text
    assert feishu.titles()[0].startswith("[quota-digest]")
    colours = [one["card"]["header"]["template"] for one in feishu.requests]
    assert colours.count("red") == 1
    assert set(colours) == {"red", "yellow"}


def test_the_setting_is_named_where_its_address_is_wrong(renderer: Renderer) -> None:
    url = "http://open.feishu.cn/t0ken"
    with pytest.raises(ConfigurationError, match="^QUOTA_WORKER_FEISHU_WEBHOOK is plain http"):
        FeishuWebhookNotifier(renderer, url)
    with pytest.raises(ConfigurationError, match="^channels.ops.url is plain http"):
        FeishuWebhookNotifier(renderer, url, setting="channels.ops.url")


async def test_facts_keep_their_figures(bot: FeishuWebhookNotifier, feishu: FeishuServer) -> None:
    big = 2**63 - 1
    facts = tenant_facts()
    facts["dimensions"][0] |= {"used": big, "cap": big, "held": big, "pct": 100.0}
    assert (await bot.send(message(facts), 10)).delivered
    assert "9,223,372,036,854,775,807" in feishu.texts()[0]
    assert json.dumps(feishu.requests[0])
