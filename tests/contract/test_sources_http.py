"""An HTTP source on a real server: what it may answer, how it may fail, its rate and its limits."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from contract.servers_http import HANG
from contract.sources_world import (
    MINUTE,
    NOW,
    SECRET,
    UsageServer,
    World,
    charged,
    faults,
    overdue,
    usage,
)
from worker.clock import monotonic_seconds
from worker.errors import LockTimeoutError
from worker.sources.http import HttpSource
from worker.sources.reading import Reader
from worker.usage import OverdueRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import asyncpg

    from contract.servers_mail import Certificates

    Connection = asyncpg.Connection[Any]


@pytest.fixture
async def world(dsn: str, conn: Connection, tmp_path: Path) -> World:
    return World(dsn, tmp_path, conn)


@pytest.fixture
async def api() -> AsyncIterator[UsageServer]:
    server = UsageServer()
    await server.start()
    yield server
    await server.stop()


def figures(tin: Any, tout: Any, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": tin, "completion_tokens": tout, "details": [{}]} | more


# By the request's id: what is answered, and the reason for which it is set aside; None: it isn't.
ANSWERS: dict[str, tuple[Any, str | None]] = {
    "known": ("known", None),
    "unknown": ((404, {"error": "no such request"}), None),
    "later": ((202, b""), None),
    "null": ({"data": {"tenant": "a", "id": "null", "usage": None}}, None),
    "negative": (usage("a", "negative", -5), "wrong_number"),
    "float": (usage("a", "float", 7.5), "wrong_number"),
    "text": (usage("a", "text", "7"), "wrong_number"),
    "true": (usage("a", "true", True), "wrong_number"),
    "huge": (usage("a", "huge", 10**30), "wrong_number"),
    "exponent": (
        b'{"data":{"tenant":"a","id":"exponent","usage":{"prompt_tokens":1e999999,"completion_tokens":1,"details":[{}]}}}',
        "wrong_number",
    ),
    "nan": (
        b'{"data":{"tenant":"a","id":"nan","usage":{"prompt_tokens":NaN,"completion_tokens":1,"details":[{}]}}}',
        "wrong_number",
    ),
    "half": (usage("a", "half", 7, None), "missing_figure"),
    "cost": (usage("a", "cost", cost="free"), "wrong_number"),
    "cached": (usage("a", "cached", 19), "wrong_number"),
    "lacks": ({"data": {"tenant": "a", "id": "lacks", "usage": {"tokens": 7}}}, "missing_figure"),
    "other": (usage(f"b {SECRET}", "other"), "other_tenant"),
    "another": (usage("a", "else"), "not_asked"),
    "list": ([1, 2], "missing_figure"),
    "login": ((200, b"<!DOCTYPE html><title>Log in</title>"), "unreadable"),
    "large": ((200, b'{"x": "' + b"x" * 70_000 + b'"}'), "unreadable"),
    "deep": ((200, b"[" * 60_000), "unreadable"),
    "latin": ((200, b'{"\xff": 1}'), "unreadable"),
    "odd/ä b?": ("known", None),
    "..": ("known", "wrong_id"),
}


async def test_every_answer_is_read_or_set_aside_by_name(world: World, api: UsageServer) -> None:
    api.answers = {name: answer for name, (answer, _) in ANSWERS.items()}
    # two bad ones in a row and a good one between: three in a row would be a source that is down
    order = [name for name in ANSWERS if name not in {"login", "large", "deep", "latin"}]
    for place, name in enumerate(("login", "large", "deep", "latin")):
        order.insert(3 * place + 1, name)
    for place, name in enumerate(order):
        await world.conn.execute(
            "INSERT INTO tenant_limits (tenant_id, daily_completions, bucket_capacity) VALUES ('a', NULL, 1e9) ON CONFLICT DO NOTHING"
        )
        await world.conn.execute(
            "SELECT quota_reserve('a', $1, 100, 50, 1000, p_now => $2)",
            name,
            NOW - 12 * MINUTE - place * MINUTE / 60,
        )
    text = api.text().replace("[sources.api.headers]", "at_once = 1\n[sources.api.headers]")
    counts = await world.reconcile(text)
    wanted = {f"a/{name}": reason for name, (_, reason) in ANSWERS.items() if reason}
    assert await faults(world.conn) == wanted
    assert (counts.source_asked, counts.source_settled) == (len(ANSWERS), 2)
    assert counts.source_set_aside == len(wanted)
    assert counts.source_failed == 0  # each was answered
    assert {failure.cause: failure.times for failure in counts.failures} == {
        "unknown_answer": 3,
        "too_large": 1,
    }
    (said,) = [f.detail for f in counts.failures if f.cause == "unknown_answer"]
    assert said.startswith("JSON by its type, application/json, but not readable as such; it begin")
    state = await charged(world.conn)
    assert state["a/known"] == state["a/odd/ä b?"] == ("settled", 70, 30, 1200)
    assert {name for name, (s, *_) in state.items() if s == "settled"} == {"a/known", "a/odd/ä b?"}
    assert "/v1/a/usage/odd%2F%C3%A4%20b%3F" in api.paths
    assert {headers["authorization"] for headers in api.headers} == {f"Bearer {SECRET}"}
    # nobody's id is in the address unquoted, and none is asked for twice in one run
    assert len(api.paths) == len(set(api.paths)) == len(ANSWERS) - 1


DOWN: dict[str, tuple[Any, str]] = {
    "hang": (HANG, "timeout"),
    "error": ((500, {}), "server_error"),
    "moved": ((302, b""), "rejected"),
    "login": ((401, {}), "login_refused"),
    "throttle": ((429, {}), "rate_limited"),
    "cut": ((200, b'{"data":'), "unreachable"),
}


async def test_a_server_that_is_down_is_left_alone_and_asked_again_at_the_next_tick(
    world: World, api: UsageServer
) -> None:
    second = UsageServer(answers={"r0": "known"})
    await second.start()
    behind = second.text().replace("sources.api", "sources.behind")
    text = api.text().replace("[sources.api.headers]", "at_once = 2\n[sources.api.headers]")
    # elsewhere, with the header's secret: nobody may follow there
    api.more_headers = f"Location: http://127.0.0.1:{second.port}/v1/a/usage/r0\r\n"
    for case, (answer, cause) in DOWN.items():
        await overdue(world.conn, *(f"{case}/r{n}" for n in range(8)))
        api.answers, api.paths, second.paths = {"*": answer}, [], []
        api.owed = 5 if case == "cut" else 0
        limit = "time_limit_seconds = 1\n" if case == "hang" else "time_limit_seconds = 10\n"
        started = monotonic_seconds()
        counts = await world.reconcile(text.replace("time_limit_seconds = 10\n", limit) + behind)
        assert monotonic_seconds() - started < 9, case
        assert [(f.source, f.cause) for f in counts.failures] == [("api", cause)], (case, counts)
        assert counts.failures[0].cure, case
        # given up after three failures; those at once may be one more
        assert len(api.paths) <= 4, case
        assert (counts.source_settled, counts.failed) == (1, 0), case
        assert len(second.paths) == len(set(second.paths)) == 8, case
        assert (await charged(world.conn))[f"{case}/r0"][0] == "settled", case
    await second.stop()
    # up again: found at a later tick, before the wait is over; the second one is gone now
    api.answers, api.owed = {"*": "known"}, 0
    counts = await world.reconcile(behind + text, NOW + 5 * MINUTE)
    assert (counts.source_settled, counts.expired_estimate) == (7 * len(DOWN), 0)
    assert [(f.source, f.cause) for f in counts.failures] == [("behind", "unreachable")]


async def test_a_process_without_sources_leaves_what_is_overdue_to_those_that_have_them(
    world: World, api: UsageServer
) -> None:
    await overdue(world.conn, "a/r")  # overdue for two minutes
    await world.reconcile(api.text())
    counts = await world.reconcile("", NOW + 57 * MINUTE)
    assert (counts.expired_estimate, counts.failed, counts.leftover) == (0, 0, False)
    (failure,) = counts.failures
    assert failure.cause == "sources_not_set"
    assert "less than 60 minutes is left to those" in failure.detail
    counts = await world.reconcile("", NOW + 58 * MINUTE)
    assert (counts.expired_estimate, len(counts.failures)) == (1, 1)
    # nothing is overdue: nothing to tell
    assert (await world.reconcile("", NOW + 59 * MINUTE)).failures == ()
    # a day later the sources are taken for taken out
    await world.conn.execute("UPDATE quota_source_rates SET next_at = now() - interval '25 hours'")
    for hours, ended in ((23, 0), (24, 2)):
        await overdue(world.conn, f"a/{hours}", at=NOW + 60 * hours * MINUTE - 12 * MINUTE)
        counts = await world.reconcile("", NOW + 60 * hours * MINUTE)
        assert (counts.expired_estimate, len(counts.failures)) == (ended, ended == 0)


async def test_no_word_of_a_secret_address_or_certificate_shows(
    world: World, certificates: Certificates
) -> None:
    """An error page that repeats the address, and a server whose authority is unknown."""
    await overdue(world.conn, "a/r1")
    plain, encrypted = UsageServer(), UsageServer(answers={"*": "known"})
    await plain.start()
    await encrypted.start(certificates.context)
    address = f"http://127.0.0.1:{plain.port}/v1/{{tenant_id}}/{SECRET}/{{request_id}}"
    plain.answers = {"*": (200, f"Cannot GET /v1/a/{SECRET}/r1".encode())}
    text = plain.text().split("\n")
    text[3] = 'url = { env = "ADDRESS" }'
    world.environ["ADDRESS"] = address
    tls = encrypted.text().replace("http://127.0.0.1", "https://localhost")
    counts = await world.reconcile("\n".join(text) + tls.replace("sources.api", "sources.tls"))
    assert await faults(world.conn) == {"a/r1": "unreadable"}
    assert [failure.cause for failure in counts.failures] == ["unknown_answer", "unreachable"]
    first, second = counts.failures
    assert "it begins with 'Cannot GET /v1/a/***/r1'" in first.detail
    assert "its authority is not known here" in second.detail
    assert "SSL_CERT_FILE" in second.cure
    await plain.stop()
    await encrypted.stop()


async def test_what_was_told_before_a_lock_held_the_next_slot_up_is_kept(
    world: World, api: UsageServer
) -> None:
    api.answers = {"*": "known"}
    granted = iter((0.0, 0.0))

    async def slot(_source: str, _per_second: int, _wait_seconds: float) -> float:
        for wait in granted:
            return wait
        raise LockTimeoutError

    async with world.deps(api.text()) as deps:
        (settings,) = deps.delivery().asking.sources
        source = HttpSource(settings, Reader("api", None, ()), slot)
        requests = [OverdueRequest("a", f"r{place}", NOW) for place in range(9)]
        answer = await source.ask(requests, lambda: 60.0)
        await source.close()
    assert (len(answer.usages), len(answer.asked), answer.is_down) == (2, 2, False)


async def test_the_rate_holds_over_workers_and_the_tick_stays_in_its_time(
    world: World, api: UsageServer
) -> None:
    await overdue(world.conn, *(f"t{n}/r" for n in range(40)))
    slow = api.text().replace("requests_per_second = 100", "requests_per_second = 20")
    started = monotonic_seconds()
    limited = f"[reconcile]\nask_seconds = 1\nwait_minutes = 10\n{slow}"
    both = await asyncio.gather(world.reconcile(limited), world.reconcile(limited))
    assert monotonic_seconds() - started < 8
    gaps = [later - earlier for earlier, later in itertools.pairwise(sorted(api.times))]
    assert len(api.times) <= 26
    assert sum(gaps) / len(gaps) > 0.04
    assert {counts.expired_estimate for counts in both} == {0}
    # those that weren't asked come first in the next run, then the others once more
    first = set(api.paths)
    api.paths.clear()
    await world.reconcile(api.text(), NOW + 5 * MINUTE)
    assert len(api.paths) == 40
    assert set(api.paths[: 40 - len(first)]).isdisjoint(first)
    # the wait is over: nothing is lost, and what comes then is a correction
    api.answers = {"*": (500, {})}
    counts = await world.reconcile(limited, NOW + 8 * MINUTE)
    assert (counts.expired_estimate, counts.failures[0].cause) == (40, "server_error")
    assert await world.conn.fetchval("SELECT count(*) FROM quota_source_asks") == 40
    settle = "SELECT outcome FROM quota_settle('t7', 'r', 7, 3, 5, p_now => $1)"
    assert await world.conn.fetchval(settle, NOW + 9 * MINUTE) == "corrected"
    assert (await charged(world.conn))["t7/r"] == ("expired", 7, 3, 5)
    # what is over is forgotten
    await world.reconcile(limited, NOW + 10 * MINUTE)
    assert await world.conn.fetchval("SELECT count(*) FROM quota_source_asks") == 0
