"""`alerts retry` and `alerts ack` on a real database: what they change, refuse, and leave alone."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from acceptance.alerts_world import configured, line_of, listed, put, sending
from acceptance.program import quota_worker

from sql.calls import sqlstate_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]
    Connect = Callable[..., Awaitable[Connection]]

REOPENED = (
    "will be sent again with the next tick; its attempts are counted anew,"
    " and its acknowledgement is taken back"
)
RETRY = "SELECT * FROM quota_outbox_retry($1)"
ACK = "SELECT * FROM quota_outbox_ack($1, 'ann')"


async def outbox_of(dsn: str) -> dict[str, int]:
    """What `status` counts."""
    counts: dict[str, int] = json.loads((await quota_worker(dsn, "status", "--json")).out)["outbox"]
    return counts


async def test_retry_gives_the_dead_a_new_day(dsn: str, conn: Connection, tmp_path: Path) -> None:
    now = await conn.fetchval("SELECT clock_timestamp()")
    ended = {"attempts": 9, "last_failure": "timeout", "request_key": "qd-1"}
    ended |= {"acked_by": "ann", "acked_at": now}
    dead = await put(conn, "a", ago=90_000, state="dead", **ended)
    waits = await put(
        conn, "b", attempts=2, next_attempt_at=await conn.fetchval("SELECT now() + interval '1 h'")
    )
    lost = await sending(conn, "c", -60)
    ids = map(str, (waits, dead, lost, dead))
    done = await quota_worker(dsn, "alerts", "retry", *ids, **configured(tmp_path))
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{waits} is due now, and sent with the next tick",
        f"{dead} {REOPENED}",
        f"{lost} is due now, and sent with the next tick",
    ]
    rows = await conn.fetch(
        "SELECT *, next_attempt_at <= clock_timestamp() AS due FROM quota_outbox ORDER BY outbox_id"
    )
    assert [(row["state"], row["due"]) for row in rows] == [("pending", True)] * 3
    assert (rows[0]["attempts"], rows[0]["first_attempt_at"], rows[0]["ended_at"]) == (
        0,
        None,
        None,
    )
    assert (rows[0]["dedupe_key"], rows[0]["request_key"]) == ("key-a-ops-None", None)
    assert (rows[0]["acked_at"], rows[0]["acked_by"]) == (None, None)
    assert rows[1]["attempts"] == 2
    assert (rows[2]["lease_token"], rows[2]["last_failure"]) == (None, "worker_lost")
    assert "retried by hand, was given up as no answer" in (await quota_worker(dsn, "alerts")).out


async def test_what_dies_again_after_a_retry_was_told_before(conn: Connection) -> None:
    """Its fallback is neither told twice nor missed."""
    await put(conn, "a")
    for _ in range(2):
        held = await conn.fetchrow("SELECT * FROM quota_outbox_claim('ops', '{}', NULL, 1)")
        ended = await conn.fetchrow(
            "SELECT * FROM quota_outbox_fail($1, $2, 'bot_removed', '', false, $3)",
            [held["outbox_id"]],
            held["lease_token"],
            '[{"channel": "chat", "recipient": null}]',
        )
        assert (ended["dead"], ended["untold"]) == (1, 0)
        await conn.execute(RETRY, [held["outbox_id"]])
    assert await conn.fetchval("SELECT count(*) FROM quota_outbox WHERE channel = 'chat'") == 1


async def test_all_or_none(dsn: str, conn: Connection) -> None:
    dead = await put(conn, "a", state="dead", attempts=1, last_failure="rejected")
    refused = {
        await put(conn, "b", state="sent"): "was sent: there is nothing to retry",
        await put(conn, "c", state="superseded"): "is not to be sent any more",
        await put(conn, "d", state="stale", digest_only=True): "next digest",
        await sending(conn, "e", 60): "is being sent now: try again in a minute",
        999: "is no message's id",
    }
    before = await conn.fetch("SELECT * FROM quota_outbox ORDER BY outbox_id")
    done = await quota_worker(dsn, "alerts", "retry", str(dead), *map(str, refused))
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith("quota-worker: nothing was done: ")
    for outbox_id, words in refused.items():
        (part,) = [
            part
            for part in line.split("; ")
            if f"{outbox_id} is" in part or f"{outbox_id} was" in part
        ]
        assert words in part
    assert line.endswith("; the other stays as it is")
    waits = await put(conn, "f")
    done = await quota_worker(dsn, "alerts", "retry", str(dead), str(waits), "999")
    assert done.err.endswith("; the other 2 stay as they are\n")
    await conn.execute("DELETE FROM quota_outbox WHERE outbox_id = $1", waits)
    held = list(refused)[3]
    for bad, words in ((held, "being sent now"), (999, "no message's id")):
        done = await quota_worker(dsn, "alerts", "ack", str(dead), str(bad))
        assert done.code == 2
        assert f"{bad} is {words}" in done.err
    assert await conn.fetch("SELECT * FROM quota_outbox ORDER BY outbox_id") == before


async def test_ack_takes_out_of_the_summary_and_withdraws_what_waits(
    dsn: str, conn: Connection
) -> None:
    dead = await put(conn, "a", state="dead", attempts=1, last_failure="rejected")
    sent = await put(conn, "b", state="sent", attempts=1)
    waits = await put(conn, "c", attempts=1, last_failure="timeout", request_key="qd-1")
    digest = await put(conn, "d", state="stale", digest_only=True)
    lost = await sending(conn, "e", -60)
    ids = [str(one) for one in (dead, sent, waits, digest, lost)]
    assert (await listed(dsn))["unacknowledged"] == 1
    assert (await outbox_of(dsn))["dead"] == 1
    done = await quota_worker(dsn, "alerts", "ack", *ids, "--note", "bot is back", "--by", "ann")
    assert (done.code, done.err) == (0, "")
    outcomes = [" ".join(line.split()[1:3]) for line in done.out.splitlines()]
    assert outcomes == ["is acknowledged", "was sent;"] + ["is withdrawn:"] * 3
    rows = await conn.fetch("SELECT * FROM quota_outbox ORDER BY outbox_id")
    assert [row["state"] for row in rows] == ["dead", "sent"] + ["superseded"] * 3
    assert {(row["acked_by"], row["ack_note"]) for row in rows} == {("ann", "bot is back")}
    assert all(row["acked_at"] is not None and row["ended_at"] is not None for row in rows)
    assert (await listed(dsn))["unacknowledged"] == 0
    assert await outbox_of(dsn) == {"dead_acknowledged": 1, "sent": 1, "superseded": 3}
    counts = "outbox     1 acknowledged, 1 sent, 3 superseded\n"
    assert (await quota_worker(dsn, "status")).out.endswith(counts)
    text = (await quota_worker(dsn, "alerts")).out
    assert not text.startswith("1 message")
    assert line_of(text, waits).endswith("by ann (bot is back)")
    # what is withdrawn isn't sent, and a later word doesn't replace the first
    assert (await quota_worker(dsn, "tick")).err == ""
    done = await quota_worker(dsn, "alerts", "ack", ids[0], "--by", "eve", "--json")
    assert json.loads(done.out) == [{"id": dead, "outcome": "already"}]
    assert await conn.fetch("SELECT * FROM quota_outbox ORDER BY outbox_id") == rows
    # given up once more, it is in the summary once more
    await quota_worker(dsn, "alerts", "retry", ids[0])
    assert (
        await conn.fetchval("SELECT acked_at FROM quota_outbox WHERE outbox_id = $1", dead) is None
    )


async def test_the_functions_wait_for_a_lock_only_so_long_and_keep_out_strangers(
    conn: Connection,
) -> None:
    one = await put(conn, "a", state="dead")
    assert await sqlstate_of(conn.execute("SELECT quota_outbox_ack($1, ' ')", [one])) == "QW002"
    bounds = await conn.fetch(
        "SELECT array_to_string(proconfig, ' ') AS bound FROM pg_proc"
        " WHERE proname IN ('quota_outbox_retry', 'quota_outbox_ack')"
    )
    assert ["lock_timeout=2s" in row["bound"] for row in bounds] == [True, True]
    for role in ("quota_worker", "quota_gateway", "quota_reader"):
        await conn.execute(f"SET ROLE {role}")
        for call in (RETRY, ACK):
            if role == "quota_worker":
                await conn.execute(call, [one])
            else:
                assert await sqlstate_of(conn.execute(call, [one])) == "42501"
        await conn.execute("RESET ROLE")


async def test_retry_and_deliver_at_once_send_it_once(
    dsn: str, conn: Connection, connect: Connect
) -> None:
    """Whichever comes first: a message that a worker holds is refused, not sent twice."""
    ids = [
        await put(conn, f"a{n}", state="dead", attempts=1, last_failure="timeout")
        for n in range(20)
    ]
    retrying, claiming = await connect(), await connect()
    claimed: list[int] = []

    async def claim() -> None:
        for _ in range(60):
            rows = await claiming.fetch(
                "SELECT outbox_id, lease_token FROM quota_outbox_claim('ops', '{}', NULL, 1)"
            )
            for row in rows:
                claimed.append(row["outbox_id"])
                await claiming.execute(
                    "SELECT quota_outbox_finish($1, $2)", [row["outbox_id"]], row["lease_token"]
                )

    async def retry() -> None:
        for _ in range(3):
            for one in ids:
                await retrying.execute(RETRY, [one])

    await asyncio.gather(claim(), retry())
    await claim()
    assert sorted(claimed) == sorted(ids)
    assert await conn.fetchval("SELECT count(*) FROM quota_outbox WHERE state <> 'sent'") == 0
