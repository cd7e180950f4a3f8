"""The cluster's queue of notifications is full: who uses another database must fail no charge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest

from worker.assets import Assets
from worker.postgres.embedded import EmbeddedServer
from worker.postgres.migrate import Migrator

from conftest import chosen_binaries

if TYPE_CHECKING:
    from pathlib import Path

SETTABLE_SINCE = 17
# 64 pages of 8 kB, a notification on each; a commit takes all of a transaction's.
FILL = """
DO $$ BEGIN
    FOR page IN 1..100 LOOP
        PERFORM pg_notify('elsewhere', page || repeat('x', 7900));
        COMMIT;
    END LOOP;
END $$"""
USAGE = "SELECT pg_notification_queue_usage()"


@pytest.mark.skipif(
    chosen_binaries().major < SETTABLE_SINCE, reason="the queue takes 8 GB to fill there"
)
async def test_a_full_queue_fails_no_charge_and_leaves_the_row_to_be_found(
    server_home: Path,
) -> None:
    server = EmbeddedServer(
        server_home / "pg",
        binaries=chosen_binaries(),
        durable=False,
        options={"max_notify_queue_pages": "64"},
    )
    with server:
        conn, idle, other = [
            await asyncpg.connect(server.dsn, statement_cache_size=0) for _ in range(3)
        ]
        await Migrator(conn, Assets()).migrate()
        await conn.execute(
            "INSERT INTO tenant_limits (tenant_id, daily_completions) VALUES ('t', 1)"
        )
        await idle.execute("LISTEN elsewhere")
        await idle.execute("BEGIN; SELECT 1")
        with pytest.raises(asyncpg.ProgramLimitExceededError):
            await other.execute(FILL)
        assert await conn.fetchval(USAGE) > 0.5
        answers = [
            await conn.fetchval("SELECT reason FROM quota_reserve('t', $1, 1, 1, 1)", request)
            for request in ("passes the line", "is the first refusal")
        ]
        assert answers == ["ok", "daily_cap_reached"]
        assert await conn.fetchval("SELECT count(*) FROM quota_crossings") == 2
        # once it is drained, listeners hear of the next one
        await idle.execute("COMMIT")
        assert await conn.fetchval(USAGE) < 0.5
        heard: list[str] = []
        await conn.add_listener("quota_crossing", lambda *found: heard.append(found[-1]))
        await conn.execute(
            "INSERT INTO tenant_limits (tenant_id, daily_completions) VALUES ('u', 1)"
        )
        await conn.execute("SELECT quota_reserve('u', 'r', 1, 1, 1)")
        assert heard == ["tenant"]
        for connection in (conn, idle, other):
            await connection.close()
