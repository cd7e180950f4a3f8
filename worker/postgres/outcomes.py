"""Outcomes in the database: imports, each in one transaction, and what is in force."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.outcomes.shape import Import
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from datetime import date, datetime
    from decimal import Decimal

    import asyncpg

    from worker.outcomes.shape import Outcome
    from worker.postgres.queries import Queries

TIMEOUT_SECONDS: Final = 600.0
MAX_DEPARTMENTS: Final = 1_000_000
MAX_METRICS: Final = 1_000
MAX_LISTED: Final = 1_000_000
_COLUMNS: Final = ("line", "month", "department_id", "metric", "value")


@dataclass(frozen=True, slots=True)
class Frame:
    """The billing currency, the running month and the last one that is over."""

    currency: str
    month: date
    last_month: date


@dataclass(frozen=True, slots=True)
class Twice:
    """A row that says again what the one on ``first_line`` says; ``rows``: how many there are."""

    line: int
    first_line: int
    month: date
    department_id: str
    metric: str
    value: Decimal
    first_value: Decimal
    rows: int


@dataclass(frozen=True, slots=True)
class Group:
    """What a file has of one metric in one month; ``groups``: how many such there are."""

    month: date
    metric: str
    departments: int
    total: Decimal
    closed: bool
    reported: bool
    groups: int


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """A value, the import that brought it, and the one that changed or removed it, if any."""

    month: date
    department_id: str
    name: str | None
    metric: str
    value: Decimal
    import_id: int
    imported_at: datetime
    superseded_by: int | None
    superseded_at: datetime | None


@dataclass(frozen=True, slots=True)
class ImportRow:
    """An import as it was noted."""

    import_id: int
    imported_at: datetime
    imported_by: str
    file_name: str
    file_sha256: str
    rows: int
    added: int
    changed: int
    unchanged: int
    removed: int


class Draft:
    """A file on its way in; what it does is undone unless the transaction ends well."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries

    async def add(self, rows: Iterable[Outcome]) -> None:
        """Take the rows, one at a time, as they are read."""
        await self._connection.copy_records_to_table(
            "quota_outcome_drafts",
            records=(
                (row.line, row.month, row.department_id, row.metric, row.value) for row in rows
            ),
            columns=_COLUMNS,
            timeout=TIMEOUT_SECONDS,
        )
        await self._connection.execute(self._queries["settle_plans"])

    async def twice(self, limit: int) -> list[Twice]:
        """At most ``limit`` rows that say again what an earlier one says."""
        rows = await self._connection.fetch(self._queries["draft_twice"], limit)
        return [Twice(**dict(row)) for row in rows]

    async def groups(self, limit: int) -> list[Group]:
        """What was added, by month and metric, at most ``limit`` of them."""
        rows = await self._connection.fetch(self._queries["draft_groups"], limit)
        return [Group(**dict(row)) for row in rows]

    async def apply(self, file_name: str, sha256: str, *, keep_others: bool) -> Import:
        """Replace what the file's months and metrics have by what it has.

        ``keep_others``: values of departments that it doesn't name stay. Waits for other imports.
        """
        await self._connection.execute(self._queries["lock_outcomes"])
        noted = await self._connection.fetchrow(self._queries["add_import"], file_name, sha256)
        if noted is None:
            raise RuntimeError("an import was not noted")
        import_id, rows = noted["import_id"], noted["rows"]
        removed = 0 if keep_others else await self._count("supersede_removed", import_id)
        changed = await self._count("supersede_changed", import_id)
        written = await self._count("add_outcomes", import_id)
        counts = (written - changed, changed, rows - written, removed)
        await self._connection.execute(self._queries["note_import"], import_id, *counts)
        return Import(import_id, rows, *counts)

    async def removed(self, import_id: int, limit: int) -> list[tuple[date, str, str]]:
        """Month, metric and department of at most ``limit`` values that the import removed."""
        rows = await self._connection.fetch(self._queries["removed_outcomes"], import_id, limit)
        return [(row["month"], row["metric"], row["department_id"]) for row in rows]

    async def finish(self) -> None:
        """The last call: the drafts go."""
        await self._connection.execute(self._queries["drop_drafts"])

    async def _count(self, query: str, import_id: int) -> int:
        return int(await self._connection.fetchval(self._queries[query], import_id))


class PostgresOutcomes:
    """`sql/queries/outcomes.sql`."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries

    async def frame(self) -> Frame:
        """What outcomes are measured in, and where in time the ledger is."""
        with translated():
            row = await self._connection.fetchrow(self._queries["outcome_frame"])
        if row is None:
            raise RuntimeError("quota_settings has no row")
        return Frame(**dict(row))

    async def departments(self) -> dict[str, str | None]:
        """Names by id, sorted by id."""
        with translated():
            rows = await self._connection.fetch(
                self._queries["outcome_departments"], MAX_DEPARTMENTS
            )
        return {row["department_id"]: row["name"] for row in rows}

    async def metrics(self) -> list[str]:
        """Each metric that has values, sorted."""
        with translated():
            rows = await self._connection.fetch(self._queries["outcome_metrics"], MAX_METRICS)
        return [row["metric"] for row in rows]

    @asynccontextmanager
    async def drafting(self, *, dry_run: bool) -> AsyncIterator[Draft]:
        """One transaction: kept where the block ends without an error, unless ``dry_run``."""
        with translated():
            transaction = self._connection.transaction()
            await transaction.start()
            try:
                yield Draft(self._connection, self._queries)
            except BaseException:
                await transaction.rollback()
                raise
            if dry_run:
                await transaction.rollback()
            else:
                await transaction.commit()

    async def rows(
        self, month: date | None, department: str | None, *, history: bool, limit: int
    ) -> Sequence[OutcomeRow]:
        """Values in force, the newest month first; with ``history`` all that ever were."""
        with translated():
            rows = await self._connection.fetch(
                self._queries["list_outcomes"], month, department, history, limit
            )
        return [OutcomeRow(**dict(row)) for row in rows]

    async def imports(self, limit: int) -> Sequence[ImportRow]:
        """The latest imports, the newest first."""
        with translated():
            rows = await self._connection.fetch(self._queries["list_imports"], limit)
        return [ImportRow(**dict(row)) for row in rows]

    async def values_of(self, month: date) -> dict[tuple[str, str], Decimal]:
        """The month's values in force by department and metric."""
        with translated():
            rows = await self._connection.fetch(self._queries["outcomes_of_month"], month)
        return {(row["department_id"], row["metric"]): row["value"] for row in rows}
