"""`quota-worker metrics`, its alert rules and its dashboard, checked by Prometheus' own tools where they are."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from acceptance.program import quota_worker
from worker.jobs.registry import job_names
from worker.metrics import SEVERITIES, STATES
from worker.postgres.metrics import NAMES_MAX

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
UNREACHABLE = "postgresql://nobody@127.0.0.1:1/none"
HOSTILE = 'a"b\\c\nquota_worker_up 0\n# TYPE x gauge'
MODEL = 'a"b\\c'  # the ledger takes no control characters in it
NAME = re.compile(r"\b((?:quota|ntgw)_[a-z0-9_]+)\b")
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)
SAMPLE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+-]+)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"')

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Series:
    """The samples; fails on any line that the format doesn't know, and on a series that stands twice."""
    found: Series = {}
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        if line.startswith("#"):
            continue
        sample = SAMPLE.match(line)
        assert sample, line
        labels = frozenset(
            (name, re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value))
            for name, value in LABEL.findall(sample[2] or "")
        )
        assert (sample[1], labels) not in found, line
        assert sample[1] in typed, line
        found[sample[1], labels] = float(sample[3])
    return found


def value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((name, frozenset(labels.items())))


def names_in(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


async def metrics(dsn: str, *arguments: str) -> Series:
    done = await quota_worker(dsn, "metrics", *arguments)
    assert (done.code, done.err) == (0, "")
    return read(done.out)


@pytest.fixture
async def fleet(conn: asyncpg.Connection) -> None:
    """A bit of everything that metrics tell of."""
    await conn.execute(
        "INSERT INTO department_budgets (department_id, monthly_tokens, monthly_cost_cents)"
        " VALUES ('d', 1000, NULL), ('shut', 0, 0), ('free', NULL, NULL)"
    )
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, department_id, daily_completions, enforce) VALUES"
        " ($1, 'd', 10, 'on'), ('full', NULL, 2, 'on'), ('seen', NULL, 1, 'observe')",
        HOSTILE,
    )
    reserve = "SELECT quota_reserve($1, $2, 100, 50, 2000000, p_model => $3, p_app => 'web')"
    await conn.execute("UPDATE tenant_limits SET department_id = 'd' WHERE tenant_id = 'full'")
    for number in range(5):
        await conn.execute(reserve, "full", f"r{number}", MODEL)
    for number in range(3):
        await conn.execute(reserve, "seen", f"r{number}", "small")
    await conn.execute("SELECT quota_settle('full', 'r0', 300, 50, 5000000)")
    await conn.execute("SELECT quota_settle('seen', 'r0', NULL, NULL, NULL)")
    await conn.execute(
        "INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency, facts, state, created_at,"
        " next_attempt_at, last_failure) SELECT n::text, n::text, 'tenant-warn', 'im-bot', 'warning', 3, '{}',"
        " CASE n WHEN 1 THEN 'dead' ELSE 'pending' END, now() - interval '10 min', now() + interval '1 h', 'timeout'"
        " FROM generate_series(1, 3) n;"
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens) VALUES ('nobody', 'r', 1, 1)"
    )


async def test_what_is_known_is_told_and_nothing_else(
    dsn: str, conn: asyncpg.Connection, fleet: None
) -> None:
    found = await metrics(dsn)
    assert value(found, "quota_worker_up") == 1
    assert value(found, "quota_worker_tick_timestamp_seconds") is None  # there was none
    ran = "quota_worker_job_"
    assert {name for name, _ in found if name.startswith(ran)} == {f"{ran}interval_seconds"}
    pool = {"department": "d", "environment": "production"}
    assert value(found, "quota_department_used_ratio", **pool, dimension="tokens") == 0.5
    assert (
        value(found, "quota_department_used_ratio", **pool, dimension="cost") is None
    )  # no budget
    assert value(found, "quota_department_used_tokens", **pool) == 500
    assert value(found, "quota_department_held_tokens", **pool) == 150
    shut = {"department": "shut", "environment": "production", "dimension": "cost"}
    assert value(found, "quota_department_used_ratio", **shut) == 1
    full = {"tenant": "full", "environment": "production", "department": "d"}
    ratio = "quota_tenant_used_ratio"
    assert value(found, ratio, **full, dimension="daily_completions") == 1
    assert HOSTILE in {dict(labels).get("tenant") for name, labels in found if name == ratio}
    assert value(found, "quota_tenants", enforce="on") == 2
    assert value(found, "quota_day_used_completions") == 5
    assert value(found, "quota_open_reservations") == 3
    assert value(found, "quota_held_tokens", direction="input") == 300
    assert value(found, "quota_requests_last_day", outcome="settled") == 1
    assert value(found, "quota_requests_last_day", outcome="estimated") == 1
    assert value(found, "quota_requests_last_day", outcome="open") == 3
    error = {"model": MODEL, "direction": "input"}
    assert value(found, "quota_estimate_usage_ratio", **error) == 3
    assert value(found, "quota_estimate_usage_ratio", model="small", direction="input") is None
    assert value(found, "quota_would_be_refusals_last_day", reason="daily_cap_reached") == 2
    assert value(found, "quota_refusals_total", reason="daily_cap_reached") == 3
    assert value(found, "quota_refusals_total", reason="rate_limited") == 0
    hits = {"model": "unknown", "scope": "tenant"}
    assert value(found, "ntgw_ai_token_rate_limit_hits_total", **hits) == 3
    assert value(found, "ntgw_ai_tenant_denied_total", reason="quota_exceeded") == 3
    assert value(found, "quota_alerts_last_day", severity="warning", result="pending") == 2
    assert value(found, "quota_alert_failures_last_day", cause="timeout") == 3
    assert value(found, "quota_outbox_messages") == 2
    assert value(found, "quota_outbox_dead_messages") == 1
    age = value(found, "quota_outbox_oldest_age_seconds", channel="im-bot")
    assert age is not None
    assert 600 <= age < 700
    assert value(found, "quota_usage_inbox_waiting") == 1


