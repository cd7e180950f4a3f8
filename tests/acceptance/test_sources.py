"""Usage sources as operators meet them: the tick, its log, and `quota-worker source`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from acceptance.program import environment, quota_worker
from contract.sources_world import SECRET, SPEND, SQL, UsageServer, World, faults, overdue
from worker.clock import utc_now
from worker.commands import source
from worker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from conftest import NewDatabase

    Connection = asyncpg.Connection[Any]

KNOWN = ("test", "log", "--tenant", "a", "--request", "known")
STATES = "SELECT array_agg(request_id || ' ' || state ORDER BY request_id) FROM quota_reservations"


@pytest.fixture
async def world(
    dsn: str, conn: Connection, new_database: NewDatabase, tmp_path: Path
) -> AsyncIterator[World]:
    """A gateway's log that knows two requests, one of them with a wrong figure."""
    world = World(dsn, tmp_path, conn, {"LOG_DSN": await new_database()})
    log = await asyncpg.connect(world.environ["LOG_DSN"])
    await log.execute(SPEND)
    await log.execute(
        "INSERT INTO spend (request_id, tenant, tin, tout, cost) VALUES ('known', 'a', 7, 3, 0.5), ('bad', 'a', -7, 3, 0), ('running', 'a', NULL, NULL, NULL)"
    )
    yield world
    await log.close()


async def command(world: World, text: str, *arguments: str) -> int:
    """`quota-worker source ARGUMENTS` in this process."""
    parser = argparse.ArgumentParser()
    source.add_arguments(parser)
    async with world.deps(text) as deps:
        return await source.run(parser.parse_args(arguments), deps)


async def test_sources_are_listed_and_tried(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    address, world.dsn = world.dsn, "postgresql://nobody@127.0.0.1:1/none"  # not needed for it
    answers = {"*": (503, {"secret": SECRET}), "running": (202, b""), "page": (200, b"<html>")}
    api = UsageServer(answers=answers, more_headers="")
    await api.start()
    text = api.text() + SQL

    assert await command(world, "", "list") == 0
    assert "no usage source is configured" in capsys.readouterr().out
    assert await command(world, text, "list") == 0
    rows, limits = capsys.readouterr().out.split("\n\n")
    assert [line.split()[:2] for line in rows.splitlines()[1:]] == [["api", "http"], ["log", "sql"]]
    assert "the stale policy waits 15 min" in limits

    assert await command(world, text, "test", "log") == 0
    assert "knows no usage of a request that nobody made" in capsys.readouterr().out
    assert await command(world, text, *KNOWN) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["in_tokens", "7"] in shown
    assert ["cost", "0.5", "(billing", "currency)"] in shown
    assert shown[-1][:3] == ["nothing", "was", "settled:"]
    assert await command(world, text, *KNOWN[:-1], "unknown") == 1
    assert "knows no usage of request unknown" in capsys.readouterr().err
    assert await command(world, text, *KNOWN[:-1], "running") == 1
    assert "not yet, the usage of request running is to come" in capsys.readouterr().err
    assert await command(world, text, *KNOWN[:-1], "bad") == 1
    assert "set aside: wrong_number: in_tokens is -7: a whole" in capsys.readouterr().err

    assert await command(world, text, "test", "api") == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "no answer that can be used",
        "  cause: server_error: HTTP 503",
        "  do: look in the service's log",
    ]
    for tenant_request, words in (
        ((*KNOWN[2:-1], "running"), "it answered: not yet, the usage of request running is to"),
        ((*KNOWN[2:-1], "page"), "set aside: unreadable: "),
    ):
        assert await command(world, text, "test", "api", *tenant_request) == 1
        assert words in capsys.readouterr().err
    api.answers["*"] = (204, b"")
    assert await command(world, text, "test", "api") == 0
    assert "it answered: not yet, of a request that nobody made" in capsys.readouterr().out
    await api.stop()
    for arguments, words in (
        (("test", "lag"), "'lag' is no usage source here: did you mean log?"),
        (KNOWN[:4], "--tenant and --request belong together"),
        (("faults", "--limit", "0"), "--limit needs a number of rows from 1"),
    ):
        with pytest.raises(UsageError, match=words):
            await command(world, text, *arguments)
    world.dsn = address
    assert await command(world, text, "faults") == 0
    assert capsys.readouterr().out == "no answer of a usage source was set aside\n"
    assert await command(world, text, "faults", "log") == 0
    assert capsys.readouterr().out == "no answer of the usage source log was set aside\n"
    for file, words in ((text, "did you mean log"), ("", "none is configured, see")):
        with pytest.raises(UsageError, match=f"'lag' is no usage source here: {words}"):
            await command(world, file, "faults", "lag")


