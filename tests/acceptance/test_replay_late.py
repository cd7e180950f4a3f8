"""Replayed traffic across a month's end, whose lost usage partly arrives later, against sums from the trace alone.

Five streams of a hundred lose their usage; the reservations expire at their estimate. Some of the usage
arrives after all, by the inbox: on the same day, after midnight, after the month is closed, after the next one
is. In the end days, frozen totals and adjustments are what the trace says, each at its time.

The whole conversation trace, with a fiftieth of what was lost coming later:

    QUOTA_TRACE=/path/to/conv.csv python -m pytest tests/acceptance/test_replay_late.py
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acceptance.program import quota_worker
from acceptance.test_replay_ledger import (
    COST_IN,
    COST_OUT,
    ESTIMATE_OUT,
    SEED,
    TINY,
    chance,
    trace_rows,
)

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

LOSE, ABORT = 0.05, 0.02
NOVEMBER, DECEMBER, JANUARY = date(2025, 11, 1), date(2025, 12, 1), date(2026, 1, 1)
FIRST_START = datetime(2025, 11, 30, 22, 50, tzinfo=UTC)
SECOND_START = datetime(2025, 11, 30, 23, 56, tzinfo=UTC)  # until after midnight


@dataclass(frozen=True, slots=True)
class Tick:
    """`usage`: whether some of what was lost arrives just before it."""

    at: datetime
    usage: bool = True


TICKS = (
    Tick(datetime(2025, 11, 30, 23, 50, tzinfo=UTC)),
    Tick(datetime(2025, 12, 1, 1, 30, tzinfo=UTC)),
    Tick(datetime(2025, 12, 4, 0, 10, tzinfo=UTC), usage=False),  # closes November
    Tick(datetime(2025, 12, 9, 12, 0, tzinfo=UTC)),
    Tick(datetime(2026, 1, 4, 0, 10, tzinfo=UTC)),  # closes December
)
ARRIVALS = [number for number, tick in enumerate(TICKS) if tick.usage]
CLOSED_BY = {NOVEMBER: 2, DECEMBER: 4}
# completions, input, output, nanos
Sums = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Stream:
    """One request of the trace; `arrives`: the tick before which its lost usage comes, None: never."""

    request: str
    tenant: str
    at: datetime
    fate: str
    estimate: Sums
    used: Sums
    arrives: int | None

    @property
    def month(self) -> date:
        return self.at.date().replace(day=1)

    def charge(self, after_tick: int) -> Sums:
        """What it is charged once that tick is over."""
        if self.fate == "lost" and (self.arrives is None or self.arrives > after_tick):
            return self.estimate
        return self.used


def cost(tokens_in: int, tokens_out: int) -> Sums:
    return (1, tokens_in, tokens_out, tokens_in * COST_IN + tokens_out * COST_OUT)


def streams_of(
    rows: list[tuple[datetime, int, int, str | None]],
    start: datetime,
    run: str,
    tenants: int,
    late: float,
) -> list[Stream]:
    """By the documented draws of the replay; a share `late` of the lost arrives after all."""
    streams = []
    for index, (moment, tokens_in, tokens_out, _) in enumerate(rows):
        at = start + (moment - rows[0][0])
        fate = chance("fate", index)
        used, arrives, name = cost(tokens_in, tokens_out), None, "settled"
        if fate < LOSE:
            name = "lost"
            if chance("late", index) < late:
                times = [number for number in ARRIVALS if TICKS[number].at > at]
                arrives = times[int(chance("when", index) * len(times))]
        elif fate < LOSE + ABORT:
            name = "aborted"
            streamed = int(chance("cut", index) * tokens_out)
            used = cost(tokens_in, streamed) if streamed else (0, 0, 0, 0)
        tenant = f"replay-{int(chance('tenant', index) * tenants) + 1:04}"
        estimate = cost(tokens_in, ESTIMATE_OUT)
        streams.append(Stream(f"{run}-{index}", tenant, at, name, estimate, used, arrives))
    return streams


def total(streams: list[Stream], after_tick: int) -> dict[tuple[str, date], Sums]:
    """By tenant and month of admission."""
    sums: dict[tuple[str, date], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for stream in streams:
        for place, amount in enumerate(stream.charge(after_tick)):
            sums[stream.tenant, stream.month][place] += amount
    return {key: (row[0], row[1], row[2], row[3]) for key, row in sums.items()}


def expected_totals(streams: list[Stream]) -> dict[tuple[str, date, date], Sums]:
    """By tenant, month of the row, month that it belongs to: frozen at the closing, then what came in each month."""
    last = len(TICKS) - 1
    rows: dict[tuple[str, date, date], Sums] = {}
    for closed, tick in CLOSED_BY.items():
        for (tenant, month), sums in total(streams, tick).items():
            if month == closed:
                rows[tenant, month, month] = sums
    for row_month, since, until in ((DECEMBER, 2, 3), (JANUARY, 3, last)):
        before, after = total(streams, since), total(streams, until)
        for (tenant, month), sums in after.items():
            old = before[tenant, month]
            change = tuple(new - was for new, was in zip(sums, old, strict=True))
            if any(change) and CLOSED_BY[month] < until:
                rows[tenant, row_month, month] = (change[0], change[1], change[2], change[3])
    return rows


async def replay(dsn: str, path: Path, start: datetime, tenants: int) -> None:
    done = await quota_worker(
        dsn,
        *("replay", str(path), "--lose-usage", str(LOSE), "--abort", str(ABORT)),
        *("--seed", str(SEED), "--tenants", str(tenants), "--run-id", path.stem),
        *("--start-at", start.isoformat()),
    )
    assert done.code == 0, done.err


async def leave_late_usage(conn: Connection, streams: list[Stream], tick: int) -> None:
    """Into the inbox, newest first; every third one comes twice."""
    late = [stream for stream in reversed(streams) if stream.arrives == tick]
    for number, stream in enumerate(late):
        for _ in range(2 if number % 3 == 0 else 1):
            await conn.execute(
                "INSERT INTO quota_usage_inbox (tenant_id, request_id, usage_id, input_tokens, output_tokens,"
                " cost_nanos, occurred_at) VALUES ($1, $2, $2 || '-usage', $3, $4, $5, $6)",
                *(stream.tenant, stream.request, *stream.used[1:], stream.at),
            )


async def replay_and_tick(
    dsn: str, conn: Connection, trace: Path, folder: Path, tenants: int, late: float
) -> list[Stream]:
    """Half of the trace before the first tick, half after it."""
    await conn.execute(
        "INSERT INTO departments (department_id, name) VALUES ('d', 'd');"
        "INSERT INTO department_budgets (department_id, monthly_tokens) VALUES ('d', 1000000000000);"
    )
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, daily_input_tokens, daily_output_tokens,"
        " daily_cost_cents, monthly_cost_cents, bucket_capacity, department_id)"
        " SELECT 'replay-' || lpad(n::text, 4, '0'), NULL, NULL, NULL, NULL, NULL, 1e6, CASE WHEN n % 2 = 0 THEN 'd' END"
        " FROM generate_series(1, $1::int) AS n",
        tenants,
    )
    rows = trace_rows(trace)
    half = len(rows) // 2
    streams: list[Stream] = []
    parts = (("first", rows[:half], FIRST_START), ("second", rows[half:], SECOND_START))
    for number, (name, part, start) in enumerate(parts):
        path = folder / f"{name}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("timestamp", "input_tokens", "output_tokens"))
            writer.writerows((at.isoformat(" "), i, o) for at, i, o, _ in part)
        streams += streams_of(part, start, name, tenants, late)
        await replay(dsn, path, start, tenants)
        if number == 0:
            await tick(dsn, conn, streams, 0)
    for number in range(1, len(TICKS)):
        await tick(dsn, conn, streams, number)
    return streams


async def tick(dsn: str, conn: Connection, streams: list[Stream], number: int) -> None:
    await leave_late_usage(conn, streams, number)
    at = TICKS[number].at.isoformat()
    done = await quota_worker(dsn, "tick", "--jobs", "reconcile,roll_month", "--as-of", at)
    assert done.code == 0, (done.out, done.err)


async def assert_ledger(conn: Connection, streams: list[Stream]) -> None:
    last = len(TICKS) - 1
    days: dict[tuple[str, date], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for stream in streams:
        for place, amount in enumerate(stream.charge(last)):
            days[stream.tenant, stream.at.date()][place] += amount
    rows = await conn.fetch(
        "SELECT tenant_id, period, completions, input_tokens, output_tokens,"
        " (cost_cents::numeric * 10000000 + cost_subcent_nanos)::bigint AS nanos,"
        " held_input_tokens + held_output_tokens + held_cost_nanos AS held FROM quota_usage"
    )
    assert {row["held"] for row in rows} == {0}
    assert {tuple(row)[:2]: list(row)[2:6] for row in rows} == days
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 0
    booked = "SELECT outcome, count(*)::int AS n FROM quota_usage_inbox GROUP BY 1"
    found = {row["outcome"]: row["n"] for row in await conn.fetch(booked)}
    late = [stream for stream in streams if stream.arrives is not None]
    assert found.keys() == {"settled", "corrected", "replayed"}
    assert found["settled"] + found["corrected"] == len(late)

    rows = await conn.fetch(
        "SELECT tenant_id, month, belongs_to, completions::bigint, input_tokens::bigint, output_tokens::bigint,"
        " cost_nanos::bigint FROM quota_monthly_totals"
    )
    assert {tuple(row)[:3]: tuple(row)[3:] for row in rows} == expected_totals(streams)
    stale = await conn.fetchval(
        "SELECT sum(stale_count)::int FROM quota_monthly_totals WHERE month = $1", NOVEMBER
    )
    unheard = [s for s in streams if s.fate == "lost" and s.charge(CLOSED_BY[NOVEMBER]) != s.used]
    assert stale == len([s for s in unheard if s.month == NOVEMBER])
    pools = await conn.fetch(
        "SELECT month, sum(tokens_used)::bigint AS used, sum(tokens_held)::bigint AS held FROM quota_department_slots"
        " WHERE department_id = 'd' AND environment = 'production' GROUP BY 1"
    )
    expected: Counter[date] = Counter()
    for (tenant, month), sums in total(streams, last).items():
        if int(tenant[-4:]) % 2 == 0:
            expected[month] += sums[1] + sums[2]
    assert {row["month"]: (row["used"], row["held"]) for row in pools} == {
        month: (tokens, 0) for month, tokens in expected.items()
    }


async def assert_no_drift(dsn: str, conn: Connection, *asked: date) -> None:
    """By the command for the months asked, in SQL for all."""
    for month in asked:
        done = await quota_worker(dsn, "audit", "--month", f"{month:%Y-%m}", "--json")
        assert done.code == 0, done.out
        assert json.loads(done.out)["drifts"] == 0
    for month in (NOVEMBER, DECEMBER, JANUARY):
        sql = "SELECT * FROM quota_audit($1) WHERE severity = 'drift'"
        assert await conn.fetch(sql, month) == []


async def test_late_usage_of_the_tiny_trace_is_found_again_in_days_and_months(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    streams = await replay_and_tick(dsn, conn, TINY, tmp_path, tenants=5, late=0.75)
    assert {stream.arrives for stream in streams} == {None, *ARRIVALS}
    assert {stream.month for stream in streams} == {NOVEMBER, DECEMBER}
    adjusted = {key[1:] for key in expected_totals(streams) if key[1] != key[2]}
    assert adjusted == {(DECEMBER, NOVEMBER), (JANUARY, NOVEMBER)}
    await assert_ledger(conn, streams)
    await assert_no_drift(dsn, conn, NOVEMBER)


@pytest.mark.skipif(
    "QUOTA_TRACE" not in os.environ,
    reason="the whole conversation trace doesn't ship: set QUOTA_TRACE to its path",
)
@pytest.mark.parametrize("late", [0.02, 0.5])
async def test_late_usage_of_the_whole_trace_over_200_tenants(
    dsn: str, conn: Connection, tmp_path: Path, late: float
) -> None:
    path = Path(os.environ["QUOTA_TRACE"])
    streams = await replay_and_tick(dsn, conn, path, tmp_path, tenants=200, late=late)
    await assert_ledger(conn, streams)
    await assert_no_drift(dsn, conn, NOVEMBER, DECEMBER, JANUARY)
