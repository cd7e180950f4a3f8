"""`quota-worker months`: each billing month with its state and what is in it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from acceptance.program import quota_worker
from worker.months import months_document, months_text, state_of
from worker.months_report import MonthRow, MonthsReport

from sql.calls import Calls
from sql.rolling import roll

Connection = asyncpg.Connection
SHANGHAI = ZoneInfo("Asia/Shanghai")
END = datetime(2026, 11, 1, tzinfo=SHANGHAI)


def month_row(**changed: object) -> MonthRow:
    values: dict[str, object] = {
        "month": date(2026, 10, 1),
        "ends_at": END,
        "rolled_at": END,
        "closed_at": None,
        "completions": 1234,
        "input_tokens": 5_000_000,
        "output_tokens": 1,
        "cost_nanos": 1_500_000_000,
        "tenants": 3,
        "departments": 2,
        "adjustments": 0,
        "adjusted_tokens": 0,
        "adjusted_cost_nanos": 0,
        "open_requests": 0,
    }
    return MonthRow(**(values | changed))  # type: ignore[arg-type]


def shown(now: datetime, **changed: object) -> str:
    text = months_text(MonthsReport(now, SHANGHAI, "CNY", (month_row(**changed),)))
    head, _, line = text.partition("\n\n")
    assert head == "billing months in Asia/Shanghai, the latest first; cost in CNY"
    return line.splitlines()[1]


@pytest.mark.parametrize(
    ("past_end", "changed", "state", "words"),
    [
        (timedelta(microseconds=-1), {}, "open", "open "),
        (timedelta(0), {}, "closing", "closing in 72 hours "),
        (timedelta(hours=70, seconds=1), {}, "closing", "closing in 2 hours "),
        (timedelta(hours=71), {}, "closing", "closing in 1 hour "),
        (timedelta(hours=72, seconds=-1), {}, "closing", "closing in 1 hour "),
        (timedelta(hours=72), {}, "due", "due: closes at the next roll "),
        (timedelta(hours=72), {"open_requests": 1}, "due", "due: 1 request is open "),
        (timedelta(days=9), {"open_requests": 2000}, "due", "due: 2,000 requests are open "),
        (timedelta(days=9), {"closed_at": END + timedelta(days=3, hours=1)}, "closed", "closed 2026-11-04 01:00 "),
    ],
)  # fmt: skip
def test_a_months_state_follows_the_clock(
    past_end: timedelta, changed: dict[str, object], state: str, words: str
) -> None:
    now = (END + past_end).astimezone(UTC)
    assert state_of(month_row(**changed), now) == state
    assert shown(now, **changed).startswith(f"2026-10  {words}")


def test_amounts_are_shown_whole_and_adjustments_with_their_sign() -> None:
    line = shown(END, adjustments=2, adjusted_cost_nanos=-20)
    assert line.split()[4:] == [
        *("hours", "1,234", "5,000,001", "1.50", "2", "(-0.00000002)", "3", "2"),
        *("2026-11-01", "00:00"),
    ]
    assert "1 (+0.00)" in shown(END, adjustments=1)
    assert shown(END, rolled_at=None).endswith("  -")


def test_without_a_month_the_text_says_what_makes_one() -> None:
    report = MonthsReport(END, SHANGHAI, "CNY", ())
    assert months_text(report) == "no month has been rolled yet: quota-worker run roll_month"
    assert months_document(report)["months"] == []


async def test_months_lists_what_was_rolled(conn: Connection, dsn: str) -> None:
    await conn.execute("UPDATE quota_settings SET billing_zone = 'Asia/Shanghai', currency = 'CNY'")
    calls = Calls(conn)
    now: datetime = await conn.fetchval("SELECT clock_timestamp()")
    old = datetime(2025, 3, 31, 23, 59, 59, tzinfo=SHANGHAI)
    for name, department in (("a", "sales"), ("b", None)):
        await calls.tenant(name, department_id=department)
        for request, at, nanos in (("1", old, 5_000_000_000), ("2", old + timedelta(seconds=1), 7)):
            await calls.reserve(name, request, (10, 5, nanos), now=at)
            await calls.settle(name, request, (10, 5, nanos), now=at)
    await calls.reserve("a", "now", (1, 1, 1), now=now)
    assert (await quota_worker(dsn, "run", "roll_month")).code == 0
    await calls.settle("a", "1", (13, 5, 5_000_000_002), now=now)
    await roll(conn, now)

    done = await quota_worker(dsn, "months", "--last", "0", "--json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert (document["billing_zone"], document["currency"], document["grace_hours"]) == (
        *("Asia/Shanghai", "CNY"),
        72,
    )
    today, *between, april, march = document["months"]
    # months without usage are months of nothing, without a gap (of more than two years' worth)
    assert {(one["state"], one["completions"], one["cost_nanos"]) for one in between} <= {
        (state, 0, 0) for state in ("closed", "closing")
    }
    assert (march["month"], march["state"], march["ends_at"]) == (
        *("2025-03", "closed"),
        "2025-03-31T16:00:00Z",
    )
    named = ("completions", "input_tokens", "cost_nanos", "tenants", "departments", "adjustments")
    nothing = {"rows": 0, "tokens": 0, "cost_nanos": 0}
    # Case 25, on either side of the local midnight.
    assert [march[name] for name in named] == [2, 20, 10_000_000_000, 2, 1, nothing]
    assert [april[name] for name in named] == [2, 20, 14, 2, 1, nothing]
    assert today["adjustments"] == {"rows": 1, "tokens": 3, "cost_nanos": 2}
    assert (today["completions"], today["tenants"], today["open_requests"]) == (1, 1, 1)
    assert (today["state"], today["closed_at"], march["closes_at"]) == ("open", None, None)

    text = (await quota_worker(dsn, "months", "--last", "1")).out
    assert len(text.splitlines()) == 4
    assert "1 (+0.000000002)" in text
    wrong = await quota_worker(dsn, "months", "--last", "-1")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--last needs a number of months, or 0 for all" in wrong.err