async def test_a_tick_asks_with_the_workers_rights_and_says_what_failed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    conn = world.conn
    name = "worker_" + await conn.fetchval("SELECT left(current_database(), 20)")
    await conn.execute(f"CREATE ROLE {name} LOGIN IN ROLE quota_worker")
    file = world.folder / "quota-worker.toml"
    file.write_text(SQL.replace("sources.log", "sources.gone").replace("LOG_DSN", "GONE") + SQL)
    address = world.dsn.replace("://quota@", f"://{name}@")
    assert address != world.dsn
    environ = world.environ | {"GONE": f"postgresql://u:{SECRET}@127.0.0.1:1/none"}

    async def reconciled() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        done = await quota_worker(address, "--config", str(file), "tick", "--json", **environ)
        assert done.code == 0, done.err
        assert SECRET not in done.out + done.err
        (job,) = [job for job in json.loads(done.out)["jobs"] if job["job"] == "reconcile"]
        return job, [json.loads(line) for line in done.err.splitlines()]

    try:
        await overdue(conn, "a/known", "a/bad", "a/gone", at=utc_now())
        earlier = "UPDATE quota_reservations SET expires_at = expires_at - interval '11 minutes' WHERE ended_at IS NULL"
        await conn.execute(earlier)
        job, lines = await reconciled()
        assert {key: count for key, count in job.items() if key.startswith("source_")} == {
            "source_asked": 6,
            "source_settled": 1,
            "source_set_aside": 1,
            "source_failed": 1,
        }
        assert (job["outcome"], job["error"]) == ("done", None)
        (line,) = [one for one in lines if one["event"] == "source failing"]
        assert line["detail"] == "connection refused: nothing listens there"
        assert line["cure"] == "check the host and the port, and that the service runs"
        assert [line[key] for key in ("level", "source", "cause", "times")] == [
            *("warning", "gone", "unreachable", 1)
        ]
        assert await conn.fetchval(STATES) == ["bad open", "gone open", "known settled"]
        # typed by hand without the configuration: left to those who have it
        done = await quota_worker(address, "run", "reconcile", **environ)
        (line,) = [json.loads(one) for one in done.err.splitlines() if "cure" in one]
        assert (done.code, line["event"]) == (0, "no usage source configured")
        assert "--config" in line["cure"]
        assert await conn.fetchval(STATES) == ["bad open", "gone open", "known settled"]
        # the wait is over, and now every source is down: asked once more, though no row has changed
        await conn.execute(earlier)
        await conn.execute(earlier)
        environ["LOG_DSN"] = environ["GONE"]
        job, _ = await reconciled()
        assert (job["source_asked"], job["source_failed"], job["expired_estimate"]) == (4, 2, 2)
        assert await conn.fetchval(STATES) == ["bad expired", "gone expired", "known settled"]
    finally:
        await conn.execute(f"DROP ROLE {name}")
    assert await faults(conn) == {"a/bad": "wrong_number"}
    await conn.execute(
        "UPDATE quota_settings SET billing_zone = 'Asia/Shanghai';"
        "UPDATE quota_source_faults SET seen_at = '2026-11-30T20:05:00Z'"
    )
    # the name of one that is configured no more
    assert await command(world, "", "faults", "log") == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.startswith("seen (Asia/Shanghai)")
    assert row.startswith("2026-12-01 04:05 ")
    assert row.split()[2:7] == ["log", "wrong_number", "a", "bad", "1"]
    assert row.endswith("in_tokens is -7: a whole number from 0 to 10^12 is needed")


def test_a_tick_loads_nothing_of_it_without_sources(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "quota-worker.toml"
    file.touch()
    code = (
        "import sys, runpy\n"
        "sys.argv = ['quota-worker', '--config', sys.argv[1], 'run', 'reconcile']\n"
        "try: runpy.run_module('worker', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print([name for name in sys.modules if name.startswith(('httpx', 'worker.sources', 'worker.configuration.sources'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        env=environment(dsn),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
