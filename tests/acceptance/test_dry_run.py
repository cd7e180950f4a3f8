"""`tick --dry-run` with work for every job: it says so for each, and changes and sends nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from acceptance.program import quota_worker
from acceptance.schedule_world import Receiver, crossing
from acceptance.test_schedule import last_months
from acceptance.test_tick import overdue_holds

if TYPE_CHECKING:
    from pathlib import Path

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

ROUTES = {"default": {"to": [{"channel": "hook"}]}}
# What each job finds, by the count that says so.
FOUND = {
    "reconcile": {"overdue", "inbox_waiting", "priceable"},
    "soft_warn": {"untold"},
    "watch": {"runaways"},
    "roll_month": {"months"},
    "roi_report": {"due"},
    "diagnose": {"untold"},
    "deliver": {"due"},
}


async def contents(conn: Connection) -> dict[str, str]:
    """A digest of each table and sequence."""
    names = await conn.fetch(
        "SELECT relname, relkind FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S') ORDER BY 1"
    )
    found = {}
    for name, kind in names:
        columns = "t" if kind != b"S" else "t.last_value"
        found[name] = await conn.fetchval(
            f"SELECT md5(string_agg(({columns})::text, ' ' ORDER BY ({columns})::text)) FROM {name} t"
        )
    return found


async def test_it_says_what_each_job_would_do_and_does_none_of_it(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    receiver = Receiver(tmp_path)
    environ = await receiver.open()
    await last_months(conn)
    assert (await quota_worker(dsn, "run", "roll_month", **environ)).code == 0
    await conn.execute("DELETE FROM job_runs")  # its next slot
    await crossing(conn, "waits")
    await conn.execute("SELECT quota_soft_warn(p_routes => $1)", json.dumps(ROUTES))
    await crossing(conn, "untold")
    await overdue_holds(conn, 20)
    await conn.execute(
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens)"
        " VALUES ('t', 'x', 1, 1);"
        "SELECT quota_settle('t', 'y', 1, 1, NULL, p_model => 'm');"
        "INSERT INTO quota_prices (origin, model, currency, input, output)"
        " VALUES ('file', 'm', 'USD', 1, 1);"
        # enough requests that came without usage for diagnose to tell
        "SELECT quota_reserve('t', 'n' || n, 1, 1, 1) FROM generate_series(1, 200) n;"
        "SELECT quota_settle('t', 'n' || n, NULL, NULL, NULL) FROM generate_series(1, 200) n"
    )
    before = await contents(conn)
    done = await quota_worker(dsn, "tick", "--dry-run", "--json", **environ)
    assert done.code == 0, done.err
    assert await contents(conn) == before
    jobs = {job["job"]: job for job in json.loads(done.out)["jobs"]}
    for name, counts in FOUND.items():
        assert {count for count in counts if jobs[name][count] > 0} == counts, jobs[name]
    assert receiver.server.requests == []
    # each line names its job, for people
    shown = await quota_worker(dsn, "tick", "--dry-run", **environ)
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(jobs)
    would = [line.strip() for line in lines if line.startswith(" ")]
    assert "would tell tenant untold (production): completions of the day at 100 %" in would
    assert "would send 1 on hook" in would
    assert await contents(conn) == before
    await receiver.server.stop()
