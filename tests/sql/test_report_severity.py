"""A report in the outbox is no alert: of a severity of its own, and sent after all alerts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import asyncpg

from acceptance.program import quota_worker
from worker.assets import Assets
from worker.postgres.outbox import OutboxRules, PostgresOutbox
from worker.postgres.queries import load_queries

from sql.calls import at
from sql.rolling import roll
from sql.test_reports import CLOSES, OCTOBER, World, pool, write_october

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

__all__ = ["pool"]  # a fixture
NOW = "2026-11-05T00:00:00"


async def test_a_report_is_of_severity_report_and_goes_out_last(
    dsn: str, conn: Connection, pool: asyncpg.Pool
) -> None:
    await write_october(conn)
    await roll(conn, at(CLOSES))
    await World(pool).run(NOW)
    reports = await conn.fetchval("SELECT count(*) FROM quota_outbox WHERE kind = 'roi-report'")
    for number, urgency in enumerate((3, 0)):  # later than every report
        await conn.execute(
            "INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency,"
            " locale, facts, next_attempt_at, created_at)"
            " VALUES ($1, $1, 'tenant-warn', 'mail', 'warning', $2, 'en', '{}', $3, $3)",
            *(f"w{number}", urgency, at("2026-11-05T00:00:01")),
        )
    outbox = PostgresOutbox(pool, load_queries(Assets(), "outbox"), OutboxRules(("mail",)))
    told = []
    while claim := await outbox.claim("mail", None, 60, at("2026-11-05T00:00:02")):
        told += [(one.kind, one.severity) for one in claim.messages]
    assert told[:2] == [("tenant-warn", "warning")] * 2
    assert told[2:] == [("roi-report", "report")] * reports
    assert reports > 2

    # as people and programs see it, whether given up or not
    await conn.execute(
        "UPDATE quota_outbox SET state = 'dead', ended_at = $1, lease_token = NULL,"
        " lease_until = NULL WHERE kind = 'roi-report' AND facts ->> 'month' = $2"
        " AND subject = 'ops'",
        *(at(NOW), f"{OCTOBER:%Y-%m}"),
    )
    shown = await quota_worker(dsn, "alerts", "--json")
    document = json.loads(shown.out)
    severities = {(one["kind"], one["severity"]) for one in document["alerts"]}
    assert severities == {("roi-report", "report"), ("tenant-warn", "warning")}
    assert [one["severity"] for one in document["given_up"]] == ["report"]
    identity = document["given_up"][0]["id"]
    one = await quota_worker(dsn, "alerts", str(identity), "--json")
    assert '"severity": "report"' in one.out
