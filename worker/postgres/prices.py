"""The price table: what `quota-worker price` reads and loads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime, time
    from decimal import Decimal

    import asyncpg

    from worker.postgres.queries import Queries
    from worker.prices.shape import PackagePrices, Price, Rate

MAX_LISTED: Final = 100_000
MAX_GROUPS: Final = 1000
_BATCH_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """What the table is measured in, and how full it is."""

    currency: str
    has_package: bool
    waiting: int


@dataclass(frozen=True, slots=True)
class PriceRow:
    """A row of the table; amounts per million tokens, `valid_from` None: always."""

    origin: str
    provider: str
    model: str
    processing: str
    valid_from: datetime | None
    from_time: time
    input_above: int
    currency: str
    input: Decimal | None
    cached_input: Decimal | None
    output: Decimal | None
    source: str
    loaded_at: datetime


@dataclass(frozen=True, slots=True)
class RateRow:
    """What one unit of `currency` costs in the billing currency, from that billing day on."""

    currency: str
    valid_from: date
    rate: Decimal
    loaded_at: datetime


@dataclass(frozen=True, slots=True)
class PriceAnswer:
    """What a usage costs, and from which row; `fault` as in `quota_unpriced`, or None."""

    fault: str | None
    origin: str | None
    provider: str | None
    model: str | None
    processing: str | None
    valid_from: datetime | None
    from_time: time | None
    input_above: int | None
    currency: str | None
    input: Decimal | None
    cached_input: Decimal | None
    output: Decimal | None
    source: str | None
    rate: Decimal | None
    rate_from: date | None
    billing_currency: str
    at: datetime
    cost_nanos: int | None


@dataclass(frozen=True, slots=True)
class UnpricedGroup:
    """Requests of one model that wait for a price; `reason` None: it is known by now."""

    model: str | None
    reason: str | None
    requests: int
    since: datetime
    in_tokens: int | None
    out_tokens: int | None
    first_admitted_at: datetime | None
    currency: str | None


class PostgresPrices:
    """`sql/queries/prices.sql`; each load is one transaction, and loads wait for each other."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries

    async def settings(self) -> PriceSettings:
        """The billing currency, and how many requests wait."""
        with translated():
            row = await self._connection.fetchrow(self._queries["price_settings"])
        if row is None:
            raise RuntimeError("quota_settings has no row")
        return PriceSettings(**dict(row))

    async def put_package(self, package: PackagePrices) -> None:
        """Replace everything that came from a package before. Idempotent."""
        with translated():
            async with self._connection.transaction():
                await self._connection.execute(self._queries["lock_prices"])
                for query in ("drop_rules", "drop_names"):
                    await self._connection.execute(self._queries[query])
                await self._replace("package", package.source, package.prices)
                await self._add("add_rules", [asdict(rule) for rule in package.rules])
                await self._add("add_names", [asdict(name) for name in package.names])

    async def put_file(self, source: str, prices: Sequence[Price]) -> None:
        """Replace every override by these. Idempotent."""
        with translated():
            async with self._connection.transaction():
                await self._connection.execute(self._queries["lock_prices"])
                await self._replace("file", source, prices)

    async def put_rates(self, rates: Sequence[Rate]) -> None:
        """Set these rates; those of other currencies and days stay. Idempotent."""
        rows = [
            {"currency": r.currency, "valid_from": r.valid_from, "rate": format(r.rate, "f")}
            for r in rates
        ]
        with translated():
            async with self._connection.transaction():
                await self._connection.execute(self._queries["lock_prices"])
                await self._add("put_rates", rows)

    async def rates(self, currency: str | None) -> list[RateRow]:
        """The rates of this currency, newest first; None: of all."""
        with translated():
            rows = await self._connection.fetch(self._queries["list_rates"], currency, MAX_LISTED)
        return [RateRow(**dict(row)) for row in rows]

    async def rows(self, model: str | None) -> list[PriceRow]:
        """The rows of models with this in their name, and of the one it means; None: all."""
        with translated():
            rows = await self._connection.fetch(self._queries["list_prices"], model, MAX_LISTED)
        return [PriceRow(**dict(row)) for row in rows]

    async def models(self) -> list[str]:
        """Every model's name, sorted."""
        with translated():
            rows = await self._connection.fetch(self._queries["price_models"], MAX_LISTED)
        return [row["model"] for row in rows]

    async def price_of(
        self, model: str, tokens: tuple[int, int, int], at: datetime | None
    ) -> PriceAnswer:
        """What (input, cached input, output) tokens cost; `at` None: now."""
        with translated():
            row = await self._connection.fetchrow(self._queries["price_of"], model, *tokens, at)
        if row is None:
            raise RuntimeError("quota_settings has no row")
        return PriceAnswer(**dict(row))

    async def unpriced(self) -> list[UnpricedGroup]:
        """What waits for a price, by model, most requests first, and why it still does."""
        with translated():
            rows = await self._connection.fetch(self._queries["list_unpriced"], MAX_GROUPS)
        return [UnpricedGroup(**dict(row)) for row in rows]

    async def _replace(self, origin: str, source: str, prices: Sequence[Price]) -> None:
        await self._connection.execute(self._queries["drop_prices"], origin)
        await self._add("add_prices", [price.as_row() for price in prices], origin, source)

    async def _add(self, query: str, rows: Sequence[dict[str, Any]], *before: str) -> None:
        for start in range(0, len(rows), _BATCH_ROWS):
            document = json.dumps(rows[start : start + _BATCH_ROWS])
            await self._connection.execute(self._queries[query], *before, document)
