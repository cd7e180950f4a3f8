"""examples/gateway.py against a real streaming server: every way out ends the hold."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import sys
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx
import pytest

from acceptance.model_server import PROMPT_TOKENS, ModelServer, model_server
from acceptance.program import until
from worker.assets import Assets
from worker.postgres.embedded import EmbeddedServer
from worker.postgres.migrate import Migrator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]

EXAMPLE = Path(__file__).parents[2] / "examples" / "gateway.py"
PROMPT = "Tell me about quotas, please."


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("gateway_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


example = load_example()


@pytest.fixture(autouse=True)
async def tenant(conn: Connection) -> None:
    await conn.execute("INSERT INTO tenant_limits (tenant_id) VALUES ('t')")


@asynccontextmanager
async def gateway(
    dsn: str, model: ModelServer, spool: Path = Path("/nonexistent/spool")
) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(dsn, min_size=1, max_size=4, statement_cache_size=0) as pool,
        httpx.AsyncClient(base_url=model.url, trust_env=False, timeout=5) as client,
    ):
        yield example.Gateway(pool, client, example.Spool(spool))


async def the_reservation(conn: Connection) -> dict[str, Any]:
    row = await conn.fetchrow("SELECT * FROM quota_reservations")
    assert row is not None
    return dict(row)


async def assert_nothing_held(conn: Connection) -> None:
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations WHERE state = 'open'") == 0
    assert (
        await conn.fetchval(
            "SELECT coalesce(sum(held_input_tokens + held_output_tokens + held_cost_nanos), 0)"
            " FROM quota_usage"
        )
        == 0
    )


async def test_the_end_settles_what_the_model_reported(dsn: str, conn: Connection) -> None:
    async with model_server(words=120) as model, gateway(dsn, model) as answers:
        pieces = [piece async for piece in answers.stream("t", PROMPT, "large")]
    assert "".join(pieces).startswith("word0 word1 ")
    assert len(pieces) == 120
    assert model.requests[0]["stream_options"] == {"include_usage": True}
    row = await the_reservation(conn)
    assert (row["state"], row["charged_in_tokens"], row["charged_out_tokens"]) == (
        "settled",
        PROMPT_TOKENS,
        123,
    )
    assert row["charged_cost_nanos"] == PROMPT_TOKENS * 3000 + 123 * 15000
    assert row["progress_out_tokens"] == 100
    await assert_nothing_held(conn)


async def test_an_end_without_usage_keeps_the_estimate_and_marks_it(
    dsn: str, conn: Connection
) -> None:
    async with model_server(forget_usage=True) as model, gateway(dsn, model) as answers:
        assert len([piece async for piece in answers.stream("t", PROMPT, "large")]) == 10
    row = await the_reservation(conn)
    assert (row["state"], row["usage_missing"]) == ("settled", True)
    assert row["charged_out_tokens"] == example.MAX_OUTPUT_TOKENS
    await assert_nothing_held(conn)


async def test_a_failure_before_the_first_piece_gives_everything_back(
    dsn: str, conn: Connection
) -> None:
    async with model_server(status=503) as model, gateway(dsn, model) as answers:
        with pytest.raises(httpx.HTTPStatusError):
            [piece async for piece in answers.stream("t", PROMPT, "large")]
    row = await the_reservation(conn)
    assert (row["state"], row["charged_in_tokens"], row["charged_cost_nanos"]) == ("released", 0, 0)
    assert await conn.fetchval("SELECT completions FROM quota_usage") == 0
    await assert_nothing_held(conn)


async def test_a_broken_stream_is_charged_for_what_came(dsn: str, conn: Connection) -> None:
    async with model_server(break_after=4) as model, gateway(dsn, model) as answers:
        with pytest.raises(httpx.RemoteProtocolError):
            [piece async for piece in answers.stream("t", PROMPT, "large")]
    row = await the_reservation(conn)
    assert (row["state"], row["charged_out_tokens"]) == ("released", 4)
    assert row["charged_in_tokens"] == example.estimate_tokens(PROMPT)
    await assert_nothing_held(conn)


async def test_a_caller_who_hangs_up_is_charged_for_what_came(dsn: str, conn: Connection) -> None:
    async with (
        model_server(words=500) as model,
        gateway(dsn, model) as answers,
        aclosing(answers.stream("t", PROMPT, "large")) as pieces,
    ):
        for _ in range(3):
            await anext(pieces)
    row = await the_reservation(conn)
    assert (row["state"], row["charged_out_tokens"]) == ("released", 3)
    await assert_nothing_held(conn)


async def test_cancellation_in_mid_stream_ends_the_hold_too(dsn: str, conn: Connection) -> None:
    async with model_server(hang_after=5) as model, gateway(dsn, model) as answers:
        seen: list[str] = []

        async def consume() -> None:
            async for piece in answers.stream("t", PROMPT, "large"):
                seen.append(piece)  # noqa: PERF401  what came before the cancellation counts

        async def has_five() -> bool:
            return len(seen) == 5

        task = asyncio.create_task(consume())
        await until(has_five)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    row = await the_reservation(conn)
    assert (row["state"], row["charged_out_tokens"]) == ("released", 5)
    await assert_nothing_held(conn)


async def test_a_refusal_reaches_no_model(dsn: str, conn: Connection) -> None:
    await conn.execute("UPDATE tenant_limits SET daily_completions = 0")
    async with model_server() as model, gateway(dsn, model) as answers:
        with pytest.raises(example.QuotaRefusedError) as caught:
            [piece async for piece in answers.stream("t", PROMPT, "large")]
    assert caught.value.reason == "daily_cap_reached"
    assert caught.value.retry_after_seconds > 0
    assert model.requests == []
    assert await conn.fetchval("SELECT count(*) FROM quota_reservations") == 0


async def test_a_low_budget_downgrades_the_model(dsn: str, conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO department_budgets (department_id, monthly_cost_cents, warn_pct,"
        " downgrade_pct, protect_pct, downgrade_model) VALUES ('d', 10000, 1, 1, 99, 'small')"
    )
    await conn.execute("UPDATE tenant_limits SET department_id = 'd'")
    await conn.execute("SELECT quota_settle('t', 'before', 1, 1, 2000000000)")
    async with model_server() as model, gateway(dsn, model) as answers:
        assert len([piece async for piece in answers.stream("t", PROMPT, "large")]) == 10
    assert [request["model"] for request in model.requests] == ["small"]


async def test_a_busy_tenant_is_waited_for(dsn: str, conn: Connection, connect: Connect) -> None:
    blocker = await connect()
    async with model_server() as model, gateway(dsn, model) as answers:
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("SELECT quota_reserve('t', 'other', 1, 1, 1)")
        task = asyncio.create_task(_collect(answers))
        await asyncio.sleep(2.5)  # over the lock's 2 s: the first try has failed with 55P03
        assert not task.done()
        await transaction.rollback()
        assert len(await asyncio.wait_for(task, 10)) == 10
    assert (await the_reservation(conn))["state"] == "settled"


async def test_usage_goes_to_the_inbox_when_it_cannot_be_settled(
    dsn: str, conn: Connection, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "LOCK_RETRIES", 1)
    blocker = await connect()
    transaction = blocker.transaction()
    async with model_server() as model, gateway(dsn, model) as answers:
        stream = answers.stream("t", PROMPT, "large")
        assert await anext(stream) == "word0 "
        await transaction.start()
        await blocker.execute("SELECT quota_reserve('t', 'other', 1, 1, 1)")
        assert len([piece async for piece in stream]) == 9
        await transaction.rollback()
    assert (await the_reservation(conn))["state"] == "open"
    taken = await conn.fetchrow("SELECT taken, booked, refused FROM quota_book_inbox()")
    assert taken is not None
    assert tuple(taken) == (1, 1, 0)
    row = await the_reservation(conn)
    assert (row["state"], row["charged_in_tokens"], row["charged_out_tokens"]) == (
        "settled",
        PROMPT_TOKENS,
        13,
    )
    await assert_nothing_held(conn)


async def test_usage_is_spooled_while_the_server_is_away_and_flushed_later(
    server_home: Path, tmp_path: Path
) -> None:
    server, spool = EmbeddedServer(server_home / "pg", durable=False), tmp_path / "spool.jsonl"
    server.start()
    try:
        async with _connected(server.dsn) as admin:
            await Migrator(admin, Assets()).migrate()
            await admin.execute("INSERT INTO tenant_limits (tenant_id) VALUES ('t')")
        async with model_server() as model, gateway(server.dsn, model, spool) as answers:
            whole, left = (answers.stream("t", PROMPT, "large", name) for name in ("whole", "left"))
            assert [await anext(whole), await anext(left), await anext(left)][0] == "word0 "
            server.stop()
            assert len([piece async for piece in whole]) == 9  # the caller notices nothing
            await left.aclose()
            lines = spool.read_bytes().splitlines()
            assert len(lines) == 2
            with spool.open("ab") as torn:
                torn.write(b'{"tenant_id": "t", "req')
            server.start()
        async with _connected(server.dsn) as admin:
            assert await example.Spool(spool).flush(admin) == 2
            assert spool.read_bytes() == b""
            assert await example.Spool(spool).flush(admin) == 0
            # a crash before the file was emptied: the same lines once more
            spool.write_bytes(lines[0] + b"\n")
            assert await example.Spool(spool).flush(admin) == 1
            booked = await admin.fetchrow("SELECT taken, booked, refused FROM quota_book_inbox()")
            assert booked is not None
            assert tuple(booked) == (3, 3, 0)
            rows = await admin.fetch(
                "SELECT request_id, state, charged_in_tokens, charged_out_tokens"
                " FROM quota_reservations ORDER BY request_id"
            )
            assert [tuple(row) for row in rows] == [
                ("left", "settled", example.estimate_tokens(PROMPT), 2),
                ("whole", "settled", PROMPT_TOKENS, 13),
            ]
            assert await admin.fetchval("SELECT completions FROM quota_usage") == 2
    finally:
        server.stop()


def test_a_line_after_a_torn_one_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    path.write_bytes(b'{"tenant_id": "t", "req')
    ended = example.Ended("租户", "r", 1, 2, 3, "2026-11-30T10:00:00+00:00")
    example.Spool(path).append(ended)
    torn, line = path.read_bytes().splitlines()
    assert torn == b'{"tenant_id": "t", "req'
    assert example.Ended(**json.loads(line)) == ended


async def test_it_runs_as_a_program(dsn: str, conn: Connection, tmp_path: Path) -> None:
    async with model_server() as model:
        code, out, err = await _program(dsn, model.url, tmp_path, "t", PROMPT)
    assert (code, err) == (0, "")
    assert out.split() == [f"word{number}" for number in range(10)]
    assert (await the_reservation(conn))["state"] == "settled"
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  nothing else runs here


async def test_the_program_tells_a_refusal_in_one_line(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    await conn.execute("UPDATE tenant_limits SET daily_completions = 0")
    code, out, err = await _program(dsn, "http://127.0.0.1:1/v1", tmp_path, "t", PROMPT)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"refused: daily_cap_reached, try again in \d+ s\n", err)


async def test_the_program_flushes_its_spool(dsn: str, conn: Connection, tmp_path: Path) -> None:
    ended = example.Ended("t", "r", 1, 2, 3, "2026-11-30T10:00:00+00:00")
    example.Spool(tmp_path / example.DEFAULT_SPOOL).append(ended)
    for said in ("1 put into the inbox\n", "0 put into the inbox\n"):
        assert await _program(dsn, "", tmp_path, "--flush") == (0, said, "")
    assert await conn.fetchval("SELECT count(*) FROM quota_usage_inbox") == 1


async def _program(dsn: str, model_url: str, folder: Path, *arguments: str) -> tuple[Any, ...]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "POSTGRES_DSN": dsn, "MODEL_URL": model_url, "NO_PROXY": "*"},
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


async def _collect(answers: Any) -> list[str]:
    return [piece async for piece in answers.stream("t", PROMPT, "large")]
