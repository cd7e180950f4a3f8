"""A SQL source on a second real database: matching, refusals, limits, and what a repeat changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from contract.sources_world import MINUTE, NOW, SPEND, SQL, World, charged, faults, overdue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from conftest import NewDatabase

    Connection = asyncpg.Connection[Any]


@pytest.fixture
async def world(dsn: str, conn: Connection, tmp_path: Path) -> World:
    return World(dsn, tmp_path, conn)


@pytest.fixture
async def log(world: World, new_database: NewDatabase) -> AsyncIterator[Connection]:
    """The gateway's own database, with its spend log."""
    address = await new_database()
    world.environ["LOG_DSN"] = address
    connection = await asyncpg.connect(address)
    await connection.execute(SPEND)
    yield connection
    await connection.close()


async def spend(log: Connection, *rows: tuple[Any, ...]) -> None:
    """Rows of request, tenant, usage id, in, out, cached, cost, currency, model."""
    for row in rows:
        await log.execute("INSERT INTO spend VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", *row)


async def test_usage_is_settled_and_the_policy_waits(world: World, log: Connection) -> None:
    await overdue(world.conn, "a/known", "a/unknown", "b/known", "a/open", "c/old")
    await world.conn.execute(
        "UPDATE quota_reservations SET expires_at = $1 WHERE request_id = 'old'", NOW - 16 * MINUTE
    )
    await world.conn.execute(
        "UPDATE quota_reservations SET expires_at = $1 WHERE request_id = 'open'", NOW + MINUTE
    )
    await spend(
        log,
        ("known", "a", "u1", 70, 30, 20, 0.0000012, "USD", "m"),
        ("known", "b", None, 71, 31, None, None, None, None),
        ("open", "a", None, 1, 1, None, None, None, None),
    )
    counts = await world.reconcile(SQL)
    assert (counts.source_asked, counts.source_settled, counts.source_set_aside) == (4, 2, 0)
    assert (counts.source_failed, counts.failures, counts.leftover) == (0, (), False)
    assert await charged(world.conn) == {
        "a/known": ("settled", 70, 30, 1200),
        # no cost: in proportion, until prices exist
        "b/known": ("settled", 71, 31, 680),
        "a/unknown": ("open", None, None, None),
        "a/open": ("open", None, None, None),
        # its wait is over, and nobody knew it
        "c/old": ("expired", 100, 50, 1000),
    }
    kept = await world.conn.fetchrow(
        "SELECT * FROM quota_reservations WHERE tenant_id = 'a' AND request_id = 'known'"
    )
    assert kept is not None
    assert (kept["usage_id"], kept["cached_in_tokens"], kept["model"]) == ("u1", 20, "m")
    # known at a later tick: found, before its wait is over
    await spend(log, ("unknown", "a", None, 5, 6, None, 0.000000001, None, None))
    counts = await world.reconcile(SQL, NOW + 5 * MINUTE)
    assert (counts.source_asked, counts.source_settled) == (2, 2)
    # no longer is anything asked twice
    counts = await world.reconcile(SQL, NOW + 6 * MINUTE)
    assert (counts.source_asked, counts.source_settled) == (1, 0)
    state = await charged(world.conn)
    assert state["a/unknown"] == ("settled", 5, 6, 1)
    assert await faults(world.conn) == {}
