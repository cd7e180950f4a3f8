"""The outbox's own rules, in SQL: leases, digests, quiet hours, what a failure makes of a request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from contract.outbox_world import NOW, later, put, states

if TYPE_CHECKING:
    from datetime import datetime

    import asyncpg

    Connection = asyncpg.Connection[Any]

OVER = 10
FALLBACKS = json.dumps([{"channel": "ops"}, {"channel": "mail", "recipient": "a@example.com"}])


async def claim(
    conn: Connection, now: datetime = NOW, channel: str = "im-bot", limit: int = 100, **more: Any
) -> tuple[list[int], Any, str | None]:
    """Ids, token, digest key."""
    rows = await conn.fetch(
        "SELECT * FROM quota_outbox_claim($1, '{}', $2, $3, 60, $4, $5)",
        channel,
        more.get("over", OVER),
        limit,
        json.dumps(more["quiet"]) if "quiet" in more else None,
        now,
    )
    if not rows:
        return [], None, None
    return [row["outbox_id"] for row in rows], rows[0]["lease_token"], rows[0]["digest_key"]


async def keep(conn: Connection, ids: list[int], token: Any) -> str | None:
    key: str | None = await conn.fetchval("SELECT quota_outbox_keep($1, $2)", ids, token)
    return key


async def finish(conn: Connection, ids: list[int], token: Any, now: datetime = NOW) -> int:
    sent: int = await conn.fetchval("SELECT quota_outbox_finish($1, $2, $3)", ids, token, now)
    return sent


async def fail(
    conn: Connection, ids: list[int], token: Any, cause: str, now: datetime = NOW, **more: Any
) -> tuple[int, ...]:
    """(retried, dead, untold, lost, wait_seconds)"""
    return tuple(
        await conn.fetchrow(
            "SELECT * FROM quota_outbox_fail($1, $2, $3, 'detail', $4, $5, $6)",
            ids,
            token,
            cause,
            more.get("retryable", True),
            more.get("fallbacks"),
            now,
        )
    )


async def test_only_the_holder_of_the_lease_finishes(conn: Connection) -> None:
    await put(conn)
    first = (await claim(conn))[:2]
    assert await claim(conn, later(seconds=59)) == ([], None, None)
    second = (await claim(conn, later(seconds=60)))[:2]
    assert await finish(conn, *first) == 0
    assert await fail(conn, *first, "timeout") == (0, 0, 0, 1, 0)
    assert await states(conn) == {"sending": 1}
    assert await finish(conn, *second) == 1
    assert await finish(conn, *second) == 0
    assert await fail(conn, *second, "timeout") == (0, 0, 0, 1, 0)
    row = await conn.fetchrow("SELECT state, attempts, last_failure FROM quota_outbox")
    assert tuple(row) == ("sent", 2, "worker_lost")


async def test_a_cause_outside_the_set_is_refused(conn: Connection) -> None:
    await put(conn)
    ids, token, _ = await claim(conn)
    with pytest.raises(Exception, match="quota_outbox_failure"):
        await fail(conn, ids, token, "because")


async def test_more_than_ten_go_together_and_the_rest_is_given_back(conn: Connection) -> None:
    await put(conn, 10)
    await put(conn, 15)
    ids, token, key = await claim(conn, limit=20)
    assert (ids, key) == ([*range(1, 21)], None)
    # another worker has the others
    others, theirs, _ = await claim(conn)
    assert others == [21]
    digest = await keep(conn, ids[:12], token)
    assert digest is not None
    assert digest.startswith("qd-")
    assert len(digest) <= 43
    rows = await conn.fetch(
        "SELECT state, attempts, first_attempt_at FROM quota_outbox WHERE outbox_id BETWEEN 13 AND 20"
    )
    assert {tuple(row) for row in rows} == {("pending", 0, None)}
    assert await finish(conn, ids[:12], token) == 12
    assert await finish(conn, others, theirs) == 1
    # 12 are left: again more than ten
    assert len((await claim(conn))[0]) == 12


async def test_no_more_than_ten_go_one_by_one(conn: Connection) -> None:
    await put(conn, OVER)
    assert (await claim(conn))[0] == [1]
    assert (await claim(conn))[0] == [2]
    await put(conn, 3)
    # 11 wait, but this channel never collects
    assert (await claim(conn, over=None))[0] == [3]


async def test_a_digest_is_for_one_recipient_in_one_language(conn: Connection) -> None:
    await put(conn, 12)
    await put(conn, 2)
    await conn.execute("UPDATE quota_outbox SET recipient = 'a@example.com' WHERE outbox_id > 12")
    await conn.execute("UPDATE quota_outbox SET locale = 'zh-CN' WHERE outbox_id IN (3, 13)")
    ids, token, _ = await claim(conn)
    assert ids == [1, 2, *range(4, 13)]
    await keep(conn, ids, token)
    # no longer more than ten for anybody
    assert [(await claim(conn))[0] for _ in range(4)] == [[3], [13], [14], []]


@pytest.mark.parametrize(
    ("cause", "again"),
    [
        ("timeout", "the same"),
        ("unknown_answer", "the same"),
        ("server_error", "the same"),
        ("command_failed", "the same"),
        ("rate_limited", "anew"),
        ("unreachable", "anew"),
        ("too_large", "apart"),
        ("rejected", "apart"),
        ("not_rendered", "apart"),
        ("content_refused", "apart"),
    ],
)
async def test_what_may_have_arrived_is_repeated_as_it_was(
    conn: Connection, cause: str, again: str
) -> None:
    await put(conn, 11)
    ids, token, _ = await claim(conn)
    key = await keep(conn, ids, token)
    permanent = again == "apart"
    assert await fail(conn, ids, token, cause, retryable=not permanent) == (
        11, 0, 0, 0, 0 if permanent else 5,
    )  # fmt: skip
    await put(conn, 3)
    got, token, digest = await claim(conn, later(seconds=5))
    expected: dict[str, tuple[list[int], str | None]] = {
        # nothing new joins what may have arrived
        "the same": (ids, key),
        "anew": ([*range(1, 15)], None),
        "apart": ([1], None),
    }
    assert (got, digest) == expected[again]
    if again == "apart":
        # that one is to blame: it alone is given up
        assert await fail(conn, got, token, cause, retryable=False) == (0, 1, 0, 0, 0)


async def test_a_lost_digest_is_repeated_and_broken_up_if_it_loses_its_workers(
    conn: Connection,
) -> None:
    await put(conn, 11)
    ids, token, _ = await claim(conn)
    key = await keep(conn, ids, token)
    now = later(seconds=60)
    assert (await claim(conn, now))[::2] == (ids, key)
    now = later(seconds=120)
    # what was not tried yet comes first
    await put(conn, 1)
    new, token, _ = await claim(conn, now)
    assert (new, await finish(conn, new, token)) == ([12], 1)
    assert (await claim(conn, now))[::2] == (ids, key)
    # three workers died of it: after a wait each message goes alone
    assert (await claim(conn, later(seconds=180)))[0] == []
    now = later(seconds=180 + 300)
    assert [(await claim(conn, now))[0] for _ in range(3)] == [[1], [2], [3]]


async def test_who_kills_its_workers_for_a_day_is_given_up(conn: Connection) -> None:
    await put(conn)
    now = NOW
    for hours in (0, 1, 2, 8, 14, 20):
        assert (await claim(conn, later(hours=hours)))[0] == [1]
    now = later(hours=26)
    row = await conn.fetchrow(
        "SELECT * FROM quota_outbox_claim('im-bot', '{}', 10, 9, 60, NULL, $1)", now
    )
    assert row["overdue"]
    assert await fail(conn, [1], row["lease_token"], "worker_lost", now, retryable=False) == (
        0,
        1,
        0,
        0,
        0,
    )
    assert (
        await conn.fetchval(
            "SELECT facts -> 'undelivered' ->> 'cause' FROM quota_outbox WHERE channel = 'console'"
        )
        == "worker_lost"
    )


async def test_a_digest_lost_before_it_was_sent_is_collected_anew(conn: Connection) -> None:
    await put(conn, 12)
    ids, token, _ = await claim(conn)
    # its successor has them
    again, _, key = await claim(conn, later(seconds=61))
    assert (again, key) == (ids, None)
    assert await keep(conn, ids, token) is None
    # whatever kills its worker before the request is made: the second time each goes alone
    assert [(await claim(conn, later(seconds=122)))[0] for _ in range(3)] == [[1], [2], [3]]


async def test_the_dead_are_told_on_each_fallback_once(conn: Connection) -> None:
    await put(conn, 2)
    await put(conn, 1, channel="ops")
    ids, token, _ = await claim(conn)
    gone = {"retryable": False, "fallbacks": FALLBACKS}
    assert await fail(conn, ids, token, "bot_removed", **gone) == (0, 1, 0, 0, 0)
    rows = await conn.fetch(
        "SELECT channel, recipient, subject IS NOT DISTINCT FROM NULL, facts -> 'undelivered' ->> 'channel' AS of"
        " FROM quota_outbox WHERE fallback_of = 1 ORDER BY outbox_id"
    )
    assert [tuple(row) for row in rows] == [
        ("mail", "a@example.com", True, "im-bot"),
        ("ops", None, True, "im-bot"),
    ]
    # its own channel is no fallback; and a fallback's is the console, which has none
    ids, token, _ = await claim(conn, channel="ops")
    assert await fail(conn, ids, token, "bot_removed", **gone) == (0, 1, 0, 0, 0)
    assert await conn.fetchval(
        "SELECT array_agg(channel) FROM quota_outbox WHERE fallback_of = 3"
    ) == ["mail"]
    ids, token, _ = await claim(conn, channel="mail")
    assert await fail(conn, ids, token, "recipient_refused", **gone) == (0, 1, 0, 0, 0)
    ids, token, _ = await claim(conn, channel="console")
    assert await fail(conn, ids, token, "not_rendered", **gone) == (0, 1, 1, 0, 0)


QUIET = {"from": "22:00", "to": "08:00", "zone": "Asia/Shanghai"}


@pytest.mark.parametrize(
    ("quiet", "utc", "expected"),
    [
        (QUIET, "13:59:59", False),
        (QUIET, "14:00", True),
        (QUIET, "23:59:59", True),
        (QUIET, "00:00", False),
        ({"from": "01:00", "to": "02:00", "zone": None}, "00:59:59", False),
        ({"from": "01:00", "to": "02:00", "zone": None}, "01:00", True),
        ({"from": "01:00", "to": "02:00", "zone": None}, "02:00", False),
        (None, "01:00", False),
    ],
)
async def test_when_it_is_quiet(
    conn: Connection, quiet: dict[str, Any] | None, utc: str, *, expected: bool
) -> None:
    got = await conn.fetchval(
        "SELECT quota_quiet($1, ('2026-11-30 ' || $2::text || '+00')::timestamptz)",
        None if quiet is None else json.dumps(quiet),
        utc,
    )
    assert got is expected


async def test_in_quiet_hours_only_what_is_full_is_sent(conn: Connection) -> None:
    await put(conn, 12, urgency=1)
    await put(conn, 1, urgency=0)
    always = {"from": "00:00", "to": "23:59:59.999999", "zone": None}
    assert (await claim(conn, quiet=always))[0] == [13]
    assert (await claim(conn, quiet=always))[0] == []
    assert len((await claim(conn))[0]) == 12


async def test_what_is_for_the_digest_goes_with_the_next(conn: Connection) -> None:
    await put(conn, 2)
    await conn.execute("UPDATE quota_outbox SET state = 'stale', digest_only = true")
    assert (await claim(conn))[0] == []
    await put(conn, 11)
    ids, token, _ = await claim(conn)
    assert ids == [*range(3, 14), 1, 2]
    await keep(conn, ids, token)
    # a failure that surely did not arrive puts it back
    await fail(conn, ids, token, "unreachable")
    assert await states(conn) == {"pending": 11, "stale": 2}
    ids, token, _ = await claim(conn, later(seconds=5))
    await keep(conn, ids, token)
    assert await finish(conn, ids, token) == 13


async def test_what_waited_until_its_period_ended_is_said_as_past(conn: Connection) -> None:
    await put(conn, 3)
    await put(conn, 1, urgency=0)
    await put(conn, 1, channel="console")
    await conn.execute("UPDATE quota_outbox SET told_until = $1", later(hours=1))
    # an attempt may have arrived: that one stays as it was
    ids, token, _ = await claim(conn)
    await fail(conn, ids, token, "timeout")
    now = later(hours=2)
    assert (await claim(conn, now))[0] == [4]
    assert (await claim(conn, now, channel="console", over=None))[0] == [5]
    rows = await conn.fetch(
        "SELECT state, digest_only, facts ->> 'past' FROM quota_outbox ORDER BY outbox_id"
    )
    assert [tuple(row) for row in rows] == [
        ("stale", True, "true"),
        ("stale", True, "true"),
        ("stale", True, "true"),
        ("sending", False, "false"),
        ("sending", False, "true"),
    ]


async def test_a_clock_that_ran_ahead_holds_nothing_up(conn: Connection) -> None:
    ahead = later(days=19)
    await put(conn, 2, created_at=ahead)
    ids, token, _ = await claim(conn, ahead)
    await fail(conn, ids, token, "unreachable", ahead)
    assert (await claim(conn, ahead))[0] == [2]
    # the clock is right again: a wait and a lease of 19 days are none
    assert [(await claim(conn))[0] for _ in range(3)] == [[1], [2], []]


async def test_of_several_dead_channels_one_tells_the_fallback(conn: Connection) -> None:
    await put(conn)
    await conn.execute(
        "INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency, facts,"
        " next_attempt_at, created_at) SELECT 'other', message_key, kind, 'chat', severity, urgency, facts,"
        " next_attempt_at, created_at FROM quota_outbox"
    )
    for channel in ("im-bot", "chat"):
        ids, token, _ = await claim(conn, channel=channel)
        gone = {"retryable": False, "fallbacks": '[{"channel": "ops"}]'}
        assert await fail(conn, ids, token, "bot_removed", **gone) == (0, 1, 0, 0, 0)
    assert await conn.fetchval("SELECT count(*) FROM quota_outbox WHERE channel = 'ops'") == 1
