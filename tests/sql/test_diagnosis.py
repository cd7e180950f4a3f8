"""quota_diagnose: which groups of requests are told to come without usage, and that once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from requests_world import COST_NANOS, IN_TOKENS, OUT_TOKENS, put
from worker.facts_shape import facts_faults
from worker.samples import HOSTILE_NAMES

from sql.calls import NOON, UNLIMITED, Calls

Connection = asyncpg.Connection
HOUR, DAY, SECOND = timedelta(hours=1), timedelta(days=1), timedelta(seconds=1)
WEEK = 7 * DAY


async def diagnose(conn: Connection, now: datetime = NOON, **extra: Any) -> tuple[int, int]:
    """One pass; returns groups and messages. extra: routes, pct, least, limit."""
    routes = extra.get("routes", {"default": {"to": [{"channel": "console"}]}})
    row = await conn.fetchrow(
        "SELECT groups, messages FROM quota_diagnose($1, $2, $3, $4, $5)",
        now,
        json.dumps(routes),
        extra.get("pct", 5),
        extra.get("least", 20),
        extra.get("limit", 10_000),
    )
    return row["groups"], row["messages"]


async def told(conn: Connection) -> list[dict[str, Any]]:
    """The facts of all messages, in their order; each has the shape that templates need."""
    rows = await conn.fetch("SELECT facts::text FROM quota_outbox ORDER BY outbox_id")
    facts = [json.loads(row[0]) for row in rows]
    assert [facts_faults(one) for one in facts] == [[]] * len(facts)
    return facts


def labels(facts: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["model"], one["app"], one["api_key"]) for one in facts["groups"]]


async def test_what_counts_as_a_request_without_usage(calls: Calls) -> None:
    """Through the ledger's own functions, each way that a request may end."""
    await calls.tenant("t", **UNLIMITED)
    named = {"model": "large", "app": "bot", "api_key": "k-1", "ttl_seconds": 60}
    ends = ("usage", "dated", "nothing", "lost", "late", "given up", "told late", "open")
    for end in ends:
        ttl = 7200 if end == "open" else 60
        answer = await calls.reserve("t", end, (100, 50, 1_000), **named | {"ttl_seconds": ttl})
        assert answer["allowed"]
    later = NOON + HOUR
    await calls.settle("t", "usage", (80, 20, 700))
    # what the answer calls its model makes no group of its own
    await calls.settle("t", "dated", (80, 20, 700), model="large-2026-01-01")
    assert (await calls.settle("t", "nothing", (None, None, None)))["outcome"] == "estimated"
    assert await calls.release("t", "given up") == "released"
    assert await calls.release("t", "told late") == "released"
    assert sum(one["ended"] for one in await calls.expire(now=later)) == 2
    assert (await calls.settle("t", "late", (8, 2, 70), now=later))["outcome"] == "corrected"
    assert (await calls.settle("t", "told late", (8, 2, 70), now=later))["outcome"] == "corrected"
    assert (await calls.settle("t", "nobody", (None,) * 3, now=later))["outcome"] == "unreserved"
    rows = await calls.rows("SELECT * FROM quota_diagnosis_groups($1, 0, 1)", later)
    # without usage: nothing, lost; with: usage, dated, late, told late
    assert rows == [
        {
            "model": "large",
            "app": "bot",
            "api_key": "k-1",
            "requests": 6,
            "missing": 2,
            "uncharged": 0,
            "tokens": 300,
            "cost_nanos": 2_000,
            "department_id": None,
        }
    ]


async def test_a_stale_policy_of_release_gives_tokens_away_and_is_counted(calls: Calls) -> None:
    await calls.tenant("t", **UNLIMITED, stale_policy="release")
    for number in range(20):
        await calls.reserve("t", f"r{number}", (100, 50, 1_000), ttl_seconds=60)
    later = NOON + HOUR
    await calls.expire(now=later)
    assert await diagnose(calls.conn, later) == (1, 1)
    (facts,) = await told(calls.conn)
    assert labels(facts) == [("", "", "")]
    assert (facts["missing"], facts["uncharged"], facts["tokens"], facts["cost_nanos"]) == (
        20,
        20,
        0,
        0,
    )


