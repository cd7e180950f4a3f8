"""The Feishu app: tokens, one message per uuid, the table of codes, size."""

from __future__ import annotations

import html
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from contract.samples import AT, message, tenant_facts
from contract.servers_app import JUDGED, AppServer
from contract.servers_http import DROP
from contract.test_feishu_webhook import long_facts
from worker.errors import ConfigurationError
from worker.models import Digest, FailureCause
from worker.notifiers.feishu_app import FeishuAppNotifier
from worker.notifiers.feishu_codes import APP_CODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from worker.notifiers.base import BaseNotifier
    from worker.rendering import Renderer


class Clock:
    """The time of both sides."""

    def __init__(self) -> None:
        self.now = AT

    def __call__(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def app(clock: Clock) -> AsyncIterator[AppServer]:
    server = AppServer(clock=clock.seconds, rates=None)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def bot(renderer: Renderer, app: AppServer, clock: Clock) -> AsyncIterator[FeishuAppNotifier]:
    notifier = FeishuAppNotifier(
        renderer, app.app_id, app.app_secret, app.chat, base_url=app.url, now=clock
    )
    yield notifier
    await notifier.close()


def bot_with(renderer: Renderer, app: AppServer, **changes: str) -> FeishuAppNotifier:
    values = {
        "app_id": app.app_id,
        "app_secret": app.app_secret,
        "receive_id": app.chat,
        "base_url": app.url,
    }
    return FeishuAppNotifier(renderer, **values | changes)


async def test_one_token_for_many_messages_until_half_an_hour_is_left(
    bot: FeishuAppNotifier, app: AppServer, clock: Clock
) -> None:
    # at 91 a new one is handed out, and asked for, long before the first is over
    steps = ((0, 1), (89, 1), (91, 2), (121, 2), (170, 2))
    for number, (minutes, tokens) in enumerate(steps, start=1):
        clock.now = AT + timedelta(minutes=minutes)
        assert (await bot.send(message(dedupe_key=f"qw-{number}"), 10)).delivered
        assert (len(app.messages), len(app.tokens)) == (number, tokens)
    asked = [headers for headers in app.headers if "authorization" not in headers]
    assert len(asked) == 2
    assert app.titles()[0] == "[quota-warn] tenant-free at 82.0% completions"
    assert app.requests[0]["uuid"] == "qw-1"


async def test_a_refused_token_is_renewed_once(bot: FeishuAppNotifier, app: AppServer) -> None:
    assert (await bot.send(message(dedupe_key="qw-1"), 10)).delivered
    app.tokens.clear()  # withdrawn before its time
    assert (await bot.send(message(dedupe_key="qw-2"), 10)).delivered
    assert len(app.messages) == 2
    app.answers = [(400, {"code": 99991663, "msg": "Invalid access token"})]
    before = len(app.requests)
    answer = await bot.send(message(dedupe_key="qw-3"), 10)
    assert (answer.cause, answer.retryable) == (FailureCause.LOGIN_REFUSED, False)
    assert len(app.requests) == before + 2


async def test_a_repetition_is_seen_once(
    bot: FeishuAppNotifier, app: AppServer, clock: Clock
) -> None:
    # it was taken, and the answer was lost
    taken = app.judge

    def lossy(request: Any) -> tuple[int, Any]:
        status, answer = taken(request)
        return DROP if "message_id" in str(answer) and len(app.requests) < 3 else (status, answer)

    app.judge = lossy  # type: ignore[method-assign]
    for _ in range(2):
        answer = await bot.send(message(), 10)
        assert (answer.cause, answer.retryable) == (FailureCause.UNKNOWN_ANSWER, True)
    assert (await bot.send(message(), 10)).delivered
    assert len(app.requests) == 3
    assert len(app.messages) == 1
    # after an hour the service has forgotten it
    clock.now += timedelta(hours=1)
    assert (await bot.send(message(), 10)).delivered
    assert len(app.messages) == 2


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"app_secret": "another-never-shown"}, FailureCause.LOGIN_REFUSED),
        ({"app_id": "cli_another"}, FailureCause.LOGIN_REFUSED),
        ({"app_id": "another"}, FailureCause.LOGIN_REFUSED),
        ({"receive_id": "oc_without_the_bot"}, FailureCause.BOT_REMOVED),
        ({"receive_id": "oc_of_nobody"}, FailureCause.BOT_REMOVED),
        ({"receive_id_type": "union_id"}, FailureCause.REJECTED),
    ],
    ids=str,
)
async def test_a_wrong_set_up_is_permanent(
    renderer: Renderer, app: AppServer, changes: dict[str, str], cause: FailureCause
) -> None:
    bot = bot_with(renderer, app, **changes)
    answer = await bot.send(message(), 10)
    await bot.close()
    assert (answer.delivered, answer.cause, answer.retryable) == (False, cause, False)
    # the vendor's code, and its meaning in words
    assert re.fullmatch(r"HTTP \d+, code \d+: .{10,}", answer.detail)
    assert "never-shown" not in repr(answer) + repr(bot)
    assert app.messages == {}


CODES = {
    FailureCause.REJECTED: {230001, 230099, 99992402},
    FailureCause.BOT_REMOVED: {230002, 230034, 230053, 232009},
    FailureCause.NO_PERMISSION: {230006, 230013, 230018, 230027, 230035, 99991403, 99991672},
    FailureCause.CONTENT_REFUSED: {230022, 230028},
    FailureCause.TOO_LARGE: {230025},
    FailureCause.ADDRESS_REFUSED: {99991401},
    FailureCause.LOGIN_REFUSED: {99991661, 99991663, 99991664, 99991668, 99991671},
    FailureCause.RATE_LIMITED: {230020, 99991400},
    FailureCause.SERVER_ERROR: {2200},
    # it may be there already
    FailureCause.UNKNOWN_ANSWER: {230049},
}


