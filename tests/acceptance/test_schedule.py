"""`quota-worker schedule` as a supervisor runs it: crossings in time, faults, signals, replicas."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import asyncpg
import pytest

from acceptance.program import quota_worker, start, until
from acceptance.schedule_world import Receiver, Schedule, crossing, schedule
from acceptance.test_tick import overdue_holds
from worker.jobs.expiry import BATCH_ROWS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from worker.postgres.embedded import EmbeddedServer

    from conftest import Connect, NewDatabase

    Connection = asyncpg.Connection[asyncpg.Record]

UNREACHABLE = "postgresql://nobody@127.0.0.1:1/none"
TOLD_SECONDS = 2.0
CROSSINGS = 12
TWO_CUTS = 2
WATCHING = "watching for crossings"
OF_WORKER = "FROM pg_stat_activity WHERE application_name = 'quota-worker' AND datname = $1"


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[Receiver]:
    receiver = Receiver(tmp_path)
    yield receiver
    await receiver.server.stop()


async def waits_for_a_lock(conn: Connection) -> bool:
    found: bool = await conn.fetchval(
        f"SELECT count(*) > 0 {OF_WORKER} AND wait_event_type = 'Lock'",
        await conn.fetchval("SELECT current_database()"),
    )
    return found


async def seconds_until_told(conn: Connection, receiver: Receiver, tenant: str) -> float:
    committed = await crossing(conn, tenant)
    return await receiver.until_told(tenant) - committed


@pytest.mark.parametrize("mode", ["listening", "polling"])
async def test_a_crossing_is_told_within_two_seconds(
    dsn: str, conn: Connection, receiver: Receiver, mode: str
) -> None:
    environ = await receiver.open()
    if mode == "polling":
        environ["QUOTA_WORKER_LISTEN_DSN"] = UNREACHABLE
    async with schedule(dsn, **environ) as running:
        await running.until_event(WATCHING)
        assert running.events(WATCHING)[0]["mode"] == mode
        took = []
        for number in range(CROSSINGS):
            took.append(await seconds_until_told(conn, receiver, f"t{number}"))
            await asyncio.sleep(number % 4 / 13)
        # one may be late; where programs queue for the processors, all of it takes as much longer
        queue = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert sorted(took)[-2] < TOLD_SECONDS * queue, (took, queue)
        assert set(receiver.told().values()) == {1}
        assert await running.end() == 0
    # the five-minute ticks' record is as they leave it alone: one run of each job at the start, and
    # another where minute 2 of the same five came meanwhile
    assert await conn.fetchval("SELECT max(attempts) FROM job_runs") <= 2 < CROSSINGS
    assert await conn.fetchval("SELECT count(*) FROM tick_lease WHERE expires_at > now()") == 0


async def test_what_a_killed_process_left_is_sent_at_the_start_though_its_lease_stands(
    dsn: str, conn: Connection, receiver: Receiver
) -> None:
    environ = await receiver.open()
    await crossing(conn, "t")
    assert (await quota_worker(dsn, "tick", "--jobs", "soft_warn", **environ)).code == 0
    assert await conn.fetchval("SELECT count(*) FROM quota_crossings") == 0
    # what a tick that was killed amid its deliveries leaves
    await conn.execute("UPDATE tick_lease SET owner = 'gone', expires_at = now() + interval '60 s'")
    async with schedule(dsn, **environ) as running:
        await receiver.until_told("t")
        assert await running.end() == 0
    assert receiver.told() == {"t": 1}
    assert await conn.fetchval("SELECT owner FROM tick_lease") == "gone"


async def test_it_outlives_cut_connections_and_a_database_that_goes_away(
    dsn: str, conn: Connection, receiver: Receiver, pg_server: EmbeddedServer
) -> None:
    database = await conn.fetchval("SELECT current_database()")
    admin = await asyncpg.connect(pg_server.dsn_of("postgres"), statement_cache_size=0)
    cut = f"SELECT pg_terminate_backend(pid) {OF_WORKER}"
    try:
        async with schedule(dsn, **await receiver.open()) as running:
            await running.until_event(WATCHING)
            await seconds_until_told(conn, receiver, "before")
            await admin.fetch(cut, database)
            # what is charged while nobody listens is seen by the look after the reconnect
            await seconds_until_told(conn, receiver, "cut")
            await admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
            await admin.fetch(cut, database)
            await running.until_event("database away")
            await crossing(conn, "away")
            await asyncio.sleep(2)
            assert running.process.returncode is None
            await admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
            await receiver.until_told("away")
            await running.until_event("database back")
            # two cuts; what ran at one of them may tell of it after another was back already
            for event in ("database away", "database back"):
                assert len(running.events(event)) <= 2 * TWO_CUTS, running.lines
            assert await running.end() == 0
    finally:
        await admin.close()
    assert receiver.told() == {"before": 1, "cut": 1, "away": 1}


async def test_a_database_that_is_not_there_yet_is_waited_for() -> None:
    async with schedule(UNREACHABLE) as running:
        await running.until_event("database away")
        await asyncio.sleep(1.5)
        assert await running.end() == 0
        assert len(running.lines) == 1, running.lines


@pytest.mark.parametrize("fault", ["schema", "listen", "configuration"])
async def test_a_wrong_configuration_ends_it_at_once(
    new_database: NewDatabase, tmp_path: Path, fault: str
) -> None:
    file = tmp_path / "quota-worker.toml"
    file.write_text("[channels.x]\nkind = 'none'\n", encoding="utf-8")
    environ = {
        "schema": {},
        "listen": {"QUOTA_WORKER_LISTEN_DSN": "host=localhost"},
        "configuration": {"QUOTA_WORKER_CONFIG": str(file)},
    }[fault]
    dsn = await new_database() if fault == "schema" else UNREACHABLE
    done = await quota_worker(dsn, "schedule", **environ)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1, done.err


async def begun(conn: Connection) -> None:
    async def has_begun() -> bool:
        query = "SELECT count(*) > 0 FROM quota_reservations WHERE state = 'expired'"
        found: bool = await conn.fetchval(query)
        return found

    await until(has_begun)


async def test_a_signal_lets_the_tick_finish_what_it_holds(dsn: str, conn: Connection) -> None:
    """SIGHUP, of a terminal that is closed or a supervisor's reload; SIGTERM goes the same way."""
    await overdue_holds(conn, 2500)
    async with schedule(dsn) as running:
        await begun(conn)
        assert await running.end(signal.SIGHUP) == 0
    left = await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'")
    assert 0 < left < 2500
    assert left % BATCH_ROWS == 0
    runs = dict(await conn.fetch("SELECT job, outcome FROM job_runs"))
    assert runs["reconcile"] == "unfinished"
    assert await conn.fetchval("SELECT expires_at = '-infinity' FROM tick_lease")


