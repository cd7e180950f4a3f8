"""What `channel test` and `channel list` say: words for every cause, kind and route."""

from __future__ import annotations

from datetime import time

import pytest

from worker.alerts_words import cause_words
from worker.assets import Assets
from worker.channel_uses import route_lines
from worker.cures import CURES, KIND_CURES, command_line, cure_words
from worker.models import FailureCause
from worker.notifiers.makers import MAKERS
from worker.settings import ChannelSettings, DeliverySettings, QuietHours, RouteRule
from worker.trial import where_to_look

VALUES = {
    "command": ("/opt/im bot", "--as", "q"),
    "group": "a\x1bb",
    "receive_id_type": "chat_id",
    "receive_id": "oc_1",
    "url": "slack://t0ken/x",
    "to": ("a@example.com",),
}
CHANNELS = {kind: ChannelSettings(kind, kind, VALUES) for kind in MAKERS}


def test_every_cause_has_its_words() -> None:
    # nobody sees it but deliver
    assert set(CURES) == set(FailureCause) - {FailureCause.WORKER_LOST}
    assert set(FailureCause) <= set(cause_words(Assets()))
    assert {kind for kind, _ in KIND_CURES} <= set(MAKERS)
    assert all(CURES[cause] != words for (_, cause), words in KIND_CURES.items())


@pytest.mark.parametrize(
    ("kind", "cause", "begins"),
    [
        ("webhook", FailureCause.LOGIN_REFUSED, "set `secret` to the signing secret"),
        ("webhook", FailureCause.BOT_REMOVED, "the address is gone or wrong"),
        ("webhook", FailureCause.RATE_LIMITED, "wait and try again; then ask who runs the rec"),
        ("email", FailureCause.ADDRESS_REFUSED, "set `sender` of the channel"),
        ("email", FailureCause.RATE_LIMITED, "nothing, if it ends: an alert is repeated"),
        ("apprise", FailureCause.UNKNOWN_ANSWER, "look whether it arrived all the same; if not, "),
        ("feishu-app", FailureCause.LOGIN_REFUSED, "copy app_id and app_secret again"),
        ("feishu-webhook", FailureCause.BOT_REMOVED, "add the bot to the group again"),
    ],
)
def test_what_to_do_fits_the_kind(kind: str, cause: FailureCause, begins: str) -> None:
    assert str(cure_words(CHANNELS[kind], cause)).startswith(begins)
    # what the failure itself says goes first
    assert cure_words(CHANNELS[kind], cause, "do this") == "do this"


def test_no_kind_is_told_of_what_it_has_not() -> None:
    """Bots, groups and cards are the chats', mail servers e-mail's, a receiver the webhooks'."""
    possible = {
        "email": "timeout unreachable rate_limited server_error address_refused too_large "
        "rejected unknown_answer recipient_refused login_refused content_refused",
        "webhook": "timeout unreachable rate_limited server_error bot_removed too_large rejected "
        "unknown_answer login_refused",
        "apprise": "timeout unknown_answer",
    }
    for kind, causes in possible.items():
        for cause in causes.split():
            words = str(cure_words(CHANNELS[kind], FailureCause(cause)))
            assert not any(one in words for one in ("bot", "group", "card", "app_")), words
            assert kind == "email" or "mail" not in words


def test_a_command_to_type_is_quoted_and_tame() -> None:
    assert command_line(CHANNELS["im-bot"]) == (
        "'/opt/im bot' --as q send --group 'a␛b' --text test"
    )
    for cause in (FailureCause.COMMAND_FAILED, FailureCause.TIMEOUT):
        assert str(cure_words(CHANNELS["im-bot"], cause)).endswith(" --text test")


def test_where_to_look_is_named_and_shows_no_secret() -> None:
    places = {kind: where_to_look(channel) for kind, channel in CHANNELS.items()}
    assert places["im-bot"] == "in the group a␛b"
    assert places["feishu-app"] == "in the chat of chat_id oc_1: a grey card"
    assert places["apprise"] == "in the service that its slack:// address leads to"
    assert "t0ken" not in repr(places)
    assert len(set(places.values())) == len(MAKERS)


def test_routes_are_told_with_their_conditions() -> None:
    chat, mail = ChannelSettings("chat", "im-bot", VALUES), ChannelSettings("mail", "email", VALUES)
    rules = (
        RouteRule(tenants=("acme", "x\ny"), severities=("warning",), channels=("chat",)),
        RouteRule(
            departments=("d",), environments=("test",), channels=("mail", "chat"), owners="mail"
        ),
    )
    delivery = DeliverySettings(
        channels=(chat, mail),
        rules=rules,
        default=RouteRule(channels=("mail",)),
        quiet=QuietHours(time(22), time(8), "Asia/Shanghai"),
        tell_available=True,
    )
    owners = "a department's owners and finance by mail"
    assert route_lines(delivery) == [
        "who is told where, by the first that matches:",
        "  routes[1], for tenant acme or x␊y and severity warning: chat",
        f"  routes[2], for department d and environment test: mail, chat; {owners}",
        "  default, for all others: mail",
        "given up on its own channel: told on chat or mail, whichever is another one",
        "quiet hours: 22:00 to 08:00 Asia/Shanghai, only what is at 100 % is sent then",
        "that a subject is available again: told",
    ]


@pytest.mark.parametrize(
    ("names", "fallback", "words"),
    [
        ((), (), "told on the console"),
        (("a",), (), "told on the console, as there is no other channel"),
        (("a", "b", "c"), (), "told on a or b, whichever is another one"),
        (("a", "b"), ("b",), "told on b, and what was given up there on the console"),
        (("a", "b", "c"), ("b", "c"), "told on b and c"),
    ],
)
def test_the_fallback_is_told_in_words(
    names: tuple[str, ...], fallback: tuple[str, ...], words: str
) -> None:
    channels = tuple(ChannelSettings(name, "im-bot", VALUES) for name in names)
    lines = route_lines(DeliverySettings(channels=channels, fallback=fallback))
    assert lines[2:4] == [f"given up on its own channel: {words}", "quiet hours: none"]
