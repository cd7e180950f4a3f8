"""Opens connections: always without kept statements, so that pgbouncer works too.

Nothing session-bound may be used on them: no session advisory lock, no plain
SET, no LISTEN, no temporary table that outlives its transaction.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from worker.errors import ConfigurationError, DatabaseUnreachableError, UnsupportedServerError
from worker.postgres.errors import translated
from worker.resolving import CURE as SLOW_DNS
from worker.resolving import watched_lookups

if TYPE_CHECKING:
    from collections.abc import Iterator

    import asyncpg

CONNECT_TIMEOUT_SECONDS = 10.0
COMMAND_TIMEOUT_SECONDS = 120.0
POOL_MAX_SIZE = 4
OLDEST_MAJOR = 15


def connect_arguments(command_timeout_seconds: float = COMMAND_TIMEOUT_SECONDS) -> dict[str, Any]:
    """The arguments every connection is opened with."""
    return {
        "statement_cache_size": 0,
        "timeout": CONNECT_TIMEOUT_SECONDS,
        "command_timeout": command_timeout_seconds,
        "server_settings": {"application_name": "quota-worker"},
    }


async def connect(
    dsn: str, command_timeout_seconds: float = COMMAND_TIMEOUT_SECONDS
) -> asyncpg.Connection[asyncpg.Record]:
    """Open one connection, which the caller closes.

    Raises DatabaseUnreachableError, DatabaseAccessError, or
    UnsupportedServerError for a server before PostgreSQL 15.
    """
    import asyncpg

    with _readable_dsn(), translated(), _resolved_in_time():
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
            dsn, **connect_arguments(command_timeout_seconds)
        )
    major = connection.get_server_version().major
    if major < OLDEST_MAJOR:
        await connection.close()
        raise UnsupportedServerError(
            f"the server is PostgreSQL {major}: quota-worker needs 15 or newer, upgrade the server"
        )
    return connection


async def open_pool(dsn: str, max_size: int = POOL_MAX_SIZE) -> asyncpg.Pool[asyncpg.Record]:
    """Open a pool with one connection at first, which the caller closes.

    Errors as of `connect`; the version is checked on the first connection.
    """
    import asyncpg

    with _readable_dsn(), translated(), _resolved_in_time():
        pool = await asyncpg.create_pool(
            dsn, min_size=1, max_size=max_size, reset=_nothing_to_reset, **connect_arguments()
        )
        async with pool.acquire() as connection:
            major = connection.get_server_version().major
    if major < OLDEST_MAJOR:
        await pool.close()
        raise UnsupportedServerError(
            f"the server is PostgreSQL {major}: quota-worker needs 15 or newer, upgrade the server"
        )
    return pool


@contextmanager
def _readable_dsn() -> Iterator[None]:
    try:
        yield
    except (ValueError, OverflowError) as error:  # asyncpg lets int() speak for a bad port
        # no user@ in the example: messages are redacted, and it would be eaten
        raise ConfigurationError(
            "POSTGRES_DSN can't be read: it must look like "
            "postgresql://host:5432/database?user=name"
        ) from error


@contextmanager
def _resolved_in_time() -> Iterator[None]:
    with watched_lookups() as lookups:
        try:
            yield
        except TimeoutError as error:
            if not lookups.is_unresolved:
                raise
            words = lookups.words(CONNECT_TIMEOUT_SECONDS)
            raise DatabaseUnreachableError(f"{words}: {SLOW_DNS}") from error


async def _nothing_to_reset(_connection: object) -> None:
    """Spares a round trip per call: nothing session-bound is ever left (see the head).

    asyncpg rolls back an open transaction before it calls this.
    """
