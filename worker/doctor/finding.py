"""A finding: what was looked at, how bad it is, what it is, and the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from worker.status_text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
FAULT: Final = "fault"
# From the worst on: the order in which findings are shown.
SEVERITIES: Final = (FAULT, WARNING, NOTE, OK)
SHOWN_NAMES: Final = 3
MAX_WORDS: Final = 400


class Finding(NamedTuple):
    """`check` is one of docs/doctor.md; `cure` a command to copy or a sentence, empty where well.

    `what` and `cure` are one line each, names in them made harmless.
    """

    check: str
    severity: str
    what: str
    cure: str = ""


def ok(check: str, what: str) -> list[Finding]:
    """It is well."""
    return [Finding(check, OK, what)]


def named(names: Sequence[str], found: int | None = None) -> str:
    """The first names, and how many more there are of `found`."""
    shown = ", ".join(visible(name) for name in names[:SHOWN_NAMES])
    more = (len(names) if found is None else found) - min(len(names), SHOWN_NAMES)
    return f"{shown} and {more:,} more" if more > 0 else shown


def one_line(text: str) -> str:
    """Somebody's words, on one line and not too long."""
    words = visible(" ".join(text.split()))
    return words if len(words) <= MAX_WORDS else f"{words[:MAX_WORDS]}…"


def quoted(name: str) -> str:
    """A name as SQL takes it, to be copied."""
    return '"' + visible(name).replace('"', '""') + '"'


def span(seconds: float) -> str:
    """How long, in the greatest unit that fits: 40 s, 12 min, 3 h, 5 days."""
    for unit, size in (("days", 172_800), ("h", 7_200), ("min", 120)):
        if seconds >= size:
            return f"{seconds / {'days': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def times(number: int, one: str, many: str | None = None) -> str:
    """1 tenant, 2 tenants, 1,000 tenants."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
