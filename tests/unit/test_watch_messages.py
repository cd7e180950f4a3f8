"""The messages of the watch: hostile names, digests, words, and facts that somebody wrote by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from worker import cli
from worker.alerts_words import burn_words, runaway_words
from worker.assets import Assets
from worker.commands.preview import preview_message
from worker.facts_shape import facts_faults, kind_of
from worker.notifiers.feishu_card import BODY_MAX_BYTES, card_bodies
from worker.notifiers.preview import CHANNELS, WITHOUT_DIGESTS, preview
from worker.rendering import LANGUAGES, Renderer
from worker.samples import SAMPLES, sample_facts, tenant_facts
from worker.untrusted import visible

KINDS = ("burn-rate", "runaway")
LISTS = {"burn-rate": "callers", "runaway": "findings"}


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    """One for all: compiling the templates takes longer than rendering them."""
    return Renderer(Assets())


def harmless(facts: dict[str, Any], kind: str) -> dict[str, Any]:
    """The same with names of one letter, or none where there is none."""
    named = {"app": "a", "api_key": "k"} | ({"models": ["m"]} if kind == "runaway" else {})
    listed = [one | named for one in facts[LISTS[kind]]]
    return facts | {"subject": "s", "department_name": "d", LISTS[kind]: listed}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_and_long_names_fit_every_channel(
    kind: str, language: str, renderer: Renderer
) -> None:
    for samples in ("long-names", "hostile-names"):
        (facts,) = sample_facts(kind, samples)
        for channel in CHANNELS:
            message = preview_message(facts, kind, channel, language, 1)
            text = preview(renderer, [message], channel)
            # a card's letters that could act there are entities
            assert "quota-worker limits block --for 2h" in text.replace("&#45;", "-"), channel
            if channel in {"console", "webhook", "email"} and samples == "hostile-names":
                for one in facts[LISTS[kind]]:
                    assert visible(one["app"]) in text.replace('\\"', '"').replace("\\\\", "\\")
        message = preview_message(facts, kind, "feishu-webhook", language, 1)
        title = renderer.render(message, "feishu", "title")
        markdown = renderer.render(message, "feishu", "md")
        bodies = card_bodies(
            title=title,
            markdown=markdown,
            severity=message.severity,
            keyword=None,
            secret=None,
            timestamp_seconds=0,
        )
        assert all(len(body) < BODY_MAX_BYTES for body in bodies)
        assert "<at" not in "".join(body.decode() for body in bodies)
        # no name can end its line, so there are as many as there would be of harmless names
        plain = preview_message(harmless(facts, kind), kind, "feishu-webhook", language, 1)
        assert len(markdown.splitlines()) == len(
            renderer.render(plain, "feishu", "md").splitlines()
        )
        html = renderer.render(message, "email", "html")
        assert "<at" not in html
        assert "x</at>" not in html


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_line_is_one_line(kind: str, language: str, renderer: Renderer) -> None:
    """With each of its findings first: the rules have sentences of their own."""
    (facts,) = sample_facts(kind, "usual")
    for first in range(len(facts[LISTS[kind]])):
        turned = facts[LISTS[kind]][first:] + facts[LISTS[kind]][:first]
        message = preview_message(facts | {LISTS[kind]: turned}, kind, "console", language, 1)
        for text in (
            renderer.render_line(message, "txt"),
            renderer.render(message, "email", "title"),
        ):
            assert "\n" not in text
            assert "None" not in text
        assert "\n\n" not in renderer.render(message, "feishu", "md")


RULES = {
    "en": (
        "840 requests in ten minutes, 92% of them with 812 input tokens; usual: 30 an hour",
        "requests in 41 minutes of the last hour; usual: 1 minute a day",
        "0.0775 CNY in the last hour, 14 times the usual 0.0052 CNY",
        "150 requests in ten minutes, 100% of them with 180 input tokens; usual: not known yet",
    ),
    "zh-CN": (
        "十分钟内 840 个请求,其中 92% 的输入均为 812 token;平时:每小时 30 个",
        "最近一小时有 41 分钟出现请求;平时:每天 1 分钟",
        "最近一小时 0.0775 CNY,为平时 0.0052 CNY 的 14 倍",
        "十分钟内 150 个请求,其中 100% 的输入均为 180 token;平时:尚无记录",
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_rule_is_said_in_plain_words(language: str, renderer: Renderer) -> None:
    (facts,) = sample_facts("runaway", "usual")
    message = preview_message(facts, "runaway", "console", language, 1)
    details = preview(renderer, [message], "console").splitlines()[1:]
    assert [one for one in details for rule in RULES[language] if one.endswith(rule)] == [
        one for one in details if one[0].isdigit() and one[1] == "."
    ]
    others = preview_message(
        facts | {"finding_count": 1, "findings": facts["findings"][:1]},
        "runaway",
        "console",
        language,
        1,
    )
    assert preview(renderer, [others], "console").splitlines()[0].endswith(RULES[language][0])


def test_a_full_cap_of_minutes_is_named_so(renderer: Renderer) -> None:
    (facts,) = sample_facts("burn-rate", "usual")
    soon = [one | {"expected_at": "2026-11-30T10:08:00+00:00"} for one in facts["dimensions"]]
    message = preview_message(facts | {"dimensions": soon[:1]}, "burn-rate", "console", "en", 1)
    line = preview(renderer, [message], "console").splitlines()[0]
    assert line == (
        "[quota-burn] tenant-free at 41.0% tokens, 4.4 times the even pace: full within minutes"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_line_of_a_digest(kind: str, renderer: Renderer) -> None:
    (watched,) = sample_facts(kind, "hostile-names")
    tag = {"burn-rate": "quota-burn", "runaway": "quota-runaway"}[kind]
    for channel in set(CHANNELS) - WITHOUT_DIGESTS:
        messages = [
            preview_message(facts, "digest", channel, "en", number)
            for number, facts in enumerate((watched, tenant_facts()), start=1)
        ]
        assert [one.kind for one in messages] == [kind, "tenant-warn"]
        text = preview(renderer, messages, channel, digest=True).replace("&#45;", "-")
        assert tag in text, channel


def test_the_list_of_alerts_says_it_in_a_line() -> None:
    (burn,) = sample_facts("burn-rate", "usual")
    (runaway,) = sample_facts("runaway", "usual")
    assert burn_words(json.dumps(burn)) == (
        "tokens, day 41.0%, 4.4 times the even pace; cost, day 37.9%, 4.3 times the even pace"
    )
    assert runaway_words(json.dumps(runaway)) == (
        "4 apps or keys run away, 1,584 requests in the last hour"
    )
    for odd in ("{}", "[]", '{"dimensions": [{"dimension": 1}]}', "no JSON"):
        assert (burn_words(odd), runaway_words(odd)) == ("", "")


@pytest.mark.parametrize("samples", SAMPLES)
@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_shape_of_the_facts(kind: str, samples: str) -> None:
    (facts,) = sample_facts(kind, samples)
    assert (facts_faults(facts), kind_of(facts)) == ([], kind)


@pytest.mark.parametrize(
    ("kind", "path", "value", "fault"),
    [
        ("burn-rate", ("dimensions",), [], "dimensions: at least one is wanted"),
        ("burn-rate", ("dimensions", 0, "pace"), "x", "dimensions[0].pace: a whole number"),
        ("burn-rate", ("dimensions", 0, "expected_at"), None, "dimensions[0].expected_at: a time"),
        ("burn-rate", ("callers", 0, "share_pct"), "x", "callers[0].share_pct: a number or null"),
        ("burn-rate", ("severity",), "exhausted", "severity: one of warning is wanted"),
        ("runaway", ("findings",), [], "findings: at least one is wanted"),
        ("runaway", ("finding_count",), 3, "finding_count: fewer than there are findings"),
        ("runaway", ("findings", 0, "rule"), "x", "findings[0].rule: one of tight_loop, every"),
        ("runaway", ("findings", 0, "same"), 841, "findings[0].same: at least 1 is wanted"),
        ("runaway", ("findings", 2, "usual"), 0, "findings[2].usual: more than 0 is wanted"),
        ("runaway", ("findings", 1, "usual_minutes"), None, "findings[1].usual_minutes: a number"),
        ("runaway", ("subject_kind",), "department", "subject_kind: one of tenant is wanted"),
        ("runaway", ("tier",), 1, "tier: no such fact"),
    ],
)
def test_a_wrong_fact_is_named(
    kind: str,
    path: tuple[Any, ...],
    value: object,
    fault: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (facts,) = sample_facts(kind, "usual")
    inner: Any = json.loads(json.dumps(facts))
    whole = inner
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(whole))
    assert cli.run(["preview", kind, "--facts", str(file)]) == 2
    assert f"facts.json: {fault}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", "its 1,250 keys together: "), ("zh-CN", "全部 1,250 个密钥合计:")],
)
def test_all_keys_of_an_app_are_named_as_such(
    language: str, words: str, renderer: Renderer
) -> None:
    (facts,) = sample_facts("runaway", "usual")
    facts["findings"][0] |= {"api_key": "", "key_count": 1_250}
    assert facts_faults(facts) == []
    for channel in ("console", "feishu-webhook", "email"):
        message = preview_message(facts, "runaway", channel, language, 1)
        assert words in preview(renderer, [message], channel), channel
        facts_of_one = sample_facts("runaway", "usual")[0]
        message = preview_message(facts_of_one, "runaway", channel, language, 1)
        assert "k-03" in preview(renderer, [message], channel), channel
