"""The findings as a table, worst first, and as JSON. Pure."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

from worker import __version__
from worker.doctor.finding import FAULT, NOTE, OK, SEVERITIES, WARNING, Finding, times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from worker.status_text import Palette

DATABASE: Final = "database"
COLUMNS: Final = 80
STYLES: Final = {FAULT: "alarm", WARNING: "warning", NOTE: "head", OK: "dim"}


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """By severity; in each as they were found."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def render_text(findings: Sequence[Finding], palette: Palette) -> str:
    """A line for each finding, its cure below it, and the sum at the end.

    What is well is named alone, but for which database it was: else the rest would scroll away.
    """
    severity_width = max(map(len, SEVERITIES))
    told = [one for one in worst_first(findings) if one.severity != OK or one.check == DATABASE]
    well = [one.check for one in findings if one.severity == OK and one not in told]
    width = max((len(finding.check) for finding in told), default=0)
    lines = []
    for finding in told:
        severity = palette.paint(f"{finding.severity:<{severity_width}}", STYLES[finding.severity])
        lines.append(f"{severity}  {finding.check:<{width}}  {finding.what}")
        if finding.cure:
            lines.append(f"{'':<{severity_width}}  {'':<{width}}  do: {finding.cure}")
    wrapped = wrap(", ".join(dict.fromkeys(well)), COLUMNS - severity_width - 2)
    lines += [f"{palette.paint(f'{OK:<{severity_width}}', STYLES[OK])}  {line}" for line in wrapped]
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
