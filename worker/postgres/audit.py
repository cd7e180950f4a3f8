"""The ledger's audit and its repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.audit_report import AuditReport, AuditRow, Repair
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from datetime import date, datetime
    from decimal import Decimal

    import asyncpg

    from worker.postgres.queries import Queries

MAX_ROWS: Final = 100_000
MAX_TENANTS_PER_REPAIR: Final = 1000
TIMEOUT_SECONDS: Final = 1800.0  # a month of a million tenants is read


class PostgresAudit:
    """``sql/queries/audit.sql``. ``month`` is a first of a month; None: the open one."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def report(
        self, month: date | None, top: int | None, now: datetime | None
    ) -> AuditReport:
        """What is off in the month, read from one snapshot; changes nothing.

        ``top``: the worst rows; None: all, 100,000 at most. Raises InvalidInputError for a
        month that has not begun.
        """
        with translated():
            frame = await self._pool.fetchrow(self._queries["audit_frame"], month, now)
            if frame is None:
                raise RuntimeError("quota_settings has no row")
            rows = await self._pool.fetch(
                self._queries["audit_rows"],
                frame["month"],
                now,
                MAX_ROWS if top is None else min(top, MAX_ROWS),
                timeout=TIMEOUT_SECONDS,
            )
        return AuditReport(
            at=frame["at"],
            month=frame["month"],
            state=frame["state"],
            billing_zone=frame["billing_zone"],
            currency=frame["currency"],
            drifts=rows[0]["drifts"] if rows else 0,
            remarks=rows[0]["remarks"] if rows else 0,
            rows=tuple(_row(row, row["severity"], None) for row in rows),
        )

    async def repair(self, month: date | None, now: datetime | None) -> Repair:
        """Mend the month's drifts in one transaction, of the 1,000 worst tenants at most.

        Idempotent. Raises LockTimeoutError where a tenant stays locked: nothing was done.
        """
        with translated():
            rows = await self._pool.fetch(
                self._queries["audit_repair"],
                month,
                MAX_TENANTS_PER_REPAIR,
                now,
                timeout=TIMEOUT_SECONDS,
            )
        return Repair(
            run=str(rows[0]["run"]) if rows else None,
            mends=tuple(_row(row, "drift", row["mended"]) for row in rows),
        )


def _row(row: asyncpg.Record, severity: str, mended: Decimal | None) -> AuditRow:
    return AuditRow(
        severity=severity,
        kind=row["kind"],
        tenant_id=row["tenant_id"],
        department_id=row["department_id"],
        environment=row["environment"],
        period=row["period"],
        dimension=row["dimension"],
        expected=_whole(row["expected"]),
        found=_whole(row["found"]),
        request_id=row["request_id"],
        cause=row["cause"],
        mended=_whole(mended),
    )


def _whole(value: Decimal | None) -> int | None:
    return None if value is None else int(value)
