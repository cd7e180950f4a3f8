"""Who is hot: one row per tenant and department, worst first, as text or JSON."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from worker.status_detail import detail_document, detail_text
from worker.status_text import Palette, cells, clipped, sparkline, table_lines, visible

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from zoneinfo import ZoneInfo

    from worker.status_report import StatusReport, StatusRow

# The columns, and how soon each goes where a terminal is too narrow: 0 never.
COLUMNS: Final = (
    ("subject", 0),
    ("worst", 1),
    ("used", 3),
    ("cap", 2),
    ("%", 0),
    ("tier", 4),
    ("bucket", 10),
    ("holds", 9),
    ("refused", 7),
    ("observed", 8),
    ("resets", 5),
    ("full in", 0),
    ("last 24 h", 6),
)
RIGHT: Final = frozenset({"used", "cap", "%", "bucket", "holds", "refused", "observed", "full in"})
NONE = "-"
PERIODS = {"daily": "day", "monthly": "month"}
OUTBOX = {"dead_acknowledged": "acknowledged"}
NARROW_NAME_CELLS: Final = 16
BLOCKS_SHOWN: Final = 10
WARNING_PCT: Final = 75
FULL_PCT: Final = 100
TIER_STYLES: Final = {
    "warning": "warning",
    "downgrade": "warning",
    "protected": "alarm",
    "exhausted": "alarm",
}
PLAIN: Final = Palette(coloured=False)


def render_text(
    report: StatusReport, zone: ZoneInfo, palette: Palette = PLAIN, columns: int | None = None
) -> str:
    """The whole answer for people; times in the billing zone.

    ``columns``: how wide the terminal is; what doesn't fit loses its least needed columns.
    """
    lines = []
    if report.rows:
        lines.extend(_rows_table(report, zone, palette, columns))
        hidden = report.subjects - len(report.rows)
        if hidden > 0:
            lines.append(f"… and {hidden} more: --top {report.subjects}")
    else:
        lines.append("no tenants yet: add rows to tenant_limits, or try quota-worker demo")
    for detail in report.details:
        lines.extend(("", detail_text(detail, zone, report.currency)))
    lines.extend(("", *_block_lines(report, zone, palette)))
    lines.extend((_tick_line(report, zone, palette), _outbox_line(report, palette)))
    return "\n".join(lines)


def _rows_table(
    report: StatusReport, zone: ZoneInfo, palette: Palette, columns: int | None
) -> list[str]:
    rows = [_cells(row, zone, report.at) for row in report.rows]
    names = [name for name, _ in COLUMNS]
    empty = {"0", NONE, ""}
    # what nobody has isn't worth a column
    unused = {"observed", "full in", "last 24 h"}
    names = [n for n in names if n not in unused or any(row[n] not in empty for row in rows)]
    lines = _laid_out(names, rows)
    for name, _ in sorted(COLUMNS, key=lambda column: -column[1]):
        if columns is None or max(map(cells, lines)) <= columns:
            break
        if name in names and dict(COLUMNS)[name]:
            names.remove(name)
            lines = _laid_out(names, rows)
    if columns is not None and max(map(cells, lines)) > columns:
        rows = [row | {"subject": clipped(row["subject"], NARROW_NAME_CELLS)} for row in rows]
        lines = _laid_out(names, rows)
    styles = ["head", *(_style(row) for row in report.rows)]
    return [palette.paint(line, style) for line, style in zip(lines, styles, strict=True)]


def _laid_out(names: list[str], rows: list[dict[str, str]]) -> list[str]:
    right = frozenset(place for place, name in enumerate(names) if name in RIGHT)
    return table_lines(names, [[row[name] for name in names] for row in rows], right)


def _style(row: StatusRow) -> str | None:
    """By the tier of a department, by the share of its cap of any."""
    if row.pct is not None and row.pct >= FULL_PCT:
        return "alarm"
    if row.kind == "department" and row.tier in TIER_STYLES:
        return TIER_STYLES[row.tier]
    return "warning" if row.pct is not None and row.pct >= WARNING_PCT else None


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
                "resets_at": _iso(row.resets_at),
                "expected_at": _iso(row.day.expected_at) if row.day else None,
                "observed_last_day": row.day.observed if row.day else None,
                "hours": [_number(hour) for hour in row.day.hours] if row.day else None,
            }
            for row in report.rows
        ],
        "blocks": [
            {
                "kind": one.kind,
                "subject": one.subject,
                "until": one.until.isoformat(),
                "by": one.by,
                "reason": one.reason,
            }
            for one in report.blocks
        ],
        "last_tick": _iso(report.tick.last_at),
        "next_tick": _iso(report.tick.next_at),
        "tick_late": report.tick.late,
        "tick_running": report.tick.running,
        "failed_jobs": list(report.tick.failed),
        "unfinished_jobs": list(report.tick.unfinished),
        "interrupted_jobs": list(report.tick.interrupted),
        "outbox": dict(report.outbox),
        "outbox_waiting_since": _iso(report.waiting_since),
        **({"details": [detail_document(one) for one in report.details]} if report.details else {}),
    }


def _cells(row: StatusRow, zone: ZoneInfo, at: datetime) -> dict[str, str]:
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
    day = row.day
    any_charge = day is not None and any(hour > 0 for hour in day.hours)
    return {
        "subject": f"{'▪ ' if row.kind == 'department' else ''}{subject}{mode}",
        "worst": dimension_words(row.dimension) if row.dimension else "no caps",
        "used": _amount(row.used, row.dimension),
        "cap": _amount(row.cap, row.dimension),
        "%": NONE if row.pct is None else f"{_number(row.pct):.1f}",
        "tier": row.tier or NONE,
        "bucket": bucket,
        "holds": str(row.holds),
        "refused": str(row.refusals),
        "observed": NONE if day is None else str(day.observed),
        "resets": NONE if row.resets_at is None else _short_time(row.resets_at, zone),
        "full in": span(day.expected_at - at) if day and day.expected_at else NONE,
        "last 24 h": sparkline(day.hours) if day and any_charge else "",
    }


def span(length: timedelta) -> str:
    """A length of time in its two greatest units: ``3d 4h``, ``2h 05m``, ``12m``."""
    minutes = max(int(length.total_seconds()) // 60, 0)
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes % 60:02}m" if hours else f"{minutes}m"


def dimension_words(dimension: str) -> str:
    """A cap's name for people, as in alerts: ``daily_input_tokens`` is ``input tokens, day``."""
    period, _, quantity = dimension.partition("_")
    return f"{quantity.replace('_', ' ')}, {PERIODS[period]}"


