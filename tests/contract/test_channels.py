"""One suite for every channel, with the real thing on the other side."""

from __future__ import annotations

import re
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
    from worker.models import Delivery
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


UNREADABLE = ("{}", "[]", '{"zone": "Nowhere/X", "currency": "USD", "dimensions": []}', "null")


async def test_what_can_not_be_rendered_is_permanent_but_on_the_console(side: Side) -> None:
    sent = [replace(message(), facts=facts) for facts in UNREADABLE]
    for one in (*sent, message(kind="unheard-of")):
        answer = await side.notifier.send(one, TIMEOUT_SECONDS)
        if side.notifier.channel == "console":
            # the last one to be told
            assert answer.delivered
        else:
            assert (answer.delivered, answer.cause, answer.retryable) == (
                False,
                FailureCause.NOT_RENDERED,
                False,
            )
    if side.notifier.channel == "console":
        told = "\n".join(side.shown())
        assert told.count("that could not be rendered: quota-worker alerts 1") == 5
    else:
        assert side.arrived() == []


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


DEPARTMENTS_CALLERS: list[tuple[dict[str, object], str, str]] = [
    (
        {"tier": "protected"},
        "only requests of high priority pass, those to large, huge with the model small",
        "仅高优先级请求可通过,其中 large, huge 改用模型 small",
    ),
    ({}, "requests to large, huge get the model small", "发往 large, huge 的请求改用模型 small"),
    (
        {"downgrade_model": None},
        "the downgrade tier is reached, but no model to downgrade to is set",
        "已到降级档,但未设置降级模型",
    ),
]


def test_a_refused_request_is_told_beside_the_tier(renderer: Renderer) -> None:
    refused = dimension("tokens", threshold=100, refused_at="2026-11-30T09:59:00+00:00")
    for changes, english, chinese in DEPARTMENTS_CALLERS:
        facts = department_facts(**changes)
        full = facts | {"severity": "exhausted", "dimensions": [refused]}
        for locale, tier, unfit in (
            ("en", f"callers: {english}", "; requests whose estimate no longer fits are refused"),
            ("zh-CN", f"调用方:{chinese}", ";预估用量超过余额的请求将被拒绝"),
        ):
            text = renderer.render(message(facts, locale=locale), "im-bot", "txt")
            assert f"{tier}\n" in text
            text = renderer.render(message(full, locale=locale), "im-bot", "txt")
            assert f"{tier}{unfit}\n" in text


def test_a_forecast_of_minutes_names_no_time(renderer: Renderer) -> None:
    for at, soon in (("10:09:59", True), ("10:10:00", False), ("09:59:00", True)):
        facts = tenant_facts(dimensions=[dimension(expected_at=f"2026-11-30T{at}+00:00")])
        for locale, near, far in (
            ("en", "full within minutes, if", f"full about 2026-11-30 {at[:5]} UTC, if"),
            ("zh-CN", "几分钟内用尽", f"约 2026-11-30 {at[:5]} UTC 用尽"),
        ):
            text = renderer.render(message(facts, locale=locale), "im-bot", "txt")
            assert (near in text, far in text) == (soon, not soon)
            mail = renderer.render(message(facts, locale=locale), "email", "html")
            assert (f"2026-11-30 {at[:5]} UTC" in mail) != soon


def test_what_is_available_again_says_a_department_once(renderer: Renderer) -> None:
    facts = department_facts(severity="available", reason="allowance")
    for locale, decided in (("en", "decided: "), ("zh-CN", "判定时间:")):
        one = message(facts, kind="available", locale=locale)
        text = renderer.render(one, "im-bot", "txt")
        assert (text.count("R&D"), text.count("production")) == (1, 1)
        assert f"\n{decided}2026-11-30 10:00 UTC\n" in text


async def test_addresses_are_as_they_are_for_programs_and_tame_in_chats(
    renderer: Renderer,
) -> None:
    one = message(department_facts("@all", department_name="@all"))
    text = renderer.render(one, "webhook", "txt")
    assert "ask money@example.com" in text
    assert "department @all" in text
    assert "@" not in renderer.render(one, "im-bot", "txt")


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


def no_secret_in(side: Side, answer: Delivery) -> None:
    # plain words, no names of Python's classes
    assert not re.search(r"[a-z](Error|Exception|Timeout)\b", answer.detail + answer.cure)
    shown = repr(answer) + repr(side.notifier)
    for secret in side.secrets:
        assert secret not in shown