async def test_what_codes_mean(bot: BaseNotifier, app: AppServer) -> None:
    assert sorted(APP_CODES) == sorted(code for codes in CODES.values() for code in codes)
    for cause, codes in CODES.items():
        for code in codes:
            app.answers = [(400, {"code": code, "msg": "what the vendor says"})]
            answer = await bot.send(message(), 10)
            assert (answer.delivered, answer.cause) == (False, cause), code
            assert re.fullmatch(rf"HTTP 400, code {code}: [^:]{{10,}}.*", answer.detail)


ODD: list[tuple[int, Any, FailureCause, str]] = [
    (429, {"code": 99991400, "msg": "request trigger frequency limit"}, FailureCause.RATE_LIMITED, "code 99991400"),
    (200, {"code": 0}, FailureCause.UNKNOWN_ANSWER, "without a message's id"),
    (200, {"code": 0, "data": {"message_id": 7}}, FailureCause.UNKNOWN_ANSWER, "without a message's id"),
    (201, {"code": 0, "data": {"message_id": "om"}}, FailureCause.UNKNOWN_ANSWER, "HTTP 201, code 0"),
    (200, b"<html>a captive portal</html>", FailureCause.UNKNOWN_ANSWER, "without a code"),
    (400, {"code": 424242}, FailureCause.UNKNOWN_ANSWER, "code 424242"),
    (
        400,
        {"code": 230099, "msg": "Failed to create card content, ext=ErrCode: 200861; ErrMsg: x"},
        FailureCause.REJECTED,
        "(200861: it has an element that cards of this version don't know)",
    ),
]  # fmt: skip


async def test_odd_answers(bot: BaseNotifier, app: AppServer) -> None:
    for status, body, cause, words in ODD:
        app.answers = [(status, body)]
        answer = await bot.send(message(), 10)
        assert (answer.delivered, answer.cause) == (False, cause), body
        assert words in answer.detail


async def test_odd_answers_to_the_request_of_a_token(bot: BaseNotifier, app: AppServer) -> None:
    table: list[tuple[int, Any, FailureCause]] = [
        (200, {"code": 10003}, FailureCause.LOGIN_REFUSED),
        (200, {"code": 10014}, FailureCause.LOGIN_REFUSED),
        (200, {"code": 2200}, FailureCause.SERVER_ERROR),
        (400, {"code": 99991400}, FailureCause.RATE_LIMITED),
        (400, {"code": 99991401}, FailureCause.ADDRESS_REFUSED),
        (500, b"", FailureCause.SERVER_ERROR),
        (429, b"", FailureCause.RATE_LIMITED),
        (200, {"code": 0, "expire": 7200}, FailureCause.UNKNOWN_ANSWER),
        (200, {"code": 0, "tenant_access_token": "t-1"}, FailureCause.UNKNOWN_ANSWER),
        # it would forge a header
        (200, {"code": 0, "tenant_access_token": "t\r\nX: y", "expire": 7200}, FailureCause.UNKNOWN_ANSWER),
    ]  # fmt: skip
    for status, body, cause in table:
        app.token_answers = [(status, body)]
        answer = await bot.send(message(), 10)
        assert (answer.delivered, answer.cause) == (False, cause), body
    assert app.requests == []
    app.token_answers = [JUDGED]
    assert (await bot.send(message(), 10)).delivered


async def test_nothing_is_left_out_and_each_part_has_its_own_id(
    bot: FeishuAppNotifier, app: AppServer
) -> None:
    facts, names = long_facts()
    paces = []

    async def pace() -> None:
        paces.append(len(app.requests))

    # as long as a digest's or a message's id may be
    for key in ("k" * 43, "k" * 43):
        answer = await bot.send(message(facts, dedupe_key=key), 10, pace)
        assert answer.delivered, answer
    count = len(app.messages)
    assert count > 1
    # the second time the same parts came under the same ids
    assert len(app.requests) == 2 * count
    assert paces == [*range(1, count), *range(count + 1, 2 * count)]
    assert all(size < 20_000 for size in app.sizes)
    whole = html.unescape("".join(app.texts())).replace("\n", "")
    for name in names:
        assert whole.count(name) == 2


async def test_a_digest_fills_its_request(bot: FeishuAppNotifier, app: AppServer) -> None:
    messages = [
        message(tenant_facts(f'"租户\\{"<" * 40}{number}'), dedupe_key=f"qw-{number}")
        for number in range(150)
    ]
    count = bot.fit(messages)
    assert 20 < count < 150
    assert (await bot.send_digest(Digest(tuple(messages[:count]), "d" * 43), 10)).delivered
    assert app.requests[0]["uuid"] == "d" * 43
    assert 18_000 < app.sizes[-1] < 20_000
    (text,) = app.texts()
    assert html.unescape(text).count("租户") == count


@pytest.mark.parametrize(
    "changes",
    [
        {"receive_id_type": "phone"},
        {"receive_id": ""},
        {"receive_id": "x" * 201},
        {"base_url": "http://open.feishu.cn"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_a_set_up_that_can_not_work_is_refused(renderer: Renderer, changes: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=f"^{next(iter(changes))} "):
        bot_with(renderer, AppServer(), **changes)
