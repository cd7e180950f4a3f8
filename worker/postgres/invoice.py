"""The ledger's side of an invoice check. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.invoice.figures import NOTHING, Figures, LedgerCell, LedgerMonth, Part
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date
    from decimal import Decimal

    import asyncpg

    from worker.postgres.queries import Queries

# A month of a hundred million requests is read in minutes.
MONTH_TIMEOUT_SECONDS: Final = 900.0
MAX_CELLS: Final = 200_000
_PARTS: Final = ("stale", "unreserved", "unpriced", "held", "dropped")


class PostgresInvoice:
    """``sql/queries/invoice.sql``; a month is read in one read-only transaction."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries) -> None:
        self._pool = pool
        self._queries = queries

    async def billing_rules(self) -> tuple[str, str]:
        """The billing zone and currency."""
        with translated():
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

    async def month(self, month: date, wanted: Callable[[str], bool] | None) -> LedgerMonth:
        """A month by billing day and model: of the models that are wanted, None: all, and legacy.

        What has no model is left out where only some models are wanted. Raises UsageError for
        more days and models than an invoice can have.
        """
        queries = self._queries
        with translated():
            async with (
                self._pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                rules = await connection.fetchrow(queries["billing_rules"])
                rows = await connection.fetch(
                    queries["ledger_cells"], month, MAX_CELLS + 1, timeout=MONTH_TIMEOUT_SECONDS
                )
                days = await connection.fetch(
                    queries["ledger_days"], month, timeout=MONTH_TIMEOUT_SECONDS
                )
                cells = tuple(_cell(row) for row in rows)
                names = None
                if wanted is not None:
                    names = sorted({cell.model for cell in cells if wanted(cell.model)})
                times = await connection.fetch(
                    queries["ledger_times"], month, names, timeout=MONTH_TIMEOUT_SECONDS
                )
        if rules is None:
            raise RuntimeError("quota_settings has no row")
        if len(rows) > MAX_CELLS:
            raise UsageError(
                f"the ledger's {month:%Y-%m} has more than {MAX_CELLS:,} days and models: the names"
                " that gateways give as p_model are no models"
            )
        legacy = {row["day"]: _figures(row, "legacy") for row in days}
        unlisted = {row["day"]: _figures(row, "used") - legacy[row["day"]] for row in days}
        for cell in cells:
            known = cell.charged.figures + cell.held.figures
            unlisted[cell.day] = unlisted.get(cell.day, NOTHING) - Figures(
                known.in_tokens, 0, known.out_tokens, known.cost_nanos
            )
        everything = names is None
        return LedgerMonth(
            month=month,
            zone=rules["billing_zone"],
            currency=rules["currency"],
            cells=cells if names is None else tuple(c for c in cells if c.model in set(names)),
            legacy=_told(legacy) if everything else {},
            unlisted=_told(unlisted) if everything else {},
            times=tuple((row["at"], _figures(row, "charged", cached=False)) for row in times),
        )


def _cell(row: asyncpg.Record) -> LedgerCell:
    parts = {name: Part(row[name], _figures(row, name)) for name in _PARTS}
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
