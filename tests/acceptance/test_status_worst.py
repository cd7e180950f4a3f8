"""Whom `status` shows first, and when it says that a cap will be full, against plain recomputations."""

from __future__ import annotations

import json
import random
from datetime import datetime
from typing import Any

import asyncpg

from acceptance.program import quota_worker
from worker.jobs.registry import EVERY_TICK_SECONDS
from worker.postgres.reports import TICK_SECONDS

CAPS = (
    "daily_completions",
    "daily_input_tokens",
    "daily_output_tokens",
    "daily_tokens",
    "daily_cost_cents",
    "monthly_completions",
    "monthly_tokens",
    "monthly_cost_cents",
)
PLAIN = """
    SELECT v.tenant_id, greatest(completions_pct, cost_pct, daily_input_tokens_pct, daily_output_tokens_pct,
           daily_tokens_pct, monthly_completions_pct, monthly_tokens_pct, monthly_cost_pct) AS pct
      FROM v_quota_status v ORDER BY 2 DESC NULLS LAST, 1
"""


async def shown(dsn: str, *arguments: str) -> dict[str, Any]:
    done = await quota_worker(dsn, "status", "--json", *arguments)
    assert done.code == 0, done.err
    document: dict[str, Any] = json.loads(done.out)
    return document


async def test_the_worst_are_those_of_the_view_whatever_cap_it_is(
    dsn: str, conn: asyncpg.Connection
) -> None:
    dice = random.Random(20261130)  # noqa: S311  a fixed fleet
    today = await conn.fetchval("SELECT quota_day(clock_timestamp())")
    for number in range(160):
        caps = [dice.choice([None, None, None, 0, 50, 1000, 10**6, 2**31 - 1]) for _ in CAPS]
        if number % 3:
            caps = [None if cap == 0 else cap for cap in caps]
        if number % 5 == 0:
            caps[:5] = [None] * 5
        await conn.execute(
            f"INSERT INTO tenant_limits (tenant_id, {', '.join(CAPS)}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            f"t{number}",
            *caps,
        )
        # of any size, one day or spread over the month, some taken below zero by a correction
        days = dice.sample(range(1, today.day + 1), min(today.day, dice.choice([0, 1, 1, 3, 20])))
        size = 10 ** dice.uniform(0, 6)
        await conn.executemany(
            "INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens, cost_cents,"
            " cost_subcent_nanos, held_input_tokens) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            [
                (
                    f"t{number}",
                    today.replace(day=day),
                    int(dice.uniform(-0.1, 1) * size),
                    *(int(dice.random() * size) for _ in range(3)),
                    dice.randrange(10**7),
                    int(dice.random() * size / 2),
                )
                for day in days
            ],
        )
    plain = [(row["tenant_id"], row["pct"]) for row in await conn.fetch(PLAIN)]
    assert len({pct for _, pct in plain}) > 50
    for top in (1, 12, 100, 0):
        rows = (await shown(dsn, "--top", str(top)))["rows"]
        found = [(row["subject"], row["pct"]) for row in rows]
        wanted = [(name, None if pct is None else float(pct)) for name, pct in plain]
        assert found == wanted[: top or None], top
    assert {row["dimension"].partition("_")[0] for row in rows[:20]} == {"daily", "monthly"}


