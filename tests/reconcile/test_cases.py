"""Faults that users of comparable systems reported, by their numbers: what the worker's run and the inbox do.

The ledger's own share is in tests/sql/test_cases.py. A run is `tick --jobs reconcile,roll_month`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from reconcile.world import worker_pass

from sql.calls import NOON, Calls

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]


CENT = 10_000_000
DOLLAR = 100 * CENT
MINUTE = timedelta(minutes=1)
MONTH = NOON.date().replace(day=1)


class Clerk:
    """Runs the worker at minutes after noon, and puts usage into the inbox."""

    def __init__(self, dsn: str, conn: Any) -> None:
        self._dsn = dsn
        self._conn = conn

    async def run(self, minute: float) -> dict[str, Any]:
        """The reconcile's outcome and counts."""
        report = await worker_pass(self._dsn, NOON + minute * MINUTE)
        job = next(run for run in report.runs if run.job == "reconcile")
        return {"outcome": job.outcome, "error": job.error, **job.counts}

    async def leave(self, amounts: tuple[int, int, int | None], usage: str | None = "u") -> None:
        await self._conn.execute(
            "INSERT INTO quota_usage_inbox (tenant_id, request_id, usage_id, input_tokens, output_tokens,"
            " cost_nanos) VALUES ('t', 'r', $1, $2, $3, $4)",
            *(usage, *amounts),
        )

    async def outcomes(self) -> list[str]:
        rows = await self._conn.fetch("SELECT outcome FROM quota_usage_inbox ORDER BY inbox_id")
        return [row["outcome"] for row in rows]


@pytest.fixture
def calls(conn: Connection) -> Calls:
    return Calls(conn)  # type: ignore[arg-type]


@pytest.fixture
def clerk(dsn: str, conn: Connection) -> Clerk:
    return Clerk(dsn, conn)


