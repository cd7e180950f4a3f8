"""The ledger's side of an invoice check. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.errors import SchemaMissingError, UsageError
from worker.invoice.figures import (
    NOTHING,
    PARTS,
    Figures,
    LedgerCell,
    LedgerMonth,
    Part,
    total,
)
from worker.invoice.zones import month_starts
from worker.periods import load_zone, month_of
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date, datetime
    from decimal import Decimal
    from zoneinfo import ZoneInfo

    import asyncpg

    from worker.postgres.queries import Queries

# A month of a hundred million requests is read in minutes.
MONTH_TIMEOUT_SECONDS: Final = 900.0
MAX_CELLS: Final = 200_000


class PostgresInvoice:
    """``sql/queries/invoice.sql``; a month is read in one read-only transaction."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        queries: Queries,
        migrations: Sequence[str] = (),
    ) -> None:
        """``migrations``: the names of those that the database must have."""
        self._pool = pool
        self._queries = queries
        self._migrations = migrations

    async def billing_rules(self) -> tuple[str, str]:
        """The billing zone and currency.

        Raises SchemaMissingError for a database that lacks a migration: its tables may be read,
        but not everything in them is as it is taken to be.
        """
        with translated():
            lost = await self._pool.fetch(self._queries["lost_migrations"], list(self._migrations))
            if lost:
                raise SchemaMissingError(
                    f"the database lacks the migration {lost[0]['name']}"
                    f" ({SchemaMissingError.default_message()})"
                )
            row = await self._pool.fetchrow(self._queries["billing_rules"])
        if row is None:
            raise RuntimeError("quota_settings has no row")
        return row["billing_zone"], row["currency"]

    async def rates(
        self, currencies: Sequence[str], month: date
    ) -> dict[str, list[tuple[date, Decimal]]]:
        """Each currency's rates to the billing currency, by the day from which they count."""
        found: dict[str, list[tuple[date, Decimal]]] = {}
        if not currencies:
            return found
        with translated():
            rows = await self._pool.fetch(self._queries["currency_rates"], list(currencies), month)
        for row in rows:
            found.setdefault(row["currency"], []).append((row["valid_from"], row["rate"]))
        return found

    async def month(
        self,
        month: date,
        chosen: Callable[[set[str]], Sequence[str]] | None,
        zone: ZoneInfo | None = None,
    ) -> LedgerMonth:
        """A month by day and model: of the models chosen out of all, None: all, and legacy.

        ``zone``: by its days, None: by billing days. What has no model is left out where only
        some models are chosen. Raises UsageError for a month whose requests upkeep removed, and
        for more days and models than an invoice can have.
        """
        queries = self._queries
        with translated():
            async with (
                self._pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                rules = await connection.fetchrow(queries["billing_rules"])
                if rules is None:
                    raise RuntimeError("quota_settings has no row")
                removed = await connection.fetchval(queries["requests_removed"], month)
                if removed is not None:
                    raise UsageError(
                        f"the requests of {month:%Y-%m} are gone: upkeep has removed them since"
                        f" {removed:%Y-%m-%d}; where invoices are compared later, set request_days"
                        " in [upkeep]"
                    )
                starts = _other_starts(month, zone, rules["billing_zone"])
                # a day of another zone has parts of two billing days
                most = MAX_CELLS if starts is None else 2 * MAX_CELLS
                rows = await connection.fetch(
                    queries["ledger_cells"], month, most + 1, starts, timeout=MONTH_TIMEOUT_SECONDS
                )
                days = await connection.fetch(
                    queries["ledger_days"], month, timeout=MONTH_TIMEOUT_SECONDS
                )
                names = None
                if chosen is not None:
                    names = list(chosen({row["model"] for row in rows}))
                times = await connection.fetch(
                    queries["ledger_times"], month, names, timeout=MONTH_TIMEOUT_SECONDS
                )
        if len(rows) > most:
            raise UsageError(
                f"the ledger's {month:%Y-%m} has more than {MAX_CELLS:,} days and models: the names"
                " that gateways give as p_model are no models"
            )
        legacy = {row["day"]: _figures(row, "legacy") for row in days}
        unlisted = {row["day"]: _figures(row, "used") - legacy[row["day"]] for row in days}
        cells: dict[tuple[date, str], LedgerCell] = {}
        own = NOTHING
        for row in rows:
            cell = _cell(row)
            place, counts = (cell.day, cell.model), names is None or cell.model in names
            if month_of(cell.day) == month and counts:
                cells[place] = cells[place] + cell if place in cells else cell
            if month_of(row["billed"]) != month:
                continue
            known = cell.charged.figures + cell.held.figures
            unlisted[row["billed"]] = unlisted.get(row["billed"], NOTHING) - Figures(
                known.in_tokens, 0, known.out_tokens, known.cost_nanos
            )
            own += cell.charged.figures if counts else NOTHING
        everything = names is None
        without = (*legacy.values(), *unlisted.values()) if everything else ()
        return LedgerMonth(
            month=month,
            zone=rules["billing_zone"],
            currency=rules["currency"],
            cells=tuple(cells.values()),
            legacy=_told(legacy) if everything else {},
            unlisted=_told(unlisted) if everything else {},
            times=tuple((row["at"], _figures(row, "charged", cached=False)) for row in times),
            days_zone=None if starts is None or zone is None else zone.key,
            own=None if starts is None else own + total(without),
        )


def _other_starts(month: date, zone: ZoneInfo | None, billing: str) -> list[datetime] | None:
    """When the days of ``zone`` begin; None: when the billing days do."""
    if zone is None:
        return None
    starts = month_starts(month, zone)
    return None if starts == month_starts(month, load_zone(billing)) else starts


def _cell(row: asyncpg.Record) -> LedgerCell:
    parts = {name: Part(row[name], _figures(row, name)) for name in PARTS}
    charged = Part(row["charged"], _figures(row, "charged", cached=True))
    return LedgerCell(row["day"], row["model"], charged, **parts)


def _figures(row: asyncpg.Record, name: str, *, cached: bool = False) -> Figures:
    return Figures(
        int(row[f"{name}_in"] or 0),
        int(row[f"{name}_cached"] or 0) if cached else 0,
        int(row[f"{name}_out"] or 0),
        int(row[f"{name}_cost"] or 0),
    )


def _told(days: dict[date, Figures]) -> dict[date, Figures]:
    return {day: figures for day, figures in days.items() if figures != NOTHING}
