"""`quota-worker estimates`: how far estimates lie from usage, and what it advises."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from acceptance.program import quota_worker
from requests_world import put
from worker import cli
from worker.assets import Assets
from worker.estimates import advice, estimates_document, estimates_text
from worker.estimates_report import EstimateRow, EstimatesAsked, EstimatesReport
from worker.postgres.diagnosis import PostgresEstimates
from worker.postgres.pool import open_pool
from worker.postgres.queries import load_queries

Connection = asyncpg.Connection
DAY = timedelta(days=1)
CHINESE = "characters / 4 is several times too low for Chinese"
# Requests of every size, Chinese among them: a fifth needs 3.2 times its estimate.
MIXED = """
INSERT INTO quota_reservations (
    tenant_id, request_id, state, period, environment, estimated_in_tokens, estimated_out_tokens,
    estimated_cost_nanos, charged_in_tokens, charged_out_tokens, charged_cost_nanos, ttl_seconds,
    admitted_at, expires_at, ended_at, requested_model, answered_model, app,
    usage_in_tokens, usage_out_tokens, usage_cost_nanos)
SELECT 't', 'mixed-' || n, 'settled', $1::timestamptz::date, 'production', e, 4000, 1, u, o, 1, 600, $1, $1, $1,
       'mixed', 'mixed', CASE WHEN n % 5 = 0 THEN 'chinese' ELSE 'english' END, u, o, 1
  FROM (SELECT n, 40 + n * 7919 % 3001 AS e,
               ((40 + n * 7919 % 3001) * (CASE WHEN n % 5 = 0 THEN 3.2 ELSE 0.9 END + n % 17 * 0.01))::bigint AS u,
               n * 104729 % 1501 AS o
          FROM generate_series(1, 2000) n) q
"""
EXACT = """
SELECT sum(r.usage_in_tokens) / sum(r.estimated_in_tokens) AS factor_in,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY r.usage_in_tokens / r.estimated_in_tokens::numeric) AS median_in,
       sum(r.usage_out_tokens) / sum(r.estimated_out_tokens) AS factor_out,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY r.usage_out_tokens) AS p95_out_tokens,
       count(*) FILTER (WHERE r.usage_in_tokens > r.estimated_in_tokens) AS over_estimate
  FROM quota_reservations r WHERE r.requested_model = 'mixed'
