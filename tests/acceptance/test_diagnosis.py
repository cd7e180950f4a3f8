"""The job diagnose as operators meet it: its message, where it is shown, and its settings."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from acceptance.program import quota_worker
from requests_world import put
from unit.configuration_world import faults_of
from worker import cli
from worker.assets import Assets
from worker.commands.preview import preview_message
from worker.estimates import NAMELESS
from worker.facts_shape import facts_faults
from worker.notifiers.feishu_card import BODY_MAX_BYTES, card_bodies
from worker.notifiers.preview import CHANNELS, WITHOUT_DIGESTS, preview
from worker.rendering import LANGUAGES, Renderer
from worker.samples import sample_facts, tenant_facts
from worker.untrusted import visible

from sql.calls import NOON

Connection = asyncpg.Connection
AS_OF = ("--as-of", NOON.isoformat())
CURE = 'stream_options: {"include_usage": true}'


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    """One for all: compiling the templates takes longer than rendering them."""
    return Renderer(Assets())


async def test_a_warning_goes_out_and_is_found_again(dsn: str, conn: Connection) -> None:
    await put(conn, 1_000, 60, model="large", app="<at id=all></at>", key="k\x1b[2J")
    await put(conn, 1_000, 50, model="small")
    dry = await quota_worker(dsn, "run", "diagnose", *AS_OF, "--dry-run", "--json")
    (job,) = json.loads(dry.out)["jobs"]
    assert (job["outcome"], job["untold"], job["groups"]) == ("done", 1, 0)
    assert await conn.fetchval("SELECT count(*) FROM quota_outbox") == 0

    # found and delivered in one tick, to the console; a second within the hour tells nothing
    done = await quota_worker(dsn, "tick", *AS_OF)
    assert done.code == 0
    line = (
        "[quota-usage-missing] 60 of 1,000 requests of 24 hours came without usage (6.0%): large,"
    )
    assert line in done.err
    assert "<at id=all></at>, key k␛[2J" in done.err
    assert CURE in done.err
    later = (NOON + timedelta(minutes=5)).isoformat()
    again = await quota_worker(dsn, "tick", "--jobs", "diagnose,deliver", "--as-of", later)
    assert (again.code, again.err, again.out) == (0, "", "")

    listed = await quota_worker(dsn, "alerts")
    assert "warning  usage-missing: 60 of 1,000 requests without usage, in 1 group\n" in listed.out
    (outbox_id,) = await conn.fetchrow("SELECT outbox_id FROM quota_outbox")
    one = await quota_worker(dsn, "alerts", str(outbox_id))
    assert CURE in one.out
    assert "\x1b" not in one.out
    document = json.loads((await quota_worker(dsn, "alerts", str(outbox_id), "--json")).out)
    assert (document["kind"], document["subject"], document["crossed"]) == (
        "usage-missing",
        None,
        [],
    )
    assert document["facts"]["groups"][0]["api_key"] == "k\x1b[2J"
    assert document["deliveries"][0]["state"] == "sent"


async def test_the_file_says_what_is_told(dsn: str, conn: Connection, tmp_path: Path) -> None:
    await put(conn, 100, 10)
    config = tmp_path / "quota-worker.toml"
    environ = {"QUOTA_WORKER_CONFIG": str(config)}
    for table, groups in (
        ("off = true", 0),
        ("missing_pct = 10", 0),
        ("min_requests = 101", 0),
        ("missing_pct = 9\nmin_requests = 100", 1),
    ):
        config.write_text(f"[diagnosis]\n{table}\n")
        done = await quota_worker(dsn, "run", "diagnose", *AS_OF, "--json", **environ)
        (job,) = json.loads(done.out)["jobs"]
        assert (job["outcome"], job["groups"]) == ("done", groups), table


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    text = '[diagnosis]\nmissing_pct = 100\nmin_requests = "20"\noff = 1\nmissing_pc = 5\n'
    assert faults_of(tmp_path, text) == [
        "diagnosis.missing_pct is out of bounds: 0 to 99",
        "diagnosis.min_requests is a text: a whole number is needed, without quotes",
        "diagnosis.off is a number: true or false is needed, without quotes",
        "diagnosis.missing_pc is not known here: did you mean missing_pct?",
    ]
    assert faults_of(tmp_path, "[diagnosis]\nmissing_pct = 5.5\n") == [
        "diagnosis.missing_pct is 5.5: a whole number is needed"
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_and_long_labels_fit_every_channel(language: str, renderer: Renderer) -> None:
    for samples in ("long-names", "hostile-names"):
        (facts,) = sample_facts("usage-missing", samples)
        for channel in CHANNELS:
            message = preview_message(facts, "usage-missing", channel, language, 1)
            text = preview(renderer, [message], channel)
            # a card's letters that could act there are entities
            assert "include_usage" in text.replace("&#95;", "_"), channel
            if channel in {"console", "webhook", "email"} and samples == "hostile-names":
                for group in facts["groups"]:
                    assert visible(group["app"]) in text.replace('\\"', '"').replace("\\\\", "\\")
        message = preview_message(facts, "usage-missing", "feishu-webhook", language, 1)
        bodies = card_bodies(
            title=renderer.render(message, "feishu", "title"),
            markdown=renderer.render(message, "feishu", "md"),
            severity=message.severity,
            keyword=None,
            secret=None,
            timestamp_seconds=0,
        )
        assert all(len(body) < BODY_MAX_BYTES for body in bodies)
        cards = "".join(body.decode() for body in bodies)
        assert "<at" not in cards
        # no name can end its line, so there are as many as there would be of harmless names
        markdown = renderer.render(message, "feishu", "md").splitlines()
        harmless = preview_message(
            facts
            | {
                "groups": [
                    group | {"model": "m", "app": "a", "api_key": "k", "department_name": "d"}
                    for group in facts["groups"]
                ]
            },
            "usage-missing",
            "feishu-webhook",
            language,
            1,
        )
        assert len(markdown) == len(renderer.render(harmless, "feishu", "md").splitlines())


@pytest.mark.parametrize(
    ("language", "named", "nameless"),
    [
        ("en", "m, app a, key k", "(no model), (no app), (no key)"),
        ("zh-CN", "m,应用 a,密钥 k", "(未注明模型),(未注明应用),(未注明密钥)"),
    ],
)
def test_what_a_group_has_no_name_for_is_said_as_in_estimates(
    language: str, named: str, nameless: str, renderer: Renderer
) -> None:
    (facts,) = sample_facts("usage-missing", "usual")
    none, name = dict.fromkeys(NAMELESS), {"model": "m", "app": "a", "api_key": "k"}
    groups = [facts["groups"][0] | {"api_key": None} | none, facts["groups"][0] | name]
    facts |= {"groups": groups, "group_count": 2}
    message = preview_message(facts, "usage-missing", "console", language, 1)
    line, *details = preview(renderer, [message], "console").splitlines()
    assert nameless in line
    assert any(f"1. {nameless}" in one for one in details)
    assert any(f"2. {named}" in one for one in details)
    if language == "en":
        assert nameless == ", ".join(NAMELESS.values())


def test_it_is_a_line_of_a_digest(renderer: Renderer) -> None:
    (missing,) = sample_facts("usage-missing", "hostile-names")
    for channel in set(CHANNELS) - WITHOUT_DIGESTS:
        messages = [
            preview_message(facts, "digest", channel, "en", number)
            for number, facts in enumerate((missing, tenant_facts()), start=1)
        ]
        assert [one.kind for one in messages] == ["usage-missing", "tenant-warn"]
        text = preview(renderer, messages, channel, digest=True)
        assert "requests of 24 hours came without usage" in text, channel


@pytest.mark.parametrize(
    ("fact", "value", "fault"),
    [
        ("groups", [], "groups: at least one is wanted"),
        ("groups", [{}], "groups[0].model: missing, a text is wanted"),
        ("group_count", 3, "group_count: fewer than there are groups"),
        ("missing", 99_999, "missing: a part of the requests is wanted"),
        ("requests", 0, "missing: a part of the requests is wanted"),
        ("dimensions", [1], "dimensions: an empty list is wanted"),
        ("severity", "exhausted", "severity: one of warning is wanted"),
        ("subject", "acme", "subject: no such fact"),
    ],
)
def test_a_wrong_fact_is_named(
    fact: str, value: object, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (facts,) = sample_facts("usage-missing", "usual")
    assert facts_faults(facts) == []
    facts[fact] = value
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts))
    assert cli.run(["preview", "usage-missing", "--facts", str(path)]) == 2
    assert f"facts.json: {fault}" in capsys.readouterr().err
