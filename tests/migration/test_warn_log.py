"""A quota_warn_log that somebody made from the tutorial keeps its rows and its programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from acceptance.warnings_world import World
from worker.assets import Assets
from worker.errors import DatabaseError
from worker.postgres.migrate import Migrator

if TYPE_CHECKING:
    from conftest import NewDatabase

OLD_TABLES = {
    "one row a day": (
        """CREATE TABLE quota_warn_log (tenant_id text NOT NULL, period date NOT NULL,
            warned_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (tenant_id, period))""",
        """INSERT INTO quota_warn_log (tenant_id, period) VALUES ('old', '2026-05-15')
            ON CONFLICT (tenant_id, period) DO NOTHING""",
    ),
    "by dimension and threshold": (
        """CREATE TABLE quota_warn_log (id bigserial PRIMARY KEY, tenant_id text NOT NULL,
            period date NOT NULL, dimension text NOT NULL, threshold int NOT NULL, state text,
            pct numeric NOT NULL, CONSTRAINT once UNIQUE (tenant_id, period, dimension, threshold))""",
        """INSERT INTO quota_warn_log (tenant_id, period, dimension, threshold, pct, state)
            VALUES ('old', '2026-05-15', 'completions', 80, 82.0, 'whatever')
            ON CONFLICT ON CONSTRAINT once DO NOTHING""",
    ),
    "without a key": (
        "CREATE TABLE quota_warn_log (tenant_id varchar(64) NOT NULL, message text NOT NULL)",
        "INSERT INTO quota_warn_log VALUES ('old', 'at 82 %')",
    ),
}


@pytest.mark.parametrize("shape", OLD_TABLES)
async def test_an_older_table_is_taken_over(new_database: NewDatabase, shape: str) -> None:
    create, insert = OLD_TABLES[shape]
    conn: asyncpg.Connection[Any] = await asyncpg.connect(
        await new_database(), statement_cache_size=0
    )
    try:
        await conn.execute(create)
        await conn.execute(insert)
        before = await conn.fetch("SELECT * FROM quota_warn_log")
        for _ in range(2):
            await Migrator(conn, Assets()).migrate()
        world = World(conn)
        for name in "ab":
            await world.tenant(name, daily_completions=10)
            await world.use(10, name)
        assert await world.warn() == (4, 2, 2, 0)
        assert await world.warn() == (0, 0, 0, 0)
        # its own program goes on, and its rows are as they were
        await conn.execute(insert)
        columns = ", ".join(before[0].keys())
        rows = await conn.fetch(f"SELECT {columns} FROM quota_warn_log WHERE subject_kind IS NULL")
        assert rows[0] == before[0]
        assert len(rows) == (2 if shape == "without a key" else 1)
        assert await world.warn() == (0, 0, 0, 0)
    finally:
        await conn.close()


CREATE = "CREATE TABLE quota_warn_log (tenant_id text, "
REFUSED = {
    "a unique constraint on a column like ours": (
        CREATE + "subject text, CONSTRAINT one_each UNIQUE (subject))",
        "unique constraint one_each, .*DROP CONSTRAINT one_each",
    ),
    "a primary key on a column like ours": (
        CREATE + "subject text PRIMARY KEY)",
        "unique constraint quota_warn_log_pkey,",
    ),
    "a unique index": (
        CREATE + "dimension text, threshold int);"
        'CREATE UNIQUE INDEX "One" ON quota_warn_log (dimension, threshold)',
        'unique index One, .*DROP INDEX "One"',
    ),
    "an expression": (
        CREATE + "x int); CREATE UNIQUE INDEX e ON quota_warn_log (coalesce(tenant_id, ''))",
        "unique index e,",
    ),
    "NULLs that are alike": (
        CREATE + "CONSTRAINT alike UNIQUE NULLS NOT DISTINCT (tenant_id))",
        "unique constraint alike,",
    ),
    "a constant default": (
        CREATE + "kind text DEFAULT 'warn', subject text, CONSTRAINT k UNIQUE (kind, subject))",
        "unique constraint k,",
    ),
    "one time for all rows of a pass": (
        CREATE + "warned_at timestamptz DEFAULT now(), CONSTRAINT w UNIQUE (warned_at))",
        "unique constraint w,",
    ),
    "a column of another type": (
        CREATE + "state int)",
        "column state of its own, integer where quota-worker needs text: rename",
    ),
    "a shorter column": (
        CREATE + "subject varchar(8))",
        r"column subject of its own, character varying\(8\) where quota-worker needs text",
    ),
    "a computed column": (
        CREATE + "subject text GENERATED ALWAYS AS (lower(tenant_id)) STORED)",
        "column subject of its own, generated where",
    ),
}
TAKEN = {
    "an id by identity": CREATE + "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)",
    "an id by uuid": CREATE + "id uuid DEFAULT gen_random_uuid() PRIMARY KEY)",
    "a key of NULLs and columns like ours": CREATE
    + "subject text, threshold int NOT NULL, UNIQUE (tenant_id, subject, threshold))",
    "a name of ours that is never NULL": CREATE
    + "subject_kind text NOT NULL, message text NOT NULL, PRIMARY KEY (subject_kind, message))",
}


@pytest.mark.parametrize("shape", REFUSED)
async def test_what_would_lose_alerts_is_refused(new_database: NewDatabase, shape: str) -> None:
    create, words = REFUSED[shape]
    conn: asyncpg.Connection[Any] = await asyncpg.connect(
        await new_database(), statement_cache_size=0
    )
    try:
        await conn.execute(create)
        with pytest.raises(DatabaseError, match=words) as refused:
            await Migrator(conn, Assets()).migrate()
        assert "\n" not in str(refused.value)
        assert "rename" in str(refused.value)
        tables = await conn.fetch(
            "SELECT relname FROM pg_class WHERE relname ~ '^quota_' AND relkind = 'r'"
        )
        assert [row[0] for row in tables] == ["quota_warn_log"]
        # the cure
        await conn.execute("ALTER TABLE quota_warn_log RENAME TO warned")
        await Migrator(conn, Assets()).migrate()
    finally:
        await conn.close()


@pytest.mark.parametrize("shape", TAKEN)
async def test_keys_that_our_rows_never_share(new_database: NewDatabase, shape: str) -> None:
    conn: asyncpg.Connection[Any] = await asyncpg.connect(
        await new_database(), statement_cache_size=0
    )
    try:
        await conn.execute(TAKEN[shape])
        await Migrator(conn, Assets()).migrate()
        world = World(conn)
        for name in "ab":
            await world.tenant(name, daily_completions=10)
            await world.use(10, name)
        assert await world.warn() == (4, 2, 2, 0)
        assert await world.warn() == (0, 0, 0, 0)
    finally:
        await conn.close()


async def test_a_foreign_key_made_later_raises_and_loses_nothing(
    conn: asyncpg.Connection[Any],
) -> None:
    await conn.execute("CREATE UNIQUE INDEX theirs ON quota_warn_log (dimension)")
    world = World(conn)
    await world.tenant(daily_completions=10)
    await world.use(10)
    with pytest.raises(asyncpg.UniqueViolationError, match="theirs"):
        await world.warn()
    await conn.execute("DROP INDEX theirs")
    assert await world.warn() == (2, 1, 1, 0)
