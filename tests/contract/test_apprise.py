"""Apprise against a real receiver; the services of others are out of a test's reach.

`json` and `xml` stand for them: one takes a title, a text and more than a chat's length, as
most do. What a service makes of them is Apprise's own to test.
"""

from __future__ import annotations

import asyncio
import html
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.samples import department_facts, message, tenant_facts
from contract.servers_http import HttpServer, Request
from contract.sides import SECRET
from contract.sides_mail import AppriseServer
from worker.errors import ConfigurationError
from worker.models import Digest, FailureCause
from worker.notifiers.apprise_channel import AppriseNotifier
from worker.rendering import Renderer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT_SECONDS = 10.0
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def receiver() -> AsyncIterator[AppriseServer]:
    server = AppriseServer()
    await server.start()
    yield server
    await server.stop()


async def test_title_text_and_urgency_arrive_as_plain_text(
    receiver: AppriseServer, renderer: Renderer
) -> None:
    notifier = AppriseNotifier(renderer, receiver.url)
    for severity in ("warning", "exhausted"):
        one = message(
            department_facts("**x** {{ 7 }} :OK: \\n", department_name=None, severity=severity)
        )
        assert (await notifier.send(one, LIMIT_SECONDS)).delivered
    first, second = receiver.requests
    assert first["title"].startswith(
        "[quota-warn] department **x** {{ 7 }} :OK: \\n (production) at 91.0%"
    )
    assert "1. crawler: 8,000 tokens" in first["message"]
    assert (first["type"], second["type"]) == ("warning", "failure")


async def test_a_service_that_shows_html_gets_the_text_and_no_markup(
    receiver: AppriseServer, renderer: Renderer
) -> None:
    notifier = AppriseNotifier(renderer, f"{receiver.url}&format=html")
    one = message(department_facts("**x** # _y_ & <b>"))
    assert (await notifier.send(one, LIMIT_SECONDS)).delivered
    (got,) = receiver.requests
    assert "<br" in got["message"]
    assert "**x** # _y_ & \uff1cb>" in html.unescape(got["message"]).replace("\xa0", " ")
    assert not re.search(r"<(?:strong|b|em|h1)\b", got["message"])


async def test_what_is_too_long_is_split_and_nothing_is_left_out(
    receiver: AppriseServer, renderer: Renderer
) -> None:
    notifier = AppriseNotifier(renderer, receiver.url)
    facts = department_facts()
    facts["top_apps"] = [
        facts["top_apps"][0] | {"app": f"app-{n}-" + "名" * 50} for n in range(600)
    ]
    assert (await notifier.send(message(facts), LIMIT_SECONDS)).delivered
    assert len(receiver.requests) > 1
    whole = "".join(one["message"] for one in receiver.requests)
    for n in range(600):
        assert f"app-{n}-" in whole


async def test_a_digest_is_one_request(receiver: AppriseServer, renderer: Renderer) -> None:
    notifier = AppriseNotifier(renderer, receiver.url)
    many = [message(tenant_facts(f"tenant-{n}-" + "x" * 200), message_id=n) for n in range(200)]
    fit = notifier.fit(many)
    assert 50 < fit < 200
    assert (await notifier.send_digest(Digest(tuple(many[:fit]), "qd-1"), LIMIT_SECONDS)).delivered
    (got,) = receiver.requests
    assert got["title"].startswith(f"[quota-digest] {fit} quota alerts")
    for n in range(fit):
        assert f"tenant-{n}-" in got["message"]


