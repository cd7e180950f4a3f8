"""A quota_warn_log that somebody made from the tutorial keeps its rows and its programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from acceptance.warnings_world import World
from worker.assets import Assets
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
