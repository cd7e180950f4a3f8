"""Limits in the database: read in pages, changed in one transaction, blocked, and recorded."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from worker.errors import LockTimeoutError
from worker.limits.comparing import Found, Surroundings, judge, with_budgets
from worker.limits.rows import Block, ChangeRow, Clock, Limits
from worker.limits.shape import BUDGET, DEPARTMENT, TENANT, Key, Row
from worker.postgres.errors import translated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import date, datetime

    import asyncpg

    from worker.limits.comparing import Change, Verdict
    from worker.limits.rows import Topup
    from worker.limits.shape import Wanted
    from worker.postgres.queries import Queries

TIMEOUT_SECONDS: Final = 600.0
PAGE_ROWS: Final = 2_000
PUT_ROWS: Final = 1_000
MAX_TENANTS_OF: Final = 10_000
MAX_ADVICE: Final = 5_000
# A block waits for its subject's lock behind a storm of requests, 2 s at a time.
LOCK_TRIES: Final = 5


class PostgresLimits:
    """`sql/queries/limits.sql`."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries

    async def clock(self) -> Clock:
        """Now."""
        with translated():
            row = await self._connection.fetchrow(self._queries["clock"])
        if row is None:
            raise RuntimeError("quota_settings has no row")
        return Clock(**dict(row))

    async def pages(self, names: Sequence[str] | None) -> AsyncIterator[list[Limits]]:
        """All rows of one moment, or those of these names: departments, budgets, tenants."""
        reads = (
            (DEPARTMENT, "departments_page"),
            (BUDGET, "budgets_page"),
            (TENANT, "tenants_page"),
        )
        with translated():
            async with self._connection.transaction():
                await self._connection.execute(self._queries["one_snapshot"])
                for kind, query in reads:
                    after: tuple[str | None, str | None] = (None, None)
                    while True:
                        values: list[Any] = [after[0], PAGE_ROWS, names]
                        if kind == BUDGET:
                            values.append(after[1])
                        rows = await self._connection.fetch(self._queries[query], *values)
                        if rows:
                            yield [_limits(kind, row) for row in rows]
                        if len(rows) < PAGE_ROWS:
                            break
                        after = (rows[-1]["subject"], rows[-1]["environment"])

    @asynccontextmanager
    async def applying(self, wanted: Sequence[Wanted]) -> AsyncIterator[Applying]:
        """What the file changes, in a transaction that ends with the block; nobody else applies.

        Nothing is kept unless `put` was called.
        """
        with translated():
            transaction = self._connection.transaction()
            await transaction.start()
            kept = False
            try:
                await self._connection.execute(self._queries["begin_apply"])
                applying = Applying(self._connection, self._queries)
                await applying.look(wanted)
                yield applying
                kept = applying.is_put
            finally:
                if kept:
                    await transaction.commit()
                elif not self._connection.is_closed():
                    await transaction.rollback()

    async def kinds(self, name: str) -> tuple[bool, bool]:
        """Whether a tenant, and whether a department is called so."""
        with translated():
            row = await self._connection.fetchrow(self._queries["kinds_of"], name)
        return (row["is_tenant"], row["is_department"]) if row else (False, False)

    async def names_near(self, name: str) -> list[str]:
        """Names that may be meant."""
        with translated():
            rows = await self._connection.fetch(self._queries["names_near"], name)
        return [row["name"] for row in rows]

    async def block(
        self, kind: str, name: str, seconds: int, by: str, reason: str
    ) -> tuple[str, datetime, datetime | None]:
        """The outcome, the block's end, and that of the one before. Raises LockTimeoutError."""
        row = await self._patient("block", kind, name, seconds, by, reason)
        return row["outcome"], row["blocked_until"], row["former_until"]

    async def unblock(
        self, kind: str, name: str, by: str, reason: str | None
    ) -> tuple[str, datetime | None]:
        """The outcome, and the end that the block would have had."""
        row = await self._patient("unblock", kind, name, by, reason)
        return row["outcome"], row["former_until"]

    async def _patient(self, query: str, *values: object) -> asyncpg.Record:
        for attempt in range(1, LOCK_TRIES + 1):
            try:
                with translated():
                    row = await self._connection.fetchrow(self._queries[query], *values)
            except LockTimeoutError:
                if attempt == LOCK_TRIES:
                    raise
            else:
                if row is not None:
                    return row
        raise RuntimeError(f"{query} answered nothing")

    async def blocks(self, limit: int, name: str | None = None) -> list[Block]:
        """Those in force, the one that ends last first."""
        with translated():
            rows = await self._connection.fetch(self._queries["blocks_in_force"], limit, name)
        return [
            Block(
                Key(row["subject_kind"], row["subject"]),
                row["blocked_at"],
                row["blocked_until"],
                row["blocked_by"],
                row["reason"],
            )
            for row in rows
        ]

    async def history(self, limit: int, name: str | None) -> list[ChangeRow]:
        """The latest changes first."""
        with translated():
            rows = await self._connection.fetch(self._queries["changes"], limit, name)
        return [_change(row) for row in rows]

    async def topup(self, one: Topup, by: str) -> str:
        """`added`, or `replayed` where the key was used for the same before."""
        with translated():
            values = (one.department, one.environment, one.tokens, one.cost_cents, one.key)
            more = (one.approved_by, one.reason, one.expires_at, by)
            return str(await self._connection.fetchval(self._queries["topup"], *values, *more))

    async def day_end(self, day: date) -> datetime:
        """The first instant after a day of the billing zone."""
        with translated():
            at: datetime = await self._connection.fetchval(self._queries["day_end"], day)
        return at

    async def local_instant(self, naive: datetime) -> datetime:
        """A time of the billing zone's clocks."""
        with translated():
            at: datetime = await self._connection.fetchval(self._queries["local_instant"], naive)
        return at


