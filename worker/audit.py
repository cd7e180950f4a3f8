"""What the audit of a month found, and what a repair mended, as text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.money import format_nanos
from worker.status_text import clipped, table, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.audit_report import AuditReport, AuditRow, Repair

HEADER: Final = ("where", "when", "what", "dimension", "expected", "found", "off by")
MENDED_HEADER: Final = (*HEADER[:6], "is now")
RIGHT: Final = frozenset({4, 5, 6})
NONE: Final = "-"
INDENT: Final = "    "
MAX_CAUSE_CELLS: Final = 240
WORDS: Final = {
    "held": "wrong hold",
    "posted": "wrong charge",
    "direct_write": "direct write",
    "booked": "wrong note",
    "negative": "below zero",
    "orphan": "orphan",
    "impossible": "impossible row",
    "usage": "not its usage",
    "department": "department",
    "closed": "closed month",
    "overdue": "overdue",
    "unpriced": "unpriced",
    "usage_missing": "no usage",
    "inbox": "inbox",
    "source": "usage source",
    "folded": "folded in",
    "legacy": "legacy charges",
    "removed": "removed",
}
MONTHLY: Final = frozenset(
    {
        "department",
        "closed",
        "overdue",
        "unpriced",
        "usage_missing",
        "inbox",
        "source",
        "legacy",
        "removed",
    }
)
STATES: Final = {
    "open": "open",
    "closed": "closed",
    "not_closed": "not closed yet",
    "no_charges": "no charges",
}
REPAIRED: Final = "mended by quota-worker audit --month {month:%Y-%m} --repair"
CURES: Final = {
    "direct_write": f"folded in by the next reconcile where it is meant, else {REPAIRED}",
    "booked": f"{REPAIRED}, before a reconcile takes it for a direct write",
    "overdue": "ended by the next tick; with usage sources, once one knows the usage or "
    "wait_minutes are over. By hand: quota-worker run reconcile, with the schedule's "
    "configuration (--config), as it asks no source without",
    "unpriced": "quota-worker price unpriced tells what is missing, a price or a rate: "
    "reconcile then prices what waits",
    "usage_missing": "let the gateway ask for usage (stream_options.include_usage), or append it "
    "to quota_usage_inbox",
    "inbox": "look at the rows of quota_usage_inbox whose outcome is invalid or conflict, and "
    "append them again with right figures and a new usage_id: the remark goes once those are "
    "booked, and without such a request after 40 days",
    "folded": "if it was not meant, subtract it by the same UPDATE of quota_usage: the next "
    "reconcile folds that in, too",
    "legacy": "where no tenant with legacy charges moved in that month, add what is missing to "
    "used and legacy of one of the department's rows in quota_department_slots",
    "removed": "nothing is to be done; where months are audited later, set request_days in "
    "[upkeep]",
    "source": "look at quota-worker source faults, and at the source's mapping in the "
    "configuration: the remark goes once the request has its usage, or after 40 days",
}


def render_text(report: AuditReport, repair: Repair | None, top: int) -> str:
    """The whole answer for a terminal; ``report`` is what there is after the repair."""
    lines: list[str] = []
    if repair is not None and repair.mends:
        lines.append(f"mended (run {repair.run} in quota_repairs):")
        shown = repair.mends[:top] if top else repair.mends
        lines.extend(_lines(MENDED_HEADER, shown, report.currency))
        if len(shown) < len(repair.mends):
            lines.append(f"… and {len(repair.mends) - len(shown)} more")
        lines.append("")
    if report.rows:
        lines.extend(_lines(HEADER, report.rows, report.currency))
        hidden = report.drifts + report.remarks - len(report.rows)
        if hidden > 0:
            lines.append(f"… and {hidden} more: --top {report.drifts + report.remarks}")
        lines.append("")
        lines.extend(_cures(report))
        lines.append("")
    lines.append(_last_line(report, repair))
    return "\n".join(lines)


def as_document(report: AuditReport, repair: Repair | None) -> dict[str, object]:
    """For JSON: times with offset, amounts as integers, costs in nanos."""
    document: dict[str, object] = {
        "at": report.at.isoformat(),
        "month": f"{report.month:%Y-%m}",
        "state": report.state,
        "closed": report.state == "closed",
        "billing_zone": report.billing_zone,
        "currency": report.currency,
        "drifts": report.drifts,
        "remarks": report.remarks,
        "rows": [_document_row(row) | {"cure": _cure(row.kind, report)} for row in report.rows],
    }
    if repair is not None:
        document["repair_run"] = repair.run
        document["mended"] = [_document_row(row) | {"mended": row.mended} for row in repair.mends]
    return document


def _document_row(row: AuditRow) -> dict[str, object]:
    return {
        "severity": row.severity,
        "kind": row.kind,
        "tenant_id": row.tenant_id,
        "department_id": row.department_id,
        "environment": row.environment,
        "period": row.period.isoformat(),
        "dimension": row.dimension,
        "expected": row.expected,
        "found": row.found,
        "request_id": row.request_id,
        "cause": row.cause,
    }


def _lines(header: Sequence[str], rows: Sequence[AuditRow], currency: str) -> list[str]:
    """A table; under the last of the rows that share a place and a cause, the cause."""
    drawn = table(header, [_cells(row, currency) for row in rows], RIGHT).split("\n")
    lines = [drawn[0]]
    for number, row in enumerate(rows):
        lines.append(drawn[number + 1])
        after = rows[number + 1] if number + 1 < len(rows) else None
        if after is None or _place(after) != _place(row):
            lines.append(INDENT + clipped(visible(row.cause), MAX_CAUSE_CELLS))
    return lines


def _place(row: AuditRow) -> tuple[object, ...]:
    return (row.tenant_id, row.department_id, row.environment, row.period, row.kind, row.cause)


def _cells(row: AuditRow, currency: str) -> tuple[str, ...]:
    name = row.department_id if row.tenant_id is None else row.tenant_id
    pool = f" ({visible(row.environment)})" if row.environment not in {None, "production"} else ""
    daily = row.kind not in MONTHLY
    if row.mended is not None:
        last = _amount(row.mended, row, currency)
    elif row.found is not None and row.expected is not None:
        last = _amount(row.found - row.expected, row, currency, signed=True)
    else:
        last = NONE
    return (
        f"{'▪ ' if row.tenant_id is None else ''}{clipped(visible(name or NONE))}{pool}",
        f"{row.period:%Y-%m-%d}" if daily else f"{row.period:%Y-%m}",
        WORDS.get(row.kind, row.kind),
        _dimension(row),
        _amount(row.expected, row, currency),
        _amount(row.found, row, currency),
        last,
    )


def _dimension(row: AuditRow) -> str:
    words = row.dimension.removesuffix("_nanos").replace("_", " ")
    return f"{words} held" if row.kind == "held" else words


def _amount(value: int | None, row: AuditRow, currency: str, *, signed: bool = False) -> str:
    if value is None:
        return NONE
    plus = "+" if signed and value > 0 else ""
    if row.dimension.endswith("_nanos"):
        return plus + format_nanos(value, currency)
    return f"{plus}{value:,}"


def _cures(report: AuditReport) -> list[str]:
    """A line for each kind that is shown, in the order of the rows."""
    kinds = list(dict.fromkeys(row.kind for row in report.rows))
    width = max(len(WORDS.get(kind, kind)) for kind in kinds)
    return [f"{WORDS.get(kind, kind):<{width}}  {_cure(kind, report)}" for kind in kinds]


def _cure(kind: str, report: AuditReport) -> str:
    return CURES.get(kind, REPAIRED).format(month=report.month)


def _last_line(report: AuditReport, repair: Repair | None) -> str:
    month = f"{report.month:%Y-%m} ({STATES[report.state]}, {report.billing_zone})"
    found = f"{_count(report.drifts, 'drift')}, {_count(report.remarks, 'remark')}"
    if repair is None:
        return f"{month}: {found}"
    if not repair.mends and not report.drifts:
        return f"{month}: nothing to mend; {found}"
    left = "" if not report.drifts else "; run it again for what is left"
    return f"{month}: {_count(len(repair.mends), 'mend')}; now {found}{left}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}" if number else f"no {word}"