async def test_a_second_signal_ends_it_at_once(
    dsn: str, conn: Connection, connect: Connect
) -> None:
    await overdue_holds(conn, 1)
    blocker = await connect()
    async with blocker.transaction():
        await blocker.execute("LOCK TABLE quota_reservations IN ACCESS EXCLUSIVE MODE")
        async with schedule(dsn) as running:
            await until(lambda: waits_for_a_lock(conn))
            assert await running.end(signal.SIGTERM, signal.SIGTERM) == 130


async def test_a_process_that_stood_still_beyond_its_lease_does_nothing_twice(
    dsn: str, conn: Connection, receiver: Receiver
) -> None:
    environ = await receiver.open()
    await overdue_holds(conn, 2000)
    await crossing(conn, "c")
    async with schedule(dsn, **environ) as running:
        await begun(conn)
        running.process.send_signal(signal.SIGSTOP)
        await conn.execute("UPDATE tick_lease SET expires_at = clock_timestamp()")
        done = await quota_worker(dsn, "tick", **environ)
        assert done.code == 0, done.err
        runs = await conn.fetch("SELECT job, outcome, counts::text, fence FROM job_runs")
        running.process.send_signal(signal.SIGCONT)
        assert await running.end() == 0
    left = "SELECT count(*) FROM quota_reservations WHERE state = 'open' AND tenant_id = 't'"
    assert await conn.fetchval(left) == 0
    row = await conn.fetchrow(
        "SELECT completions, input_tokens, held_input_tokens FROM quota_usage WHERE tenant_id = 't'"
    )
    assert row is not None
    assert tuple(row) == (2000, 20000, 0)
    # and one on the requests without usage, whose subject is nobody
    assert receiver.told() == {"c": 1, None: 1}
    # what the later tick wrote down stands
    assert await conn.fetch("SELECT job, outcome, counts::text, fence FROM job_runs") == runs


