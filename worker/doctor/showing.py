"""The findings as a table, worst first, and as JSON. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker import __version__
from worker.doctor.finding import FAULT, NOTE, OK, SEVERITIES, WARNING, Finding, times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from worker.status_text import Palette

STYLES: Final = {FAULT: "alarm", WARNING: "warning", NOTE: "head", OK: "dim"}


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """By severity; in each as they were found."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def render_text(findings: Sequence[Finding], palette: Palette) -> str:
    """A line for each finding, its cure below it, and the sum at the end."""
    severity_width = max(map(len, SEVERITIES))
    width = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for finding in worst_first(findings):
        severity = palette.paint(f"{finding.severity:<{severity_width}}", STYLES[finding.severity])
        lines.append(f"{severity}  {finding.check:<{width}}  {finding.what}")
        if finding.cure:
            lines.append(f"{'':<{severity_width}}  {'':<{width}}  do: {finding.cure}")
    return "\n".join([*lines, "", summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    """1 fault, 2 warnings, 3 notes; 20 ok."""
    counts = {word: sum(one.severity == word for one in findings) for word in SEVERITIES}
    bad = [times(counts[word], word) for word in (FAULT, WARNING, NOTE) if counts[word]]
    return f"{', '.join(bad) or 'nothing is off'}; {counts[OK]} ok"


def as_document(
    findings: Sequence[Finding], at: datetime, roles_sql: str | None
) -> dict[str, object]:
    """For JSON: `severity` is the worst one's; `roles_sql` is for an administrator, or null."""
    ordered = worst_first(findings)
    return {
        "version": __version__,
        "at": at.isoformat(timespec="seconds"),
        "severity": ordered[0].severity if ordered else OK,
        "findings": [finding._asdict() for finding in ordered],
        "roles_sql": roles_sql,
    }
