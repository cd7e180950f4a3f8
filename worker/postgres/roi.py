"""A month's facts for the ROI report, on sql/queries/roi.sql: one look at the database."""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from decimal import Context
from typing import TYPE_CHECKING, NamedTuple

from worker.errors import InvalidInputError, UnknownNameError, UsageError
from worker.money import NANOS_PER_CENT
from worker.periods import month_of, previous_month
from worker.postgres.errors import translated
from worker.roi.facts import (
    AMOUNT_NAMES,
    NOTHING,
    Amounts,
    Budget,
    Day,
    Department,
    Facts,
    Month,
    Part,
    Peer,
    Price,
)
from worker.roi.gathering import Gathering
from worker.roi.months import TREND_MONTHS
from worker.roi.ranking import compare
from worker.roi.report import summarize

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import date, datetime
    from decimal import Decimal

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from worker.postgres.queries import Queries
    from worker.roi.gathering import Gathered
    from worker.roi.ranking import Comparison
    from worker.roi.summary import Summary

# The first month that a report shows beside its own is so many months before.
MONTHS_BEFORE = TREND_MONTHS - 1
EXACT = Context(prec=100)  # sums of outcomes: of 30 digits each
DEPARTMENTS_AT_ONCE = 50  # so many departments' parts are in memory
OF_ALL = ""  # the department of the report of all


class Told(NamedTuple):
    """A month as it was told, of a department or of all."""

    own: Amounts = NOTHING
    adjustments: Amounts = NOTHING


class Shared(NamedTuple):
    """What all reports of a month share.

    ``told`` and ``outcomes``: by month and department, OF_ALL for their sum. ``recorded``: the
    months of which there are totals. ``seen_import``: outcomes up to this import are in it.
    """

    month: date
    zone: str
    currency: str
    locale: str
    provisional: bool
    closed_at: datetime | None
    through: date | None
    seen_import: int
    departments: Mapping[str, Department]
    recorded: frozenset[date]
    told: Mapping[tuple[date, str], Told]
    outcomes: Mapping[tuple[date, str], Mapping[str, Decimal]]
    prices: tuple[Price, ...]
    peers: tuple[Peer, ...]
    comparison: Comparison


class MonthReading:
    """One look at a month; lives within its transaction."""

    def __init__(
        self, connection: PoolConnectionProxy[asyncpg.Record], queries: Queries, shared: Shared
    ) -> None:
        self._connection = connection
        self._queries = queries
        self.shared = shared

    def department(self, department_id: str) -> Department:
        """The department of this id. Raises UnknownNameError."""
        try:
            return self.shared.departments[department_id]
        except KeyError:
            raise UnknownNameError(
                f"no department is called {department_id!r}: quota-worker status lists them"
            ) from None

    def locale(self, department_id: str) -> str:
        """The language of its report: the department's own, else the deployment's."""
        found = self.shared.departments.get(department_id)
        return (found and found.locale) or self.shared.locale

    async def summary(self, department_id: str) -> Summary:
        """The figures of a department, or OF_ALL.

        Raises UnknownNameError, and InvalidInputError where what is recorded contradicts itself.
        """
        facts = await self._facts(department_id)
        try:
            gathered = await self._gathered(facts)
            return summarize(facts, self.shared.comparison, gathered)
        except ValueError as error:
            whose = "of all" if department_id == OF_ALL else f"of {department_id!r}"
            raise InvalidInputError(
                f"the report {whose} of {self.shared.month:%Y-%m} can't be computed: {error}"
            ) from error

    async def _facts(self, department_id: str) -> Facts:
        """What they are computed from, without parts and days. Raises UnknownNameError."""
        shared = self.shared
        department = None if department_id == OF_ALL else self.department(department_id)
        budgets = await self._rows("report_budgets", department and department.department_id)
        return Facts(
            month=shared.month,
            zone=shared.zone,
            currency=shared.currency,
            provisional=shared.provisional,
            department=department,
            parts=(),
            budgets=tuple(_budget(row) for row in budgets),
            outcomes=shared.outcomes.get((shared.month, department_id), {}),
            history=tuple(
                Month(
                    month=month,
                    own=shared.told.get((month, department_id), Told()).own,
                    adjustments=shared.told.get((month, department_id), Told()).adjustments,
                    outcomes=shared.outcomes.get((month, department_id), {}),
                )
                for month in sorted(shared.recorded - {shared.month})
            ),
            peers=shared.peers,
            prices=shared.prices,
            names={one.department_id: one.name for one in shared.departments.values()},
            through=shared.through,
        )

    async def _gathered(self, facts: Facts) -> Gathered:
        """Its parts, of some departments at a time, and days. Raises ValueError as summarize."""
        gathering = Gathering(facts)
        mine = facts.department and facts.department.department_id
        whose = [mine] if mine else [row[0] for row in await self._rows("report_owners")]
        for first in range(0, len(whose), DEPARTMENTS_AT_ONCE):
            some = whose[first : first + DEPARTMENTS_AT_ONCE]
            for row in await self._rows("report_parts", some):
                gathering.add_part(_part(row))
        for row in await self._rows("report_days", mine):
            gathering.add_day(Day(row["environment"], row["day"], _amounts(row)))
        return gathering.gathered()

    async def _rows(self, query: str, *of: object) -> Sequence[asyncpg.Record]:
        with translated():
            return await self._connection.fetch(self._queries[query], self.shared.month, *of)


