"""Reports as revisions of closed months, and their mails: the port ``RoiReports``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from worker.errors import InvalidInputError
from worker.models import ReportDue, ReportFault, ReportsBuilt
from worker.postgres.errors import translated
from worker.report.json_file import dump_summary
from worker.roi.revisions import fingerprint, told_figures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

    import asyncpg

    from worker.postgres.queries import Queries
    from worker.postgres.roi import MonthReading, PostgresRoi
    from worker.roi.summary import Summary
    from worker.settings import ReportSettings


class Stored(NamedTuple):
    """What became of one report: its latest revision, whether it is new, mails queued now."""

    revision: int
    made: bool
    messages: int


class PostgresRoiReports:
    """Builds, stores and queues; each report is one transaction."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        queries: Queries,
        roi: PostgresRoi,
        settings: ReportSettings,
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._roi = roi
        self._settings = settings
        self.channel = settings.channel

    async def count_due(self, now: datetime | None) -> int:
        """How many reports a run would build; changes nothing."""
        with translated():
            count: int = await self._pool.fetchval(
                self._queries["count_reports_due"], now, self._settings.day
            )
        return count

    async def due(
        self, limit: int, after: ReportDue | None, now: datetime | None
    ) -> Sequence[ReportDue]:
        """At most ``limit`` reports to build, in order, those behind ``after``."""
        month, department = after or (None, None)
        with translated():
            rows = await self._pool.fetch(
                self._queries["report_due"], now, self._settings.day, month, department, limit
            )
        return [ReportDue(row["month"], row["department_id"]) for row in rows]

    async def build(
        self, month: date, departments: Sequence[str], now: datetime | None
    ) -> ReportsBuilt:
        """Build and store these reports of one month; one that can't be built stops no other."""
        built = messages = 0
        faults: list[ReportFault] = []
        async with self._roi.reading(month) as reading:
            for department in departments:
                try:
                    summary = await reading.summary(department)
                except InvalidInputError as error:
                    faults.append(ReportFault(f"{month:%Y-%m}", department, str(error)))
                    continue
                stored = await self.store(reading, department, summary, now)
                built += stored.made
                messages += stored.messages
        return ReportsBuilt(built, messages, tuple(faults))

    async def store(
        self, reading: MonthReading, department: str, summary: Summary, now: datetime | None
    ) -> Stored:
        """Keep it where its figures are new, and queue its mails. ``now`` None: the clock.

        Raises InvalidInputError for a month that isn't closed.
        """
        told = told_figures(summary)
        # a connection of its own: the reading's transaction only reads
        with translated():
            row = await self._pool.fetchrow(
                self._queries["report_store"],
                summary.month,
                department,
                reading.shared.seen_import,
                reading.locale(department),
                fingerprint(told),
                json.dumps(told),
                dump_summary(summary, indent=None),
                json.dumps(report_facts(summary), ensure_ascii=False),
                self._settings.channel,
                list(self._settings.to),
                now,
            )
        if row is None:
            raise RuntimeError("quota_report_store returned no row")
        return Stored(*row.values())


def report_facts(summary: Summary) -> dict[str, Any]:
    """What a message about it says in a line, in the shape of all messages' facts."""
    own = summary.ledger.own
    return {
        "severity": "available",
        "dimensions": [],
        "top_apps": None,
        "zone": summary.zone,
        "currency": summary.currency,
        "department_name": None if summary.department is None else summary.department.name,
        "completions": own.completions,
        "tokens": own.tokens,
        "cost_nanos": own.cost_nanos,
        "total_cost_nanos": summary.ledger.total.cost_nanos,
    }