"""


async def now_of(conn: Connection) -> datetime:
    moment: datetime = await conn.fetchval("SELECT clock_timestamp()")
    return moment


async def rows_of(dsn: str, *, days: int = 30, **asked: Any) -> list[dict[str, Any]]:
    """The rows as `--json` has them; asked: model, by, top."""
    pool = await open_pool(dsn)
    try:
        estimates = PostgresEstimates(pool, load_queries(Assets(), "diagnosis"))
        wanted = EstimatesAsked(
            days, asked.get("model"), asked.get("by", "model"), asked.get("top", 0)
        )
        rows: Any = estimates_document(await estimates.report(wanted))["rows"]
        return list(rows)
    finally:
        await pool.close()


async def test_figures_are_those_of_a_full_computation(dsn: str, conn: Connection) -> None:
    await conn.execute(MIXED, await now_of(conn) - DAY)
    exact = await conn.fetchrow(EXACT)
    (row,) = await rows_of(dsn, days=2)
    assert (row["model"], row["requests"], row["with_usage"], row["missing"]) == (
        "mixed",
        2000,
        2000,
        0,
    )
    assert row["factor_in"] == pytest.approx(float(exact["factor_in"]), abs=0.001)
    assert row["factor_out"] == pytest.approx(float(exact["factor_out"]), abs=0.001)
    assert row["median_in"] == pytest.approx(float(exact["median_in"]), rel=0.011)
    assert row["p95_out_tokens"] == exact["p95_out_tokens"]
    assert row["over_estimate"] == exact["over_estimate"] > 400
    assert (row["outliers_in"], row["mean_out_estimate"]) == (0, 4000)
    # what one factor can't say, the apps do
    by_app = await rows_of(dsn, by="app")
    assert [(one["app"], one["requests"]) for one in by_app] == [
        ("chinese", 400),
        ("english", 1600),
    ]
    assert 3.2 < by_app[0]["factor_in"] < 3.4
    assert by_app[0]["advice"].startswith("input estimates are 3.3x too low: multiply by 3.3")
    # one absurd figure changes nothing, and is counted
    await put(conn, 1, model="mixed", app="english", at=await now_of(conn), usage=(10**12, 20))
    await put(conn, 1, model="mixed", app="english", at=await now_of(conn), estimate=(10**12, 20))
    (spoilt,) = await rows_of(dsn)
    assert (spoilt["factor_in"], spoilt["median_in"]) == (row["factor_in"], row["median_in"])
    assert (spoilt["outliers_in"], spoilt["requests"]) == (2, 2002)
    assert await rows_of(dsn, days=1) != [spoilt]


async def test_rows_are_sorted_by_how_far_they_are_off(dsn: str, conn: Connection) -> None:
    """The 10x before the 9x, whichever direction; few requests last, whatever they say."""
    at = await now_of(conn) - DAY
    # model, requests, without usage, estimate, usage
    cases = (
        ("ten times too low", 30, 0, (100, 50), (1000, 50)),
        ("nine times too high", 30, 0, (900, 50), (100, 50)),
        ("two times too low", 300, 0, (100, 50), (200, 50)),
        ("most without usage", 100, 80, (100, 50), (100, 50)),
        ("none with usage", 20, 20, (100, 50), (100, 50)),
        ("far too much reserved", 30, 0, (100, 150), (100, 50)),
        ("fits", 1000, 0, (100, 50), (100, 50)),
        ("fits, fewer", 40, 0, (100, 50), (100, 50)),
        ("too few", 19, 0, (1, 1), (1000, 1000)),
        ("no estimates", 30, 0, (0, 0), (100, 50)),
    )
    for model, requests, missing, estimate, usage in cases:
        await put(
            conn, requests, missing, model=model, at=at, estimate=estimate, usage=usage, key=None
        )
    await put(conn, 25, 0, model=None, app=None, key="k", at=at)
    await put(conn, 5, 0, model="<at id=all></at>\x1b[2J", at=at)
    rows = await rows_of(dsn)
    assert [row["model"] for row in rows] == [
        "none with usage",
        "ten times too low",
        "nine times too high",
        "most without usage",
        "far too much reserved",
        "",  # 2.5 times too much output
        "two times too low",
        "fits",
        "fits, fewer",
        "no estimates",
        "too few",
        "<at id=all></at>\x1b[2J",
    ]
    found = {row["model"]: row for row in rows}
    for model in ("too few", "none with usage"):
        figures = ("factor_in", "median_in", "outliers_in", "factor_out", "p95_out_tokens")
        assert [found[model][name] for name in figures] == [None] * 5, model
    assert found["too few"]["advice"] == (
        "too little to fit: 19 of 19 requests have usage, 20 are needed"
    )
    assert (found["no estimates"]["factor_in"], found["no estimates"]["factor_out"]) == (None, None)
    assert found["no estimates"]["p95_out_tokens"] == 50
    assert found["most without usage"]["missing_pct"] == 80.0

    done = await quota_worker(dsn, "estimates", "--top", "6")
    assert (done.code, done.err) == (0, "")
    assert "… and 6 more: --top 12, or 0: all" in done.out
    assert "ten times too low: input estimates are 10.0x too low: multiply by 10.0 (" in done.out
    assert "\n(no model)  " in done.out
    done = await quota_worker(dsn, "estimates", "--top", "0", "--by", "key")
    assert "\x1b" not in done.out
    assert "\n(no model) / k: " in done.out
    assert "\nfits / (no key): estimates fit\n" in done.out
    (one,) = await rows_of(dsn, model="fits")
    assert (one["model"], one["requests"]) == ("fits", 1000)
    done = await quota_worker(dsn, "estimates", "--json", "--model", "fits", "--days", "2")
    document = json.loads(done.out)
    assert (document["days"], document["by"], document["fit"]) == (2, "model", "ratio_of_sums")
    assert document["rows"] == [one]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--days", "0"], "--days needs a number from 1 to 366"),
        (["--by", "tenant\x1b"], "no --by tenant␛: choose one of model, app, key"),
        (["--top", "-1"], "--top needs a number of rows, or 0 for all"),
    ],
)
def test_wrong_options_are_named(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["estimates", *arguments]) == 2
    assert says in capsys.readouterr().err


def row(**changes: Any) -> EstimateRow:
    values = {
        "model": "m",
        "label": "",
        "requests": 100,
        "with_usage": 100,
        "missing": 0,
        "over_estimate": 0,
        "factor_in": Decimal(1),
        "median_in": Decimal(1),
        "outliers_in": 0,
        "factor_out": Decimal("0.8"),
        "median_out": Decimal("0.8"),
        "outliers_out": 0,
        "p95_out_tokens": 100,
        "mean_out_estimate": 110,
    }
    return EstimateRow(**values | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "estimates fit"),
        ({"factor_in": Decimal("1.1"), "median_in": Decimal("1.1")}, "estimates fit"),
        (
            {"factor_in": Decimal("3.14"), "median_in": Decimal("3.1")},
            f"input estimates are 3.1x too low: multiply by 3.2 ({CHINESE})",
        ),
        (
            {"factor_in": Decimal("1.2"), "median_in": Decimal("1.2")},
            "input estimates are 1.2x too low: multiply by 1.2",
        ),
        (
            {"factor_in": Decimal("0.5"), "median_in": Decimal("0.5")},
            "input estimates are 2.0x too high: multiply by 0.50",
        ),
        (
            {"factor_in": Decimal("1.05"), "median_in": Decimal("0.6")},
            "requests differ, half of them need 0.6x or less: look at --by app",
        ),
        (
            {"mean_out_estimate": 4096},
            "reserve 100 output tokens, which 95% stay within, instead of 4,096",
        ),
        (
            {"factor_out": Decimal("1.5"), "p95_out_tokens": 12_345},
            "output estimates are 1.5x too low: reserve 12,345 tokens, which 95% stay within",
        ),
        (
            {"factor_out": None, "mean_out_estimate": 0},
            "no output was estimated: reserve 100 tokens, which 95% stay within",
        ),
        ({"factor_out": None, "mean_out_estimate": 0, "p95_out_tokens": 0}, "estimates fit"),
        ({"factor_in": Decimal(0), "median_in": Decimal(0)}, "no input was used at all"),
        ({"missing": 5}, "estimates fit"),
        ({"missing": 6}, 'usage is missing for 6.0%: send stream_options: {"include_usage": true}'),
    ],
)
def test_advice_in_words(changes: dict[str, Any], says: str) -> None:
    assert advice(row(**changes)).startswith(says)
    if changes.get("factor_in") != Decimal(0) and "missing" not in changes:
        assert advice(row(**changes)) == says


def test_the_table_of_nothing_and_of_wide_names() -> None:
    asked = EstimatesAsked(days=1, model=None, by="app", top=20)
    nothing = estimates_text(EstimatesReport(asked, 0, ()))
    assert nothing == "no requests have ended in the last 24 hours"
    asked = EstimatesAsked(days=2, model="m\x1b", by="app", top=20)
    nothing = estimates_text(EstimatesReport(asked, 0, ()))
    assert nothing == r"no requests to the model m\x1b have ended in the last 2 days"
    rows = (row(model="模" * 200, label="a"), row(label="b", requests=1_234_567))
    text = estimates_text(EstimatesReport(asked, 2, rows))
    first, second = text.splitlines()[3:5]
    assert first.startswith("模" * 19 + "…  a  ")
    # columns begin at the same cell, whatever letters stand before them
    assert second.startswith("m" + " " * 40 + "b    1,234,567")
