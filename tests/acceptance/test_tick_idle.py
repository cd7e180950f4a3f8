"""A tick with nothing to do is one call, and whatever changed before it began ends that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from acceptance.program import quota_worker

if TYPE_CHECKING:
    import asyncpg

    from conftest import Connect, NewDatabase

    Connection = asyncpg.Connection[asyncpg.Record]

# autovacuum may write between two ticks, which are then no idle ones
TRIES = 20
FLEET = (
    "INSERT INTO departments (department_id) VALUES ('d');"
    "INSERT INTO department_budgets (department_id, monthly_tokens) VALUES ('d', 1000);"
    "INSERT INTO tenant_limits (tenant_id, daily_completions, department_id, reservation_ttl_seconds)"
    " VALUES ('t', 100, NULL, 1), ('m', 100, 'd', 600), ('o', 100, NULL, 600);"
    "SELECT quota_topup('d', 'production', 1000, NULL, 'k', 'a', 'r', clock_timestamp() + interval '1 d');"
    "SELECT quota_settle('m', 'r', 1400, 0, 0);"
    "SELECT quota_settle('t', 'r', 1, 1, 1)"
)


MESSAGE = (
    "INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency, facts,"
    " next_attempt_at, created_at)"
    " VALUES ('k', 'k', 'tenant-warn', 'console', 'warning', 3, '{}', now(), now())"
)


async def tick(dsn: str) -> dict[str, dict[str, object]]:
    """What one tick did, by job."""
    done = await quota_worker(dsn, "tick", "--json")
    assert done.code == 0, done.err
    return {job["job"]: job for job in json.loads(done.out)["jobs"]}


def was_idle(jobs: dict[str, dict[str, object]]) -> bool:
    """Whether no job was run at all: none has counts."""
    return all("leftover" not in job for job in jobs.values())


async def until_idle(dsn: str) -> dict[str, dict[str, object]]:
    for _ in range(TRIES):
        jobs = await tick(dsn)
        if was_idle(jobs):
            return jobs
    raise AssertionError("never idle")


async def test_an_idle_tick_is_written_down_and_gives_the_lease_back(
    dsn: str, conn: Connection
) -> None:
    await conn.execute(FLEET)
    jobs = await until_idle(dsn)
    assert {name: job["outcome"] for name, job in jobs.items()} == {
        "reconcile": "done",
        "soft_warn": "done",
        "watch": "done",
        "deliver": "done",
    }
    fence, free = await conn.fetchrow(
        "SELECT fence, expires_at <= clock_timestamp() FROM tick_lease"
    )
    assert free
    runs = await conn.fetch(
        "SELECT job, outcome, counts, ended_at >= started_at AS ended FROM job_runs WHERE fence = $1",
        fence,
    )
    assert sorted(tuple(row) for row in runs) == [
        (name, "done", "{}", True) for name in sorted(jobs)
    ]


CHANGES = {
    "a plain UPDATE of usage": (
        "UPDATE quota_usage SET completions = 90 WHERE tenant_id = 't'",
        "reconcile",
        "legacy_booked",
        1,
    ),
    "a lower cap": (
        "UPDATE tenant_limits SET daily_completions = 1 WHERE tenant_id = 't'",
        "soft_warn",
        "messages",
        1,
    ),
    "a top-up that is deleted": ("DELETE FROM quota_topups", "soft_warn", "messages", 1),
    "a row in the inbox": (
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens) VALUES ('t', 'late', 1, 1)",
        "reconcile",
        "inbox_booked",
        1,
    ),
    "a request": ("SELECT quota_settle('t', 's', 1, 1, 1)", "reconcile", "buckets_mirrored", 0),
    "a job's row of another hand": ("UPDATE tick_lease SET owner = owner", "deliver", "sent", 0),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_changed_is_found_by_the_next_tick(
    dsn: str, conn: Connection, change: str
) -> None:
    statement, job, count, expected = CHANGES[change]
    await conn.execute(FLEET)
    await until_idle(dsn)
    await conn.execute(statement)
    jobs = await tick(dsn)
    assert not was_idle(jobs)
    assert jobs[job][count] == expected
    assert was_idle(await until_idle(dsn))


async def test_a_hold_that_runs_out_after_an_idle_tick_is_ended_by_the_next(
    dsn: str, conn: Connection
) -> None:
    await conn.execute(FLEET)
    await conn.execute("SELECT quota_reserve('t', 'hold', 1, 1, 1, p_ttl_seconds => 8)")
    await until_idle(dsn)
    left = (
        "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM quota_reservations"
    )
    seconds = await conn.fetchval(f"{left} WHERE state = 'open'")
    assert seconds > 0
    await conn.execute("SELECT pg_sleep($1)", seconds + 0.01)
    assert (await tick(dsn))["reconcile"]["expired_estimate"] == 1


@pytest.mark.parametrize(
    "brought",
    [
        "UPDATE quota_topups SET expires_at = (SELECT scanned_at FROM quota_warn_scans WHERE scan = 'soft_warn') + interval '1 us'",
        "SELECT quota_reserve('o', 'x', 1, 1, 1, p_now => now() - interval '1 hour')",
        MESSAGE,
        "UPDATE quota_warn_scans SET scanned_at = scanned_at - interval '1 day'",
        "UPDATE quota_warn_scans SET scanned_at = now() + interval '1 minute'",
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens) VALUES ('t', 'l', 1, 1)",
        "UPDATE quota_refusal_counts SET counter = 'quota_refusal_counter_00'",
    ],
)
async def test_everything_that_time_brings_is_asked_for(
    dsn: str, conn: Connection, brought: str
) -> None:
    """The question itself, as if the row had been there unchanged."""
    await conn.execute(FLEET)
    await conn.execute("UPDATE tenant_limits SET daily_completions = 1 WHERE tenant_id = 't'")
    await conn.execute("SELECT quota_reserve('t', 'refused', 1, 1, 1)")
    await until_idle(dsn)
    asks = "SELECT tick_time_brings(clock_timestamp())"
    assert await conn.fetchval(asks) is False
    await conn.execute(brought)
    assert await conn.fetchval(asks) is True


async def test_what_is_committed_after_an_idle_tick_is_found_by_the_next(
    dsn: str, conn: Connection, connect: Connect
) -> None:
    await conn.execute(FLEET)
    await until_idle(dsn)
    other = await connect()
    transaction = other.transaction()
    await transaction.start()
    await other.execute("UPDATE quota_usage SET completions = 90 WHERE tenant_id = 't'")
    for _ in range(3):
        await tick(dsn)
    await transaction.commit()
    assert (await tick(dsn))["soft_warn"]["messages"] == 1


async def test_a_tick_by_another_time_says_nothing_about_now(dsn: str, conn: Connection) -> None:
    await conn.execute(FLEET)
    await until_idle(dsn)
    await conn.execute("UPDATE quota_usage SET completions = 90 WHERE tenant_id = 't'")
    done = await quota_worker(dsn, "tick", "--as-of", "2020-01-01T00:00:00Z")
    assert done.code == 0
    assert (await tick(dsn))["soft_warn"]["messages"] == 1


async def test_a_copied_mark_is_no_proof(dsn: str, conn: Connection) -> None:
    """As after a restore: the same values, in a row of another transaction."""
    await conn.execute(FLEET)
    await until_idle(dsn)
    await conn.execute(
        "UPDATE tick_lease SET idle_xid = (pg_current_xact_id()::text::bigint - 1)::text::xid8"
    )
    assert not was_idle(await tick(dsn))


async def test_jobs_asked_for_by_name_run(dsn: str, conn: Connection) -> None:
    await conn.execute(FLEET)
    await until_idle(dsn)
    done = await quota_worker(dsn, "tick", "--jobs", "reconcile", "--json")
    assert json.loads(done.out)["jobs"][0]["leftover"] == 0


async def test_another_database_of_the_server_may_be_busy(
    dsn: str, conn: Connection, new_database: NewDatabase
) -> None:
    """Its transactions only make the tick look, as one that isn't idle does."""
    await conn.execute(FLEET)
    await until_idle(dsn)
    await new_database()
    assert not was_idle(await tick(dsn))


async def test_a_dry_run_names_only_what_is_due(dsn: str, conn: Connection) -> None:
    await conn.execute(FLEET)
    before = await quota_worker(dsn, "tick", "--dry-run")
    assert "roll_month  months 1" in before.out
    await tick(dsn)
    after = await quota_worker(dsn, "tick", "--dry-run")
    assert [line.split()[0] for line in after.out.splitlines()] == [
        "reconcile",
        "soft_warn",
        "watch",
        "deliver",
    ]
    by_name = await quota_worker(dsn, "tick", "--dry-run", "--jobs", "roll_month")
    assert by_name.out == "roll_month  months 1\n"