class PostgresRoi:
    """Reads what reports are computed from; changes nothing."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    @asynccontextmanager
    async def reading(self, month: date) -> AsyncIterator[MonthReading]:
        """One look at a month, for as long as the block lasts.

        Raises UsageError for a month of which nothing is recorded.
        """
        async with self._pool.acquire() as connection:
            transaction = connection.transaction(isolation="repeatable_read", readonly=True)
            with translated():
                await transaction.start()
            try:
                shared = await self._shared(connection, month)
                yield MonthReading(connection, self._queries, shared)
            finally:
                await transaction.rollback()

    async def _shared(self, connection: PoolConnectionProxy[asyncpg.Record], month: date) -> Shared:
        first = month
        for _ in range(MONTHS_BEFORE):
            first = previous_month(first)

        async def rows(query: str, *arguments: object) -> Sequence[asyncpg.Record]:
            return await connection.fetch(self._queries[query], *arguments)

        with translated():
            frame = await connection.fetchrow(self._queries["report_frame"], month)
            if frame is None:
                raise RuntimeError("quota_settings has no row")
            if frame["rolled_at"] is None:
                raise UsageError(_unrecorded(month, frame["today"]))
            recorded = frozenset(row[0] for row in await rows("report_months", first, month))
            departments = {
                row["department_id"]: Department(
                    row["department_id"], row["name"] or row["department_id"], row["locale"]
                )
                for row in await rows("report_departments", first, month)
            }
            told = _told(await rows("report_totals", first, month))
            outcomes = _outcomes(await rows("report_outcomes", first, month))
            prices = tuple(Price(**dict(row)) for row in await rows("report_prices", month))
        before = previous_month(month)
        peers = tuple(
            Peer(
                department_id=one.department_id,
                name=one.name,
                now=told.get((month, one.department_id), Told()).own,
                before=told.get((before, one.department_id), Told()).own
                if before in recorded
                else None,
                outcomes_now=outcomes.get((month, one.department_id), {}),
                outcomes_before=outcomes.get((before, one.department_id), {}),
            )
            for one in departments.values()
        )
        return Shared(
            month=month,
            zone=frame["billing_zone"],
            currency=frame["currency"],
            locale=frame["locale"],
            provisional=frame["closed_at"] is None,
            closed_at=frame["closed_at"],
            # a month that was closed is over, whatever the clock says
            through=frame["today"]
            if frame["closed_at"] is None and month_of(frame["today"]) == month
            else None,
            seen_import=frame["seen_import"],
            departments=departments,
            recorded=recorded,
            told=told,
            outcomes=outcomes,
            prices=prices,
            peers=peers,
            comparison=compare(peers),
        )


def _unrecorded(month: date, today: date) -> str:
    if month > today:
        return f"{month:%Y-%m} has not begun yet: there is nothing to report"
    return (
        f"there are no totals of {month:%Y-%m}: quota-worker run roll_month makes those of any "
        "usage that it has, quota-worker months lists what there is"
    )


def _amounts(row: asyncpg.Record) -> Amounts:
    """The row's amounts; those that it lacks are 0."""
    return Amounts(**{name: int(row[name]) for name in AMOUNT_NAMES if name in row})


def _part(row: asyncpg.Record) -> Part:
    return Part(
        department_id=row["department_id"],
        environment=row["environment"],
        tenant_id=row["tenant_id"],
        model=row["model"],
        app=row["app"],
        belongs_to=row["belongs_to"],
        amounts=_amounts(row),
    )


def _budget(row: asyncpg.Record) -> Budget:
    cents = row["monthly_cost_cents"]
    return Budget(
        department_id=row["department_id"],
        environment=row["environment"],
        tokens=row["monthly_tokens"],
        cost_nanos=None if cents is None else cents * NANOS_PER_CENT,
        topup_tokens=int(row["topup_tokens"]),
        topup_cost_nanos=int(row["topup_cost_cents"]) * NANOS_PER_CENT,
    )


def _told(rows: Sequence[asyncpg.Record]) -> dict[tuple[date, str], Told]:
    """By month and department; OF_ALL is the sum of all, those without a department included."""
    sums: dict[tuple[date, str, bool], Amounts] = defaultdict(Amounts)
    for row in rows:
        amounts = _amounts(row)
        # what has no department is in the report of all alone
        for one in {row["department_id"], OF_ALL}:
            sums[row["month"], one, row["own"]] += amounts
    return {
        (month, one): Told(
            sums.get((month, one, True), NOTHING), sums.get((month, one, False), NOTHING)
        )
        for month, one, _ in list(sums)
    }


def _outcomes(rows: Sequence[asyncpg.Record]) -> dict[tuple[date, str], dict[str, Decimal]]:
    """By month and department; OF_ALL has each metric's sum over the departments."""
    found: dict[tuple[date, str], dict[str, Decimal]] = defaultdict(dict)
    for row in rows:
        month, metric, value = row["month"], row["metric"], row["value"]
        found[month, row["department_id"]][metric] = value
        of_all = found[month, OF_ALL]
        of_all[metric] = EXACT.add(of_all[metric], value) if metric in of_all else value
    return dict(found)
