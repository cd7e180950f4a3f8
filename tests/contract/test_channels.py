"""One suite for every channel, with the real thing on the other side."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from contract.samples import HOSTILE_NAMES, department_facts, dimension, message, tenant_facts
from worker.models import FailureCause
from worker.notifiers.base import RETRYABLE_CAUSES
from worker.untrusted import visible

if TYPE_CHECKING:
    from contract.sides import Side
    from worker.rendering import Renderer

TIMEOUT_SECONDS = 10.0


async def test_sent_once_with_the_facts_and_what_to_do_next(side: Side) -> None:
    answer = await side.notifier.send(message(), TIMEOUT_SECONDS)
    assert answer.delivered, answer
    (text,) = side.shown()
    assert "41 of 50" in text
    assert "2026-12-01 00:00 UTC" in text
    last = text.strip().splitlines()[-1].strip()
    assert last.startswith("next: quota-worker status tenant-free")


async def test_a_department_says_who_used_it_and_whom_to_ask(side: Side) -> None:
    answer = await side.notifier.send(message(department_facts()), TIMEOUT_SECONDS)
    assert answer.delivered, answer
    (text,) = side.shown()
    assert "1. crawler: 8,000 tokens, 12.3456789 USD, 87.9% (large, small)" in text
    assert "2. (no app): 1,100 tokens, 0.000000001 USD, 12.1%" in text
    assert "requests to large, huge get the model small" in text
    assert text.strip().splitlines()[-1].strip().endswith("ask money@example.com")


@pytest.mark.parametrize(
    "facts", [tenant_facts(), department_facts()], ids=["tenant", "department"]
)
async def test_in_chinese(side: Side, facts: dict[str, object]) -> None:
    answer = await side.notifier.send(message(facts, locale="zh-CN"), TIMEOUT_SECONDS)
    assert answer.delivered, answer
    (text,) = side.shown()
    assert "重置" in text
    assert text.strip().splitlines()[-1].strip().startswith("下一步:quota-worker status")


async def test_names_are_shown_as_typed_and_do_nothing(side: Side) -> None:
    tame = department_facts("tame", department_name="tame")
    assert (await side.notifier.send(message(tame), TIMEOUT_SECONDS)).delivered
    for number, name in enumerate(HOSTILE_NAMES, start=1):
        facts = department_facts(name, department_name=name)
        facts["top_apps"][0] |= {"app": name, "models": [name]}
        facts["finance_emails"] = [name]
        sent = message(facts, dedupe_key=f"qw-{number}")
        answer = await side.notifier.send(sent, TIMEOUT_SECONDS)
        assert answer.delivered, (name, answer)
        # as the app, as its model, and as whom to ask; the chats' titles aside
        assert side.shown()[number].count(visible(name)) >= 3, name
        # a name can't forge a line
        texts = side.arrived()
        assert texts[number].count("\n") == texts[0].count("\n"), name
    assert len(side.arrived()) == 1 + len(HOSTILE_NAMES)
    side.check_tame()


async def test_a_tenants_name_can_not_forge_the_known_line(side: Side) -> None:
    name = "a\n[quota-exhausted] b at 100.0% completions"
    answer = await side.notifier.send(message(tenant_facts(name)), TIMEOUT_SECONDS)
    assert answer.delivered
    (text,) = side.shown()
    assert visible(name) in text
    assert not [line for line in text.splitlines() if line.strip().startswith("[quota-exhausted]")]


async def test_no_answer_in_time(side: Side) -> None:
    await side.silence()
    began = time.monotonic()
    answer = await side.notifier.send(message(), 0.5)
    assert time.monotonic() - began < 5
    assert (answer.delivered, answer.cause, answer.retryable) == (
        False,
        FailureCause.TIMEOUT,
        True,
    )
    no_secret_in(side, answer)


async def test_nothing_there(side: Side) -> None:
    await side.vanish()
    answer = await side.notifier.send(message(), TIMEOUT_SECONDS)
    assert not answer.delivered
    assert answer.cause == side.absent
    assert answer.retryable == (side.absent in RETRYABLE_CAUSES)
    no_secret_in(side, answer)


async def test_facts_that_can_not_be_rendered_are_permanent(side: Side) -> None:
    for facts in ("{}", "[]", '{"zone": "Nowhere/X", "currency": "USD", "dimensions": []}', "null"):
        answer = await side.notifier.send(replace(message(), facts=facts), TIMEOUT_SECONDS)
        assert (answer.delivered, answer.cause, answer.retryable) == (
            False,
            FailureCause.NOT_RENDERED,
            False,
        )
    assert side.arrived() == []


async def test_a_kind_without_template_is_permanent(side: Side) -> None:
    answer = await side.notifier.send(message(kind="unheard-of"), TIMEOUT_SECONDS)
    assert answer.cause == FailureCause.NOT_RENDERED


CALLERS: list[tuple[dict[str, object], str]] = [
    ({}, "nothing changes yet; at 100% further requests are refused"),
    ({"enforce": "observe"}, "nothing changes, enforcement is 'observe'"),
    ({"past": True, "severity": "exhausted"}, "nothing changes now, the period is over"),
    (
        {"severity": "exhausted", "dimensions": [dimension(used=50, pct=100.0, threshold=100)]},
        "further requests are refused until 2026-12-01 00:00 UTC",
    ),
    (
        {
            "severity": "exhausted",
            "dimensions": [dimension(threshold=100, refused_at="2026-11-30T09:59:00+00:00")],
        },
        "requests whose estimate no longer fits are refused",
    ),
]


async def test_what_changes_for_callers(side: Side) -> None:
    for number, (changes, expected) in enumerate(CALLERS):
        sent = message(tenant_facts(**changes), dedupe_key=f"qw-{number}")
        answer = await side.notifier.send(sent, TIMEOUT_SECONDS)
        assert answer.delivered, answer
        assert expected in side.shown()[number]


async def test_why_it_is_told_here(side: Side) -> None:
    facts = tenant_facts(
        undelivered={"channel": "feishu-webhook", "cause": "keyword_missing", "attempts": 1}
    )
    answer = await side.notifier.send(message(facts), TIMEOUT_SECONDS)
    assert answer.delivered, answer
    assert "feishu-webhook failed: the bot asks for a keyword" in side.shown()[0]


def test_every_cause_has_words_in_both_languages(renderer: Renderer) -> None:
    texts = set()
    for locale in ("en", "zh-CN"):
        for cause in FailureCause:
            facts = tenant_facts(undelivered={"channel": "x", "cause": cause, "attempts": 1})
            texts.add(renderer.render(message(facts, locale=locale), "im-bot", "txt"))
    assert len(texts) == 2 * len(FailureCause)


def no_secret_in(side: Side, answer: object) -> None:
    shown = repr(answer) + repr(side.notifier)
    for secret in side.secrets:
        assert secret not in shown
