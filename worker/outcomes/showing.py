"""Outcomes for people and programs: tables, JSON documents, and the file to fill in."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

from worker.outcomes.names import FORMULA_STARTS
from worker.outcomes.shape import COLUMNS, USUAL_METRICS
from worker.status_text import clipped, table, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date
    from decimal import Decimal

    from worker.outcomes.shape import Import
    from worker.postgres.outcomes import Group, ImportRow, OutcomeRow

_SHA_LETTERS: Final = 12


def number(value: Decimal) -> str:
    """Exactly, with groups of three."""
    return f"{value:,f}"


def groups_table(groups: Sequence[Group]) -> str:
    """A line per month and metric of a file."""
    lines = [
        (
            f"{one.month:%Y-%m}",
            clipped(visible(one.metric)),
            f"{one.departments:,}",
            number(one.total),
            _reports(one),
        )
        for one in groups
    ]
    return table(("month", "metric", "departments", "total", ""), lines, frozenset({2, 3}))


def _reports(group: Group) -> str:
    if group.reported:
        return "reported: reports whose figures it changes get a new revision"
    return "closed, not reported yet" if group.closed else ""


def import_line(done: Import, file_name: str) -> str:
    """What an import did."""
    rows = "1 row" if done.rows == 1 else f"{done.rows:,} rows"
    return (
        f"{clipped(visible(file_name))}: {rows}: {done.added:,} added,"
        f" {done.changed:,} changed, {done.unchanged:,} unchanged, {done.removed:,} removed"
    )


def import_report(done: Import, groups: Sequence[Group], *, dry_run: bool) -> dict[str, Any]:
    """For JSON: what an import did, and the totals by month and metric."""
    return {
        "dry_run": dry_run,
        "import_id": None if dry_run else done.import_id,
        "rows": done.rows,
        "added": done.added,
        "changed": done.changed,
        "unchanged": done.unchanged,
        "removed": done.removed,
        "groups": [
            {
                "month": f"{one.month:%Y-%m}",
                "metric": one.metric,
                "departments": one.departments,
                "total": format(one.total, "f"),
                "closed": one.closed,
                "reported": one.reported,
            }
            for one in groups
        ],
    }


def outcomes_table(rows: Sequence[OutcomeRow], *, history: bool) -> str:
    """A line per value."""
    header = ("month", "department", "name", "metric", "value", "import", "until")
    lines = [
        (
            f"{row.month:%Y-%m}",
            clipped(visible(row.department_id)),
            clipped(visible(row.name or "")),
            clipped(visible(row.metric)),
            number(row.value),
            str(row.import_id),
            "" if row.superseded_by is None else f"import {row.superseded_by}",
        )
        for row in rows
    ]
    width = len(header) if history else len(header) - 1
    return table(header[:width], [line[:width] for line in lines], frozenset({4, 5}))


def imports_table(rows: Sequence[ImportRow]) -> str:
    """A line per import."""
    header = ("import", "at", "by", "file", "sha256", "rows", "added", "changed", "unchanged")
    lines = [
        (
            str(row.import_id),
            f"{row.imported_at:%Y-%m-%d %H:%M}",
            clipped(visible(row.imported_by)),
            clipped(visible(row.file_name)),
            row.file_sha256[:_SHA_LETTERS],
            *(f"{n:,}" for n in (row.rows, row.added, row.changed, row.unchanged, row.removed)),
        )
        for row in rows
    ]
    return table((*header, "removed"), lines, frozenset({0, 5, 6, 7, 8, 9}))


def outcome_document(row: OutcomeRow) -> dict[str, Any]:
    """For JSON: the value as exact text."""
    return {
        "month": f"{row.month:%Y-%m}",
        "department_id": row.department_id,
        "metric": row.metric,
        "value": format(row.value, "f"),
        "import_id": row.import_id,
        "imported_at": row.imported_at.isoformat(),
        "superseded_by": row.superseded_by,
        "superseded_at": None if row.superseded_at is None else row.superseded_at.isoformat(),
    }


def import_document(row: ImportRow) -> dict[str, Any]:
    """For JSON."""
    return {
        "import_id": row.import_id,
        "imported_at": row.imported_at.isoformat(),
        "imported_by": row.imported_by,
        "file_name": row.file_name,
        "file_sha256": row.file_sha256,
        "rows": row.rows,
        "added": row.added,
        "changed": row.changed,
        "unchanged": row.unchanged,
        "removed": row.removed,
    }


def template(
    month: date,
    departments: Iterable[str],
    metrics: Sequence[str],
    values: Mapping[tuple[str, str], Decimal],
) -> str:
    """A CSV with a row per department and metric, and the value that is in force, if there is one.

    No cell is taken for a formula by a spreadsheet: an apostrophe stands before it, which the
    import leaves out again.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for department in departments:
        safe = f"'{department}" if department.startswith(FORMULA_STARTS) else department
        for metric in metrics or USUAL_METRICS:
            value = values.get((department, metric))
            writer.writerow(
                [f"{month:%Y-%m}", safe, metric, "" if value is None else format(value, "f")]
            )
    return text.getvalue()