async def test_every_severity_result_and_job_has_its_series(
    dsn: str, conn: asyncpg.Connection
) -> None:
    states = await conn.fetchval(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'quota_outbox_state'"
    )
    severities = await conn.fetchval(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'quota_outbox_severity'"
    )
    assert set(re.findall(r"'([a-z]+)'", states)) == set(STATES)
    assert set(re.findall(r"'([a-z]+)'", severities)) == set(SEVERITIES)

    await quota_worker(dsn, "tick")
    await conn.execute("UPDATE job_runs SET outcome = 'failed' WHERE job = 'deliver'")
    found = await metrics(dsn, "--top", "0")
    assert value(found, "quota_worker_job_failed", worker_job="deliver") == 1
    assert value(found, "quota_worker_job_success_timestamp_seconds", worker_job="deliver") is None
    for job in set(job_names()) - {"deliver"}:
        assert value(found, "quota_worker_job_failed", worker_job=job) == 0, job
        assert value(found, "quota_worker_job_success_timestamp_seconds", worker_job=job), job
    assert not [name for name, _ in found if name.startswith(("quota_tenant_", "quota_day_"))]


async def test_series_are_bounded_and_add_up_whatever_the_names_are(
    dsn: str, conn: asyncpg.Connection
) -> None:
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, bucket_capacity)"
        " SELECT 't' || n, 100, 1000 FROM generate_series(1, 50) n;"
        # the 'other' of somebody's own joins the rest
        "SELECT quota_settle('t1', 'r' || n, 10, 1, 1000000, p_model => CASE n WHEN 1 THEN 'other' ELSE 'm' || n END)"
        "  FROM generate_series(1, 60) n;"
        "SELECT quota_reserve('t2', 'a' || n, 1, 1, 0, p_app => 'app' || n) FROM generate_series(1, 40) n"
    )
    found = await metrics(dsn, "--top", "5")
    assert len([1 for name, _ in found if name == "quota_tenant_used_ratio"]) == 5
    models = {
        dict(labels)["model"]: number
        for (name, labels), number in found.items()
        if name == "quota_model_tokens_last_day" and ("direction", "input") in labels
    }
    assert NAMES_MAX <= len(models) <= NAMES_MAX + 1
    assert sum(models.values()) == 600
    apps = [labels for name, labels in found if name == "quota_app_cost_last_day"]
    assert NAMES_MAX <= len(apps) <= NAMES_MAX + 1
    for wrong in ("-1", "1001"):
        done = await quota_worker(dsn, "metrics", "--top", wrong)
        assert (done.code, done.out) == (2, "")


async def test_counters_of_today_never_fall_when_old_rows_go(
    dsn: str, conn: asyncpg.Connection, fleet: None
) -> None:
    await conn.execute(
        "INSERT INTO quota_refusal_counts (tenant_id, period, reason, first_at, last_at, counted)"
        " SELECT 'full', quota_day(now()) - n, 'rate_limited', now(), now(), 1000 FROM generate_series(1, 90) n"
    )
    before = await metrics(dsn, "--top", "0")
    await conn.execute("DELETE FROM quota_refusal_counts WHERE period < quota_day(now()) - 30")
    after = await metrics(dsn, "--top", "0")
    counters = {key for key in before if key[0].endswith("_total")}
    assert len(counters) > 10
    assert {key: after[key] for key in counters} == {key: before[key] for key in counters}


async def test_a_file_is_written_whole_and_readable(
    dsn: str, conn: asyncpg.Connection, tmp_path: Path
) -> None:
    target = tmp_path / "quota worker.prom"
    target.write_text("old\n")
    inode = target.stat().st_ino
    done = await quota_worker(dsn, "metrics", "--output", str(target))
    assert (done.code, done.out, done.err) == (0, "", "")
    assert target.stat().st_ino != inode  # replaced, never written over
    assert target.stat().st_mode & 0o777 == 0o644
    assert value(read(target.read_text()), "quota_worker_up") == 1
    assert names_in(tmp_path) == [target.name]