@pytest.mark.parametrize("policy", ["estimate", "partial", "release"])
async def test_case_01_one_run_ends_what_killed_callers_left(
    calls: Calls, clerk: Clerk, policy: str
) -> None:
    await calls.tenant(daily_cost_cents=1000, stale_policy=policy)
    for number in range(20):
        await calls.reserve("t", f"r{number}", (10, 0, DOLLAR // 2))
    assert (await calls.reserve(amounts=(0, 0, DOLLAR // 2)))["reason"] == "daily_cost_reached"
    early = await clerk.run(9)
    assert early[f"expired_{policy}"] == 0, "none of them early"
    run = await clerk.run(11)
    assert (run["outcome"], run[f"expired_{policy}"]) == ("done", 20)
    assert await calls.held() == (0, 0, 0)
    states = await calls.rows("SELECT DISTINCT state FROM quota_reservations")
    assert states == [{"state": "expired"}]
    row = await calls.reserve(amounts=(0, 0, DOLLAR // 2), now=NOON + 12 * MINUTE)
    assert row["allowed"] is (policy == "release")


async def test_case_03_the_next_run_does_once_what_a_failed_one_undid(
    calls: Calls, clerk: Clerk
) -> None:
    """The error comes between ending the reservations and giving back their holds."""
    await calls.tenant(stale_policy="release")
    for number in range(3):
        await calls.reserve("t", f"r{number}", (100, 50, 1500))
    await calls.conn.execute(
        "ALTER TABLE quota_usage ADD CONSTRAINT planted CHECK (held_input_tokens >= 300) NOT VALID"
    )
    failed = await clerk.run(11)
    assert failed["outcome"] == "failed"
    assert "planted" in failed["error"]
    assert await calls.held() == (300, 150, 4500)
    open_ones = "SELECT count(*)::int AS n FROM quota_reservations WHERE state = 'open'"
    assert (await calls.row(open_ones))["n"] == 3
    await calls.conn.execute("ALTER TABLE quota_usage DROP CONSTRAINT planted")
    for ended in (3, 0):
        assert (await clerk.run(12))["expired_release"] == ended
        assert await calls.held() == (0, 0, 0)
        assert await calls.figures() == (0, 0, 0, 0)


@pytest.mark.parametrize("policy", ["estimate", "partial", "release"])
async def test_case_04_usage_a_minute_after_the_run(
    calls: Calls, clerk: Clerk, policy: str
) -> None:
    await calls.tenant(stale_policy=policy)
    await calls.reserve(request_id="r", amounts=(100, 0, DOLLAR))
    await clerk.run(15)
    usage = (130, 0, 130 * CENT)
    await clerk.leave(usage)
    for outcomes in (["corrected"], ["corrected", "replayed"]):
        await clerk.run(16)
        assert await clerk.outcomes() == outcomes
        assert await calls.figures() == (1, 130, 0, 130 * CENT)
        assert await calls.held() == (0, 0, 0)
        await clerk.leave(usage)
    row = await calls.settle(amounts=usage, usage_id="u", now=NOON + 17 * MINUTE)
    assert row["outcome"] == "replayed"


async def test_case_05_late_and_over_by_the_inbox(calls: Calls, clerk: Clerk) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r", amounts=(100, 0, 0))
    await clerk.run(15)
    await clerk.leave((250, 0, 0))
    await clerk.run(16)
    assert await calls.figures() == (1, 250, 0, 0)
    stored = await calls.reservation()
    assert (stored["late"], stored["over"], stored["state"]) == (True, True, "expired")


async def test_usage_that_waits_comes_before_the_policy(calls: Calls, clerk: Clerk) -> None:
    """One run finds both the usage and the overdue reservation."""
    await calls.tenant(stale_policy="release")
    await calls.reserve(request_id="r", amounts=(100, 50, 1500))
    await clerk.leave((7, 8, 9))
    run = await clerk.run(15)
    assert (run["inbox_booked"], run["expired_release"]) == (1, 0)
    assert (await calls.reservation())["late"] is False
    assert await calls.figures() == (1, 7, 8, 9)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
async def test_case_06_two_billed_attempts_and_their_sum_by_the_inbox(
    calls: Calls, clerk: Clerk, order: tuple[int, ...]
) -> None:
    """Each twice; the last new one is the charge, and nothing is ever added up."""
    await calls.tenant()
    await calls.reserve(request_id="r")
    attempts = [((10, 1, 5), "attempt-1"), ((20, 2, 6), "attempt-2"), ((30, 3, 11), "both")]
    for number in (*order, *order):
        await clerk.leave(*attempts[number])
    await clerk.run(1)
    assert await clerk.outcomes() == ["settled", "corrected", "corrected", *["replayed"] * 3]
    assert await calls.figures() == (1, *attempts[order[-1]][0])
    assert await calls.held() == (0, 0, 0)


async def test_case_11_no_figures_stay_at_the_estimate_until_some_come(
    calls: Calls, clerk: Clerk
) -> None:
    await calls.tenant(stale_policy="release")
    await calls.reserve(request_id="r", amounts=(100, 50, 1500))
    item = {"tenant": "t", "request_id": "r", "usage_id": "u"}
    (row,) = await calls.settle_batch([item])
    assert (row["outcome"], row["in_tokens"], row["cost_nanos"]) == ("estimated", 100, 1500)
    await clerk.run(15)
    assert await calls.figures() == (1, 100, 50, 1500), "ended: no policy lets it go"
    assert (await calls.reservation())["usage_missing"] is True
    # a real zero
    await clerk.leave((0, 0, 0))
    await clerk.run(16)
    assert await clerk.outcomes() == ["corrected"]
    assert await calls.figures() == (1, 0, 0, 0)
    assert (await calls.reservation())["usage_missing"] is False


async def test_case_12_a_deleted_tenants_requests_end_where_they_were_admitted(
    calls: Calls, clerk: Clerk
) -> None:
    await calls.department("d", monthly_tokens=10_000)
    await calls.tenant(department_id="d", stale_policy="release")
    await calls.reserve(request_id="r", amounts=(100, 0, 1000))
    await calls.reserve(request_id="stale", amounts=(200, 0, 2000))
    await calls.conn.execute("DELETE FROM tenant_limits")
    await clerk.leave((40, 0, 400))
    run = await clerk.run(15)
    assert (run["inbox_booked"], run["expired_estimate"]) == (1, 1), (
        "no policy is left but the default"
    )
    assert await calls.figures() == (2, 240, 0, 2400)
    used = await calls.department_used("d", "production", MONTH)
    assert (used["tokens_used"], used["tokens_held"], used["cost_used_nanos"]) == (240, 0, 2400)
    # the history goes on when the month is over
    closed = datetime(2026, 6, 5, tzinfo=UTC)
    await clerk.run((closed - NOON) / MINUTE)
    await clerk.leave((45, 0, 450), usage="late")
    await clerk.run((closed - NOON) / MINUTE + 5)
    rows = await calls.rows(
        "SELECT month = belongs_to AS own, department_id, completions::int AS n, input_tokens::int AS i"
        " FROM quota_monthly_totals WHERE belongs_to = $1 AND input_tokens <> 0 ORDER BY month",
        MONTH,
    )
    assert rows == [
        {"own": True, "department_id": "d", "n": 2, "i": 240},
        {"own": False, "department_id": "d", "n": 0, "i": 5},
    ]
