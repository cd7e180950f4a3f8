"""The figures behind ``quota-worker audit``: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date, datetime


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One counter that is off, or one thing to look at; costs in nanos.

    ``severity``: drift or remark. ``tenant_id`` None: a department's month. ``period``: the
    day, or the month's first. ``expected``, ``found`` None: no counter. ``mended``: what a
    repair made of it; None where none did.
    """

    severity: str
    kind: str
    tenant_id: str | None
    department_id: str | None
    environment: str | None
    period: date
    dimension: str
    expected: int | None
    found: int | None
    request_id: str | None
    cause: str
    mended: int | None = None


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The audit of one billing month.

    ``drifts`` and ``remarks`` count all, ``rows`` are the worst, drifts first. ``state``:
    open, closed, not_closed (a past month that isn't yet) or no_charges (a past one without).
    """

    at: datetime
    month: date
    state: str
    billing_zone: str
    currency: str
    drifts: int
    remarks: int
    rows: tuple[AuditRow, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """What one repair mended: ``run`` names it in quota_repairs; None: nothing was to mend."""

    run: str | None
    mends: tuple[AuditRow, ...]
