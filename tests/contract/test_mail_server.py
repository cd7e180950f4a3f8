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
        ("RCPT", "451 4.7.1 greylisted", FailureCause.RATE_LIMITED, "busy or greylists: repeated"),
        ("RCPT", "451 come back", FailureCause.RATE_LIMITED, "busy or greylists: repeated"),
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
        ("RCPT", DROP, FailureCause.UNREACHABLE, "the recipient: the connection was closed"),
        ("MAIL", DROP, FailureCause.UNREACHABLE, "the sender: the connection was closed"),
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
    unreachable, not_configured = FailureCause.UNREACHABLE, FailureCause.NOT_CONFIGURED
    rejected, login_refused = FailureCause.REJECTED, FailureCause.LOGIN_REFUSED
    bad, by_ca = "the server's certificate is not valid (verify", "trust the authority: `ca_"
    no_ca = str(tmp_path / "none.pem")
    refused: list[tuple[dict[str, Any], dict[str, Any], FailureCause, str, str]] = [
        # what the server does, what we expect of it, and what comes of it
        (
            {"starttls": False},
            {},
            rejected,
            "offers no STARTTLS",
            'or security = "tls" (often 465)',
        ),
        ({}, {"ca_file": None}, unreachable, bad, by_ca),
        ({}, {"ca_file": stranger.ca_file}, unreachable, bad, by_ca),
        ({"security": "tls"}, {"ca_file": None}, unreachable, bad, by_ca),
        ({}, {"security": "tls"}, unreachable, "is it the right port", '"starttls" for one that'),
        ({}, {"ca_file": no_ca}, not_configured, "ca_file can't be used: no such file", "may read"),
        ({}, {"ca_file": __file__}, not_configured, "there is no certificate in it", "as PEM"),
        ({}, {"password": "wrong"}, login_refused, "check the username and the pass", "copy user"),
        ({"logins": False}, {}, login_refused, "offers no login", "leave username and password"),
        ({}, {"username": None}, login_refused, "asks for a login", "set username and password"),
    ]
    for changes, wanted, cause, shown, cure in refused:
        async with (
            serving(certificates, **changes) as server,
            notifying(renderer, reached(server, **wanted)) as notifier,
        ):
            answer = await notifier.send(mail(), LIMIT_SECONDS)
            assert (answer.cause, answer.retryable) == (cause, cause in RETRYABLE_CAUSES), answer
            assert shown in answer.detail, answer
            assert cure in answer.cure, answer
            assert str(tmp_path) not in answer.detail + answer.cure
            assert server.received == []
            # a wrong password is said once: servers lock accounts
            assert len(server.tries) <= 1
    async with (
        serving(stranger) as server,
        notifying(renderer, reached(server, ca_file=stranger.ca_file)) as notifier,
    ):
        answer = await notifier.send(mail(), LIMIT_SECONDS)
        assert answer.detail.endswith("(verify code 62): it is for another name")
        assert answer.cure == "set the host's name that it is for"
    async with (
        serving(stranger) as server,
        notifying(renderer, reached(server)) as notifier,
    ):
        answer = await notifier.send(mail(), LIMIT_SECONDS)
        assert (answer.cause, server.tries) == (unreachable, [])


@pytest.mark.parametrize(
    ("lines", "cause", "shown"),
    [
        (["554 5.7.1 blocked"], FailureCause.ADDRESS_REFUSED, "serves no one from here"),
        (["421 4.3.2 busy"], FailureCause.SERVER_ERROR, "can't serve just now"),
        (["HTTP/1.1 400 Bad Request"], FailureCause.UNKNOWN_ANSWER, "was not understood"),
        ([], FailureCause.UNREACHABLE, "the greeting: the connection was closed without an answ"),
        (["220 hi"], FailureCause.UNREACHABLE, "EHLO: the connection was closed without an answ"),
        (["220 hi", "502 what"], FailureCause.REJECTED, "refuses this machine's greeting"),
        (["220 hi", "250-hi\r\n250 STARTTLS", "454 no"], FailureCause.SERVER_ERROR, "454"),
        (
            ["220 hi", "250-hi\r\n250 STARTTLS", "220 go", "no TLS"],
            FailureCause.UNREACHABLE,
            "no TLS with the mail server",
        ),
    ],
)
async def test_servers_that_break_off(
    renderer: Renderer, lines: list[str], cause: FailureCause, shown: str
) -> None:
    script = Script(*lines)
    port = await script.start()
    async with notifying(renderer, MailServer("127.0.0.1", port)) as notifier:
        answer = await notifier.send(mail(), LIMIT_SECONDS)
    await script.stop()
    assert (answer.cause, answer.retryable) == (cause, cause in RETRYABLE_CAUSES), answer
    assert shown in answer.detail


async def test_no_server_there(certificates: Certificates, renderer: Renderer) -> None:
    async with serving(certificates) as server:
        pass
    async with notifying(renderer, reached(server)) as notifier:
        answer = await notifier.send(mail(), LIMIT_SECONDS)
        assert (answer.cause, answer.detail) == (
            FailureCause.UNREACHABLE,
            "connection refused: nothing listens there",
        )
    async with notifying(renderer, reached(server, host="no-such-host.invalid")) as notifier:
        answer = await notifier.send(mail(), LIMIT_SECONDS)
        assert (answer.cause, answer.retryable) == (FailureCause.UNREACHABLE, True)
        assert answer.detail == "no such host: its name could not be resolved"


def test_what_to_do_is_told_by_the_step() -> None:
    for step, code, cure in (
        (Step.CONNECT, 554, "ask who runs the server to let this machine in"),
        (Step.SENDER, 550, "set `sender` of the channel (QUOTA_WORKER_SMTP_SENDER "),
        (Step.SENDER, 530, "set username and password of the channel"),
        (Step.LOGIN, 535, "copy username and password again"),
        (Step.TLS, 502, 'try security = "tls"'),
        (Step.HELLO, 501, "give this machine a full name"),
    ):
        assert refusal(step, code, "").cure.startswith(cure), (step, code)
    # as e-mail's other failures of that cause
    assert refusal(Step.RECIPIENT, 550, "").cure == refusal(Step.CONTENT, 550, "").cure == ""


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
