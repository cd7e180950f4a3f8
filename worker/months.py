"""The billing months with their state, as text or JSON. Pure."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Final

from worker.money import format_nanos
from worker.months_report import GRACE_HOURS
from worker.status_text import table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from worker.months_report import MonthRow, MonthsReport

NONE: Final = "-"
GRACE: Final = timedelta(hours=GRACE_HOURS)
HOUR: Final = timedelta(hours=1)
OPEN, CLOSING, DUE, CLOSED = "open", "closing", "due", "closed"
_HEADER: Final = (
    *("month", "state", "completions", "tokens", "cost", "adjustments", "tenants", "departments"),
    "rolled at",
)
_RIGHT: Final = frozenset(range(2, 8))


def state_of(row: MonthRow, now: datetime) -> str:
    """``open`` until its end, ``closing`` until its grace is over, ``due`` until it is closed."""
    if row.closed_at is not None:
        return CLOSED
    if now < row.ends_at:
        return OPEN
    return CLOSING if now < row.ends_at + GRACE else DUE


def months_text(report: MonthsReport) -> str:
    """For a terminal: a table, the latest month first."""
    if not report.rows:
        return "no month has been rolled yet: quota-worker run roll_month"
    zone = report.zone.key
    return "\n".join(
        (
            f"billing months in {zone}, the latest first; cost in {report.currency}",
            "",
            table(_HEADER, [_cells(row, report) for row in report.rows], _RIGHT),
            *_early_words(report.rows),
        )
    )


def months_document(report: MonthsReport) -> dict[str, object]:
    """For JSON: amounts as whole numbers, cost in nanos, times in UTC."""
    return {
        "billing_zone": report.zone.key,
        "currency": report.currency,
        "grace_hours": GRACE_HOURS,
        "months": [_row_document(row, report.now) for row in report.rows],
    }


def _row_document(row: MonthRow, now: datetime) -> dict[str, object]:
    state = state_of(row, now)
    return {
        "month": f"{row.month:%Y-%m}",
        "state": state,
        "ends_at": _utc(row.ends_at),
        "closes_at": _utc(row.ends_at + GRACE) if state in {OPEN, CLOSING} else None,
        "closed_at": _utc(row.closed_at),
        "closed_early": row.closed_early,
        "rolled_at": _utc(row.rolled_at),
        "completions": row.completions,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cost_nanos": row.cost_nanos,
        "adjustments": {
            "rows": row.adjustments,
            "tokens": row.adjusted_tokens,
            "cost_nanos": row.adjusted_cost_nanos,
        },
        "tenants": row.tenants,
        "departments": row.departments,
        "open_requests": row.open_requests,
    }


def _cells(row: MonthRow, report: MonthsReport) -> list[str]:
    adjusted = NONE
    if row.adjustments:
        cost = _amount(row.adjusted_cost_nanos)
        adjusted = f"{row.adjustments:,} ({'' if row.adjusted_cost_nanos < 0 else '+'}{cost})"
    return [
        f"{row.month:%Y-%m}",
        _state_words(row, report),
        f"{row.completions:,}",
        f"{row.input_tokens + row.output_tokens:,}",
        _amount(row.cost_nanos),
        adjusted,
        f"{row.tenants:,}",
        f"{row.departments:,}",
        _local(row.rolled_at, report),
    ]


def _state_words(row: MonthRow, report: MonthsReport) -> str:
    state = state_of(row, report.now)
    if state == CLOSED:
        early = ", early" if row.closed_early else ""
        return f"closed {_local(row.closed_at, report)}{early}"
    if state == CLOSING:
        hours = -((report.now - row.ends_at - GRACE) // HOUR)
        return f"closing in {hours} {'hour' if hours == 1 else 'hours'}"
    if state == DUE:
        if row.open_requests:
            requests = "request is" if row.open_requests == 1 else "requests are"
            return f"due: {row.open_requests:,} {requests} open"
        return "due: closes at the next roll"
    return OPEN


def _early_words(rows: Sequence[MonthRow]) -> list[str]:
    early = [f"{row.month:%Y-%m}" for row in rows if row.closed_early]
    if not early:
        return []
    return [
        "",
        "early: closed before its end and the 72 hours after it had come, by --as-of or by a clock",
        f"that was ahead. Once it is over: quota-worker audit --month {early[0]} --repair",
    ]


def _amount(nanos: int) -> str:
    return format_nanos(nanos, "").rstrip()


def _local(at: datetime | None, report: MonthsReport) -> str:
    return NONE if at is None else f"{at.astimezone(report.zone):%Y-%m-%d %H:%M}"


def _utc(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
