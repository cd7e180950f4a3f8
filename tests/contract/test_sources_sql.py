"""A SQL source on a second real database: matching, refusals, limits, and what a repeat changes."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from acceptance.program import until
from contract.sources_world import (
    MINUTE,
    NOW,
    SECRET,
    SPEND,
    SQL,
    World,
    charged,
    faults,
    overdue,
)
from worker.clock import monotonic_seconds
from worker.jobs import reconcile
from worker.jobs.context import Deadline, JobContext
from worker.sources.base import BaseSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from worker.usage import OverdueRequest, SourceAnswer

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
    )
    counts = await world.reconcile(SQL)
    assert (counts.failures, counts.source_failed, counts.leftover) == ((), 0, False)
    assert (counts.source_asked, counts.source_settled, counts.source_set_aside) == (4, 2, 0)
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
    assert (counts.source_asked, counts.source_settled) == (2, 1)
    # no longer is anything asked twice
    counts = await world.reconcile(SQL, NOW + 6 * MINUTE)
    assert (counts.source_asked, counts.source_settled) == (1, 0)
    state = await charged(world.conn)
    assert state["a/unknown"] == ("settled", 5, 6, 1)
    assert await faults(world.conn) == {}


async def test_what_cannot_be_used_is_set_aside_by_name(world: World, log: Connection) -> None:
    names = {
        "negative": [("negative", "a", None, -1, 1, None, None, None, None)],
        "fraction": [("fraction", "a", None, Decimal("1.5"), 1, None, None, None, None)],
        "nan": [("nan", "a", None, Decimal("NaN"), 1, None, None, None, None)],
        "huge": [("huge", "a", None, 1, 10**12 + 1, None, None, None, None)],
        "half": [("half", "a", None, 1, None, None, None, None, None)],
        "cached": [("cached", "a", None, 1, 1, 2, None, None, None)],
        "cost": [("cost", "a", None, 1, 1, None, -0.5, None, None)],
        "infinite": [("infinite", "a", None, 1, 1, None, math.inf, None, None)],
        "dear": [("dear", "a", None, 1, 1, None, 2e6, None, None)],
        "id": [("id", "a", "x" * 201, 1, 1, None, None, None, None)],
        "other": [("other", "b", None, 1, 1, None, None, None, None)],
        "twice": [("twice", "a", None, 1, out, None, None, None, None) for out in (1, 2)],
    }
    good = {
        "same": [("same", "a", f"u{n}", 7, 3, None, 0.25, "usd", None) for n in (2, 1)],
        "euro": [("euro", "a", None, 7, 3, None, 0.1, "EUR", None)],
        "rateless": [("rateless", "a", None, 7, 3, None, 0.1, "CHF", None)],
        "money": [("money", "a", None, 7, 3, None, 0.1, f"gold {SECRET}", None)],
        "nothing": [("nothing", "a", None, None, None, None, None, None, None)],
    }
    await overdue(world.conn, *(f"a/{name}" for name in [*names, *good]), "c/shared")
    await world.conn.execute(
        "INSERT INTO quota_currency_rates (currency, valid_from, rate) VALUES"
        " ('EUR', '2026-11-01', 1.25), ('EUR', '2026-12-01', 9)"
    )
    rows = [row for several in [*names.values(), *good.values()] for row in several]
    await spend(log, *rows, ("stranger", "z", None, 1, 1, None, None, None, None))
    # its password is a secret of the source's
    world.environ["LOG_DSN"] = world.environ["LOG_DSN"].replace("@", f":{SECRET}@", 1)
    greedy = SQL.replace("WHERE request_id", "WHERE request_id = 'stranger' OR request_id")
    counts = await world.reconcile(greedy)
    assert (counts.source_settled, counts.source_failed) == (4, 0)
    assert await faults(world.conn) == {
        "a/negative": "wrong_number",
        "a/fraction": "wrong_number",
        "a/nan": "wrong_number",
        "a/huge": "wrong_number",
        "a/half": "missing_figure",
        "a/cached": "wrong_number",
        "a/cost": "wrong_number",
        "a/infinite": "wrong_number",
        "a/dear": "invalid",
        "a/id": "wrong_id",
        "a/other": "other_tenant",
        "a/twice": "contradiction",
        "a/rateless": "no_rate",
        "a/money": "unknown_currency",
        "z/stranger": "not_asked",
    }
    state = await charged(world.conn)
    assert {name for name, (s, *_) in state.items() if s == "settled"} == {
        *("a/same", "a/euro", "a/rateless", "a/money")
    }
    assert state["a/same"] == ("settled", 7, 3, 250_000_000)
    assert state["a/euro"] == ("settled", 7, 3, 125_000_000)
    same = "SELECT usage_id FROM quota_reservations WHERE request_id = 'same'"
    assert await world.conn.fetchval(same) == "u1"
    unpriced = (
        "SELECT array_agg(request_id ORDER BY request_id) FROM quota_reservations WHERE unpriced"
    )
    assert await world.conn.fetchval(unpriced) == ["money", "rateless"]
    # again: counted at the same rows; and with the wait over the policy has the rest
    again = await world.reconcile(greedy, NOW + 14 * MINUTE)
    assert (again.source_settled, again.expired_estimate) == (0, len(names) + 2)
    assert set(
        await world.conn.fetchrow(
            "SELECT min(times), max(times) FROM quota_source_faults WHERE request_id <> 'rateless' AND request_id <> 'money'"
        )
        or ()
    ) == {2}
    held = "SELECT sum(held_input_tokens), sum(held_cost_nanos) FROM quota_usage"
    assert tuple(await world.conn.fetchrow(held) or ()) == (0, 0)


FAULTY = {
    "hang": ("FROM spend", "FROM pg_sleep(30), spend", "timeout"),
    "write": (
        "SELECT request_id",
        "SELECT nextval('counter')::text AS n, request_id",
        "query_failed",
    ),
    "syntax": ("SELECT request_id", "SELEKT request_id", "query_failed"),
    "columns": (", model\n", "\n", "wrong_columns"),
    "flood": ("FROM spend WHERE", "FROM generate_series(1, 200000), spend WHERE", "too_large"),
    "long texts": (", model\n", ", repeat('y', 9000000) AS model\n", "too_large"),
    "grant": ("FROM spend", "FROM pg_authid, spend", "login_refused"),
    "refused": ("", "", "unreachable"),
    "no database": ("", "", "unreachable"),
    "no port": ("", "", "unreachable"),
    "no mode": ("", "", "unreachable"),
}


async def test_a_faulty_source_is_named_and_the_next_one_is_asked(
    world: World, log: Connection
) -> None:
    await log.execute(
        "CREATE SEQUENCE counter; CREATE ROLE poor_reader LOGIN; GRANT SELECT ON spend TO poor_reader"
    )
    address = world.environ["LOG_DSN"]
    parts = urlsplit(address)
    for case, (old, new, cause) in FAULTY.items():
        tenant = case.replace(" ", "-")
        await overdue(world.conn, f"{tenant}/r1", f"{tenant}/r2")
        await spend(log, ("r1", tenant, None, 7, 3, None, 0.5, None, None))
        broken = SQL.replace("sources.log", "sources.broken").replace("LOG_DSN", "BROKEN")
        if case == "hang":
            broken = broken.replace("time_limit_seconds = 10", "time_limit_seconds = 1")
        broken = broken.replace(old, new, 1) if old else broken
        world.environ["BROKEN"] = {
            "refused": f"postgresql://u:{SECRET}@127.0.0.1:1/none",
            "no port": f"postgresql://u:{SECRET}@127.0.0.1:99999999999/none",
            "no mode": f"postgresql://u:{SECRET}@127.0.0.1:1/none?sslmode=maybe",
            "no database": address.replace(parts.path, "/no_such"),
            "grant": address.replace(
                parts.netloc, f"poor_reader@{parts.netloc.rpartition('@')[2]}"
            ),
        }.get(case, address)
        started = monotonic_seconds()
        counts = await world.reconcile(broken + SQL)
        assert monotonic_seconds() - started < 9, case
        assert [(f.source, f.cause, f.times) for f in counts.failures] == [("broken", cause, 1)], (
            case,
            counts,
        )
        assert counts.failures[0].detail, case
        assert counts.failures[0].cure, case
        assert ("correct `dsn`" in counts.failures[0].cure) is (case in {"no port", "no mode"}), (
            case
        )
        assert (counts.source_settled, counts.failed, counts.leftover) == (1, 0, False), case
        state = await charged(world.conn)
        assert (state[f"{tenant}/r1"][0], state[f"{tenant}/r2"][0]) == ("settled", "open"), case
    assert await log.fetchval("SELECT is_called FROM counter") is False
    # all of them down: the tick goes on, and in the end the policy is applied
    counts = await world.reconcile(broken, NOW + 15 * MINUTE)
    assert (counts.expired_estimate, counts.source_failed) == (len(FAULTY), 1)


async def test_the_ledgers_own_database_without_a_tenant_column(world: World) -> None:
    await overdue(world.conn, "a/one", "a/shared", "b/shared")
    await world.conn.execute(SPEND)
    await spend(
        world.conn,
        ("one", None, None, 7, 3, None, 0, None, None),
        ("shared", None, None, 7, 3, None, 0, None, None),
    )
    text = SQL.replace('dsn = { env = "LOG_DSN" }', "unique_ids = true").replace(
        'tenant_id = "tenant"\n', ""
    )
    counts = await world.reconcile(text)
    assert (counts.source_asked, counts.source_settled) == (3, 1)
    assert await faults(world.conn) == {"a/shared": "not_unique", "b/shared": "not_unique"}
    assert (await charged(world.conn))["a/one"] == ("settled", 7, 3, 0)
    # with the tenants as $2
    pairs = SQL.replace('dsn = { env = "LOG_DSN" }', "").replace(
        "FROM spend WHERE request_id = ANY($1::text[])",
        "FROM spend JOIN unnest($1::text[], $2::text[]) AS w (id, t) ON w.id = request_id AND w.t = tenant",
    )
    await spend(world.conn, ("shared", "b", None, 8, 3, None, 0, None, None))
    counts = await world.reconcile(pairs, NOW + MINUTE)
    assert (counts.source_settled, counts.source_set_aside) == (1, 0)
    assert (await charged(world.conn))["b/shared"] == ("settled", 8, 3, 0)


async def waits_in(log: Connection) -> None:
    """Until the source's query waits for what the test holds."""

    async def held_up() -> bool:
        await log.execute("SELECT pg_stat_clear_snapshot()")
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
        return bool(await log.fetchval(waiting))

    await until(held_up)


