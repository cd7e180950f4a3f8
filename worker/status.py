"""Who is hot: one row per tenant and department, worst first, as text or JSON."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

from worker.status_detail import detail_document, detail_text
from worker.status_text import clipped, table, visible

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from worker.status_report import StatusReport, StatusRow

HEADER = (
    "subject",
    "worst",
    "used",
    "cap",
    "%",
    "tier",
    "bucket",
    "holds",
    "refused",
    "resets",
)
RIGHT = frozenset({2, 3, 4, 6, 7, 8})
NONE = "-"
PERIODS = {"daily": "day", "monthly": "month"}
OUTBOX = {"dead_acknowledged": "acknowledged"}


def render_text(report: StatusReport, zone: ZoneInfo) -> str:
    """The whole answer for a terminal; times in the billing zone."""
    lines = []
    if report.rows:
        lines.append(table(HEADER, [_cells(row, zone) for row in report.rows], RIGHT))
        hidden = report.subjects - len(report.rows)
        if hidden > 0:
            lines.append(f"… and {hidden} more: --top {report.subjects}")
    else:
        lines.append("no tenants yet: add rows to tenant_limits, or try quota-worker demo")
    for detail in report.details:
        lines.extend(("", detail_text(detail, zone, report.currency)))
    lines.extend(("", _tick_line(report, zone), _outbox_line(report)))
    return "\n".join(lines)


def as_document(report: StatusReport) -> dict[str, object]:
    """For JSON: times with offset, amounts as numbers, costs in cents."""
    return {
        "at": report.at.isoformat(),
        "billing_zone": report.billing_zone,
        "currency": report.currency,
        "subjects": report.subjects,
        "rows": [
            {
                "kind": row.kind,
                "subject": row.subject,
                "environment": row.environment,
                "department_id": row.department_id,
                "dimension": row.dimension,
                "used": _number(row.used),
                "cap": _number(row.cap),
                "pct": _number(row.pct),
                "tier": row.tier,
                "enforce": row.enforce,
                "bucket_tokens": row.bucket_tokens,
                "bucket_capacity": row.bucket_capacity,
                "holds": row.holds,
                "refusals_today": row.refusals,
                "resets_at": row.resets_at.isoformat() if row.resets_at else None,
            }
            for row in report.rows
        ],
        "last_tick": report.last_tick_at.isoformat() if report.last_tick_at else None,
        "failed_jobs": list(report.failed_jobs),
        "outbox": dict(report.outbox),
        **({"details": [detail_document(one) for one in report.details]} if report.details else {}),
    }


def _cells(row: StatusRow, zone: ZoneInfo) -> tuple[str, ...]:
    subject = clipped(visible(row.subject))
    unusual = [
        word
        for word, usual in ((row.environment, "production"), (row.enforce, "on"))
        if word != usual
    ]
    mode = f" ({visible(', '.join(unusual))})" if unusual else ""
    bucket = NONE
    if row.bucket_capacity is not None:
        left = row.bucket_capacity if row.bucket_tokens is None else row.bucket_tokens
        bucket = f"{left:.1f}/{row.bucket_capacity:g}"
    return (
        f"{'▪ ' if row.kind == 'department' else ''}{subject}{mode}",
        dimension_words(row.dimension) if row.dimension else "no caps",
        _amount(row.used, row.dimension),
        _amount(row.cap, row.dimension),
        NONE if row.pct is None else f"{_number(row.pct):.1f}",
        row.tier or NONE,
        bucket,
        str(row.holds),
        str(row.refusals),
        NONE if row.resets_at is None else _short_time(row.resets_at, zone),
    )


def dimension_words(dimension: str) -> str:
    """A cap's name for people, as in alerts: ``daily_input_tokens`` is ``input tokens, day``."""
    period, _, quantity = dimension.partition("_")
    return f"{quantity.replace('_', ' ')}, {PERIODS[period]}"


def _tick_line(report: StatusReport, zone: ZoneInfo) -> str:
    if report.last_tick_at is None:
        return "last tick  none yet: run quota-worker tick"
    failed = f", failed: {', '.join(report.failed_jobs)}" if report.failed_jobs else ""
    at = report.last_tick_at.astimezone(zone)
    return f"last tick  {at:%Y-%m-%d %H:%M:%S} {report.billing_zone}{failed}"


def _outbox_line(report: StatusReport) -> str:
    counts = ", ".join(f"{number} {OUTBOX.get(state, state)}" for state, number in report.outbox)
    return f"outbox     {counts or 'empty'}"


def _amount(value: Decimal | None, dimension: str | None) -> str:
    """Costs are in cents and shown as currency units; the rest are whole counts."""
    if value is None:
        return NONE
    if dimension is not None and dimension.endswith("cost"):
        return f"{(value / 100).quantize(Decimal('0.01'), ROUND_HALF_UP):,}"
    return f"{value.quantize(Decimal(1)):,}"


def _short_time(at: datetime, zone: ZoneInfo) -> str:
    return f"{at.astimezone(zone):%m-%d %H:%M}"


def _number(value: Decimal | None) -> int | float | None:
    if value is None:
        return None
    return int(value) if value == value.to_integral_value() else float(value)
