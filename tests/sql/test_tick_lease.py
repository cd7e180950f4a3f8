"""The tick's lease and its fence, as the worker's adapter uses them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import asyncpg
import pytest

from worker.assets import Assets
from worker.models import JobRun, JobSchedule
from worker.postgres.jobs import PostgresJobRuns
from worker.postgres.queries import load_queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Connection = asyncpg.Connection[asyncpg.Record]

SCHEDULES = (JobSchedule("often", 300, always=True), JobSchedule("hourly", 3600, always=False))
NOON = datetime(2026, 11, 30, 12, 7, tzinfo=UTC)


@pytest.fixture
async def runs(dsn: str) -> AsyncIterator[PostgresJobRuns]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=8, statement_cache_size=0) as pool:
        yield PostgresJobRuns(pool, load_queries(Assets(), "jobs"))


async def test_of_many_begins_at_once_one_is_granted(runs: PostgresJobRuns) -> None:
    leases = await asyncio.gather(*(runs.begin(f"w{n}", 60, SCHEDULES, NOON) for n in range(8)))
    granted = [lease for lease in leases if lease is not None]
    assert len(granted) == 1
    assert granted[0].due_jobs == ("often", "hourly")


async def test_a_lease_given_back_is_free_and_a_done_slot_is_not_due(
    runs: PostgresJobRuns, conn: Connection
) -> None:
    lease = await runs.begin("a", 60, SCHEDULES, NOON)
    assert lease is not None
    assert await runs.begin("b", 60, SCHEDULES, NOON) is None
    done = [JobRun(job, "done", {"rows": 3}, 0.5) for job in lease.due_jobs]
    assert await runs.record(lease, done, release=True, now=NOON) == 2
    after = await runs.begin("b", 60, SCHEDULES, NOON)
    assert after is not None
    assert (after.fence, after.due_jobs) == (lease.fence + 1, ("often",))
    slots = await conn.fetch("SELECT job, scheduled_for, ended_at FROM job_runs ORDER BY job")
    assert [tuple(row) for row in slots] == [
        ("hourly", NOON.replace(minute=0), NOON),
        ("often", NOON.replace(minute=5), None),
    ]


async def test_a_renewed_lease_lasts_and_a_lost_one_says_so(
    runs: PostgresJobRuns, conn: Connection
) -> None:
    lease = await runs.begin("a", 60, SCHEDULES, None)
    assert lease is not None
    assert await runs.renew(lease, 600)
    left = await conn.fetchval("SELECT expires_at - clock_timestamp() FROM tick_lease")
    assert 590 < left.total_seconds() <= 600
    # run out, but taken by nobody: still the holder's
    await conn.execute("UPDATE tick_lease SET expires_at = clock_timestamp()")
    assert await runs.renew(lease, 60)
    await conn.execute("UPDATE tick_lease SET expires_at = clock_timestamp()")
    assert await runs.begin("b", 60, SCHEDULES, None) is not None
    assert not await runs.renew(lease, 60)


async def test_a_stalled_tick_overwrites_nothing_of_its_successor(
    runs: PostgresJobRuns, conn: Connection
) -> None:
    stalled = await runs.begin("a", 60, SCHEDULES, NOON)
    assert stalled is not None
    await conn.execute("UPDATE tick_lease SET expires_at = clock_timestamp()")
    successor = await runs.begin("b", 60, SCHEDULES, NOON)
    assert successor is not None
    late = [JobRun("often", "done", {}, 1.0), JobRun("hourly", "failed", {}, 1.0, "late")]
    assert await runs.record(stalled, late, release=True, now=NOON) == 0
    row = await conn.fetchrow("SELECT owner, fence, expires_at > clock_timestamp() FROM tick_lease")
    assert row is not None
    assert tuple(row) == ("b", successor.fence, True)
    assert await conn.fetchval("SELECT count(*) FROM job_runs WHERE outcome = 'running'") == 2


async def test_what_failed_or_died_is_due_again_and_texts_are_kept(
    runs: PostgresJobRuns, conn: Connection
) -> None:
    first = await runs.begin("a", 60, SCHEDULES, NOON)
    assert first is not None
    failed = JobRun("hourly", "failed", {"n": 1}, 0.1, 'a "quoted"\x00 \u5b57')
    await runs.record(first, [failed], release=True, now=NOON)
    error = await conn.fetchval("SELECT error FROM job_runs WHERE job = 'hourly'")
    assert error == 'a "quoted"\ufffd \u5b57'
    again = await runs.begin("a", 60, SCHEDULES, NOON)
    assert again is not None
    assert again.due_jobs == ("often", "hourly")
    assert await conn.fetchval("SELECT max(attempts) FROM job_runs") == 2
