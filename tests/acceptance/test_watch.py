"""The job watch as operators meet it: who is paged and who isn't, what a kill loses, and its settings."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.program import quota_worker, start, until
from contract.servers_http import HANG
from contract.servers_webhook import TAKEN, WebhookServer
from requests_world import put
from unit.configuration_world import faults_of

from sql.calls import NOON, Calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

MINUTE = timedelta(minutes=1)
LATER = NOON + 5 * MINUTE
HOOK = """
[channels.hook]
kind = "webhook"
url = "{url}"
secret = {{ env = "HOOK_SECRET" }}
[default]
channels = ["hook"]
"""


@pytest.fixture
async def hook() -> AsyncIterator[WebhookServer]:
    """A receiver on loopback that checks each signature."""
    server = WebhookServer()
    await server.start()
    yield server
    await server.stop()


def told_by(hook: WebhookServer, folder: Path) -> dict[str, str]:
    """The variables of a program that tells everything to the receiver."""
    path = folder / "quota-worker.toml"
    path.write_text(HOOK.format(url=hook.url))
    return {"QUOTA_WORKER_CONFIG": str(path), "HOOK_SECRET": hook.secret}


def ids(hook: WebhookServer) -> set[str]:
    return {one["webhook-id"] for one in hook.headers}


async def test_a_spike_that_is_over_pages_nobody_and_what_goes_on_does_once(
    dsn: str, conn: Connection, hook: WebhookServer, tmp_path: Path
) -> None:
    environ = told_by(hook, tmp_path)
    calls = Calls(conn)
    await calls.tenant("spiky", daily_tokens=10_000)
    await calls.tenant("steady", daily_tokens=10_000)
    # a third of the cap in one minute, and 400 equal requests, both over for more than their short window
    for number in range(30):
        await calls.reserve("spiky", f"r{number}", (100, 0, 0), now=NOON - 6 * MINUTE)
    await put(conn, 400, at=NOON - 11 * MINUTE, key="k-spike")
    quiet = await quota_worker(dsn, "tick", "--as-of", NOON.isoformat(), **environ)
    assert (quiet.code, hook.requests) == (0, [])

    for number in range(30):
        ago = (40 if number % 2 else 1) * MINUTE
        await calls.reserve("steady", f"r{number}", (100, 0, 0), app="crawler", now=LATER - ago)
    await put(conn, 184, at=LATER - MINUTE, key="k-loop", usage=(812, 20))
    await put(conn, 16, at=LATER - MINUTE, key="k-loop", usage=(9, 1))
    dry = await quota_worker(
        dsn, "run", "watch", "--as-of", LATER.isoformat(), "--dry-run", "--json", **environ
    )
    (job,) = json.loads(dry.out)["jobs"]
    assert (job["burns"], job["runaways"], job["messages"]) == (1, 1, 0)
    assert await conn.fetchval("SELECT count(*) FROM quota_watch_told") == 0

    ticked = await quota_worker(dsn, "tick", "--as-of", LATER.isoformat(), "--json", **environ)
    (job,) = (one for one in json.loads(ticked.out)["jobs"] if one["job"] == "watch")
    assert (job["burns"], job["runaways"], job["messages"]) == (1, 1, 2)
    texts = {one["type"]: one["text"] for one in hook.requests}
    assert len(hook.requests) == 2
    assert texts["burn-rate"].startswith(
        "[quota-burn] steady at 30.0% tokens, 7.2 times the even pace: full about 2026-05-15 14:25"
    )
    assert (
        "1. app crawler, (no key): 30 requests, 3,000 tokens, 0.00 USD, 100.0% of"
        in (texts["burn-rate"])
    )
    assert "200 requests in ten minutes, 92% of them with 812 input tokens" in texts["runaway"]
    for text, subject in ((texts["burn-rate"], "steady"), (texts["runaway"], "t")):
        assert f"next: quota-worker status {subject}\n" in text
        assert "quota-worker limits block --for 2h --reason " in text

    # both go on: not told again
    again = LATER + 5 * MINUTE
    await calls.reserve("steady", "later", (500, 0, 0), now=again - MINUTE)
    await put(conn, 100, at=again - MINUTE, key="k-loop", usage=(812, 20))
    assert (await quota_worker(dsn, "tick", "--as-of", again.isoformat(), **environ)).code == 0
    assert len(hook.requests) == 2
    listed = (await quota_worker(dsn, "alerts")).out
    assert "warning  steady: tokens, day 30.0%, 7.2 times the even pace\n" in listed
    assert "warning  t: 1 app or key runs away, 200 requests in the last hour\n" in listed


async def test_a_kill_in_the_pass_and_one_while_sending_lose_and_double_nothing(
    dsn: str, conn: Connection, hook: WebhookServer, tmp_path: Path
) -> None:
    environ = told_by(hook, tmp_path)
    await put(conn, 100, at=NOON - MINUTE)
    tick = ("tick", "--jobs", "watch,deliver", "--as-of")

    async def killed(when: Any) -> None:
        process = await start(dsn, *tick, NOON.isoformat(), **environ)
        await until(when)
        process.kill()
        await process.communicate()
        # its lease runs out
        await conn.execute("UPDATE tick_lease SET expires_at = '-infinity'")

    async def waits_in_the_pass() -> bool:
        return bool(
            await conn.fetchval(
                "SELECT count(*) FROM pg_locks"
                " WHERE NOT granted AND relation = 'quota_watch_told'::regclass"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        )

    async def has_been_sent_to() -> bool:
        return len(hook.requests) == 1

    async with conn.transaction():
        await conn.execute("LOCK TABLE quota_watch_told IN SHARE MODE")
        await killed(waits_in_the_pass)
    assert hook.requests == []

    hook.answers[:] = [HANG, TAKEN]
    await killed(has_been_sent_to)
    (lease_until,) = await conn.fetchrow("SELECT lease_until FROM quota_outbox")
    done = await quota_worker(dsn, *tick, (lease_until + MINUTE).isoformat(), **environ)
    assert done.code == 0
    # the request that was cut off is repeated under its own id
    assert ([one["type"] for one in hook.requests], len(ids(hook))) == (["runaway"] * 2, 1)
    assert await conn.fetchval("SELECT array_agg(state) FROM quota_outbox") == ["sent"]
    assert await conn.fetchval("SELECT count(*) FROM quota_watch_told") == 1


async def test_a_runaway_and_a_threshold_of_the_same_tenant_are_two_messages(
    dsn: str, conn: Connection, hook: WebhookServer, tmp_path: Path
) -> None:
    environ = told_by(hook, tmp_path)
    calls = Calls(conn)
    await calls.tenant("t", daily_completions=120, soft_warn_pct=80)
    for minute in range(100):
        await calls.reserve("t", None, (812, 0, 0), app="bot", now=NOON - minute * MINUTE / 25)
    assert (await quota_worker(dsn, "tick", "--as-of", NOON.isoformat(), **environ)).code == 0
    assert sorted(one["type"] for one in hook.requests) == ["runaway", "tenant-warn"]
    for number in range(3):
        now = LATER + number * 5 * MINUTE
        await calls.reserve("t", None, (812, 0, 0), app="bot", now=now - MINUTE)
        assert (await quota_worker(dsn, "tick", "--as-of", now.isoformat(), **environ)).code == 0
    assert len(hook.requests) == 2


async def test_another_pass_that_holds_the_lock_is_left_to_finish(
    dsn: str, conn: Connection
) -> None:
    await put(conn, 100, at=NOON - MINUTE)
    await put(conn, 1, at=NOON - 90 * MINUTE)
    await conn.execute("ALTER FUNCTION quota_watch SET lock_timeout = '100ms'")
    async with conn.transaction():
        await conn.execute("LOCK TABLE quota_watch_told IN SHARE MODE")
        run = ("run", "watch", "--as-of", NOON.isoformat(), "--json")
        (job,) = json.loads((await quota_worker(dsn, *run)).out)["jobs"]
    assert (job["outcome"], job["leftover"], job["runaways"]) == ("unfinished", 1, 0)
    assert job["paces"] == 1


async def test_the_file_says_what_is_told(dsn: str, conn: Connection, tmp_path: Path) -> None:
    await put(conn, 100, at=NOON - MINUTE)
    calls = Calls(conn)
    await calls.tenant("b", daily_tokens=10_000)
    for number in range(30):
        await calls.reserve("b", f"r{number}", (100, 0, 0), now=NOON - MINUTE)
    config = tmp_path / "quota-worker.toml"
    run = ("run", "watch", "--as-of", NOON.isoformat(), "--dry-run", "--json")
    tables = (
        ("off = true", 0, 0),
        ("", 1, 1),
        ("day_hours = 2\nmin_requests = 101", 0, 0),
        ("burn_times = 8\nusual_times = 2", 0, 1),
        ("burn_requests = 31", 0, 1),
    )
    answers = []
    for number, (table, _, _) in enumerate(tables):
        config = tmp_path / f"{number}.toml"
        config.write_text(f"[watch]\n{table}\n")
        answers.append(quota_worker(dsn, *run, QUOTA_WORKER_CONFIG=str(config)))
    for (table, burns, runaways), done in zip(tables, await asyncio.gather(*answers), strict=True):
        (job,) = json.loads(done.out)["jobs"]
        assert (job["outcome"], job["burns"], job["runaways"]) == ("done", burns, runaways), table
    # switched off, it notes nothing either
    off = {"QUOTA_WORKER_CONFIG": str(tmp_path / "0.toml")}
    done = await quota_worker(dsn, "run", "watch", "--as-of", NOON.isoformat(), "--json", **off)
    assert json.loads(done.out)["jobs"][0]["paces"] == 0
    assert await conn.fetchval("SELECT count(*) FROM quota_warn_scans") == 0


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    text = (
        '[watch]\nday_hours = 25\nmonth_hours = "24"\nburn_times = 0\nburn_requests = 0\nusual_times = 1\n'
        "min_requests = 1.5\noff = 0\nmin_request = 3\n"
    )
    assert faults_of(tmp_path, text) == [
        "watch.day_hours is out of bounds: 1 to 24",
        "watch.month_hours is a text: a whole number is needed, without quotes",
        "watch.burn_times is out of bounds: 1 to 1000",
        "watch.burn_requests is out of bounds: 1 to 1000000",
        "watch.usual_times is out of bounds: 2 to 1000",
        "watch.min_requests is 1.5: a whole number is needed",
        "watch.off is a number: true or false is needed, without quotes",
        "watch.min_request is not known here: did you mean min_requests or burn_requests?",
    ]
