"""Reads for ``quota-worker doctor``: ``DoctorReads``. Changes nothing; each is bounded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from worker.doctor.facts import (
    BacklogFacts,
    ChannelFacts,
    DriftFacts,
    JobFacts,
    OddFacts,
    OutboxFacts,
    RequestFacts,
    RightsFacts,
    SchemaFacts,
    ServerFacts,
    SourceFacts,
    SubjectGroup,
    TenantFacts,
    TickFacts,
    ZoneFacts,
)
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from worker.postgres.queries import Queries

READ_SECONDS: Final = 5.0
LOCK_SECONDS: Final = 2.0
# The server gives up first, and says why.
MARGIN_SECONDS: Final = 0.5
ODD_ROWS: Final = 5
OWNERLESS_ROWS: Final = 1_000
GROUPS_MAX: Final = 10_000


class PostgresDoctor:
    """``sql/queries/doctor.sql``; each read one transaction, at most READ_SECONDS."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries

    async def server(self) -> ServerFacts:
        """The server and our session on it."""
        (row,) = await self._rows("doctor_server")
        return ServerFacts(
            at=row["at"],
            version_number=row["version_number"],
            version=row["version"],
            database=row["database"],
            user_name=row["user_name"],
            standby=row["standby"],
            schema_name=row["schema_name"],
            connections=row["connections"],
            connections_max=row["connections_max"],
            settings=json.loads(row["settings"]),
            careless_users=tuple(row["careless_users"]),
            pooled=row["process"] != self._connection.get_server_pid(),
        )

    async def schema(self) -> SchemaFacts | None:
        """What migrate left; None: it never ran here."""
        (ledger,) = await self._rows("doctor_ledger")
        if not ledger["migrated"]:
            return None
        (row,) = await self._rows("doctor_schema")
        functions = (one.partition(" ") for one in row["functions"])
        return SchemaFacts(
            tuple(row["migrations"]), frozenset((name, body) for name, _, body in functions)
        )

    async def rights(self) -> RightsFacts:
        """What this user and quota_worker lack."""
        (row,) = await self._rows("doctor_rights")
        return RightsFacts(
            tuple(row["lacks"]),
            tuple(row["role_lacks"]),
            tuple(row["missing_roles"]),
            row["is_member"],
        )

    async def zone(self) -> ZoneFacts:
        """The billing zone."""
        (row,) = await self._rows("doctor_settings")
        return ZoneFacts(*row)

    async def offsets(self, zone: str, instants: Sequence[datetime]) -> tuple[int, ...]:
        """The zone's offset in seconds at each instant. DatabaseError: no such zone here."""
        rows = await self._rows("doctor_offsets", zone, list(instants))
        return tuple(row["seconds"] for row in rows)

    async def ticks(self) -> TickFacts:
        """When a tick was last at work."""
        (row,) = await self._rows("doctor_ticks")
        return TickFacts(*row)

    async def jobs(self, names: Sequence[str]) -> tuple[JobFacts, ...]:
        """How each job went last."""
        return tuple(JobFacts(*row) for row in await self._rows("doctor_jobs", list(names)))

    async def outbox(self, quiet: str | None) -> tuple[OutboxFacts, ...]:
        """What waits and what was given up, by channel."""
        return tuple(OutboxFacts(*row) for row in await self._rows("doctor_outbox", quiet))

    async def channels(self) -> tuple[ChannelFacts, ...]:
        """What became of each channel's latest messages."""
        return tuple(ChannelFacts(*row) for row in await self._rows("doctor_channels"))

    async def tenants(self) -> TenantFacts:
        """How many tenants there are."""
        (row,) = await self._rows("doctor_tenants")
        return TenantFacts(*row)

    async def odd(self, query: str) -> OddFacts:
        """The first rows that the query finds, and how many there are."""
        found = await self._rows(query, ODD_ROWS)
        rows = [{"environment": "", "fault": ""} | dict(row) for row in found]
        return OddFacts(
            tuple((row["subject"], row["environment"], row["fault"]) for row in rows),
            rows[0]["found"] if rows else 0,
        )

    async def ownerless(self) -> tuple[tuple[str, str], ...]:
        """Departments with a budget and no address."""
        rows = await self._rows("doctor_ownerless", OWNERLESS_ROWS)
        return tuple((row["department_id"], row["environment"]) for row in rows)

    async def subjects(
        self, tenants: Sequence[str], departments: Sequence[str]
    ) -> tuple[SubjectGroup, ...]:
        """The subjects by what routes tell them apart by."""
        rows = await self._rows("doctor_subjects", list(tenants), list(departments), GROUPS_MAX)
        return tuple(SubjectGroup(*row) for row in rows)

    async def requests(self) -> RequestFacts:
        """The requests of the last 24 hours."""
        (row,) = await self._rows("doctor_requests")
        return RequestFacts(*row)

    async def backlog(self, wait_seconds: float) -> BacklogFacts:
        """What waits; overdue is what is so for ``wait_seconds``."""
        (row,) = await self._rows("doctor_backlog", wait_seconds)
        return BacklogFacts(*row)

    async def sources(self) -> tuple[SourceFacts, ...]:
        """What was set aside of the sources' answers."""
        return tuple(SourceFacts(*row) for row in await self._rows("doctor_sources"))

    async def drift(self) -> DriftFacts:
        """A cheap look at the counters."""
        (row,) = await self._rows("doctor_drift")
        return DriftFacts(*row)

    async def _rows(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        limits = (READ_SECONDS - MARGIN_SECONDS, LOCK_SECONDS)
        bounds = [f"{seconds * 1000:.0f}" for seconds in limits]
        with translated():
            async with self._connection.transaction(readonly=True):
                await self._connection.fetchrow(self._queries["doctor_bounds"], *bounds)
                return await self._connection.fetch(self._queries[query], *arguments)