async def test_the_threshold_is_passed_and_not_met(conn: Connection) -> None:
    """Above 5 % of at least 20 requests in 24 hours; each case is a model of its own."""
    cases = {
        "one of 20": (20, 1, NOON - HOUR, False),
        "two of 40": (40, 2, NOON - HOUR, False),
        "two of 39": (39, 2, NOON - HOUR, True),
        "51 of 1,000": (1_000, 51, NOON - HOUR, True),
        "all of 19": (19, 19, NOON - HOUR, False),
        "all of 20": (20, 20, NOON - HOUR, True),
        "24 hours old": (20, 20, NOON - DAY, False),
        "just not": (20, 20, NOON - DAY + SECOND, True),
        "now": (20, 20, NOON, True),
        "to come": (20, 20, NOON + SECOND, False),
    }
    for model, (requests, missing, at, _) in cases.items():
        await put(conn, requests, missing, model=model, at=at)
    assert await diagnose(conn) == (5, 1)
    (facts,) = await told(conn)
    assert {model for model, _, _ in labels(facts)} == {
        model for model, case in cases.items() if case[3]
    }
    # other settings, the same rules; those that were told stay told
    await put(conn, 10, 1, model="one of ten")
    assert await diagnose(conn, pct=10, least=10) == (1, 1)  # all of 19
    assert await diagnose(conn, pct=9, least=10) == (1, 1)  # one of ten
    assert await diagnose(conn, pct=0, least=1) == (2, 1)  # one of 20, two of 40


async def test_the_costliest_come_first_with_what_they_cost_and_whose_they_are(
    conn: Connection,
) -> None:
    await conn.execute("INSERT INTO departments (department_id, name) VALUES ('d', 'R&D')")
    await put(conn, 100, 10, model="small", department="d")
    await put(conn, 100, 30, model="large", department="d")
    await put(conn, 100, 20, model="mixed", department="d")
    await put(conn, 100, 0, model="mixed", department="e")
    await put(conn, 100, 15, model="half", department="d")
    await put(conn, 100, 0, model="half")
    await conn.execute("UPDATE quota_settings SET currency = 'CNY', locale = 'zh-CN'")
    assert await diagnose(conn) == (4, 1)
    (facts,) = await told(conn)
    shown = [
        (g["model"], g["missing"], g["requests"], g["share_pct"], g["department_id"])
        for g in facts["groups"]
    ]
    assert shown == [
        ("large", 30, 100, 30.0, "d"),
        ("mixed", 20, 200, 10.0, None),
        ("half", 15, 200, 7.5, None),
        ("small", 10, 100, 10.0, "d"),
    ]
    assert [g["department_name"] for g in facts["groups"]] == ["R&D", None, None, "R&D"]
    first = facts["groups"][0]
    assert first["tokens"] == 30 * (IN_TOKENS + OUT_TOKENS)
    assert first["cost_nanos"] == 30 * COST_NANOS
    assert (facts["requests"], facts["missing"], facts["cost_nanos"]) == (600, 75, 75 * COST_NANOS)
    row = await conn.fetchrow("SELECT locale, severity, urgency, subject, kind FROM quota_outbox")
    assert tuple(row) == ("zh-CN", "warning", 3, None, "usage-missing")


