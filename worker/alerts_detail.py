"""One alert in full: what was crossed, its delivery, its text, and the facts it was made from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from worker.alerts import alert_document, delivery_lines, headline
from worker.alerts_words import recipient_words
from worker.money import nanos_to_decimal
from worker.status_text import cells, table
from worker.untrusted import for_terminal

if TYPE_CHECKING:
    from decimal import Decimal

    from worker.alerts_report import AlertsReport, CrossingRow, DeliveryRow
    from worker.alerts_words import Words

NONE = "-"
HEADER = ("crossed", "threshold", "telling", "used", "held", "cap", "severity", "state", "found")
RIGHT = frozenset({1, 2, 3, 4, 5})


def alert_text(report: AlertsReport, chosen: int, text: str, words: Words) -> str:
    """For a terminal. ``text`` is the message as a console shows it, of the chosen delivery."""
    row = _chosen(report, chosen)
    lines = [headline(row, words), ""]
    if report.crossings:
        cells_of = [_crossing(one, words) for one in report.crossings]
        lines.extend((table(HEADER, cells_of, RIGHT), ""))
    width = max(cells(recipient_words(one.channel, one.recipient)) for one in report.deliveries)
    id_width = max(len(str(one.outbox_id)) for one in report.deliveries)
    lines.append("delivery")
    for one, line in zip(
        report.deliveries, delivery_lines(report.deliveries, words, width, id_width), strict=True
    ):
        lines.append(line)
        lines.extend(f"  {'':{id_width}}  {extra}" for extra in _extras(one, words))
    lines.extend(("", f"message {chosen}, in {for_terminal(row.locale)}"))
    lines.extend(f"  {line}" for line in text.splitlines())
    lines.extend(("", "facts"))
    lines.extend(_facts_lines(row.facts))
    return "\n".join(lines)


def alert_detail_document(report: AlertsReport, chosen: int, text: str) -> dict[str, object]:
    """For JSON: as in the list, with crossings, text and facts; costs in nanos."""
    row = _chosen(report, chosen)
    return alert_document(report.deliveries, report) | {
        "at": report.at.isoformat(),
        "billing_zone": report.billing_zone,
        "crossings": [
            {
                "dimension": one.dimension,
                "period_kind": one.period_kind,
                "period_start": one.period_start.isoformat(),
                "threshold": one.threshold,
                "generation": one.generation,
                "state": one.state,
                "severity": one.severity,
                "used": _whole(one.used),
                "held": _whole(one.held),
                "cap": _whole(one.cap),
                "refused_at": one.refused_at.isoformat() if one.refused_at else None,
                "logged_at": one.logged_at.isoformat() if one.logged_at else None,
                "rearmed_at": one.rearmed_at.isoformat() if one.rearmed_at else None,
                "rearmed_by": one.rearmed_by,
            }
            for one in report.crossings
        ],
        "id": chosen,
        "locale": row.locale,
        "text": text,
        "facts": json.loads(row.facts),
    }


def _chosen(report: AlertsReport, chosen: int) -> DeliveryRow:
    return next(row for row in report.deliveries if row.outbox_id == chosen)


def _crossing(one: CrossingRow, words: Words) -> tuple[str, ...]:
    found = words.short(one.logged_at)
    if one.rearmed_at is not None:
        found = f"{found}, may be told again since {words.short(one.rearmed_at)}"
    return (
        for_terminal(f"{one.dimension.replace('_', ' ')}, {one.period_kind} {one.period_start}"),
        f"{one.threshold}%",
        str(one.generation + 1),
        _amount(one.used, one.dimension),
        _amount(one.held, one.dimension),
        _amount(one.cap, one.dimension),
        one.severity,
        one.state,
        found,
    )


def _extras(row: DeliveryRow, words: Words) -> list[str]:
    """What the line of the list leaves out."""
    extras = [
        f"made {words.short(row.created_at)}, sent under the id {for_terminal(row.dedupe_key)}"
    ]
    if row.first_attempt_at is not None:
        extras[0] += f", first attempt {words.short(row.first_attempt_at)}"
    if row.last_failure is not None:
        detail = f" ({for_terminal(row.last_detail)})" if row.last_detail else ""
        extras.append(
            f"last failure {words.short(row.failed_at)}: {words.cause(row.last_failure)}{detail}"
        )
    return extras


def _facts_lines(facts: str) -> list[str]:
    """Indented JSON, every line of it safe to show."""
    text = json.dumps(json.loads(facts), ensure_ascii=False, indent=2)
    inner = [(line, line.lstrip(" ")) for line in text.splitlines()]
    return ["  " + " " * (len(line) - len(bare)) + for_terminal(bare) for line, bare in inner]


def _amount(value: Decimal | None, dimension: str) -> str:
    if value is None:
        return NONE
    return f"{nanos_to_decimal(int(value)):,}" if dimension == "cost" else f"{int(value):,}"


def _whole(value: Decimal | None) -> int | None:
    return None if value is None else int(value)
