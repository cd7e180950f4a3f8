"""What upkeep removes of the other tables: by age, and never what somebody still waits for."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from sql.calls import Calls
from sql.rolling import roll, tenant
from sql.sweeping import (
    CLOSES,
    DAY,
    DAYS,
    FEBRUARY,
    JANUARY,
    MID_MARCH,
    NOON,
    TABLES,
    settled,
    sweep,
    upkeep,
)

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]


async def test_of_the_outbox_only_what_nobody_waits_for(conn: Connection) -> None:
    old, now = NOON, NOON + 91 * DAY
    states = {
        "pending": {},
        "sending": {"lease_token": "gen_random_uuid()", "lease_until": "now()"},
        "sent": {"sent_at": "$1"},
        "sent lately": {"sent_at": "$1 + interval '2 days'"},
        "superseded": {"ended_at": "$1"},
        "stale": {"ended_at": "$1"},
        "stale for a digest": {"digest_only": "true"},
        "dead": {"ended_at": "$1"},
        "dead acked": {"ended_at": "$1", "acked_at": "$1"},
        "dead acked lately": {"ended_at": "$1", "acked_at": "$1 + interval '2 days'"},
    }
    for name, sets in states.items():
        columns = "".join(f", {column}" for column in sets)
        values = "".join(f", {value}" for value in sets.values())
        await conn.execute(
            "INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency, facts, state,"
            f" next_attempt_at, created_at{columns})"
            f" VALUES ($2, $2, 'k', 'c', 'warning', 3, '{{}}', $3, $1, $1{values})".replace(
                "$1", "$1::timestamptz"
            ),
            old,
            name,
            name.split()[0],
        )
    # it tells the failure of a message that was acknowledged, and waits itself
    await conn.execute(
        "UPDATE quota_outbox SET fallback_of = (SELECT outbox_id FROM quota_outbox WHERE dedupe_key = 'dead acked')"
        " WHERE dedupe_key = 'pending'"
    )
    assert await sweep(conn, "quota_outbox", now) == 3
    assert {row[0] for row in await conn.fetch("SELECT dedupe_key FROM quota_outbox")} == (
        set(states) - {"sent", "superseded", "stale"}
    )
    await conn.execute("UPDATE quota_outbox SET fallback_of = NULL")
    assert await sweep(conn, "quota_outbox", now) == 1
    assert await conn.fetchval("SELECT count(*) FROM quota_outbox WHERE state = 'dead'") == 2


async def test_the_log_of_crossings_keeps_open_periods_and_other_programs_rows(
    conn: Connection,
) -> None:
    now = datetime(2025, 3, 15, 12, tzinfo=UTC)  # 400 days after the 9th of February 2024
    for name, kind, start in (
        ("a", "day", date(2024, 1, 31)),
        ("b", "month", JANUARY),
        ("c", "day", FEBRUARY),
        ("d", "month", FEBRUARY),
        ("e", "day", date(2024, 2, 10)),
        ("f", "month", date(2025, 3, 1)),
    ):
        await conn.execute(
            "INSERT INTO quota_warn_log (subject_kind, subject, environment, dimension, period_kind, period_start,"
            " threshold, generation, state) VALUES ('tenant', $1, 'production', 'cost', $2, $3, 80, 0, 'told')",
            name,
            kind,
            start,
        )
    # as a table that was there before ours
    for column in ("subject_kind", "environment", "dimension", "period_kind", "threshold"):
        await conn.execute(f"ALTER TABLE quota_warn_log ALTER {column} DROP NOT NULL")
    await conn.execute(
        "INSERT INTO quota_warn_log (subject, period_start) VALUES ('theirs', $1)", JANUARY
    )
    assert await sweep(conn, "quota_warn_log", now) == 2
    kept = await conn.fetch("SELECT subject FROM quota_warn_log ORDER BY 1")
    assert [row[0] for row in kept] == ["c", "d", "e", "f", "theirs"]


async def test_of_each_job_the_last_hundred_runs_and_the_last_done_one_stay(
    conn: Connection,
) -> None:
    """A job that has failed for months: when it last was done can still be told."""
    for job, done in (("often", 300), ("failing", 7)):
        await conn.execute(
            "INSERT INTO job_runs (job, scheduled_for, outcome, fence, started_at, ended_at)"
            " SELECT $2, at, CASE WHEN n <= $3 THEN 'done' ELSE 'failed' END, 1, at, at"
            " FROM generate_series(1, 300) n, LATERAL (SELECT $1::timestamptz + n * interval '5 minutes' AS at) t",
            NOON,
            job,
            done,
        )
    await conn.execute(
        "INSERT INTO job_runs (job, scheduled_for, outcome, fence, started_at) VALUES ('rare', $1, 'done', 1, $1)",
        NOON,
    )
    assert await sweep(conn, "job_runs", NOON + 31 * DAY) == 200 + 6
    kept = await conn.fetch(
        "SELECT job, count(*) AS runs, min(scheduled_for) AS first FROM job_runs GROUP BY job ORDER BY job"
    )
    minutes = timedelta(minutes=5)
    assert [tuple(row) for row in kept] == [
        ("failing", 294, NOON + 7 * minutes),
        ("often", 100, NOON + 201 * minutes),
        ("rare", 1, NOON),
    ]
    assert await sweep(conn, "job_runs", NOON + 30 * DAY) == 0


async def test_inbox_refusals_and_notes_go_by_age(conn: Connection) -> None:
    calls = Calls(conn)
    await tenant(calls, "t")
    await settled(calls, "open month", MID_MARCH)
    await settled(calls, "january", NOON)
    await roll(conn, CLOSES)
    insert = {
        "quota_usage_inbox": (
            "(tenant_id, request_id, input_tokens, output_tokens, received_at, booked_at) VALUES ('t', 'x', 1, 1, $1, $2)",
            [(NOON, NOON), (NOON, MID_MARCH), (NOON, None), (MID_MARCH, MID_MARCH)],
        ),
        "quota_refusal_counts": (
            "(tenant_id, period, reason, first_at, last_at) VALUES ('t', $1::timestamptz::date, 'rate_limited', $1, $2)",
            [(NOON, NOON), (datetime(2024, 2, 2, tzinfo=UTC), NOON), (NOON - DAY, MID_MARCH)],
        ),
        "quota_missing_told": (
            "(model, app, api_key, told_at, requests, missing) VALUES ('m', $1::timestamptz::text, $2::timestamptz::text, $2, 1, 1)",
            [(NOON, NOON - 4 * DAY), (NOON, NOON)],
        ),
        "quota_watch_told": (
            "(trouble, subject_kind, subject, environment, about, detail, told_at, quiet_until) VALUES ('burn', 'tenant', 't', '', $2::timestamptz::text, 'day', $1, $2)",
            [(NOON - 5 * DAY, NOON - 4 * DAY), (NOON - 5 * DAY, NOON)],
        ),
        "quota_paces": (
            "(tenant_id, app, api_key, hour, requests, minutes, tokens, cost_nanos) VALUES ('t', $2::timestamptz::text, '', $1, 1, 1, 1, 1)",
            [(NOON - 4 * DAY, NOON), (NOON, NOON)],
        ),
        "quota_source_asks": (
            "(tenant_id, request_id, asked_at) VALUES ('t', $2::timestamptz::text, $1)",
            [(NOON, NOON), (MID_MARCH, MID_MARCH)],
        ),
        "quota_source_faults": (
            "(tenant_id, request_id, source, reason, excerpt, first_seen_at, seen_at) VALUES ('t', $2::timestamptz::text, 's', 'r', '', $1, $2)",
            [(NOON, NOON), (NOON, MID_MARCH)],
        ),
    }
    for table, (values, rows) in insert.items():
        await conn.executemany(f"INSERT INTO {table} {values}", rows)
    await conn.execute(
        "INSERT INTO quota_refusal_counts (tenant_id, period, reason, first_at, last_at, counter)"
        " VALUES ('t', $1::timestamptz::date, 'storm', $1, $1, 'quota_refusal_counter_00')",
        NOON,
    )
    counted = {
        table: await conn.fetchval(
            "SELECT quota_upkeep_count($1, $2, $3)", table, DAYS.get(table, 40), MID_MARCH
        )
        for table in TABLES
    }
    went = await upkeep(conn, MID_MARCH)
    # the request is as old as usage that waits: it may belong to it
    assert went == dict.fromkeys(insert, 1)
    assert {table: rows for table, rows in counted.items() if rows} == went
    waiting = await conn.fetchval("SELECT count(*) FROM quota_usage_inbox WHERE booked_at IS NULL")
    assert waiting == 1
