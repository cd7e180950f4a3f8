"""Opening connections, and what the driver's errors become."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import asyncpg
import pytest

from worker import errors
from worker.assets import Assets
from worker.postgres.crossings import PostgresCrossings
from worker.postgres.errors import translate, translated
from worker.postgres.pool import connect, open_pool
from worker.postgres.queries import load_queries


class OldServer:
    """A wire to the real server that says it is PostgreSQL 14."""

    def __init__(self, upstream: str, folder: Path) -> None:
        self._upstream = upstream
        self.folder = folder
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self):
        path = self.folder / ".s.PGSQL.5432"
        self._server = await asyncio.start_unix_server(self._serve, path)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._upstream)
        for source, sink in ((reader, up_writer), (up_reader, writer)):
            self._tasks.add(asyncio.create_task(self._pump(source, sink)))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                for major in (b"15", b"16", b"17", b"18"):
                    data = data.replace(b"server_version\0" + major, b"server_version\x0014")
                sink.write(data)
                await sink.drain()
        sink.close()


async def test_a_server_before_15_is_refused_in_one_line(pg_server, server_home, dsn: str) -> None:
    database = dsn.split("@/", 1)[1].split("?", 1)[0]
    async with OldServer(str(pg_server.socket_folder / ".s.PGSQL.5432"), server_home):
        old = f"postgresql://quota@/{database}?host={server_home}&port=5432"
        for opening in (connect, open_pool):
            with pytest.raises(errors.UnsupportedServerError) as caught:
                await opening(old)
            assert str(caught.value).startswith("the server is PostgreSQL 14")
            assert caught.value.exit_code == 2


async def test_a_server_of_15_to_18_is_taken(dsn: str) -> None:
    connection = await connect(dsn)
    assert await connection.fetchval("SELECT current_setting('application_name')") == "quota-worker"
    await connection.close()
    pool = await open_pool(dsn)
    assert await pool.fetchval("SELECT 1") == 1
    await pool.close()


@pytest.mark.parametrize(
    ("sql", "kind", "retryable"),
    [
        ("SELECT no_such_function()", errors.SchemaMissingError, False),
        ("SELECT * FROM no_such_table", errors.SchemaMissingError, False),
        (
            "DO $$ BEGIN RAISE EXCEPTION 'a' USING ERRCODE = 'QW001'; END $$",
            errors.ConflictError,
            False,
        ),
        (
            "DO $$ BEGIN RAISE EXCEPTION 'a' USING ERRCODE = 'QW002'; END $$",
            errors.InvalidInputError,
            False,
        ),
        (
            "DO $$ BEGIN RAISE EXCEPTION 'a' USING ERRCODE = '55P03'; END $$",
            errors.LockTimeoutError,
            True,
        ),
        (
            "DO $$ BEGIN RAISE EXCEPTION 'a' USING ERRCODE = '40P01'; END $$",
            errors.SerializationError,
            True,
        ),
        ("SELECT 1 / 0", errors.DatabaseError, False),
    ],
)
async def test_a_sqlstate_becomes_a_class(conn, sql: str, kind: type, retryable: bool) -> None:  # noqa: FBT001
    with pytest.raises(errors.DatabaseError) as caught, translated():
        await conn.execute(sql)
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    assert "\n" not in str(caught.value)
    assert "timeout" not in str(caught.value)


async def test_a_lost_connection_and_a_wrong_login(conn, connect, pg_server) -> None:
    other = await connect()
    pid = await other.fetchval("SELECT pg_backend_pid()")
    await conn.fetchval("SELECT pg_terminate_backend($1)", pid)
    for _ in range(2):  # when it breaks, and when it is used again
        with pytest.raises(errors.DatabaseUnreachableError), translated():
            await other.fetchval("SELECT 1")
    with pytest.raises(errors.DatabaseAccessError), translated():
        await asyncpg.connect(pg_server.dsn_of("postgres", "nobody_of_this_name"))
    reader = await connect()
    await reader.execute("SET ROLE quota_reader")
    with pytest.raises(errors.MissingRightError, match="GRANT quota_worker TO"), translated():
        await reader.fetchval("SELECT count(*) FROM quota_reservations")
    with pytest.raises(errors.DatabaseMissingError), translated():
        await asyncpg.connect(pg_server.dsn_of("no_such_database"))


def test_other_errors_are_left_alone() -> None:
    assert translate(KeyError("x")) is None
    with pytest.raises(KeyError), translated():
        raise KeyError("x")
    ours = errors.UsageError("x")
    assert translate(ours) is ours


def test_the_drivers_words_on_its_own_state_are_not_shown() -> None:
    """As of a connection that was ended while the driver was about to send."""
    ours = translate(asyncpg.InternalClientError("cannot switch to state 11; another operation"))
    assert isinstance(ours, errors.DatabaseUnreachableError)
    assert "state 11" not in str(ours)
    assert "check POSTGRES_DSN" in str(ours)


@pytest.mark.parametrize("variable", ["POSTGRES_DSN", "QUOTA_WORKER_LISTEN_DSN"])
async def test_why_it_polls_names_the_variable_to_look_at(dsn: str, variable: str) -> None:
    told: list[tuple[str, str | None]] = []

    def on_mode(mode: str, reason: str | None) -> None:
        told.append((mode, reason))

    pool = await open_pool(dsn)

    async def opened() -> asyncpg.Pool[asyncpg.Record]:
        return pool

    wrong = "postgresql://nobody@127.0.0.1:1/none"
    queries = load_queries(Assets(), "crossings")
    crossings = PostgresCrossings(
        opened, queries, wrong, time.monotonic, on_mode, variable=variable
    )
    assert not await crossings.wait()
    await crossings.close()
    await pool.close()
    ((mode, reason),) = told
    assert mode == "polling"
    assert f"check {variable} and" in str(reason)
