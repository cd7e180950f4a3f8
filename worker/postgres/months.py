"""The read behind ``quota-worker months``, on sql/queries/months.sql."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.postgres.errors import translated

if TYPE_CHECKING:
    import asyncpg

    from worker.months_report import MonthsReport
    from worker.postgres.queries import Queries

ALL_MONTHS = 2_147_483_647


class PostgresMonthsList:
    """The billing months with their totals; changes nothing."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def report(self, last: int) -> MonthsReport:
        """The latest ``last`` months, 0: all; those of one look at the database."""
        from zoneinfo import ZoneInfo

        from worker.months_report import MonthRow, MonthsReport

        with translated():
            async with (
                self._pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                head = await connection.fetchrow(self._queries["now"])
                rows = await connection.fetch(self._queries["months"], last or ALL_MONTHS)
        if head is None:
            raise RuntimeError("quota_settings has no row")
        return MonthsReport(
            now=head["now"],
            zone=ZoneInfo(head["billing_zone"]),
            currency=head["currency"],
            rows=tuple(
                MonthRow(
                    month=row["month"],
                    ends_at=row["ends_at"],
                    rolled_at=row["rolled_at"],
                    closed_at=row["closed_at"],
                    completions=int(row["completions"]),
                    input_tokens=int(row["input_tokens"]),
                    output_tokens=int(row["output_tokens"]),
                    cost_nanos=int(row["cost_nanos"]),
                    tenants=row["tenants"],
                    departments=row["departments"],
                    adjustments=row["adjustments"],
                    adjusted_tokens=int(row["adjusted_tokens"]),
                    adjusted_cost_nanos=int(row["adjusted_cost_nanos"]),
                    open_requests=row["open_requests"],
                    closed_early=row["closed_early"],
                )
                for row in rows
            ),
        )
