"""The one place where Python reads the clock. Jobs take `now` instead."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def utc_now() -> datetime:
    """Now, aware, in UTC."""
    return datetime.now(UTC)


def monotonic_seconds() -> float:
    """Seconds that only go forward, for deadlines and durations."""
    return time.monotonic()