async def test_what_happens_while_the_source_thinks(world: World, log: Connection) -> None:
    """Usage that came from elsewhere stays; an expiry is corrected; a locked tenant's usage is kept."""
    await overdue(world.conn, "a/overtaken", "a/expired", "a/released", "stuck/held", "stuck/kept")
    await spend(
        log,
        *(
            (name, "a", "u", 7, 3, None, 0.5, None, None)
            for name in ("overtaken", "expired", "released")
        ),
        ("kept", "stuck", "k", 7, 3, None, 0.5, None, None),
    )
    slow = SQL.replace("FROM spend", "FROM pg_advisory_xact_lock(7), spend")
    await log.execute("SELECT pg_advisory_lock(7)")
    locker = await asyncpg.connect(world.dsn)
    run = asyncio.create_task(world.reconcile(slow))
    await waits_in(log)
    await world.conn.execute(
        "SELECT quota_settle('a', 'overtaken', 9, 9, 9, 'inline', p_now => $1)", NOW
    )
    await world.conn.execute("SELECT quota_release('a', 'released', 1, 1, 1, p_now => $1)", NOW)
    await world.conn.execute(
        "UPDATE quota_reservations SET expires_at = expires_at - interval '1 h' WHERE request_id = 'expired'"
    )
    await world.conn.execute("SELECT quota_expire_overdue(1, $1, 1800)", NOW)
    assert (await charged(world.conn))["a/expired"] == ("expired", 100, 50, 1000)
    lock = locker.transaction()
    await lock.start()
    await locker.execute("SELECT pg_advisory_xact_lock(hashtextextended('stuck', 1))")
    await log.execute("SELECT pg_advisory_unlock(7)")
    counts = await run
    # the one that was expired; the locked one's usage waits in the inbox
    assert (counts.source_settled, counts.source_set_aside, counts.lock_timeouts) == (1, 0, 1)
    state = await charged(world.conn)
    assert state["a/overtaken"] == ("settled", 9, 9, 9)
    assert state["a/released"] == ("released", 1, 1, 1)
    assert state["a/expired"] == ("expired", 7, 3, 500_000_000)
    assert state["stuck/kept"][0] == "open"
    await lock.rollback()
    await locker.close()
    counts = await world.reconcile(SQL, NOW + MINUTE)
    assert (counts.inbox_booked, counts.source_asked) == (1, 1)
    assert (await charged(world.conn))["stuck/kept"] == ("settled", 7, 3, 500_000_000)
    held = "SELECT sum(held_input_tokens) FROM quota_usage"
    assert await world.conn.fetchval(held) == 100  # the one that nobody knows


