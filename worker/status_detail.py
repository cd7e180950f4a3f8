"""One subject looked at closely: its last hour by app, key and model, and its refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.money import nanos_to_decimal
from worker.status_text import clipped, table, visible

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from worker.status_report import SubjectDetail

SHOWN_ROWS = 20
NONE = "-"
RIGHT = frozenset({3, 4, 5, 6, 7})


def detail_text(detail: SubjectDetail, zone: ZoneInfo, currency: str) -> str:
    """For a terminal: a table of the last hour, most costly first, then today's refusals."""
    environment = "" if detail.environment == "production" else f" ({visible(detail.environment)})"
    title = f"{detail.kind} {clipped(visible(detail.subject))}{environment}"
    lines = [f"last hour of {title}"]
    if detail.last_hour:
        header = ("app", "key", "model", "requests", "tokens", currency, "stale", "observed")
        rows = [
            (
                _name(row.app),
                _name(row.api_key),
                _name(row.model),
                f"{row.requests:,}",
                f"{row.tokens:,}",
                f"{nanos_to_decimal(int(row.cost_nanos)):,.4f}",
                f"{row.stale:,}",
                f"{row.observed:,}",
            )
            for row in detail.last_hour[:SHOWN_ROWS]
        ]
        lines.append(table(header, rows, RIGHT))
        hidden = len(detail.last_hour) - SHOWN_ROWS
        if hidden > 0:
            lines.append(f"… and {hidden} more: --json shows all")
    else:
        lines.append("no requests")
    refused = [
        f"{row.refusals:,} {row.reason} (last {row.last_at.astimezone(zone):%H:%M})"
        for row in detail.refusals
    ]
    lines.append(f"refused today: {', '.join(refused) or 'none'}")
    return "\n".join(lines)


def detail_document(detail: SubjectDetail) -> dict[str, object]:
    """For JSON: whole numbers, costs in nanos, times with offset."""
    return {
        "kind": detail.kind,
        "subject": detail.subject,
        "environment": detail.environment,
        "last_hour": [
            {
                "app": row.app,
                "api_key": row.api_key,
                "model": row.model,
                "requests": row.requests,
                "tokens": int(row.tokens),
                "cost_nanos": int(row.cost_nanos),
                "stale": row.stale,
                "observed": row.observed,
            }
            for row in detail.last_hour
        ],
        "refusals_today": [
            {"reason": row.reason, "count": row.refusals, "last_at": row.last_at.isoformat()}
            for row in detail.refusals
        ],
    }


def _name(text: str | None) -> str:
    return clipped(visible(text)) if text else NONE
