"""`quota-worker preview`: what a channel would get, without database or configuration."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from acceptance.program import environment, quota_worker
from worker import cli
from worker.assets import Assets
from worker.commands.preview import preview_message
from worker.facts_shape import facts_faults
from worker.models import OutboxMessage
from worker.notifiers.preview import CHANNELS, WITHOUT_DIGESTS, preview
from worker.rendering import LANGUAGES, Renderer
from worker.samples import DIGEST, KINDS, SAMPLES, TEST, long_name, sample_facts
from worker.untrusted import visible


async def test_it_needs_nothing(tmp_path: Path) -> None:
    """No database, no configuration that would do: both would be refused if they were opened."""
    unreachable = "postgresql://nobody@127.0.0.1:1/none"
    done = await quota_worker(unreachable, "preview", "tenant-warn")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("[quota-warn] tenant-free at 82.0% completions / 41.0% cost\n")
    narrow = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = await quota_worker(None, "preview", "department-warn", "--lang", "zh-CN", **narrow)
    assert (done.code, done.err) == (0, "")
    assert "部门 Marketing" in done.out
    done = await quota_worker(None, "preview", "digest", XDG_STATE_HOME=str(tmp_path))
    assert done.out.startswith("[quota-digest] 50 quota alerts: ")
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  no embedded server's folder


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["tenant"],
            "no kind tenant: choose one of tenant-warn, department-warn, available, usage-missing, burn-rate, runaway, roi-report, digest, test",
        ),
        (["tenant-warn", "--channel", "fax"], "no channel fax: choose one of console, im-bot,"),
        (["tenant-warn", "--lang", "fr"], "no language fr: choose one of en, zh-CN"),
        (["tenant-warn", "--part", "html"], "console has no part 'html': choose one of term"),
        (["tenant-warn", "--samples", "x"], "no set of samples x: choose one of usual, "),
        (["digest", "--channel", "webhook"], "webhook collects no messages: choose one of im-bot,"),
        (["tenant-warn", "--facts", "-", "--samples", "past"], "exclude each other"),
        (["test", "--facts", "-"], "a test has none of its own"),
        (["tenant-warn", "--facts", "nowhere.json"], "nowhere.json: No such file"),
        (["a\x1b[2J"], "no kind a␛[2J: choose"),
    ],
)
def test_wrong_choices_name_the_right_ones(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["preview", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert says in line


async def _preview_of(text: str, kind: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker", "preview", kind, "--facts", "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(None),
    )
    out, err = await process.communicate(os.fsencode(text))
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_facts_of_ones_own() -> None:
    (facts,) = sample_facts("tenant-warn", "exhausted")
    facts["subject"] = "acme's"
    code, out, err = await _preview_of(json.dumps(facts), "tenant-warn")
    assert (code, err) == (0, "")
    assert out.startswith("[quota-exhausted] acme's at 100.0% completions")
    code, out, err = await _preview_of(json.dumps([facts] * 11), "digest")
    assert (code, err) == (0, "")
    assert out.startswith("[quota-digest] 11 quota alerts: 11 exhausted\n")


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("[1", "tenant-warn", "no JSON ("),
        ("[" * 100_000, "tenant-warn", "no JSON ("),
        ("{}", "digest", "a digest wants a list"),
        ("7", "tenant-warn", "the facts: an object is wanted"),
        ('[{}, {"subjekt": 1}]', "digest", "[0].subject_kind: missing"),
        ('{"subjekt": 1}', "tenant-warn", "subjekt: no such fact, did you mean subject?"),
    ],
    ids=["broken", "deep", "one", "number", "member", "unknown"],
)
def test_facts_of_another_shape(
    text: str, kind: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "facts.json"
    path.write_text(text)
    assert cli.run(["preview", kind, "--facts", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert says in line


@pytest.mark.parametrize(
    ("given", "own", "whose"),
    [
        ("tenant-warn", "department-warn", "a department's"),
        ("department-warn", "tenant-warn", "a tenant's"),
        ("tenant-warn", "available", "an available notice's"),
        ("available", "tenant-warn", "a tenant's"),
    ],
)
def test_facts_of_another_kind(
    given: str, own: str, whose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "facts.json"
    (facts,) = sample_facts(own, "usual")
    path.write_text(json.dumps(facts))
    assert cli.run(["preview", given, "--facts", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(f": these are {whose} facts: use {own} instead of {given}\n")
    # a digest takes any
    path.write_text(json.dumps([facts]))
    assert cli.run(["preview", "digest", "--facts", str(path)]) == 0
    assert "could not be rendered" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "fact", "fault"),
    [
        ("tenant-warn", "enforce", "enforce: a text is wanted of a tenant"),
        ("department-warn", "tier", "tier: a text is wanted of a department"),
        ("available", "reason", "reason: missing, one of period, allowance is wanted"),
    ],
)
def test_what_a_kind_needs_is_asked_for(kind: str, fact: str, fault: str) -> None:
    (facts,) = sample_facts(kind, "usual")
    if fact == "reason":
        del facts[fact]
    else:
        facts[fact] = None
    assert [one.startswith(fault) for one in facts_faults(facts)] == [True]


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("zone",), "Mars/Base", "zone: a time zone like Asia/Shanghai is wanted"),
        (
            ("severity",),
            "bad",
            "severity: one of exhausted, protected, downgrade, warning, available is",
        ),
        (("decided_at",), "2026-11-30T10:00:00", "decided_at: a time with its offset"),
        (("dimensions", 0, "used"), 1.5, "dimensions[0].used: a whole number is wanted"),
        (("dimensions", 1, "used"), float("inf"), "dimensions[1].used: a whole number is wanted"),
        (("dimensions", 0, "cap"), float("nan"), "dimensions[0].cap: a whole number is wanted"),
        (("dimensions", 0, "used"), True, "dimensions[0].used: a whole number is wanted"),
        (("dimensions", 1, "pct"), "x", "dimensions[1].pct: a number is wanted"),
        (("dimensions", 0, "period_start"), "30.11.", "dimensions[0].period_start: a day like"),
        (("dimensions",), {}, "dimensions: a list is wanted"),
        (("owner_emails",), [1], "owner_emails: a list of texts is wanted"),
        (("top_apps",), [{"app": "x"}], "top_apps[0].tokens: missing, a whole number is wanted"),
    ],
)
def test_a_wrong_fact_is_named(path: tuple[Any, ...], value: Any, fault: str) -> None:
    (facts,) = sample_facts("tenant-warn", "usual")
    assert facts_faults(facts) == []
    place: Any = facts
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert facts_faults(facts)[0].startswith(fault)


def message(facts: dict[str, Any], kind: str, channel: str, language: str) -> OutboxMessage:
    return preview_message(facts, kind, channel, language, 1)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    """One for all: compiling the templates takes longer than rendering them."""
    return Renderer(Assets())


@pytest.mark.parametrize("samples", SAMPLES)
def test_every_sample_on_every_channel(samples: str, renderer: Renderer) -> None:
    """Its facts have the shape of real ones, and each channel shows all their names."""
    for kind in KINDS:
        facts = sample_facts(kind, samples)
        if kind != TEST:
            assert [facts_faults(one) for one in facts] == [[]] * len(facts)
        for channel in CHANNELS:
            if kind == DIGEST and channel in WITHOUT_DIGESTS:
                continue
            for language in LANGUAGES:
                messages = [message(one, kind, channel, language) for one in facts]
                text = preview(renderer, messages, channel, digest=kind == DIGEST)
                assert text, (kind, channel, language)
                if samples == "long-names" and channel in {"console", "im-bot", "email", "webhook"}:
                    assert long_name() in text, (kind, channel, language)
                if channel == "console":
                    name = facts[0].get("department_name") or facts[0].get("subject", "")
                    assert visible(name) in text


def test_a_card_is_what_the_bot_would_get() -> None:
    renderer = Renderer(Assets())
    (facts,) = sample_facts("department-warn", "usual")
    one = message(facts, "department-warn", "feishu-webhook", "en")
    request = json.loads(preview(renderer, [one], "feishu-webhook"))
    assert request["msg_type"] == "interactive"
    assert set(request) == {"msg_type", "card"}
    assert json.loads(preview(renderer, [one], "feishu-app")) == request["card"]
    assert request["card"]["header"]["title"]["content"] == preview(
        renderer, [one], "feishu-webhook", part="title"
    )
