"""The figures behind ``quota-worker status``: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One tenant or department with its worst dimension; costs in cents.

    No dimension, cap or pct: nothing is capped. ``bucket_*`` None for departments;
    ``bucket_tokens`` is what the bucket holds now.
    """

    kind: str
    subject: str
    environment: str
    department_id: str | None
    dimension: str | None
    used: Decimal | None
    cap: Decimal | None
    pct: Decimal | None
    tier: str | None
    enforce: str
    bucket_tokens: float | None
    bucket_capacity: float | None
    holds: int
    refusals: int
    resets_at: datetime | None


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The status of a deployment: ``subjects`` counts all rows, ``rows`` are the worst.

    ``outbox`` is (state, how many); ``failed_jobs`` are those whose latest run failed.
    """

    at: datetime
    billing_zone: str
    currency: str
    subjects: int
    rows: tuple[StatusRow, ...]
    last_tick_at: datetime | None
    failed_jobs: tuple[str, ...]
    outbox: tuple[tuple[str, int], ...]