async def test_an_unreachable_database_leaves_nothing_that_reassures(
    dsn: str, tmp_path: Path
) -> None:
    target = tmp_path / "q.prom"
    assert (await quota_worker(dsn, "metrics", "--output", str(target))).code == 0
    done = await quota_worker(UNREACHABLE, "metrics", "--output", str(target))
    assert (done.code, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1
    left = read(target.read_text())
    assert {name for name, _ in left} == {"quota_worker_up", "quota_worker_build_info"}
    assert value(left, "quota_worker_up") == 0
    plain = await quota_worker(UNREACHABLE, "metrics")
    assert (plain.code, plain.out) == (1, target.read_text())


async def test_a_file_that_cant_be_written_is_one_line(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "folder.prom").mkdir()
    for name in ("missing/q.prom", "folder.prom"):
        done = await quota_worker(dsn, "metrics", "--output", str(tmp_path / name))
        assert (done.code, done.out) == (1, "")
        assert "can't be written: " in done.err
        assert len(done.err.splitlines()) == 1
    assert names_in(tmp_path) == ["folder.prom"]
    assert (await quota_worker(dsn, "metrics", "--output", "")).code == 2


async def test_what_is_no_file_stays_and_a_link_stays_a_link(dsn: str, tmp_path: Path) -> None:
    # as a device, which for root would be gone for the whole machine
    pipe, link, target = tmp_path / "pipe", tmp_path / "link.prom", tmp_path / "target"
    os.mkfifo(pipe)
    (tmp_path / "to-pipe").symlink_to(pipe)
    for name in ("pipe", "to-pipe"):
        done = await quota_worker(dsn, "metrics", "--output", str(tmp_path / name))
        assert (done.code, done.out) == (1, "")
        assert "it is no plain file, and stays as it is" in done.err
    assert pipe.is_fifo()
    assert (tmp_path / "to-pipe").is_symlink()
    for content in (None, "old\n"):
        link.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        if content is not None:
            target.write_text(content)
        link.symlink_to(target)
        assert (await quota_worker(dsn, "metrics", "--output", str(link))).code == 0
        assert link.is_symlink()
        assert value(read(target.read_text()), "quota_worker_up") == 1


@promtool
async def test_promtool_has_no_complaint(dsn: str, conn: asyncpg.Connection, fleet: None) -> None:
    await quota_worker(dsn, "tick")
    text = (await quota_worker(dsn, "metrics")).out
    checked = await asyncio.to_thread(_promtool, "check", "metrics", given=text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    broken = text.replace("# TYPE quota_worker_up gauge", "# TYPE quota_worker_up what")
    assert (await asyncio.to_thread(_promtool, "check", "metrics", given=broken)).returncode != 0


@promtool
def test_the_alert_rules_do_what_their_tests_say() -> None:
    checked = _promtool("check", "rules", "quota-worker.rules.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = _promtool("test", "rules", "quota-worker.rules.test.yaml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_rule_has_a_test_in_which_it_fires() -> None:
    rules = (MONITORING / "quota-worker.rules.yaml").read_text(encoding="utf-8")
    tests = (MONITORING / "quota-worker.rules.test.yaml").read_text(encoding="utf-8")
    alerts = set(re.findall(r"- alert: (\w+)", rules))
    assert len(alerts) > 10
    assert alerts == set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:", tests))


async def test_rules_dashboard_and_docs_name_only_metrics_that_there_are(
    dsn: str, conn: asyncpg.Connection, fleet: None
) -> None:
    await quota_worker(dsn, "tick")
    # an overdue one, and a price that is missing
    await conn.execute(
        "UPDATE quota_reservations SET expires_at = now() - interval '1 h' WHERE state = 'open'"
    )
    await conn.execute(
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens) VALUES ('full', 'x', 1, 1)"
    )
    names = {name for name, _ in await metrics(dsn)}
    rules = (MONITORING / "quota-worker.rules.yaml").read_text(encoding="utf-8")
    expressions = re.findall(r"expr: (?:\|\n)?((?:.+\n)+?)(?=\s+(?:for|labels):)", rules)
    assert len(expressions) == rules.count("- alert:")
    asked = {name for text in expressions for name in NAME.findall(text)}
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text(encoding="utf-8"))
    shown: list[str] = []
    for panel in dashboard["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"], panel["title"]
        shown += [target["expr"] for target in panel["targets"]]
    shown += [one["definition"] for one in dashboard["templating"]["list"] if "definition" in one]
    asked |= {name for text in shown for name in NAME.findall(text)}
    assert len(asked) > 20
    assert asked - names == set()
    docs = (MONITORING.parent / "monitoring.md").read_text(encoding="utf-8")
    assert {name for name in names if f"`{name}`" not in docs} == set()


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    dashboard: dict[str, Any] = json.loads(
        (MONITORING / "grafana-dashboard.json").read_text(encoding="utf-8")
    )
    assert dashboard["schemaVersion"] >= 36  # Grafana 9; 10 and newer read it as it is
    assert "datasource" in {one["name"] for one in dashboard["templating"]["list"]}
    places: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def _promtool(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments],
        cwd=MONITORING,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
