"""The webhook: the specification's headers by its own verifier, the body, the statuses."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from contract.samples import HOSTILE_NAMES, department_facts, message
from contract.servers_webhook import TAKEN, WebhookServer
from worker.clock import utc_now
from worker.errors import ConfigurationError
from worker.models import FailureCause
from worker.notifiers.webhook import WebhookNotifier, read_keys, signed_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from worker.rendering import Renderer


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookServer]:
    server = WebhookServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def hook(renderer: Renderer, receiver: WebhookServer) -> AsyncIterator[WebhookNotifier]:
    notifier = WebhookNotifier(renderer, receiver.url, receiver.secret)
    yield notifier
    await notifier.close()


def whsec(key: bytes) -> str:
    return "whsec_" + base64.b64encode(key).decode()


def test_the_signature_is_the_verifiers() -> None:
    keys = [b"k" * 24, bytes(range(64))]
    body, now = b'{"text": "x"}', int(utc_now().timestamp())
    headers = signed_headers("qw-1", now, body, keys)
    for key in keys:
        Webhook(whsec(key)).verify(body, headers)
    for wrong in (b"l" * 24, b"k" * 25):
        with pytest.raises(WebhookVerificationError):
            Webhook(whsec(wrong)).verify(body, headers)
    for changed in (body + b" ", b"{}"):
        with pytest.raises(WebhookVerificationError):
            Webhook(whsec(keys[0])).verify(changed, headers)
    for name in ("webhook-id", "webhook-timestamp"):
        with pytest.raises(WebhookVerificationError):
            Webhook(whsec(keys[0])).verify(body, headers | {name: str(now - 1)})


async def test_the_body_says_everything_and_never_changes(
    renderer: Renderer, hook: WebhookNotifier, receiver: WebhookServer
) -> None:
    sent = message(department_facts())
    assert (await hook.send(sent, 10)).delivered
    # another process, another time
    later = WebhookNotifier(
        renderer,
        receiver.url,
        receiver.secret,
        now=lambda: utc_now() + timedelta(seconds=30),
    )
    assert (await later.send(sent, 10)).delivered
    await later.close()
    assert receiver.bodies[0] == receiver.bodies[1]
    first, second = receiver.headers
    assert first["webhook-id"] == second["webhook-id"] == "qw-0123456789abcdef"
    assert first["webhook-signature"] != second["webhook-signature"]
    body = json.loads(receiver.bodies[0])
    text = body.pop("text")
    assert body == {
        "type": "department-warn",
        "id": "qw-0123456789abcdef",
        "timestamp": "2026-11-30T10:00:00+00:00",
        "severity": "downgrade",
        "language": "en",
        "data": department_facts(),
    }
    assert text.startswith("[quota-warn] department R&D (production) at 91.0%")
    assert "1. crawler: 8,000 tokens" in text


async def test_names_arrive_in_the_data_as_they_were_chosen(
    hook: WebhookNotifier, receiver: WebhookServer
) -> None:
    for name in HOSTILE_NAMES:
        facts = department_facts(name, department_name=name)
        assert (await hook.send(message(facts), 10)).delivered
        assert receiver.requests[-1]["data"]["subject"] == name
    figures = department_facts()
    figures["dimensions"][0] |= {"used": 2**63 - 1, "cap": 2**63 - 1}
    assert (await hook.send(message(figures), 10)).delivered
    assert receiver.requests[-1]["data"]["dimensions"][0]["used"] == 2**63 - 1


async def test_a_secret_is_changed_without_a_gap(
    renderer: Renderer, receiver: WebhookServer
) -> None:
    new, old = whsec(b"n" * 32), receiver.secret
    for secret, cause in (
        (f"{new} {old}", None),
        (f"{old}\n{new}\n", None),
        (new, FailureCause.LOGIN_REFUSED),
        (None, FailureCause.LOGIN_REFUSED),
    ):
        hook = WebhookNotifier(renderer, receiver.url, secret)
        answer = await hook.send(message(), 10)
        await hook.close()
        assert answer.cause == cause
        assert not answer.retryable
    assert "webhook-signature" not in receiver.headers[-1]


@pytest.mark.parametrize(
    "secret",
    [
        "never-shown-0123456789",
        "whsec_",
        "whsec_" + "nevershown",
        whsec(b"never-shown-but-23-long"),
        whsec(b"never-shown" * 6),
        "whsec_" + "nevershown" * 4 + "!!!!",
        base64.b64encode(b"never-shown" * 3).decode(),
        f"{whsec(b'k' * 32)} never-shown",
        "  ",
    ],
)
def test_a_secret_of_another_form_is_refused_without_showing_it(
    renderer: Renderer, secret: str
) -> None:
    with pytest.raises(ConfigurationError, match="^the webhook's secret ") as refused:
        WebhookNotifier(renderer, "https://hooks.example/x", secret)
    for word in secret.split():
        assert word.removeprefix("whsec_")[:8] not in str(refused.value) or not word[6:]
    assert read_keys(whsec(b"k" * 32).rstrip("="), "x") == (b"k" * 32,)


TABLE: list[tuple[int, FailureCause, bool]] = [
    (301, FailureCause.REJECTED, False),
    (400, FailureCause.REJECTED, False),
    (401, FailureCause.LOGIN_REFUSED, False),
    (403, FailureCause.LOGIN_REFUSED, False),
    (404, FailureCause.BOT_REMOVED, False),
    (408, FailureCause.TIMEOUT, True),
    (410, FailureCause.BOT_REMOVED, False),
    (413, FailureCause.TOO_LARGE, False),
    (422, FailureCause.REJECTED, False),
    (425, FailureCause.RATE_LIMITED, True),
    (429, FailureCause.RATE_LIMITED, True),
    (500, FailureCause.SERVER_ERROR, True),
    (503, FailureCause.SERVER_ERROR, True),
]


async def test_what_a_status_means(hook: WebhookNotifier, receiver: WebhookServer) -> None:
    for status, cause, retryable in TABLE:
        receiver.answers = [(status, b"secret words of the receiver")]
        answer = await hook.send(message(), 10)
        assert (answer.delivered, answer.cause, answer.retryable) == (False, cause, retryable)
        assert answer.detail.startswith(f"HTTP {status}: ")
        assert "secret words" not in answer.detail
    receiver.answers = [(307, b"")]
    answer = await hook.send(message(), 10)
    assert "the address redirects" in answer.detail
    assert answer.cure == "give the final address as the channel's `url`"
    taken: list[tuple[int, Any]] = [(200, b"not even JSON"), (202, b""), TAKEN]
    for one in taken:
        receiver.answers = [one]
        assert (await hook.send(message(), 10)).delivered
