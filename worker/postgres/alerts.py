"""What was told, and what people do about it: ``sql/queries/alerts.sql``."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from worker.alerts_report import AlertsReport, CrossingRow, DeliveryRow, GivenUp
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries

ALL_ALERTS = 2_147_483_647
SHOWN_GIVEN_UP = 10
_DELIVERY = tuple(field.name for field in fields(DeliveryRow))
_GIVEN_UP = tuple(field.name for field in fields(GivenUp))


class PostgresAlerts:
    """Each method reads in statements of their own, or changes in one.

    ``quiet``: JSON or None, ``served``: names of channels, both as of the configuration.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        queries: Queries,
        quiet: str | None,
        served: Collection[str],
    ) -> None:
        self._pool = pool
        self._queries = queries
        self._quiet = quiet
        self._served = served

    async def history(
        self, since: datetime | None, subject: str | None, state: str | None, limit: int | None
    ) -> AlertsReport:
        """The latest alerts with a message made since then, about the subject, in the state."""
        # one more than asked for says whether there are more
        count = ALL_ALERTS if limit is None else min(limit + 1, ALL_ALERTS)
        with translated():
            rows = await self._pool.fetch(self._queries["deliveries"], since, subject, state, count)
        keys = list(dict.fromkeys(row["message_key"] for row in rows))
        more = limit is not None and len(keys) > limit
        if more:
            rows = [row for row in rows if row["message_key"] != keys[-1]]
        return await self._report(rows, more=more)

    async def one(self, outbox_id: int) -> AlertsReport:
        """The alert that the message belongs to, with its crossings; unknown: no deliveries."""
        with translated():
            rows = await self._pool.fetch(self._queries["deliveries_of"], [outbox_id])
            crossings = (
                await self._pool.fetch(self._queries["crossings"], rows[0]["message_key"])
                if rows
                else []
            )
            digests = [row["request_key"] for row in rows if _is_digest(row)]
            sizes = (
                await self._pool.fetch(self._queries["digest_sizes"], digests) if digests else []
            )
        return await self._report(
            rows,
            crossings=tuple(CrossingRow(*row) for row in crossings),
            digest_sizes={row["request_key"]: row["messages"] for row in sizes},
        )

    async def of(self, outbox_ids: Sequence[int]) -> AlertsReport:
        """The alerts that the messages belong to."""
        with translated():
            rows = await self._pool.fetch(self._queries["deliveries_of"], list(outbox_ids))
        return await self._report(rows)

    async def zone(self) -> str:
        """The billing zone's name."""
        with translated():
            row = await self._pool.fetchrow(self._queries["alerts_clock"], None)
        if row is None:
            raise RuntimeError("quota_settings has no row")
        name: str = row["billing_zone"]
        return name

    async def retry(self, outbox_ids: Sequence[int], now: datetime | None) -> list[tuple[int, str]]:
        """Send them again, or now; each id's outcome as of quota_outbox_retry. All or none."""
        with translated():
            rows = await self._pool.fetch(self._queries["retry"], list(outbox_ids), now)
        return [(row["outbox_id"], row["outcome"]) for row in rows]

    async def ack(
        self, outbox_ids: Sequence[int], by: str, note: str | None, now: datetime | None
    ) -> list[tuple[int, str]]:
        """Acknowledge them; each id's outcome as of quota_outbox_ack. All or none."""
        with translated():
            rows = await self._pool.fetch(self._queries["ack"], list(outbox_ids), by, note, now)
        return [(row["outbox_id"], row["outcome"]) for row in rows]

    async def _report(
        self,
        rows: Sequence[asyncpg.Record],
        *,
        more: bool = False,
        crossings: tuple[CrossingRow, ...] = (),
        digest_sizes: dict[str, int] | None = None,
    ) -> AlertsReport:
        superseding = {row["superseded_by"] for row in rows if row["superseded_by"]}
        with translated():
            clock = await self._pool.fetchrow(self._queries["alerts_clock"], self._quiet)
            given_up = await self._pool.fetch(self._queries["unacknowledged"], SHOWN_GIVEN_UP)
            above = (
                await self._pool.fetch(self._queries["superseding"], list(superseding))
                if superseding
                else []
            )
        if clock is None:
            raise RuntimeError("quota_settings has no row")
        return AlertsReport(
            at=clock["at"],
            billing_zone=clock["billing_zone"],
            currency=clock["currency"],
            quiet_until=clock["quiet_until"],
            quiet_zone=clock["quiet_zone"],
            served=self._served,
            more=more,
            deliveries=tuple(DeliveryRow(*(row[name] for name in _DELIVERY)) for row in rows),
            unacknowledged=given_up[0]["messages"] if given_up else 0,
            given_up=tuple(GivenUp(*(row[name] for name in _GIVEN_UP)) for row in given_up),
            digest_sizes=digest_sizes or {},
            superseding={row["message_key"]: row["outbox_id"] for row in above},
            crossings=crossings,
        )


def _is_digest(row: asyncpg.Record) -> bool:
    return row["request_key"] is not None and row["request_key"] != row["dedupe_key"]