@pytest.mark.parametrize("status", [302, 400, 403, 404, 429, 500])
async def test_a_refusal_is_unknown_and_no_secret_is_logged(
    receiver: AppriseServer,
    renderer: Renderer,
    status: int,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.answers = [(status, {})]
    receiver.more_headers = "Location: /elsewhere\r\n"
    notifier = AppriseNotifier(renderer, receiver.url)
    answer = await notifier.send(message(), LIMIT_SECONDS)
    assert (answer.cause, answer.retryable) == (FailureCause.UNKNOWN_ANSWER, True)
    assert len(receiver.times) == 1  # a redirect is not followed
    shown = caplog.text + "".join(capfd.readouterr()) + answer.detail + repr(notifier)
    for secret in (SECRET, receiver.token):
        assert secret not in shown


class XmlServer(HttpServer):
    """Keeps what Apprise's `xml` service posts."""

    bodies: tuple[bytes, ...] = ()

    def judge(self, request: Request) -> tuple[int, object]:
        self.bodies += (request.body,)
        return 200, b""


async def test_another_service_takes_hostile_names_as_text(renderer: Renderer) -> None:
    from xml.etree import ElementTree as ET

    server = XmlServer()
    await server.start()
    notifier = AppriseNotifier(renderer, f"xml://127.0.0.1:{server.port}/x?rto=1")
    name = "]]></Message><at id=all> & [x](http://e) @所有人"
    assert (await notifier.send(message(tenant_facts(name)), LIMIT_SECONDS)).delivered
    await server.stop()
    (body,) = server.bodies
    text = "".join(ET.fromstring(body).itertext())  # noqa: S314  our own sender's
    assert "]]>\uff1c/Message>\uff1cat id=all> & [x\uff3d(http://e) \uff20所有人" in text


@pytest.mark.parametrize(
    "url", ["", "example", "://x", "json://", "a b://x", "json://x\n", "../../etc"]
)
def test_what_is_no_address_is_refused_at_once(renderer: Renderer, url: str) -> None:
    with pytest.raises(ConfigurationError, match="apprise url is none") as refused:
        AppriseNotifier(renderer, url)
    assert not url or url not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "words", "cure"),
    [
        (f"nosuch://{SECRET}", "Apprise knows no service nosuch://", "the word before :// names"),
        (f"slak://{SECRET}", "Apprise knows no service slak://", "did you mean slack://? "),
        (f"slack://{SECRET}", "Apprise can't use this slack:// address", "compare the address"),
        (f"json://{SECRET}:x:y/?format=z", "can't use this json:// address", "compare the addr"),
    ],
)
async def test_what_apprise_can_not_use_is_permanent_and_shows_nowhere(
    renderer: Renderer, url: str, words: str, cure: str, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = AppriseNotifier(renderer, url)
    assert notifier.fit([message()] * 3) == 3
    answer = await notifier.send(message(), LIMIT_SECONDS)
    assert (answer.cause, answer.retryable) == (FailureCause.NOT_CONFIGURED, False)
    assert words in answer.detail
    assert answer.cure.startswith(cure)
    assert SECRET not in caplog.text + answer.detail + answer.cure


def test_without_the_package_the_extra_is_named() -> None:
    """A real interpreter that has only its own library."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from worker.errors import ConfigurationError\n"
        "from worker.notifiers.apprise_channel import AppriseNotifier\n"
        "try: AppriseNotifier(None, 'json://localhost')\n"
        "except ConfigurationError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(
        "the channel kind apprise needs a package: install the wheel with"
    )
    assert "[apprise]" in done.stdout


def test_neither_library_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import worker.notifiers.apprise_channel, worker.notifiers.mail\n"
        "print([name for name in ('apprise', 'requests', 'aiosmtplib', 'jinja2', 'email') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(ROOT)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


async def test_silence_ends_with_the_time_limit(
    receiver: AppriseServer, renderer: Renderer
) -> None:
    receiver.answers = [(0, {})]
    notifier = AppriseNotifier(renderer, receiver.url)
    began = asyncio.get_running_loop().time()
    answer = await notifier.send(message(), 0.3)
    assert (answer.cause, answer.retryable) == (FailureCause.TIMEOUT, True)
    assert asyncio.get_running_loop().time() - began < 2
