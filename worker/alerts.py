"""What was told when and to whom, newest first, as text or JSON; the worst is said first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.alerts_words import (
    burn_words,
    crossed_words,
    missing_words,
    recipient_words,
    report_words,
    runaway_words,
    told_dimensions,
)
from worker.status_text import cells, clipped
from worker.untrusted import for_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.alerts_report import AlertsReport, DeliveryRow, GivenUp
    from worker.alerts_words import Words

MAX_RECIPIENT_CELLS = 50
# What kinds say that tell no crossing.
_TELLING = {"burn-rate": burn_words, "runaway": runaway_words, "roi-report": report_words}


def history_text(report: AlertsReport, words: Words) -> str:
    """The whole answer for a terminal."""
    lines = summary_lines(report, words)
    if lines:
        lines.append("")
    width = max((cells(_recipient(row)) for row in report.deliveries), default=0)
    id_width = max((len(str(row.outbox_id)) for row in report.deliveries), default=0)
    shown = 0
    for alert in grouped(report.deliveries):
        shown += 1
        lines.append(headline(alert[0], words))
        lines.extend(delivery_lines(alert, words, width, id_width))
    if not report.deliveries:
        lines.append("no alerts")
    elif report.more:
        lines.append(f"… and more: --limit {2 * shown}, or 0 for all")
    return "\n".join(lines)


def summary_lines(report: AlertsReport, words: Words) -> list[str]:
    """What was given up and nobody has acknowledged; nothing where all is well."""
    if not report.given_up:
        return []
    count = report.unacknowledged
    what = "1 message was" if count == 1 else f"{count:,} messages were"
    lines = [f"{what} given up and not acknowledged:"]
    width = max(cells(_recipient(row)) for row in report.given_up)
    id_width = max(len(str(row.outbox_id)) for row in report.given_up)
    for row in report.given_up:
        elsewhere = "told on another channel" if row.told_elsewhere else "NOT TOLD ELSEWHERE"
        about = f", about {clipped(for_terminal(row.subject))}" if row.subject else ""
        where = f"{row.outbox_id:>{id_width}}  {_padded(_recipient(row), width)}"
        why = f"{words.short(row.ended_at)}: {words.cause(row.last_failure)}; {elsewhere}"
        lines.append(f"  {where}  {row.severity}{about}, {why}")
    if count > len(report.given_up):
        lines.append(f"  … and {count - len(report.given_up):,} more: --state dead")
    lines.append(
        "next: mend the channel, then quota-worker alerts retry ID …, or: … alerts ack ID …"
    )
    return lines


def grouped(deliveries: Sequence[DeliveryRow]) -> Iterator[list[DeliveryRow]]:
    """The messages of each alert, which stand together."""
    alert: list[DeliveryRow] = []
    for row in deliveries:
        if alert and alert[-1].message_key != row.message_key:
            yield alert
            alert = []
        alert.append(row)
    if alert:
        yield alert


def headline(row: DeliveryRow, words: Words) -> str:
    """When it was decided, how severe, about whom, what crossed."""
    environment = row.environment or ""
    mode = f" ({for_terminal(environment)})" if environment not in {"", "production"} else ""
    kind = "department " if row.subject_kind == "department" else ""
    subject = clipped(for_terminal(row.subject)) if row.subject else for_terminal(row.kind)
    available = row.severity == "available"
    told = _TELLING.get(row.kind, missing_words)
    crossed = "; ".join(
        crossed_words(one, available=available) for one in told_dimensions(row.facts)
    ) or told(row.facts)
    return (
        f"{words.moment(row.decided_at)}  {row.severity}  {kind}{subject}{mode}"
        f"{': ' if crossed else ''}{crossed}"
    )


def delivery_lines(
    alert: Sequence[DeliveryRow], words: Words, width: int, id_width: int
) -> list[str]:
    """A line per channel and recipient, beginning with the id that the other commands want."""
    return [
        f"  {row.outbox_id:>{id_width}}  {_padded(_recipient(row), width)}  {words.delivery(row)}"
        for row in alert
    ]


def history_document(report: AlertsReport) -> dict[str, object]:
    """For JSON: times with offset, the states' own names."""
    return {
        "at": report.at.isoformat(),
        "billing_zone": report.billing_zone,
        "quiet_until": _iso(report.quiet_until),
        "unacknowledged": report.unacknowledged,
        "given_up": [
            {
                "id": row.outbox_id,
                "channel": row.channel,
                "recipient": row.recipient,
                "severity": row.severity,
                "subject": row.subject,
                "ended_at": _iso(row.ended_at),
                "cause": row.last_failure,
                "told_elsewhere": row.told_elsewhere,
            }
            for row in report.given_up
        ],
        "more": report.more,
        "alerts": [alert_document(alert, report) for alert in grouped(report.deliveries)],
    }


def alert_document(alert: Sequence[DeliveryRow], report: AlertsReport) -> dict[str, object]:
    """One alert with its deliveries."""
    first = alert[0]
    return {
        "decided_at": first.decided_at.isoformat(),
        "kind": first.kind,
        "severity": first.severity,
        "subject_kind": first.subject_kind,
        "subject": first.subject,
        "environment": first.environment,
        "crossed": [
            {
                "dimension": one["dimension"],
                "period_kind": one.get("period_kind"),
                "period_start": one.get("period_start"),
                "threshold": one.get("threshold"),
                "pct": float(one.get("pct") or 0),
                "refused_at": one.get("refused_at"),
            }
            for one in told_dimensions(first.facts)
        ],
        "deliveries": [delivery_document(row, report) for row in alert],
    }


def delivery_document(row: DeliveryRow, report: AlertsReport) -> dict[str, object]:
    """One message on its way."""
    return {
        "id": row.outbox_id,
        "channel": row.channel,
        "recipient": row.recipient,
        "state": row.state,
        "attempts": row.attempts,
        "digest_only": row.digest_only,
        "digest": row.digest_key,
        "created_at": _iso(row.created_at),
        "first_attempt_at": _iso(row.first_attempt_at),
        "next_attempt_at": _iso(row.next_attempt_at) if row.state == "pending" else None,
        "fallback_from": _iso(report.fallback_from(row)) if row.state == "pending" else None,
        "sent_at": _iso(row.sent_at),
        "ended_at": _iso(row.ended_at),
        "failed_at": _iso(row.failed_at),
        "cause": row.last_failure,
        "detail": row.last_detail,
        "fallback_of": row.fallback_of,
        "superseded_by": report.superseding.get(row.superseded_by or ""),
        "acked_at": _iso(row.acked_at),
        "acked_by": row.acked_by,
        "ack_note": row.ack_note,
        "dedupe_key": row.dedupe_key,
    }


def _iso(at: Any) -> str | None:  # noqa: ANN401  a moment or nothing
    return at.isoformat() if at is not None else None


def _recipient(row: DeliveryRow | GivenUp) -> str:
    return clipped(recipient_words(row.channel, row.recipient), MAX_RECIPIENT_CELLS)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))
