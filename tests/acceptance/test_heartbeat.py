"""The heartbeat: after each good tick, never after another, and never the tick's own failure."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.program import quota_worker
from contract.servers_http import DROP, HANG, HttpServer, Request
from worker.bootstrap import build_deps
from worker.clock import monotonic_seconds
from worker.commands.schedule import DeployedWork
from worker.errors import ConfigurationError
from worker.heartbeat import heartbeat_url, tell_heartbeat
from worker.jobs.context import Deadline
from worker.jobs.tick import TickReport
from worker.models import JobRun
from worker.telemetry import Log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

# autovacuum may write between two ticks, which are then no idle ones
TRIES = 20
VARIABLE = "QUOTA_WORKER_HEARTBEAT_URL"
TOKEN = "s3cr3t-0f-th3-h3artb3at"  # noqa: S105  one to look for


@dataclass
class Watcher(HttpServer):
    """Writes down what was asked, and answers as it is told to."""

    lines: list[str] = field(default_factory=list)
    answer: tuple[int, Any] = (200, b"OK")

    def judge(self, request: Request) -> tuple[int, Any]:
        self.lines.append(request.line)
        return self.answer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/ping/{TOKEN}"


@pytest.fixture
async def watcher() -> AsyncIterator[Watcher]:
    server = Watcher()
    await server.start()
    yield server
    await server.stop()


async def test_good_ticks_are_told_idle_ones_too_and_others_are_not(
    watcher: Watcher, dsn: str, conn: asyncpg.Connection
) -> None:
    async def tick(*arguments: str) -> tuple[int, str]:
        done = await quota_worker(dsn, *(arguments or ("tick",)), **{VARIABLE: watcher.url})
        assert TOKEN not in done.out + done.err
        return done.code, done.err

    assert (await tick())[0] == 0
    assert watcher.lines == [f"GET /ping/{TOKEN} HTTP/1.1"]
    told, idle = 1, False
    for _ in range(TRIES):
        done = await quota_worker(dsn, "tick", "--json", **{VARIABLE: watcher.url})
        told += 1
        idle = all("leftover" not in job for job in json.loads(done.out)["jobs"])
        if idle:
            break
    assert idle
    assert len(watcher.lines) == told

    await tick("tick", "--dry-run")
    await tick("tick", "--jobs", "deliver")
    await tick("tick", "--as-of", "2026-01-01T00:00:00Z")
    await tick("run", "deliver")
    await conn.execute("UPDATE tick_lease SET owner = 'x', expires_at = now() + interval '1 h'")
    assert (await tick())[0] == 0
    await conn.execute("UPDATE tick_lease SET expires_at = now()")
    await conn.execute("DROP FUNCTION quota_months_to_roll; DELETE FROM job_runs")
    code, err = await tick()
    assert (code, "job failed" in err) == (1, True)
    assert len(watcher.lines) == told


async def test_a_ping_that_fails_is_a_line_and_no_failure(watcher: Watcher, dsn: str) -> None:
    watcher.answer = (503, b"no")
    done = await quota_worker(dsn, "tick", **{VARIABLE: watcher.url})
    assert (done.code, done.out) == (0, "")
    (line,) = [json.loads(x) for x in done.err.splitlines() if "heartbeat" in x]
    assert (line["event"], line["level"], line["reason"]) == (
        "heartbeat not told",
        "warning",
        "HTTP 503",
    )
    assert TOKEN not in done.err


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HANG, "no answer within 1 s"),
        (DROP, "no answer (RemoteProtocolError)"),
        ((302, b""), "HTTP 302"),
        ((404, b""), "HTTP 404"),
        ((204, b""), None),
    ],
)
async def test_each_way_to_fail_is_told_in_time_without_the_address(
    answer: tuple[int, Any],
    reason: str | None,
    watcher: Watcher,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if answer == HANG:
        monkeypatch.setattr("worker.heartbeat.PING_SECONDS", 1.0)
    watcher.answer = answer
    watcher.more_headers = f"Location: http://127.0.0.1:{watcher.port}/elsewhere\r\n"
    async with asyncio.timeout(4):
        await tell_heartbeat(watcher.url, TickReport(granted=True), Log())
    assert len(watcher.lines) == 1
    err = capsys.readouterr().err
    assert TOKEN not in err
    assert err.count("\n") == (reason is not None)
    if reason:
        assert json.loads(err)["reason"] == reason


async def test_nobody_listens_and_nobody_is_told_of_a_failed_tick(
    watcher: Watcher, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = TickReport(granted=True, runs=(JobRun("deliver", "failed", {}, 0.0),))
    for report in (failed, TickReport(granted=False)):
        await tell_heartbeat(watcher.url, report, Log())
    await tell_heartbeat(None, TickReport(granted=True), Log())
    assert watcher.lines == []
    await watcher.stop()
    await tell_heartbeat(watcher.url, TickReport(granted=True), Log())
    assert json.loads(capsys.readouterr().err)["reason"] == "no answer (ConnectError)"


async def test_the_long_running_process_tells_too(watcher: Watcher, dsn: str) -> None:
    async with build_deps(environ={"POSTGRES_DSN": dsn, VARIABLE: watcher.url}) as deps:
        work = DeployedWork(deps)
        await work.open()
        assert watcher.lines == []
        await work.tick(Deadline(60, monotonic_seconds))
        assert len(watcher.lines) == 1
        await work.close()


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        (f"http://hc.example.com/{TOKEN}", "is plain http to hc.example.com: use https"),
        (f"ftp://hc.example.com/{TOKEN}", "is no https address"),
        (TOKEN, "is no https address"),
        (f"https://hc.example.com/{TOKEN} x", "is no https address"),
    ],
)
def test_a_wrong_address_is_refused_without_it(url: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        heartbeat_url({VARIABLE: url})
    assert str(caught.value) == f"{VARIABLE} {fault}"


async def test_a_wrong_address_stops_the_tick_before_it_begins(
    dsn: str, conn: asyncpg.Connection
) -> None:
    done = await quota_worker(dsn, "tick", **{VARIABLE: f"http://hc.example.com/{TOKEN}"})
    assert (done.code, done.out) == (2, "")
    assert done.err == f"quota-worker: {VARIABLE} is plain http to hc.example.com: use https\n"
    assert await conn.fetchval("SELECT count(*) FROM job_runs") == 0


def test_unset_or_empty_is_nobody() -> None:
    assert heartbeat_url({}) is heartbeat_url({VARIABLE: " "}) is None
    assert heartbeat_url({VARIABLE: " https://hc.example.com/x "}) == "https://hc.example.com/x"