async def test_the_forecast_of_status_is_that_of_the_alert(
    dsn: str, conn: asyncpg.Connection
) -> None:
    # a zone in which it is about noon, so that the last hour is of this day and month
    hour = await conn.fetchval("SELECT date_part('hour', now() AT TIME ZONE 'UTC')::int")
    await conn.execute("UPDATE quota_settings SET billing_zone = $1", f"Etc/GMT{hour - 12:+}")
    await conn.execute(
        "INSERT INTO department_budgets (department_id, monthly_tokens) VALUES ('d', 1000);"
        "INSERT INTO tenant_limits (tenant_id, department_id, daily_completions, daily_cost_cents, daily_input_tokens,"
        " daily_output_tokens, monthly_cost_cents) VALUES ('t', 'd', NULL, NULL, NULL, NULL, 100)"
    )
    ago = "p_now => clock_timestamp() - make_interval(mins => $2)"
    for number, minutes in enumerate((10, 20, 50)):
        await conn.execute(
            f"SELECT quota_reserve('t', $1, 200, 80, 273333333, {ago})", f"r{number}", minutes
        )
    await conn.execute("SELECT quota_settle('t', 'r0', 200, 80, 273333333)")
    assert (await quota_worker(dsn, "run", "soft_warn")).code == 0
    facts = {
        (row["subject_kind"], one["dimension"]): one["expected_at"]
        for row in await conn.fetch("SELECT subject_kind, facts FROM quota_outbox")
        for one in json.loads(row["facts"])["dimensions"]
        if one["crossed"]
    }
    assert all(facts.values())
    document = await shown(dsn)
    rows = {(row["kind"], row["dimension"].partition("_")[2]): row for row in document["rows"]}
    assert set(facts) == {("department", "tokens"), ("tenant", "cost")} == set(rows)
    for key, expected in facts.items():
        told = rows[key]["expected_at"]
        assert (told is None) == (expected is None), key
        if told is not None and expected is not None:
            # to the minute, by a clock a moment later
            apart = datetime.fromisoformat(told) - datetime.fromisoformat(expected)
            assert 0 <= apart.total_seconds() <= 120, key
        hours = rows[key]["hours"]
        assert len(hours) == 24
        assert hours[:23] == [0] * 23
        assert abs(hours[23] - rows[key]["used"]) < 0.01
    text = (await quota_worker(dsn, "status")).out
    assert "last 24 h" in text.splitlines()[0]
    assert "·█" in text


async def test_would_be_refusals_of_observed_tenants_are_counted(
    dsn: str, conn: asyncpg.Connection
) -> None:
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, enforce) VALUES ('o', 1, 'observe')"
    )
    for number in range(4):
        await conn.execute("SELECT quota_reserve('o', $1, 1, 1, 1)", f"r{number}")
    (row,) = (await shown(dsn))["rows"]
    assert (row["observed_last_day"], row["refusals_today"]) == (3, 0)
    head, line = (await quota_worker(dsn, "status")).out.splitlines()[:2]
    assert "observed" in head
    assert re_word(line, head, "observed") == "3"


def re_word(line: str, head: str, column: str) -> str:
    """What stands in a right-aligned column."""
    end = head.index(column) + len(column)
    return line[:end].rsplit(maxsplit=1)[-1]


async def test_a_late_tick_a_waiting_message_and_an_interrupted_job_are_told(
    dsn: str, conn: asyncpg.Connection
) -> None:
    assert TICK_SECONDS == EVERY_TICK_SECONDS
    assert (await quota_worker(dsn, "tick")).code == 0
    fresh = await shown(dsn)
    assert (fresh["tick_late"], fresh["tick_running"], fresh["interrupted_jobs"]) == (
        False,
        False,
        [],
    )
    apart = datetime.fromisoformat(fresh["next_tick"]) - datetime.fromisoformat(fresh["last_tick"])
    assert apart.total_seconds() == TICK_SECONDS
    await conn.execute(
        "UPDATE tick_lease SET renewed_at = renewed_at - interval '11 minutes';"
        "UPDATE job_runs SET outcome = 'running' WHERE job = 'deliver';"
        "INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency, facts, next_attempt_at,"
        " created_at) VALUES ('k', 'm', 'tenant-warn', 'console', 'warning', 3, '{}', now(), now() - interval '95 min')"
    )
    late = await shown(dsn)
    assert (late["tick_late"], late["interrupted_jobs"]) == (True, ["deliver"])
    assert late["outbox_waiting_since"] is not None
    text = (await quota_worker(dsn, "status")).out
    assert "interrupted: deliver, LATE: the next was expected " in text
    assert "outbox     1 pending; the oldest waits 1h 35m" in text
