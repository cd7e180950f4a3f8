"""E-mail's way to the server: encryption, login, and what each refusal means."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contract.mail_world import LIMIT_SECONDS, SENDER, TO, mail, notifying, reached, serving
from contract.servers_mail import DROP, HANG, OK, Certificates, Script
from contract.sides import SECRET
from worker.errors import ConfigurationError
from worker.models import FailureCause
from worker.notifiers.base import RETRYABLE_CAUSES
from worker.notifiers.mail import MailNotifier, MailServer
from worker.notifiers.mail_answers import Step, refusal
from worker.rendering import Renderer


@pytest.mark.parametrize(
    ("step", "said", "cause", "shown"),
    [
        (
            "MAIL",
            "451 4.3.0 later s3cret-words",
            FailureCause.SERVER_ERROR,
            "the sender: 451 4.3.0",
        ),
        ("MAIL", "530 5.7.0 login first", FailureCause.LOGIN_REFUSED, "asks for a login"),
        ("MAIL", "550 5.7.1 not you", FailureCause.ADDRESS_REFUSED, "does not accept this sender"),
        ("MAIL", "552 5.3.4 too big", FailureCause.TOO_LARGE, "larger than"),
        ("RCPT", "450 4.2.0 greylisted", FailureCause.RATE_LIMITED, "450 4.2.0"),
        ("RCPT", "452 4.2.2 no room", FailureCause.RATE_LIMITED, "452 4.2.2"),
        (
            "RCPT",
            "550 5.1.1 nobody@here",
            FailureCause.RECIPIENT_REFUSED,
            "the recipient: 550 5.1.1: ",
        ),
        ("RCPT", "551 elsewhere", FailureCause.RECIPIENT_REFUSED, "the recipient: 551: "),
        ("RCPT", "552 5.2.2 full", FailureCause.RECIPIENT_REFUSED, "552 5.2.2"),
        ("RCPT", "553 5.1.3 no", FailureCause.RECIPIENT_REFUSED, "553"),
        ("RCPT", "554 5.7.1 relay access denied", FailureCause.RECIPIENT_REFUSED, "554 5.7.1"),
        ("DATA", "421 4.3.2 closing", FailureCause.SERVER_ERROR, "421"),
        ("DATA", "452 4.3.1 disk", FailureCause.RATE_LIMITED, "452"),
        ("DATA", "550 5.7.1 spam", FailureCause.CONTENT_REFUSED, "refuses what it says"),
        ("DATA", "552 5.3.4 big", FailureCause.TOO_LARGE, "552"),
        ("DATA", "554 5.6.0 virus", FailureCause.CONTENT_REFUSED, "554"),
        ("DATA", DROP, FailureCause.UNKNOWN_ANSWER, "before the message was answered"),
        ("RCPT", DROP, FailureCause.UNREACHABLE, "the recipient: "),
        ("MAIL", DROP, FailureCause.UNREACHABLE, "the sender: "),
    ],
)
async def test_what_a_refusal_means_and_the_next_message_goes_out(
    certificates: Certificates,
    renderer: Renderer,
    step: str,
    said: str,
    cause: FailureCause,
    shown: str,
) -> None:
    async with (
        serving(certificates, answers={step: [said, OK]}) as server,
        notifying(renderer, reached(server)) as notifier,
    ):
        answer = await notifier.send(mail(), LIMIT_SECONDS)
        assert (answer.delivered, answer.cause, answer.retryable) == (
            False,
            cause,
            cause in RETRYABLE_CAUSES,
        )
        assert shown in answer.detail
        for hidden in ("s3cret", "nobody@here", TO, SECRET, "localhost"):
            assert hidden not in answer.detail
        assert (await notifier.send(mail(dedupe_key="qw-next"), LIMIT_SECONDS)).delivered
        assert server.received[-1].mail["Message-ID"] == "<qw-next@example.com>"


def test_codes_that_servers_give_at_other_steps() -> None:
    for step, code, text, cause in (
        (Step.LOGIN, 454, "4.7.0 later", FailureCause.SERVER_ERROR),
        (Step.LOGIN, 501, "", FailureCause.LOGIN_REFUSED),
        (Step.TLS, 454, "", FailureCause.SERVER_ERROR),
        (Step.HELLO, 502, "", FailureCause.REJECTED),
        (Step.RECIPIENT, 550, "5.2.3 too long", FailureCause.TOO_LARGE),
        (Step.CONTENT, 354, "", FailureCause.UNKNOWN_ANSWER),
        (Step.CONTENT, -1, "what?", FailureCause.UNKNOWN_ANSWER),
    ):
        assert refusal(step, code, text).cause == cause, (step, code)


async def test_an_idle_connection_that_the_server_closed_is_opened_again(
    certificates: Certificates, renderer: Renderer
) -> None:
    async with serving(certificates) as server, notifying(renderer, reached(server)) as notifier:
        assert (await notifier.send(mail(), LIMIT_SECONDS)).delivered
        assert notifier._client is not None
        assert notifier._client.transport is not None
        notifier._client.transport.abort()
        assert (await notifier.send(mail(), LIMIT_SECONDS)).delivered
        assert (len(server.received), server.connections) == (2, 2)


async def test_two_at_once_take_turns(certificates: Certificates, renderer: Renderer) -> None:
    async with serving(certificates) as server, notifying(renderer, reached(server)) as notifier:
        answers = await asyncio.gather(
            *(
                notifier.send(
                    mail(dedupe_key=f"qw-{n}", recipient=f"p{n}@x.example"), LIMIT_SECONDS
                )
                for n in range(5)
            )
        )
        assert all(answer.delivered for answer in answers), answers
        assert server.connections == 1
        assert {(got.recipient, got.mail["Message-ID"]) for got in server.received} == {
            (f"p{n}@x.example", f"<qw-{n}@example.com>") for n in range(5)
        }


@pytest.mark.parametrize("step", ["EHLO", "DATA"])
async def test_silence_is_a_timeout_and_its_late_answer_is_nobodys(
    certificates: Certificates, renderer: Renderer, step: str
) -> None:
    async with (
        serving(certificates, answers={step: [HANG, OK]}) as server,
        notifying(renderer, reached(server)) as notifier,
    ):
        answer = await notifier.send(mail(), 0.3)
        assert (answer.cause, answer.retryable) == (FailureCause.TIMEOUT, True)
        assert (await notifier.send(mail(dedupe_key="qw-next"), LIMIT_SECONDS)).delivered
        assert [got.mail["Message-ID"] for got in server.received] == ["<qw-next@example.com>"]


async def test_the_way_is_encrypted_and_the_server_is_who_it_says_or_nothing_is_sent(
    certificates: Certificates, renderer: Renderer, tmp_path: Path
) -> None:
    stranger = Certificates(tmp_path, "elsewhere.example")
    refused = [
        # what the server does, what we expect of it, and what comes of it
        ({"starttls": False}, {}, FailureCause.REJECTED, "offers no STARTTLS"),
        ({}, {"ca_file": None}, FailureCause.UNREACHABLE, "certificate is not valid"),
        ({}, {"ca_file": stranger.ca_file}, FailureCause.UNREACHABLE, "certificate is not valid"),
        (
            {"security": "tls"},
            {"ca_file": None},
            FailureCause.UNREACHABLE,
            "certificate is not valid",
        ),
        ({}, {"security": "tls"}, FailureCause.UNREACHABLE, "is it the right port"),
        (
            {},
            {"ca_file": str(tmp_path / "none.pem")},
            FailureCause.NOT_CONFIGURED,
            "ca_file can't be used",
        ),
        ({}, {"ca_file": __file__}, FailureCause.NOT_CONFIGURED, "ca_file can't be used"),
        (
            {},
            {"password": "wrong"},
            FailureCause.LOGIN_REFUSED,
            "check the username and the password",
        ),
        ({"logins": False}, {}, FailureCause.LOGIN_REFUSED, "offers no login"),
        ({}, {"username": None}, FailureCause.LOGIN_REFUSED, "asks for a login"),
    ]
    for changes, wanted, cause, shown in refused:
        async with (
            serving(certificates, **changes) as server,
            notifying(renderer, reached(server, **wanted)) as notifier,
        ):
            answer = await notifier.send(mail(), LIMIT_SECONDS)
            assert (answer.cause, answer.retryable) == (cause, cause in RETRYABLE_CAUSES), answer
            assert shown in answer.detail, answer
            assert str(tmp_path) not in answer.detail
            assert server.received == []
            # a wrong password is said once: servers lock accounts
            assert len(server.tries) <= 1
    async with (
        serving(stranger) as server,
        notifying(renderer, reached(server)) as notifier,
    ):
        answer = await notifier.send(mail(), LIMIT_SECONDS)
        assert (answer.cause, server.tries) == (FailureCause.UNREACHABLE, [])


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["554 5.7.1 blocked"], FailureCause.ADDRESS_REFUSED),
        (["421 4.3.2 busy"], FailureCause.SERVER_ERROR),
        (["HTTP/1.1 400 Bad Request"], FailureCause.UNKNOWN_ANSWER),
        ([], FailureCause.UNREACHABLE),
        (["220 hi", "502 what"], FailureCause.REJECTED),
        (["220 hi", "250-hi\r\n250 STARTTLS", "454 no"], FailureCause.SERVER_ERROR),
        (["220 hi", "250-hi\r\n250 STARTTLS", "220 go", "no TLS"], FailureCause.UNREACHABLE),
    ],
)
async def test_servers_that_break_off(
    renderer: Renderer, lines: list[str], cause: FailureCause
) -> None:
    script = Script(*lines)
    port = await script.start()
    async with notifying(renderer, MailServer("127.0.0.1", port)) as notifier:
        answer = await notifier.send(mail(), LIMIT_SECONDS)
    await script.stop()
    assert (answer.cause, answer.retryable) == (cause, cause in RETRYABLE_CAUSES), answer


async def test_no_server_there(certificates: Certificates, renderer: Renderer) -> None:
    async with serving(certificates) as server:
        pass
    async with notifying(renderer, reached(server)) as notifier:
        answer = await notifier.send(mail(), LIMIT_SECONDS)
        assert (answer.cause, answer.detail) == (
            FailureCause.UNREACHABLE,
            "the greeting: ConnectionRefusedError",
        )
    async with notifying(renderer, reached(server, host="no-such-host.invalid")) as notifier:
        answer = await notifier.send(mail(), LIMIT_SECONDS)
        assert (answer.cause, answer.retryable) == (FailureCause.UNREACHABLE, True)


@pytest.mark.parametrize(
    ("changes", "sender", "shown"),
    [
        (
            {"security": "none", "host": "mail.example.com"},
            SENDER,
            "without encryption goes to this machine only",
        ),
        ({"security": "ssl"}, SENDER, "none of starttls, tls, none"),
        ({"username": "u"}, SENDER, "no password"),
        ({}, "quota", "sender is no e-mail address"),
        ({}, "a@b.example\r\nBcc: c@d.example", "sender is"),
    ],
)
def test_a_wrong_set_up_is_refused_at_once(
    renderer: Renderer, changes: dict[str, Any], sender: str, shown: str
) -> None:
    values = {"host": "mail.example.com"} | changes
    with pytest.raises(ConfigurationError, match=shown):
        MailNotifier(renderer, MailServer(**values), sender)


def test_the_password_shows_in_no_repr() -> None:
    assert SECRET not in repr(MailServer("h", 1, "tls", "u", SECRET))
