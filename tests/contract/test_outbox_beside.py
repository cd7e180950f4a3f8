"""Two workers that claim from one channel in the same moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.outbox_world import NOW, later, put

if TYPE_CHECKING:
    import asyncpg

    from conftest import Connect

_CLAIM = "SELECT * FROM quota_outbox_claim('ops', '{ops}', 10, 150, 60, NULL, $1)"


async def test_a_digest_in_doubt_is_never_split(
    conn: asyncpg.Connection[Any], connect: Connect
) -> None:
    await put(conn, 12, "ops")
    claimed = await conn.fetch(_CLAIM, NOW)
    ids, token = [row["outbox_id"] for row in claimed], claimed[0]["lease_token"]
    key = await conn.fetchval("SELECT quota_outbox_keep($1, $2)", ids, token)
    await conn.execute(
        "SELECT quota_outbox_fail($1, $2, 'timeout', '', true, NULL, $3)", ids, token, NOW
    )
    other = await connect()
    async with other.transaction():  # it has locked its first one
        await other.execute("SELECT FROM quota_outbox WHERE outbox_id = $1 FOR UPDATE", ids[5])
        assert await conn.fetch(_CLAIM, later(seconds=10)) == []
    again = await conn.fetch(_CLAIM, later(seconds=10))
    assert sorted(row["outbox_id"] for row in again) == ids
    assert {row["digest_key"] for row in again} == {key}