def _tick_line(report: StatusReport, zone: ZoneInfo, palette: Palette) -> str:
    tick = report.tick
    if tick.last_at is None or tick.next_at is None:
        return palette.paint("last tick  none yet: run quota-worker tick", "warning")
    told = [
        f"{words}: {', '.join(map(visible, jobs))}"
        for words, jobs in (
            ("failed", tick.failed),
            ("unfinished", tick.unfinished),
            ("interrupted", tick.interrupted),
        )
        if jobs
    ]
    if tick.running:
        told.append("at work now")
    elif tick.late:
        told.append(f"LATE: the next was expected {tick.next_at.astimezone(zone):%H:%M}, ")
        told[-1] += "check the schedule"
    else:
        told.append(f"next expected {tick.next_at.astimezone(zone):%H:%M}")
    at = tick.last_at.astimezone(zone)
    line = f"last tick  {at:%Y-%m-%d %H:%M:%S} {report.billing_zone}, {', '.join(told)}"
    alarming = tick.failed or (tick.late and not tick.running)
    worrying = tick.unfinished or tick.interrupted
    return palette.paint(line, "alarm" if alarming else "warning" if worrying else None)


def _block_lines(report: StatusReport, zone: ZoneInfo, palette: Palette) -> list[str]:
    lines = [
        f"blocked    {one.kind} {clipped(visible(one.subject))} until "
        f"{_short_time(one.until, zone)} by {clipped(visible(one.by))}: {visible(one.reason)}"
        for one in report.blocks[:BLOCKS_SHOWN]
    ]
    if len(report.blocks) > BLOCKS_SHOWN:
        lines.append("blocked    … and more: quota-worker limits show")
    return [palette.paint(line, "alarm") for line in lines]


def _outbox_line(report: StatusReport, palette: Palette) -> str:
    counts = ", ".join(f"{number} {OUTBOX.get(state, state)}" for state, number in report.outbox)
    line = f"outbox     {counts or 'empty'}"
    if report.waiting_since is not None:
        line += f"; the oldest waits {span(report.at - report.waiting_since)}"
    return palette.paint(line, "alarm" if dict(report.outbox).get("dead") else None)


def _amount(value: Decimal | None, dimension: str | None) -> str:
    """Costs are in cents and shown as currency units; the rest are whole counts."""
    if value is None:
        return NONE
    if dimension is not None and dimension.endswith("cost"):
        return f"{(value / 100).quantize(Decimal('0.01'), ROUND_HALF_UP):,}"
    return f"{value.quantize(Decimal(1)):,}"


def _short_time(at: datetime, zone: ZoneInfo) -> str:
    return f"{at.astimezone(zone):%m-%d %H:%M}"


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _number(value: Decimal | None) -> int | float | None:
    if value is None:
        return None
    return int(value) if value == value.to_integral_value() else float(value)
