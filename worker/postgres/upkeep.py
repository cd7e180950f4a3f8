"""The port ``Upkeep`` on sql/queries/upkeep.sql."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.models import UpkeepBatch
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries
    from worker.settings import UpkeepSettings


class PostgresUpkeep:
    """Removes old rows in batches; ``settings`` say how long each kind is kept."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        queries: Queries,
        settings: UpkeepSettings,
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._settings = settings

    @property
    def off(self) -> bool:
        """Whether nothing is to be removed at all."""
        return self._settings.off

    async def remove(self, table: str, keeps: str, limit: int, now: datetime | None) -> UpkeepBatch:
        """Remove at most ``limit`` rows of the next blocks."""
        with translated():
            row = await self._pool.fetchrow(
                self._queries["upkeep"], table, self._days(keeps), now, limit
            )
        if row is None:
            raise RuntimeError("quota_upkeep returned no row")
        return UpkeepBatch(row["removed"], row["done"])

    async def count(self, table: str, keeps: str, limit: int, now: datetime | None) -> int:
        """How many rows ``remove`` would remove, counted to ``limit``; changes nothing."""
        with translated():
            count: int = await self._pool.fetchval(
                self._queries["upkeep_count"], table, self._days(keeps), now, limit
            )
        return count

    def _days(self, keeps: str) -> int:
        days: int = getattr(self._settings, keeps)
        return days
