"""`quota-worker status SUBJECT`, which every alert names as the next step."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from acceptance.program import quota_worker
from worker.assets import Assets
from worker.postgres.queries import load_queries
from worker.untrusted import for_card_title, for_chat_text, visible

if TYPE_CHECKING:
    from pathlib import Path

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

FORMS = (for_chat_text, for_card_title, visible)
RESERVE = "SELECT quota_reserve('same', $1, 100, 50, 2000000, p_model => 'large', p_app => 'web', p_api_key => 'k1'"
HOUR = (
    "SELECT app, api_key, coalesce(model, requested_model) AS model, count(*) AS requests,"
    " sum(coalesce(charged_in_tokens + charged_out_tokens, estimated_in_tokens + estimated_out_tokens))::int AS tokens,"
    " sum(coalesce(charged_cost_nanos, estimated_cost_nanos))::bigint AS cost_nanos,"
    " count(*) FILTER (WHERE state = 'expired')::int AS stale, 0 AS observed"
    " FROM quota_reservations WHERE tenant_id = 'same' AND request_id <> 'old' GROUP BY 1, 2, 3 ORDER BY 6 DESC"
)


@pytest.fixture
async def fleet(conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO departments (department_id, name) VALUES ('same', 'The same');"
        "INSERT INTO department_budgets (department_id, environment, monthly_tokens)"
        " VALUES ('same', 'production', 100000), ('same', 'test', 500);"
        "INSERT INTO tenant_limits (tenant_id, department_id, environment, daily_completions, enforce)"
        " VALUES ('same', 'same', 'production', 6, 'on'), ('ci', 'same', 'test', 1, 'observe'),"
        " ('other', NULL, 'production', 1000, 'on')"
    )
    await conn.execute(f"{RESERVE}, p_now => clock_timestamp() - interval '61 min')", "old")
    await conn.execute(f"{RESERVE}, p_ttl_seconds => 1)", "lost")
    for number in range(6):
        await conn.execute(f"{RESERVE})", f"r{number}")
    await conn.execute("SELECT quota_settle('same', 'r0', 1000, 10, 90000000)")
    await conn.execute("SELECT quota_settle('same', 'r1', 1, 1, 1, p_model => 'small')")
    for number in range(3):
        await conn.execute("SELECT quota_reserve('ci', $1, 10, 10, 10)", f"c{number}")
    await conn.execute("SELECT quota_reserve('other', 'r', 1, 1, 1, p_app => 'elsewhere')")


async def test_a_tenant_and_a_department_of_one_name_are_both_shown(
    dsn: str, conn: Connection, fleet: None
) -> None:
    await conn.execute("SELECT pg_sleep(1.1)")  # until the lost one has run out
    assert (await quota_worker(dsn, "tick")).code == 0
    done = await quota_worker(dsn, "status", "same", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    found = {(row["kind"], row["environment"]) for row in document["rows"]}
    assert found == {("tenant", "production"), ("department", "production"), ("department", "test")}
    details = {(one["kind"], one["environment"]): one for one in document["details"]}
    assert set(details) == found
    tenant = details["tenant", "production"]
    assert tenant["last_hour"] == [dict(row) for row in await conn.fetch(HOUR)]
    assert sum(row["stale"] for row in tenant["last_hour"]) == 1
    assert {row["model"] for row in tenant["last_hour"]} == {"large", "small"}
    refused = {one["reason"]: one["count"] for one in tenant["refusals_today"]}
    assert refused == {
        "daily_cap_reached": await conn.fetchval(
            "SELECT 7 - count(*) FROM quota_reservations WHERE tenant_id = 'same' AND request_id <> 'old'"
        )
    }
    assert details["department", "production"]["last_hour"] == tenant["last_hour"]
    assert details["department", "production"]["refusals_today"] == tenant["refusals_today"]
    # a department's row counts its tenants' refusals, as the lines below the table do
    for row in document["rows"]:
        told = details[row["kind"], row["environment"]]["refusals_today"]
        assert row["refusals_today"] == sum(one["count"] for one in told)
    everybody = json.loads((await quota_worker(dsn, "status", "--json")).out)["rows"]
    counts = {
        (row["kind"], row["environment"]): row["refusals_today"]
        for row in everybody
        if row["subject"] == "same"
    }
    assert counts["department", "production"] == counts["tenant", "production"] > 0
    (tests,) = details["department", "test"]["last_hour"]
    assert (tests["app"], tests["requests"], tests["tokens"], tests["observed"]) == (None, 3, 60, 2)

    text = (await quota_worker(dsn, "status", "same")).out
    assert "last hour of tenant same\n" in text
    assert "last hour of department same (test)\n" in text
    assert re.search(r"refused today: \d daily_cap_reached \(last \d\d:\d\d\)", text)
    header = next(line for line in text.splitlines() if line.startswith("app "))
    assert header.split() == [
        "app",
        "key",
        "model",
        "requests",
        "tokens",
        "USD",
        "stale",
        "observed",
    ]
    assert "elsewhere" not in text


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("samw", "did you mean same?"),
        ("OTHER", "did you mean other?"),
        ("oth", "did you mean other?"),
        ("quite-a-thing", "quota-worker status --top 0 shows all"),
        ("a\x1b[2Jb", "quota-worker status --top 0 shows all"),
    ],
)
async def test_a_name_that_nobody_has(dsn: str, fleet: None, name: str, cure: str) -> None:
    for options in ((), ("--json",)):
        done = await quota_worker(dsn, "status", name, *options)
        assert (done.code, done.out) == (2, "")
        (line,) = done.err.splitlines()
        assert line.endswith(cure)
        assert line.isprintable()


async def test_the_command_that_an_alert_names_works(dsn: str, conn: Connection) -> None:
    names = ["plain", "with space", "-dash", "quo'te", "部门", "$(id)"]
    await conn.executemany(
        "INSERT INTO tenant_limits (tenant_id, daily_completions) VALUES ($1, 1)",
        [(name,) for name in names],
    )
    await conn.executemany("SELECT quota_reserve($1, 'r', 1, 1, 1)", [(name,) for name in names])
    alerts = (await quota_worker(dsn, "tick")).err
    commands = re.findall(r"next: quota-worker (status .*)$", alerts, re.MULTILINE)
    assert len(commands) == len(names)
    shown = []
    for command in commands:
        words = shlex.split(command)
        done = await quota_worker(dsn, words[0], "--json", *words[1:])
        assert done.code == 0, done.err
        shown += [row["subject"] for row in json.loads(done.out)["rows"]]
    assert sorted(shown) == sorted(names)


async def test_the_command_that_a_chat_shows_works(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    """Names are made harmless there; the command is pasted into a shell as it stands."""
    names = [
        "<b>",
        "@all's",
        "a\u200bb",
        "[x](http://e/)?y",
        "\u202etxt",
        " <lead ",
        "-@(.*",
        "\U000e0041x",
    ]
    await conn.executemany(
        "INSERT INTO tenant_limits (tenant_id, daily_completions) VALUES ($1, 1)",
        [(name,) for name in names],
    )
    await conn.executemany("SELECT quota_reserve($1, 'r', 1, 1, 1)", [(name,) for name in names])
    log = tmp_path / "log"
    chat = {
        "QUOTA_WORKER_IMBOT_GROUP": "ops",
        "QUOTA_WORKER_IMBOT_COMMAND": f'sh -c \'printf "%s\\n" "$@" >> {log}\' imbot',
    }
    assert (await quota_worker(dsn, "tick", **chat)).code == 0
    commands = re.findall(r"next: quota-worker (status .*)$", log.read_text(), re.MULTILINE)
    assert len(commands) == len(names)
    cards = [f"status {form(shlex.quote(name))}" for form in FORMS for name in ("<b>", "\u202etxt")]
    shown = []
    assert not re.search("[<@\u200b\u202e]", "".join(commands))
    for command in commands + cards:
        words = shlex.split(command)
        done = await quota_worker(dsn, words[0], "--json", *words[1:])
        assert done.code == 0, (command, done.err)
        shown += [row["subject"] for row in json.loads(done.out)["rows"]]
    assert sorted(shown[: len(names)]) == sorted(names)
    assert shown[len(names) :] == ["<b>", "\u202etxt"] * len(FORMS)


async def test_a_form_that_several_names_have_lists_them(dsn: str, conn: Connection) -> None:
    names = [
        "<\uff20",
        "\uff1c@",
        "<\uff20\u200b",
        "\uff1c@\u200b",
        "\uff1cb",
        "<b",
        "[x](http://e)/abc",
    ]
    await conn.executemany(
        "INSERT INTO tenant_limits (tenant_id) VALUES ($1)", [(name,) for name in names]
    )
    done = await quota_worker(dsn, "status", "\uff1c\uff20")
    assert (done.code, done.out) == (2, "")
    assert done.err == "quota-worker: 2 names are shown so, choose one of '<\uff20', '\uff1c@'\n"
    done = await quota_worker(dsn, "status", "\uff1c\uff20\\u200b")
    (line,) = done.err.splitlines()
    assert line.endswith("choose one of $'<\uff20\\U0000200b', $'\uff1c@\\U0000200b'")
    # what the shell makes of each is a name
    for word in re.findall(r"\$'[^']*'", line):
        bash = await asyncio.create_subprocess_exec(
            *("bash", "-c", f"printf %s {word}"),
            stdout=asyncio.subprocess.PIPE,
            env={"LC_ALL": "C.UTF-8"},
        )
        out, _ = await bash.communicate()
        assert out.decode() in names
    # a name is taken as it is before it is taken for another's form
    done = await quota_worker(dsn, "status", "\uff1cb", "--json")
    assert [row["subject"] for row in json.loads(done.out)["rows"]] == ["\uff1cb"]
    done = await quota_worker(dsn, "status", "[x](http://e)/abd")
    assert done.err.endswith("did you mean [x](http://e)/abc?\n")
    done = await quota_worker(dsn, "status", "postgresql://ann:s3cr3t@db/x")
    assert (done.code, "s3cr3t" in done.err) == (2, False)


@pytest.mark.parametrize(("kind", "subject"), [("tenant", "t7"), ("department", "d")])
async def test_the_last_hour_is_found_by_an_index(
    conn: Connection, kind: str, subject: str
) -> None:
    """Not by reading every request there ever was."""
    await conn.execute(
        "INSERT INTO quota_reservations (tenant_id, request_id, state, period, environment, estimated_in_tokens,"
        " estimated_out_tokens, estimated_cost_nanos, ttl_seconds, admitted_at, expires_at, department_id)"
        " SELECT 't' || n % 100, n, 'settled', current_date, 'production', 1, 1, 1, 600,"
        "        now() - interval '40 days' + n * interval '60 s', now(), 'd'"
        " FROM generate_series(1, 57600) AS n; ANALYZE quota_reservations"
    )
    query = load_queries(Assets(), "status")["last_hour"].rstrip(";")
    await conn.execute(f"PREPARE hour (text, text, text, timestamptz) AS {query}")
    explain = f"EXPLAIN EXECUTE hour ('{kind}', '{subject}', 'production', clock_timestamp())"
    plan = "\n".join(row[0] for row in await conn.fetch(explain))
    assert "Seq Scan" not in plan, plan
    assert "quota_reservations_" in plan, plan
