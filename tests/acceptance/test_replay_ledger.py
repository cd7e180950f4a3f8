"""Replayed traffic against a sum made from the trace alone, to the token and the nano.

The sum uses nothing of the program but its documented rules (the draws of
`worker/replay_plan.py`'s head, written anew here) and, where caps may refuse, the
journal's word on who was admitted.

The whole conversation trace, over 200 tenants:

    QUOTA_TRACE=/path/to/conv.csv python -m pytest tests/acceptance/test_replay_ledger.py
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acceptance.program import quota_worker

if TYPE_CHECKING:
    import asyncpg

    from conftest import NewDatabase

    Connection = asyncpg.Connection[asyncpg.Record]

TINY = Path(__file__).parents[2] / "worker" / "traces" / "tiny.csv"
COST_IN, COST_OUT, ESTIMATE_OUT = 3000, 15000, 256
SEED, LOSE, ABORT = 11, 0.03, 0.02
Amounts = tuple[int, int, int, int]


def chance(purpose: str, index: int) -> float:
    digest = hashlib.sha256(f"{SEED}:{purpose}:{index}".encode()).hexdigest()
    return int(digest, 16) / 2**256


def trace_rows(path: Path) -> list[tuple[datetime, int, int, str | None]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name.lower(): name for name in rows[0]}
    at, tokens_in, tokens_out = (
        next(columns[name] for name in names if name in columns)
        for names in (
            ("timestamp",),
            ("input_tokens", "contexttokens"),
            ("output_tokens", "generatedtokens"),
        )
    )
    return sorted(
        (
            (
                datetime.fromisoformat(row[at][:26]),
                int(row[tokens_in]),
                int(row[tokens_out]),
                row.get(columns.get("tenant", "")),
            )
            for row in rows
        ),
        key=lambda row: row[0],
    )


def expected_days(
    path: Path, tenants: int | None, refused: set[int]
) -> tuple[dict[tuple[str, str], Amounts], dict[str, int]]:
    """Per tenant and day completions, input, output, nanos; and how many of each fate."""
    days: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    fates: dict[str, int] = defaultdict(int)
    for index, (at, tokens_in, tokens_out, named) in enumerate(trace_rows(path)):
        if index in refused:
            continue
        tenant = named or ""
        if tenants is not None:
            tenant = f"replay-{int(chance('tenant', index) * tenants) + 1:04}"
        fate = chance("fate", index)
        if fate < LOSE:
            fates["lost"] += 1
            used = (tokens_in, ESTIMATE_OUT)
        elif fate < LOSE + ABORT:
            fates["aborted"] += 1
            streamed = int(chance("cut", index) * tokens_out)
            if streamed == 0:
                days[tenant, str(at.date())][0] += 0
                continue
            used = (tokens_in, streamed)
        else:
            fates["settled"] += 1
            used = (tokens_in, tokens_out)
        cost = used[0] * COST_IN + used[1] * COST_OUT
        row = days[tenant, str(at.date())]
        for place, amount in enumerate((1, *used, cost)):
            row[place] += amount
    return {key: (row[0], row[1], row[2], row[3]) for key, row in days.items()}, dict(fates)


async def replay_and_tick(
    dsn: str, path: Path, tmp_path: Path, *more: str
) -> tuple[dict[str, object], set[int]]:
    """Replay with losses and aborts, tick past the TTL; the summary and who was refused."""
    journal = tmp_path / "journal.csv"
    shares = ("--lose-usage", str(LOSE), "--abort", str(ABORT), "--seed", str(SEED))
    done = await quota_worker(
        dsn, "replay", str(path), *shares, "--journal", str(journal), "--json", *more
    )
    assert done.code == 0, done.err
    late = max(row[0] for row in trace_rows(path)) + timedelta(hours=2)
    for at in (late, late + timedelta(minutes=5)):
        ticked = await quota_worker(
            dsn, "tick", "--jobs", "reconcile,roll_month", "--as-of", at.isoformat(), "--json"
        )
        assert ticked.code == 0, (ticked.out, ticked.err)
    with journal.open(encoding="utf-8", newline="") as file:
        refused = {
            int(row["request_id"].rpartition("-")[2])
            for row in csv.DictReader(file)
            if row["allowed"] == "0"
        }
    summary: dict[str, object] = json.loads(done.out)
    return summary, refused


async def assert_ledger(conn: Connection, expected: dict[tuple[str, str], Amounts]) -> None:
    rows = await conn.fetch(
        "SELECT tenant_id, period::text AS day, completions, input_tokens, output_tokens,"
        " cost_cents::numeric * 10000000 + cost_subcent_nanos AS nanos,"
        " held_input_tokens + held_output_tokens + held_cost_nanos AS held FROM quota_usage"
    )
    assert [row["tenant_id"] for row in rows if row["held"] != 0] == []
    found = {
        (row["tenant_id"], row["day"]): (
            row["completions"],
            row["input_tokens"],
            row["output_tokens"],
            int(row["nanos"]),
        )
        for row in rows
    }
    assert found == expected
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 0
    totals = await conn.fetchrow(
        "SELECT sum(completions) AS completions, sum(input_tokens) AS tokens_in,"
        " sum(output_tokens) AS tokens_out, sum(cost_nanos) AS nanos, sum(stale_count) AS stale"
        " FROM quota_monthly_totals"
    )
    assert totals is not None
    sums = tuple(sum(row[place] for row in expected.values()) for place in range(4))
    assert tuple(int(totals[place]) for place in range(4)) == sums


async def test_tiny_trace_without_caps_equals_the_sum_of_the_trace(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    expected, fates = expected_days(TINY, None, set())
    tenants = sorted({tenant for tenant, _ in expected})
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, daily_input_tokens,"
        " daily_output_tokens, daily_cost_cents, monthly_cost_cents, bucket_capacity)"
        " SELECT t, NULL, NULL, NULL, NULL, NULL, 1e6 FROM unnest($1::text[]) AS t",
        tenants,
    )
    summary, refused = await replay_and_tick(dsn, TINY, tmp_path)
    assert refused == set()
    assert summary["reasons"] == {"ok": 306}
    assert {"lost", "aborted", "settled"} == set(fates)
    await assert_ledger(conn, expected)
    stale = await conn.fetchval("SELECT sum(stale_count) FROM quota_monthly_totals")
    assert stale == fates["lost"]


async def test_tiny_trace_under_caps_charges_the_admitted_and_no_other(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, bucket_capacity,"
        " bucket_refill_per_sec) SELECT 'replay-' || lpad(n::text, 4, '0'), 12 * n, 2, 0.05"
        " FROM generate_series(1, 7) AS n"
    )
    summary, refused = await replay_and_tick(dsn, TINY, tmp_path, "--tenants", "7")
    reasons = summary["reasons"]
    assert isinstance(reasons, dict)
    assert {"ok", "daily_cap_reached", "rate_limited"} == set(reasons)
    assert len(refused) == 306 - reasons["ok"]
    expected, _ = expected_days(TINY, 7, refused)
    await assert_ledger(conn, expected)


async def test_the_same_run_again_charges_nothing_twice(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    arguments = ("--tenants", "3", "--create-tenants")
    await replay_and_tick(dsn, TINY, tmp_path, *arguments)
    query = "SELECT u.*, NULL AS bucket_at, NULL AS bucket_tokens FROM quota_usage u ORDER BY 1, 2"
    before = [tuple(row)[:8] for row in await conn.fetch(query)]
    summary, _ = await replay_and_tick(dsn, TINY, tmp_path, *arguments)
    assert summary["replayed"] == summary["asked"]["requests"]  # type: ignore[index]
    assert [tuple(row)[:8] for row in await conn.fetch(query)] == before


async def test_the_outcome_is_the_same_whatever_the_concurrency(
    new_database: NewDatabase, template_database: str, tmp_path: Path
) -> None:
    import asyncpg

    seen = []
    for concurrency in ("1", "8"):
        dsn = await new_database(migrated=True)
        connection = await asyncpg.connect(dsn, statement_cache_size=0)
        await connection.execute(
            "INSERT INTO department_budgets (department_id, environment, monthly_cost_cents,"
            " downgrade_model) VALUES ('d', 'production', 90, 'small');"
            "INSERT INTO tenant_limits (tenant_id, department_id)"
            " SELECT 'replay-000' || n, CASE WHEN n < 4 THEN 'd' END FROM generate_series(1, 5) n"
        )
        folder = tmp_path / concurrency
        folder.mkdir()
        summary, _ = await replay_and_tick(
            dsn, TINY, folder, "--tenants", "5", "--concurrency", concurrency
        )
        usage = await connection.fetch(
            "SELECT tenant_id, period, completions, input_tokens, output_tokens, cost_cents,"
            " cost_subcent_nanos, bucket_tokens, bucket_at FROM quota_usage ORDER BY 1, 2"
        )
        await connection.close()
        lines = sorted((folder / "journal.csv").read_text(encoding="utf-8").splitlines())
        summary.pop("seconds")
        seen.append((summary, [tuple(row) for row in usage], lines))
    assert "department_budget_exhausted" in seen[0][0]["reasons"]  # type: ignore[operator]
    assert seen[0] == seen[1]


async def test_a_broken_line_sends_nothing(dsn: str, conn: Connection, tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_bytes(TINY.read_bytes() + b"2026-11-30 11:00:00,7,minus,tenant-pro,large,web\n")
    done = await quota_worker(dsn, "replay", str(broken), "--create-tenants")
    assert done.code == 2
    assert done.out == ""
    assert "broken.csv line 308, column 3 ('output_tokens'): 'minus' is no token" in done.err
    assert len(done.err.splitlines()) == 1
    assert await conn.fetchval("SELECT count(*) FROM tenant_limits") == 0
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations") == 0


async def test_missing_tenants_are_named_and_nothing_is_sent(dsn: str, conn: Connection) -> None:
    done = await quota_worker(dsn, "replay", str(TINY))
    assert done.code == 2
    assert "no limits for 'marketing-copy', 'marketing-seo', 'tenant-abuser' and 2 more" in done.err
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations") == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--speed", "fast"),
        ("--speed", "0"),
        ("--lose-usage", "1.5"),
        ("--tenants", "0"),
        ("--concurrency", "1000"),
        ("--start-at", "noon"),
        ("--cost-in", "-1"),
    ],
)
async def test_wrong_options_are_one_line(option: str, value: str) -> None:
    done = await quota_worker(
        "postgresql://nobody@127.0.0.1:1/x", "replay", str(TINY), option, value
    )
    assert done.code == 2
    assert option in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.skipif(
    "QUOTA_TRACE" not in os.environ,
    reason="the whole conversation trace doesn't ship: set QUOTA_TRACE to its path",
)
async def test_whole_trace_over_200_tenants(dsn: str, conn: Connection, tmp_path: Path) -> None:
    path = Path(os.environ["QUOTA_TRACE"])
    summary, refused = await replay_and_tick(
        dsn, path, tmp_path, "--tenants", "200", "--create-tenants"
    )
    expected, fates = expected_days(path, 200, refused)
    assert summary["lost"]["requests"] == fates["lost"]  # type: ignore[index]
    await assert_ledger(conn, expected)


async def test_the_journal_never_overwrites_the_trace(dsn: str, tmp_path: Path) -> None:
    trace = tmp_path / "x.csv"
    text = "timestamp,input_tokens,output_tokens\n2026-11-30 09:00:00,10,20\n"
    trace.write_text(text, encoding="utf-8")
    (tmp_path / "link.csv").symlink_to(trace)
    (tmp_path / "hard.csv").hardlink_to(trace)
    (tmp_path / "sub").mkdir()
    for name in ("x.csv", "link.csv", "hard.csv", "sub/../x.csv"):
        done = await quota_worker(
            dsn, "replay", str(trace), "--create-tenants", "--journal", str(tmp_path / name)
        )
        assert (done.code, done.out) == (2, "")
        assert "--journal" in done.err
        assert len(done.err.splitlines()) == 1
        assert trace.read_text(encoding="utf-8") == text