class Applying:
    """A file on its way into the database, in a transaction of `PostgresLimits`."""

    verdict: Verdict

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries
        self.is_put = False

    async def look(self, wanted: Sequence[Wanted]) -> None:
        """Read and lock the rows that the file names, and compare."""
        fetch = self._connection.fetch
        going = [w.key.subject for w in wanted if w.is_removed and w.key.kind == DEPARTMENT]
        tenants: list[tuple[str, str]] = []
        if going:
            budgets = await fetch(self._queries["budgets_of"], going)
            wanted = with_budgets(wanted, [(b["department_id"], b["environment"]) for b in budgets])
            members = await fetch(self._queries["tenants_of"], going, MAX_TENANTS_OF)
            tenants = [(one["department_id"], one["tenant_id"]) for one in members]
        # in one order, so that no two wait for each other in a ring
        wanted = sorted(wanted, key=lambda one: one.key.order)
        found: dict[Key, Found] = {}
        for start in range(0, len(wanted), PUT_ROWS):
            keys = [one.key for one in wanted[start : start + PUT_ROWS]]
            rows = await fetch(
                self._queries["limits_rows"],
                [key.kind for key in keys],
                [key.subject for key in keys],
                [key.environment for key in keys],
            )
            for key, row in zip(keys, rows, strict=True):
                current, recorded = _row(row["row"]), _row(row["recorded"])
                # the usual case, of which one copy is enough
                recorded = current if recorded == current else recorded
                found[key] = Found(current, recorded, row["recorded_at"])
        named = {d for w in wanted if isinstance(d := w.columns.get("department_id"), str)}
        known = await fetch(self._queries["known_departments"], sorted(named))
        departments = {row["department_id"] for row in known}
        some: list[str] = []
        if named - departments:
            advice = await fetch(self._queries["some_departments"], MAX_ADVICE)
            some = [row["department_id"] for row in advice]
        self.verdict = judge(wanted, found, Surroundings(departments, some, tenants))

    async def put(self, by: str, file_name: str, file_sha256: str) -> None:
        """Carry the changes out, and record them and what others changed meanwhile."""
        verdict = self.verdict
        changed = {one.key for one in verdict.changes}
        documents = [one.document() for one in _in_order(verdict.changes)]
        documents += [
            {"kind": k.kind, "subject": k.subject, "environment": k.environment}
            for k in (one.key for one in verdict.drifts)
            if k not in changed
        ]
        for start in range(0, len(documents), PUT_ROWS):
            part = json.dumps(documents[start : start + PUT_ROWS])
            await self._connection.execute(
                self._queries["put_limits"], part, by, file_name, file_sha256
            )
        self.is_put = True


def _in_order(changes: Sequence[Change]) -> list[Change]:
    """What goes last of all: tenants before the department that they leave."""
    return [one for one in changes if not one.is_removed] + [
        one for one in reversed(changes) if one.is_removed
    ]


def _row(text: str | None) -> Row | None:
    return None if text is None else json.loads(text)


def _limits(kind: str, row: asyncpg.Record) -> Limits:
    key = Key(kind, row["subject"], row["environment"])
    block = None
    if row["blocked_until"] is not None:
        block = Block(
            key, row["blocked_at"], row["blocked_until"], row["blocked_by"], row["reason"]
        )
    return Limits(key, json.loads(row["row"]), block)


def _change(row: asyncpg.Record) -> ChangeRow:
    values = dict(row)
    key = Key(values.pop("subject_kind"), values.pop("subject"), values.pop("environment"))
    values["before"], values["after"] = _row(values["before"]), _row(values["after"])
    return ChangeRow(key=key, **values)