async def test_two_workers_at_once_settle_each_once(world: World, log: Connection) -> None:
    """More than a batch; a query is asked for 1,000 ids at most; the newest come first."""
    await world.conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, daily_input_tokens, daily_output_tokens, bucket_capacity) VALUES ('a', NULL, NULL, NULL, 1e9)"
    )
    await world.conn.execute(
        "SELECT count(quota_reserve('a', 'r' || n, 100, 50, 1000, p_now => $1::timestamptz + n * interval '1 ms')) FROM generate_series(1, 1500) n",
        NOW - 12 * MINUTE,
    )
    await log.execute(
        "INSERT INTO spend (request_id, tenant, tin, tout, cost) SELECT 'r' || n, 'a', 7, 3, 0 FROM generate_series(1, 1500, 2) n"
    )
    await log.execute(
        "CREATE FUNCTION few(text[]) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN IF cardinality($1) > 1000 OR NOT 'r1500' = ANY ($1) AND NOT 'r500' = ANY ($1) THEN RAISE 'too many'; END IF; RETURN $1; END $$"
    )
    text = SQL.replace("ANY($1::text[])", "ANY(few($1::text[]))")
    both = await asyncio.gather(world.reconcile(text), world.reconcile(text))
    assert [counts.failures for counts in both] == [(), ()]
    assert sum(counts.source_settled for counts in both) == 750
    totals = "SELECT count(*), sum(charged_in_tokens), sum(charged_cost_nanos) FROM quota_reservations WHERE state = 'settled'"
    assert tuple(await world.conn.fetchrow(totals) or ()) == (750, 5250, 0)
    used = "SELECT sum(input_tokens), sum(held_input_tokens) FROM quota_usage"
    assert tuple(await world.conn.fetchrow(used) or ()) == (5250 + 75_000, 75_000)
    # a run that may not ask any more asks nothing, and the policy still waits
    counts = await world.reconcile(text, NOW + MINUTE, seconds=20.0)
    assert (counts.source_asked, counts.expired_estimate) == (0, 0)


