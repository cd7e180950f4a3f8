"""One suite for every channel, with the real thing on the other side."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

import pytest

from contract.conftest import SECRET
from contract.samples import HOSTILE_NAMES, department_facts, dimension, message, tenant_facts
from worker.models import FailureCause
from worker.notifiers.base import RETRYABLE_CAUSES
from worker.notifiers.console import ConsoleNotifier
from worker.untrusted import visible

if TYPE_CHECKING:
    from contract.conftest import Side

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


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
async def test_a_name_is_shown_as_typed_and_does_nothing(side: Side, name: str) -> None:
    facts = department_facts(name, department_name=name)
    facts["top_apps"][0] |= {"app": name, "models": [name]}
    facts["finance_emails"] = [name]
    tame = department_facts("tame", department_name="tame")
    for one in (tame, facts):
        answer = await side.notifier.send(message(one), TIMEOUT_SECONDS)
        assert answer.delivered, answer
    shown = "\n".join(side.shown())
    # as the app, as its model, and as whom to ask; the chats' titles aside
    assert shown.count(visible(name)) >= 3
    arrived = "\n".join(side.arrived())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069]", arrived)
    if side.notifier.channel == "im-bot":
        assert not re.search(r"@|<|\]\(", arrived)
    if side.notifier.channel == "feishu-webhook":
        assert not re.search(r"[<>*_\[\]`$~]", side.feishu.texts()[-1])
        assert "<" not in side.feishu.titles()[-1]
        assert not re.search(r":\w+:", side.feishu.titles()[-1])
    if side.notifier.channel != "console":
        # a name can't forge a line
        texts = side.arrived()
        assert texts[0].count("\n") == texts[1].count("\n")


async def test_a_tenants_name_can_not_forge_the_known_line(side: Side) -> None:
    name = "a\n[quota-exhausted] b at 100.0% completions"
    answer = await side.notifier.send(message(tenant_facts(name)), TIMEOUT_SECONDS)
    assert answer.delivered
    (text,) = side.shown()
    assert visible(name) in text
    assert not [line for line in text.splitlines() if line.strip().startswith("[quota-exhausted]")]


async def test_no_answer_in_time(side: Side) -> None:
    if side.notifier.channel == "console":
        pytest.skip("stderr has no other side that could be silent")
    side.imbot.mode("hang")
    side.feishu.answers = [(0, {})]
    began = time.monotonic()
    answer = await side.notifier.send(message(), 1.0)
    assert time.monotonic() - began < 5
    assert (answer.delivered, answer.cause, answer.retryable) == (
        False,
        FailureCause.TIMEOUT,
        True,
    )


async def test_nothing_there(side: Side) -> None:
    pipe = None
    if side.notifier.channel == "console":
        pipe = open_closed_pipe()
        side.notifier = ConsoleNotifier(side.notifier._renderer, pipe)
    elif side.notifier.channel == "im-bot":
        side.imbot.path.unlink()
    else:
        await side.feishu.stop()
    answer = await side.notifier.send(message(), TIMEOUT_SECONDS)
    if pipe is not None:
        with suppress(BrokenPipeError):
            pipe.close()
    assert not answer.delivered
    expected = (
        FailureCause.COMMAND_MISSING
        if side.notifier.channel == "im-bot"
        else FailureCause.UNREACHABLE
    )
    assert answer.cause == expected
    assert answer.retryable == (expected in RETRYABLE_CAUSES)
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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "nothing changes yet; at 100% further requests are refused"),
        ({"enforce": "observe"}, "nothing changes, enforcement is 'observe'"),
        ({"past": True, "severity": "exhausted"}, "nothing changes now, the period is over"),
        (
            {
                "severity": "exhausted",
                "dimensions": [dimension(used=50, pct=100.0, threshold=100)],
            },
            "further requests are refused until 2026-12-01 00:00 UTC",
        ),
        (
            {
                "severity": "exhausted",
                "dimensions": [
                    dimension(threshold=100, refused_at="2026-11-30T09:59:00+00:00"),
                ],
            },
            "requests whose estimate no longer fits are refused",
        ),
    ],
)
async def test_what_changes_for_callers(
    side: Side, changes: dict[str, object], expected: str
) -> None:
    answer = await side.notifier.send(message(tenant_facts(**changes)), TIMEOUT_SECONDS)
    assert answer.delivered, answer
    assert expected in side.shown()[0]


async def test_why_it_is_told_here(side: Side) -> None:
    facts = tenant_facts(
        undelivered={"channel": "feishu-webhook", "cause": "keyword_missing", "attempts": 1}
    )
    answer = await side.notifier.send(message(facts), TIMEOUT_SECONDS)
    assert answer.delivered, answer
    assert "feishu-webhook failed: the bot asks for a keyword" in side.shown()[0]


async def test_every_cause_has_words_in_both_languages(side: Side) -> None:
    for locale in ("en", "zh-CN"):
        for cause in FailureCause:
            facts = tenant_facts(undelivered={"channel": "x", "cause": cause, "attempts": 1})
            answer = await side.notifier.send(message(facts, locale=locale), TIMEOUT_SECONDS)
            assert answer.delivered, (locale, cause, answer)


def open_closed_pipe() -> TextIO:
    """A stream whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


def no_secret_in(side: Side, answer: object) -> None:
    shown = repr(answer) + repr(side.notifier)
    for secret in (SECRET, side.feishu.token, "secret-on-stderr"):
        assert secret not in shown