async def last_months(conn: Connection) -> None:
    """Two departments' requests in each of the last two months."""
    await conn.execute(
        "INSERT INTO departments (department_id, name) VALUES ('d1', 'd1'), ('d2', 'd2');"
        "INSERT INTO tenant_limits (tenant_id, department_id, daily_input_tokens, bucket_capacity)"
        " VALUES ('m1', 'd1', NULL, 1e9), ('m2', 'd2', NULL, 1e9)"
    )
    await conn.execute(
        "SELECT quota_settle(t, 'r' || at, 100, 50, 1000000, p_now => at)"
        " FROM unnest(ARRAY['m1', 'm2']) t,"
        " (SELECT date_trunc('month', now()) - make_interval(months => n, days => -9) AS at"
        "  FROM generate_series(1, 2) n) m"
    )


async def test_four_replicas_beside_cron_tell_each_thing_once(
    dsn: str, conn: Connection, receiver: Receiver
) -> None:
    environ = await receiver.open()
    await last_months(conn)
    replicas = [Schedule(await start(dsn, "schedule", **environ)) for _ in range(4)]
    try:
        for one in replicas:
            await one.until_event(WATCHING)
        tick = asyncio.create_task(quota_worker(dsn, "tick", **environ))
        for number in range(24):
            await crossing(conn, f"t{number}")
            await asyncio.sleep(0.05)
            if number == 12:
                replicas[0].kill()
        assert (await tick).code == 0
        killed, *others = replicas
        assert await killed.end() == -signal.SIGKILL
        # what the killed one held is due when its leases are over
        held = await conn.fetchval(
            "WITH u AS (UPDATE quota_outbox SET lease_until = now() WHERE state = 'sending'"
            " RETURNING 1) SELECT count(*) FROM u"
        )
        await conn.execute("UPDATE tick_lease SET expires_at = now()")
        assert (await quota_worker(dsn, "tick", **environ)).code == 0
        for number in range(24):
            await receiver.until_told(f"t{number}")
        for one in others:
            assert await one.end() == 0
    finally:
        for one in replicas:
            if one.process.returncode is None:
                one.kill()
                await one.end()
    told = receiver.told()
    assert set(told) == {f"t{number}" for number in range(24)}
    # at most what was on its way when it was killed may have come twice
    assert told.total() - 24 <= held
    assert await conn.fetchval("SELECT count(*) FROM quota_warn_log WHERE state = 'told'") == 24
    reports = await conn.fetchrow(
        "SELECT count(*), count(DISTINCT (month, department_id)), max(revision) FROM quota_reports"
    )
    assert reports is not None
    assert reports[0] == reports[1] >= 3
    assert reports[2] == 1
    mails = "SELECT count(*), count(DISTINCT (message_key, recipient)) FROM quota_outbox WHERE channel = 'mail'"
    sent = await conn.fetchrow(mails)
    assert sent is not None
    assert sent[0] == sent[1] >= 1