class Broken(BaseSource):
    """An adapter with a fault of its own."""

    @property
    def name(self) -> str:
        return "broken"

    async def ask(
        self, requests: Sequence[OverdueRequest], seconds_left: Callable[[], float]
    ) -> SourceAnswer:
        raise ZeroDivisionError(f"{len(requests)} of {SECRET} in {seconds_left()} s")


async def test_an_adapters_own_fault_keeps_no_hold_open(world: World, log: Connection) -> None:
    await overdue(world.conn, "a/known", "a/old")
    await spend(log, ("known", "a", None, 7, 3, None, 0.5, None, None))
    old = "UPDATE quota_reservations SET expires_at = $1 WHERE request_id = 'old'"
    await world.conn.execute(old, NOW - 16 * MINUTE)
    async with world.deps(SQL) as deps:
        ports = await deps.job_ports(deps.channels())
        assert ports.asking is not None
        (good,) = ports.asking.sources
        assert isinstance(good, BaseSource)
        sources = (Broken(good.settings, good.reader), good)
        ports = ports._replace(asking=ports.asking._replace(sources=sources))
        ctx = JobContext(NOW, Deadline(240.0, monotonic_seconds), False, ports)
        counts = await reconcile.run(ctx)
    assert counts.failures[0][:4] == (
        *("broken", "unknown_answer", 1, "a fault of quota-worker's own: ZeroDivisionError"),
    )
    assert (counts.source_settled, counts.expired_estimate) == (1, 1)
