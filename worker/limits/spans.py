"""Spans of time as people write them: 90m, 2h, 1h30m, 3d."""

from __future__ import annotations

import re
from typing import Final

UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
MAX_SECONDS: Final = 366 * 86_400
_SPAN: Final = re.compile(r"(?:(\d{1,8})d)?(?:(\d{1,8})h)?(?:(\d{1,8})m)?(?:(\d{1,8})s)?", re.ASCII)
EXAMPLES: Final = "write 90m, 2h, 1h30m or 3d"


def parse_span(text: str) -> int:
    """Seconds. Raises ValueError: what is wrong, and what would be right."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None or not any(found.groups()):
        raise ValueError(f"is no span of time: {EXAMPLES}")
    seconds = sum(
        int(digits or 0) * unit for digits, unit in zip(found.groups(), UNITS.values(), strict=True)
    )
    if not 1 <= seconds <= MAX_SECONDS:
        raise ValueError(f"is out of range, 1s to 366d: {EXAMPLES}")
    return seconds


def shown_span(seconds: int) -> str:
    """As people write it: `1h30m`."""
    words = []
    for unit, length in UNITS.items():
        count, seconds = divmod(seconds, length)
        if count:
            words.append(f"{count}{unit}")
    return "".join(words) or "0s"
