"""What must hold up nobody else: a usage that the database refuses, a name that isn't resolved."""

from __future__ import annotations

import asyncio
import socket
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx
import pytest

from contract.samples import department_facts, message
from contract.sources_world import MINUTE, NOW, World, charged, overdue
from worker.clock import monotonic_seconds
from worker.errors import DatabaseError, DatabaseFullError, DatabaseReadOnlyError
from worker.jobs import reconcile
from worker.jobs.context import Deadline, JobContext
from worker.models import FailureCause
from worker.notifiers.webhook import WebhookNotifier
from worker.postgres.errors import translated
from worker.postgres.pool import connect
from worker.resolving import ProgramLoop
from worker.settings import SourceSettings
from worker.sources.base import BaseSource
from worker.sources.makers import SourceNeeds, make_source
from worker.usage import OverdueRequest, SourceAnswer, ToldUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from worker.jobs.reconcile import ReconcileCounts
    from worker.rendering import Renderer

    Connection = asyncpg.Connection[Any]

FILE = """
[sources.odd]
kind = "sql"
query = "SELECT $1::text[]"
unique_ids = true
[sources.odd.columns]
request_id = "r"
in_tokens = "i"
out_tokens = "o"
"""
# More digits than a numeric of the database holds.
ENDLESS = Decimal("0e-17000")


class Odd(BaseSource):
    """Tells 7 and 3 of each request; with an endless cost where its id begins with `odd`."""

    async def ask(
        self, requests: Sequence[OverdueRequest], seconds_left: Callable[[], float]
    ) -> SourceAnswer:
        assert seconds_left() > 0
        usages = [
            ToldUsage(
                one.tenant_id,
                one.request_id,
                f"u-{one.request_id}",
                7,
                3,
                cost=ENDLESS if one.request_id.startswith("odd") else Decimal("0.5"),
            )
            for one in requests
        ]
        return SourceAnswer(asked=tuple(requests), usages=tuple(usages))


async def run_with_odd(world: World) -> ReconcileCounts:
    async with world.deps(FILE) as deps:
        ports = await deps.job_ports(deps.channels())
        assert ports.asking is not None
        (made,) = ports.asking.sources
        assert isinstance(made, BaseSource)
        odd = Odd(made.settings, made.reader)
        ports = ports._replace(asking=ports.asking._replace(sources=(odd,)))
        return await reconcile.run(
            JobContext(NOW, Deadline(240.0, monotonic_seconds), False, ports)
        )


async def test_a_usage_that_the_database_refuses_spoils_no_other(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    world = World(dsn, tmp_path, conn)
    names = [*(f"a/r{n}" for n in range(20)), "a/odd1", "b/odd2", "b/good"]
    await overdue(conn, *names)
    counts = await run_with_odd(world)
    assert (counts.source_settled, counts.source_set_aside, counts.failed) == (21, 2, 0)
    state = await charged(conn)
    assert {name for name, (s, *_) in state.items() if s == "open"} == {"a/odd1", "b/odd2"}
    assert state["b/good"] == ("settled", 7, 3, 500_000_000)
    rows = await conn.fetch("SELECT tenant_id, reason, excerpt FROM quota_source_faults ORDER BY 1")
    assert [(row[0], row[1]) for row in rows] == [("a", "invalid"), ("b", "invalid")]
    assert rows[0]["excerpt"].startswith("the ledger's database refused it: ")
    asked = "SELECT array_agg(request_id ORDER BY request_id) FROM quota_source_asks"
    assert await conn.fetchval(asked) == ["odd1", "odd2"]
    # so many that the fault may be the database's: told as such, and all are noted as asked
    await overdue(conn, *(f"c/odd{n}" for n in range(12)))
    with pytest.raises(DatabaseError):
        await run_with_odd(world)
    assert len(await conn.fetchval(asked)) == 14
    assert await conn.fetchval("SELECT count(*) FROM quota_source_faults") == 12
    # what no usage is to blame for has a name of its own
    reading = conn.transaction(readonly=True)
    await reading.start()
    with pytest.raises(DatabaseReadOnlyError, match="primary"), translated():
        await conn.execute("SELECT quota_source_asked(ARRAY['a'], ARRAY['b'], $1)", NOW + MINUTE)
    await reading.rollback()
    with pytest.raises(DatabaseFullError, match="make room"), translated():
        await conn.execute("DO $$ BEGIN RAISE 'no space' USING ERRCODE = 'disk_full'; END $$")


def test_a_resolver_that_hangs_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch, renderer: Renderer
) -> None:
    """Not the other names, not the program's end; and it is told as what it is."""
    httpx.create_ssl_context()  # its first time takes a while
    done, system = threading.Event(), socket.getaddrinfo

    def slow(host: Any, *more: Any) -> Any:
        if "slow" in str(host):
            done.wait(20)
            raise socket.gaierror(socket.EAI_AGAIN, "later")
        return system(host, *more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    limits = {"time_limit_seconds": 0.5, "answer_max_bytes": 1000, "currency": None}
    http = limits | {"url": "http://slow.test/{request_id}", "headers": {}, "not_found": (404,)}
    http |= {"at_once": 16, "requests_per_second": 100}
    sql = limits | {"dsn": "postgresql://u@slow.test/d", "query": "SELECT", "tenants": False}
    requests = [OverdueRequest("a", f"r{n}", NOW) for n in range(40)]

    async def all_of_them() -> list[str]:
        told = []
        for kind, values in (("http", http), ("sql", sql)):
            needs = SourceNeeds(lambda: "", {}, None)  # type: ignore[arg-type]
            source = make_source(SourceSettings("s", kind, values, {}), needs)
            answer = await source.ask(requests, lambda: 60.0)
            assert answer.is_down
            told += [f"{t.cause} {t.detail} {t.cure}" for t in answer.troubles[:1]]
            await source.close()
        hook = WebhookNotifier(renderer, "https://slow.test/hook", None)
        delivery = await hook.send(message(department_facts()), 0.5)
        await hook.close()
        assert delivery.cause is FailureCause.UNREACHABLE
        told.append(f"{delivery.cause} {delivery.detail} {delivery.cure}")
        asyncio.get_running_loop().run_in_executor(None, done.wait, 20)
        # another name is looked up meanwhile
        with pytest.raises(DatabaseError, match="connection refused|Connect call failed"):
            await connect("postgresql://u@localhost:1/d")
        return told

    started = monotonic_seconds()
    try:
        with asyncio.Runner(loop_factory=ProgramLoop) as runner:
            told = runner.run(all_of_them())
        assert monotonic_seconds() - started < 5
    finally:
        done.set()
    words = "unreachable the host's name was not resolved within 0.5 s check the host's spelling"
    assert [one[: len(words)] for one in told] == [words] * 3