async def test_names_are_told_as_they_are_stored_and_no_name_is_one_name(conn: Connection) -> None:
    hostile = [name for name in HOSTILE_NAMES if "\0" not in name]
    for place, name in enumerate(hostile):
        await put(conn, 20, 5, model=name, app=hostile[place - 1], key=hostile[place - 2])
    await put(conn, 15, 5, model=None, app=None, key=None)
    await put(conn, 15, 5, model="", app="", key="")
    longest = "\U0001f469" * 200
    await put(conn, 20, 20, model=longest, app=longest, key=longest)
    assert await diagnose(conn) == (len(hostile) + 2, 1)
    (facts,) = await told(conn)
    assert labels(facts)[:2] == [(longest, longest, longest), ("", "", "")]
    assert facts["groups"][1]["requests"] == 30
    stored = await conn.fetch("SELECT model FROM quota_missing_told")
    assert {row["model"] for row in stored} == {*hostile, "", longest}
    assert await diagnose(conn) == (0, 0)


async def test_a_thousand_groups_are_one_message(conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO quota_reservations (tenant_id, request_id, state, period, environment, estimated_in_tokens,"
        " estimated_out_tokens, estimated_cost_nanos, charged_in_tokens, charged_out_tokens, charged_cost_nanos,"
        " usage_missing, ttl_seconds, admitted_at, expires_at, ended_at, requested_model, answered_model, api_key)"
        " SELECT 't', n || '-' || k, 'expired', '2026-05-15', 'production', 1, 1, k, 1, 1, k, true, 600, $1, $1, $1,"
        "        'm', 'm', repeat('密', 190) || k FROM generate_series(1, 2) n, generate_series(1, 1000) k",
        NOON,
    )
    assert await diagnose(conn, least=2, limit=990) == (990, 1)
    assert await diagnose(conn, least=2) == (10, 1)
    assert await diagnose(conn, least=2) == (0, 0)
    first, second = await told(conn)
    assert (first["group_count"], second["group_count"]) == (990, 10)
    assert first["missing"] == 990 * 2
    # the costliest in the order of their figures, not of their names
    assert [g["cost_nanos"] for g in first["groups"]] == [2 * k for k in range(1000, 990, -1)]
    assert await conn.fetchval("SELECT count(*) FROM quota_missing_told") == 1000
    assert await conn.fetchval("SELECT max(octet_length(facts::text)) FROM quota_outbox") < 16_384


async def test_a_group_is_told_again_after_a_week_or_at_twice_the_share(conn: Connection) -> None:
    """Told at 10 %; then, so much later, at another share: in how many messages."""
    for after, share, messages in (
        (WEEK - SECOND, 10, 0),
        (WEEK, 10, 1),
        (HOUR, 19, 0),
        (HOUR, 20, 1),
        (HOUR, 5, 0),
        (WEEK, 5, 0),  # no longer above the threshold
        (-HOUR, 10, 1),  # it was told by a clock that ran ahead
        (-SECOND, 10, 0),
    ):
        case = (after, share)
        await conn.execute("TRUNCATE quota_reservations, quota_missing_told, quota_outbox")
        await put(conn, 100, 10)
        assert await diagnose(conn) == (1, 1)
        later = NOON + after
        await conn.execute("TRUNCATE quota_reservations")
        await put(conn, 100, share, at=later)
        assert await diagnose(conn, later) == (messages, messages), case
        assert await diagnose(conn, later) == (0, 0), case
        keys = await conn.fetch("SELECT message_key, dedupe_key FROM quota_outbox")
        assert len({row["message_key"] for row in keys}) == len(keys) == 1 + messages, case
        row = await conn.fetchrow("SELECT missing, told_at FROM quota_missing_told")
        assert tuple(row) == ((share, later) if messages else (10, NOON)), case


async def test_twice_the_share_at_the_same_moment_is_told_too(conn: Connection) -> None:
    await put(conn, 100, 10)
    assert await diagnose(conn) == (1, 1)
    await put(conn, 100, 50)
    assert await diagnose(conn) == (1, 1)
    assert len(await told(conn)) == 2


async def test_of_two_workers_one_tells(
    conn: Connection, connect: Callable[[], Awaitable[Connection]]
) -> None:
    await put(conn, 20, 20, model="a")
    other = await connect()
    for end, tells in (("ROLLBACK", True), ("COMMIT", False)):
        await put(conn, 20, 20, model=end)
        await conn.execute("BEGIN")
        assert (await diagnose(conn))[1] == 1
        second = asyncio.create_task(diagnose(other))
        # it waits for the first one's rows
        done, _ = await asyncio.wait({second}, timeout=0.2)
        assert not done
        await conn.execute(end)
        assert (await second)[1] == int(tells), end
    models = [model for facts in await told(conn) for model, _, _ in labels(facts)]
    assert sorted(models) == ["COMMIT", "ROLLBACK", "a"]
    # all at once, and with a group that only some of them see
    workers = [await connect() for _ in range(4)]
    await put(conn, 20, 20, model="b")
    passes = [asyncio.create_task(diagnose(worker)) for worker in workers]
    await put(conn, 20, 20, model="c")
    results = await asyncio.gather(*passes, diagnose(conn))
    assert sum(groups for groups, _ in results) == 2
    models = [model for facts in await told(conn) for model, _, _ in labels(facts)]
    assert sorted(models) == ["COMMIT", "ROLLBACK", "a", "b", "c"]


async def test_it_goes_where_messages_about_nobody_go(conn: Connection) -> None:
    await put(conn, 20, 20)
    mail = [{"channel": "mail", "recipient": f"{name}@example.com"} for name in ("a", "b")]
    routes = {
        "rules": [
            {"tenants": ["t"], "to": [{"channel": "tenant"}]},
            {"departments": ["d"], "to": [{"channel": "department"}]},
            {"environments": ["production"], "to": [{"channel": "production"}]},
            {"severities": ["exhausted"], "to": [{"channel": "pager"}]},
            {"severities": ["warning"], "to": [{"channel": "ops"}, *mail], "owners": "mail"},
        ],
        "default": {"to": [{"channel": "default"}]},
    }
    assert await diagnose(conn, routes=routes) == (1, 1)
    rows = await conn.fetch(
        "SELECT channel, recipient, message_key, dedupe_key FROM quota_outbox ORDER BY 1, 2"
    )
    assert [(row["channel"], row["recipient"]) for row in rows] == [
        ("mail", "a@example.com"),
        ("mail", "b@example.com"),
        ("ops", None),
    ]
    assert len({row["message_key"] for row in rows}) == 1
    assert len({row["dedupe_key"] for row in rows}) == 3
    with pytest.raises(asyncpg.InvalidParameterValueError, match="needs a default"):
        await diagnose(conn, routes={})
    await put(conn, 20, 20, model="second")
    assert await diagnose(conn, routes={"default": {"to": [{"channel": "default"}]}}) == (1, 1)
    assert await conn.fetchval("SELECT count(*) FROM quota_outbox WHERE channel = 'default'") == 1


async def test_nothing_to_tell_writes_nothing(conn: Connection) -> None:
    await put(conn, 1_000, 50)
    assert await diagnose(conn) == (0, 0)
    assert await conn.fetchval("SELECT count(*) FROM quota_outbox") == 0
    assert await conn.fetchval("SELECT count(*) FROM quota_missing_told") == 0


async def test_the_worker_may_and_others_may_not(conn: Connection) -> None:
    await put(conn, 20, 20)
    estimates = "SELECT count(*) FROM quota_estimates($1, $2, NULL, 'key', 20, 20)"
    for role in ("quota_gateway", "quota_reader"):
        await conn.execute(f"SET ROLE {role}")
        for sql, values in ((estimates, (NOON - DAY, NOON)), ("SELECT quota_diagnose()", ())):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.fetch(sql, *values)
        await conn.execute("RESET ROLE")
    await conn.execute("SET ROLE quota_worker")
    assert await conn.fetchval(estimates, NOON - DAY, NOON) == 1
    assert await diagnose(conn) == (1, 1)
    assert len(await told(conn)) == 1
