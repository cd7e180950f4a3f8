"""The port ``Watch`` on sql/queries/watch.sql."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.models import PacesNoted, WatchTold
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries
    from worker.settings import WatchSettings


class PostgresWatch:
    """Tells burning caps and runaways; ``routes`` says whom, as quota_route reads it."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        queries: Queries,
        routes: str,
        settings: WatchSettings,
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._routes = routes
        self._settings = settings

    async def note_hours(self, limit: int, now: datetime | None) -> PacesNoted:
        """Note at most ``limit`` complete hours, oldest first; none where it is switched off."""
        if self._settings.off:
            return PacesNoted(0, 0)
        with translated():
            row = await self._pool.fetchrow(self._queries["note_paces"], now, limit)
        if row is None:
            raise RuntimeError("quota_paces_note returned no row")
        return PacesNoted(row["hours"], row["rows"])

    async def tell(self, limit: int, now: datetime | None) -> WatchTold:
        """Tell at most ``limit`` burning caps and as many runaways."""
        return await self._pass(limit, now, dry=False)

    async def count_untold(self, limit: int, now: datetime | None) -> WatchTold:
        """What ``tell`` would tell now; changes nothing."""
        return await self._pass(limit, now, dry=True)

    async def _pass(self, limit: int, now: datetime | None, *, dry: bool) -> WatchTold:
        settings = self._settings
        if settings.off:
            return WatchTold(0, 0, 0)
        with translated():
            row = await self._pool.fetchrow(
                self._queries["watch"],
                now,
                self._routes,
                settings.day_hours,
                settings.month_hours,
                settings.burn_times,
                settings.burn_requests,
                settings.usual_times,
                settings.min_requests,
                limit,
                dry,
            )
        if row is None:
            raise RuntimeError("quota_watch returned no row")
        return WatchTold(row["burns"], row["runaways"], row["messages"])
