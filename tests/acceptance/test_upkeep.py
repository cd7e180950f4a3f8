"""The job upkeep as operators meet it: what it would remove, its settings, and a run that is stopped."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from acceptance.program import quota_worker
from unit.configuration_world import faults_of
from worker.assets import Assets
from worker.clock import monotonic_seconds
from worker.jobs import upkeep
from worker.jobs.context import Deadline, JobContext, JobPorts
from worker.postgres.pool import open_pool
from worker.postgres.queries import load_queries
from worker.postgres.upkeep import PostgresUpkeep
from worker.settings import UpkeepSettings

from sql.calls import Calls
from sql.rolling import roll, tenant
from sql.sweeping import CLOSES, MID_MARCH, NOON, requests, settled

if TYPE_CHECKING:
    from pathlib import Path

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

RUN = ("run", "upkeep", "--as-of", MID_MARCH.isoformat(), "--json")
NONE = {"requests": 0, "inbox": 0, "refusals": 0, "messages": 0, "alerts": 0, "runs": 0, "notes": 0}


async def _closed_january(conn: Connection) -> None:
    calls = Calls(conn)
    await tenant(calls, "t")
    for name in ("a", "b", "c"):
        await settled(calls, name, NOON)
    await roll(conn, CLOSES)
    await conn.execute(
        "INSERT INTO quota_missing_told (model, app, api_key, told_at, requests, missing)"
        " VALUES ('m', 'a', 'k', $1::timestamptz - interval '10 days', 1, 1)",
        NOON,
    )


def _counts(done: Any) -> dict[str, int]:
    (job,) = json.loads(done.out)["jobs"]
    assert job["outcome"] == "done"
    return {name: job[name] for name in NONE}


async def test_a_dry_run_counts_and_settings_keep_more(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    await _closed_january(conn)
    asked = []
    for number, table in enumerate(("", "off = true", "request_days = 43\nnote_days = 70")):
        config = tmp_path / f"{number}.toml"
        config.write_text(f"[upkeep]\n{table}\n")
        asked.append(quota_worker(dsn, *RUN, "--dry-run", QUOTA_WORKER_CONFIG=str(config)))
    usual, off, longer = [_counts(done) for done in await asyncio.gather(*asked)]
    assert usual == NONE | {"requests": 3, "notes": 1}
    assert off == longer == NONE
    assert await requests(conn) == ["a", "b", "c"]
    assert await conn.fetchval("SELECT count(*) FROM quota_upkeep_walks") == 0
    assert _counts(await quota_worker(dsn, *RUN)) == usual
    assert await requests(conn) == []
    assert _counts(await quota_worker(dsn, *RUN)) == NONE


async def test_an_invoice_of_a_month_without_its_requests_is_refused(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    """Compared with nothing, all of it would look like charges that the ledger missed."""
    await _closed_january(conn)
    await quota_worker(dsn, *RUN)
    export = tmp_path / "invoice.csv"
    export.write_text("date,model,input_tokens,cost_usd\n2024-01-20,m,33,0.01\n")
    done = await quota_worker(dsn, "invoice", "compare", str(export), "--month", "2024-01")
    assert (done.code, done.out) == (2, "")
    assert "the requests of 2024-01 are gone: upkeep has removed them since 2024-03-17" in done.err


async def test_a_run_that_is_stopped_leaves_the_rest_to_the_next(
    dsn: str, conn: Connection
) -> None:
    """SIGTERM comes between two batches: what is done is done, and the walk goes on from there."""
    await _closed_january(conn)
    await conn.execute(
        "INSERT INTO quota_reservations SELECT (jsonb_populate_record(r, jsonb_build_object('request_id',"
        " 'x' || n, 'reservation_id', 1000000 + n))).*"
        " FROM quota_reservations r, generate_series(1, 2500) n WHERE r.request_id = 'a'"
    )
    pool = await open_pool(dsn)
    deadline = Deadline(60, monotonic_seconds)
    rests = 0

    async def rest(_seconds: float) -> None:
        nonlocal rests
        rests += 1
        if rests == 2:  # after the second batch of requests
            deadline.stop()

    nobody: dict[str, Any] = dict.fromkeys(JobPorts._fields)
    port = PostgresUpkeep(pool, load_queries(Assets(), "upkeep"), UpkeepSettings())
    ports = JobPorts(**(nobody | {"upkeep": port}))
    try:
        first = await upkeep.run(
            JobContext(MID_MARCH, deadline, False, ports, monotonic_seconds, rest)
        )
        assert (first.requests, first.leftover) == (1000, True)
        assert len(await requests(conn)) == 1503
        second = await upkeep.run(
            JobContext(MID_MARCH, Deadline(60, monotonic_seconds), False, ports)
        )
        assert (second.requests, second.leftover) == (1503, False)
    finally:
        await pool.close()


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    text = (
        "[upkeep]\nrequest_days = 39\nmessage_days = 29\nalert_days = 99\nrun_days = 13\n"
        'note_days = "60"\noff = 1\nusage_days = 40\n'
    )
    assert faults_of(tmp_path, text) == [
        "upkeep.request_days is out of bounds: 40 to 3650",
        "upkeep.message_days is out of bounds: 30 to 3650",
        "upkeep.alert_days is out of bounds: 100 to 3650",
        "upkeep.run_days is out of bounds: 14 to 3650",
        "upkeep.note_days is a text: a whole number is needed, without quotes",
        "upkeep.off is a number: true or false is needed, without quotes",
        "upkeep.usage_days is not known here: did you mean message_days or alert_days?",
    ]
