"""A usage source that is a query: on the ledger's own database, or on another one.

On a connection of its own, in a read-only transaction with a time limit on both sides, so
that a query that writes fails and one that hangs is given up. At most 1,000 ids a query, and
a bounded number of rows back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from worker.notifiers.connection import why_not_connected
from worker.postgres.errors import sqlstate_of
from worker.postgres.pool import connect_arguments
from worker.resolving import CURE as SLOW_DNS
from worker.resolving import watched_lookups
from worker.sources.base import LEAST_SECONDS, BaseSource, Gathered, SourceFailedError
from worker.sources.rows import gather_rows
from worker.usage import SourceAnswer, SourceCause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import asyncpg

    from worker.postgres.queries import Queries
    from worker.settings import SourceSettings
    from worker.sources.reading import Reader
    from worker.usage import OverdueRequest

IDS_MAX: Final = 1000
# An honest query returns a row for a request; a few more are looked at and set aside by name.
ROWS_PER_ID: Final = 4
ROWS_LEAST: Final = 100
# Rows come in portions, the first alone, until so many bytes have: a few long ones end it early.
PORTION_ROWS: Final = 10
ANSWER_MAX_BYTES: Final = 8 * 1024 * 1024
# The server's own limit comes first, so that it says what was the matter.
GRACE_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 2.0
_ADDRESS: Final = "check host, port and database in `dsn`, and that the server runs"
_DSN: Final = (
    "correct `dsn`: it must look like postgresql://host:5432/database?user=name, with the "
    "password's special characters percent-encoded"
)
_LOGIN: Final = "check user and password in `dsn`, and that pg_hba.conf lets this machine in"
# By SQLSTATE, or its first two characters: the cause, and what to do.
_BY_STATE: Final = {
    "57014": (SourceCause.TIMEOUT, "see its plan: is there an index for the ids?"),
    "25006": (SourceCause.QUERY_FAILED, "it writes, and may only read: select what it returns"),
    "42501": (SourceCause.LOGIN_REFUSED, "let the user of `dsn` read it: GRANT SELECT"),
    "3D000": (SourceCause.UNREACHABLE, _ADDRESS),
    "28": (SourceCause.LOGIN_REFUSED, _LOGIN),
    "08": (SourceCause.UNREACHABLE, _ADDRESS),
    "53100": (SourceCause.SERVER_ERROR, "its server's disk is full: make room there"),
    "53200": (SourceCause.SERVER_ERROR, "its server ran out of memory: see the query's plan"),
    "53": (SourceCause.UNREACHABLE, "its server has no room for one more connection: see its log"),
    "57": (SourceCause.UNREACHABLE, "its server is shutting down or starting"),
}
_QUERY: Final = "run it in psql with ARRAY['id']::text[] in place of $1"


class SqlSource(BaseSource):
    """Port ``UsageSource`` on a query of the operator's."""

    batch_size = IDS_MAX

    def __init__(
        self, settings: SourceSettings, reader: Reader, dsn: Callable[[], str], queries: Queries
    ) -> None:
        """``dsn`` tells the address when it is needed; ``queries`` those of ``sources``."""
        super().__init__(settings, reader)
        self._dsn = dsn
        self._queries = queries
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def ask(
        self, requests: Sequence[OverdueRequest], seconds_left: Callable[[], float]
    ) -> SourceAnswer:
        """One query for all; a failure of it is the source's: it is down for this run."""
        gathered = Gathered()
        limit = self.settings.values["time_limit_seconds"]
        seconds = min(float(limit), seconds_left())
        if not requests or seconds < LEAST_SECONDS:
            return gathered.answer()
        try:
            rows = await self._rows(requests[:IDS_MAX], seconds)
        except SourceFailedError as error:
            gathered.failed(error)
            if seconds < limit and error.trouble.cause is SourceCause.TIMEOUT:
                # this run's time was over, not the source's
                return SourceAnswer(is_down=True)
        else:
            gather_rows(rows, requests[:IDS_MAX], self.reader, gathered)
        gathered.asked += requests[:IDS_MAX]
        return gathered.answer()

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=CLOSE_SECONDS)
            except Exception:  # noqa: BLE001  whatever a dead server makes of it, it is over
                connection.terminate()

    async def _rows(
        self, requests: Sequence[OverdueRequest], seconds: float
    ) -> list[dict[str, object]]:
        """The rows by our words. Raises SourceFailedError; the connection is closed then."""
        import asyncpg

        try:
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                return await self._fetched(await self._opened(seconds), requests, seconds)
        except SourceFailedError:
            await self.close()
            raise
        except (
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,  # its word for a connection that broke in mid-call
            OSError,
            ValueError,
        ) as error:
            failed = self._explained(error, seconds)
            await self.close()
            raise failed from None

    async def _opened(self, seconds: float) -> asyncpg.Connection[asyncpg.Record]:
        import asyncpg

        if self._connection is None or self._connection.is_closed():
            arguments = connect_arguments(seconds + GRACE_SECONDS) | {"timeout": seconds}
            with watched_lookups() as lookups:
                try:
                    self._connection = await asyncpg.connect(self._dsn(), **arguments)
                except (ValueError, OverflowError) as error:
                    # Python's own words may hold a piece of a password
                    known = isinstance(error, asyncpg.InterfaceError)
                    words = str(error) if known else "its host or port is none"
                    raise SourceFailedError(
                        SourceCause.UNREACHABLE,
                        self.reader.excerpt(f"the address can't be read: {words}"),
                        _DSN,
                        is_down=True,
                    ) from None
                except TimeoutError:
                    words, cure = f"no connection within {seconds:.3g} s", _ADDRESS
                    if lookups.is_unresolved:
                        words, cure = lookups.words(seconds), SLOW_DNS
                    raise SourceFailedError(
                        SourceCause.UNREACHABLE, words, cure, is_down=True
                    ) from None
        return self._connection

    async def _fetched(
        self,
        connection: asyncpg.Connection[asyncpg.Record],
        requests: Sequence[OverdueRequest],
        seconds: float,
    ) -> list[dict[str, object]]:
        arguments = [[one.request_id for one in requests]]
        if self.settings.values["tenants"]:
            arguments.append([one.tenant_id for one in requests])
        most = max(ROWS_LEAST, ROWS_PER_ID * len(requests))
        async with connection.transaction(readonly=True):
            await connection.execute(
                self._queries["limit_statement"], str(max(1, int(seconds * 1000)))
            )
            statement = await connection.prepare(self.settings.values["query"])
            self._check_columns([column.name for column in statement.get_attributes()])
            cursor = await statement.cursor(*arguments)
            rows: list[dict[str, object]] = []
            size, portion = 0, 1
            while len(rows) <= most and (records := await cursor.fetch(portion)):
                for record in records:
                    size += sum(map(_bytes_of, record.values()))
                    rows.append({word: record[name] for word, name in self.settings.words.items()})
                if size > ANSWER_MAX_BYTES:
                    raise SourceFailedError(
                        SourceCause.TOO_LARGE,
                        f"the query returned over {ANSWER_MAX_BYTES:,} bytes",
                        "have it select ids and figures alone, and no long texts",
                        is_down=True,
                    )
                portion = PORTION_ROWS
        if len(rows) > most:
            raise SourceFailedError(
                SourceCause.TOO_LARGE,
                f"the query returned over {most:,} rows for {len(requests):,} requests",
                "have it return one row for a request that was asked for: GROUP BY its id",
                is_down=True,
            )
        return rows

    def _check_columns(self, columns: list[str]) -> None:
        lacking = [column for column in self.settings.words.values() if column not in columns]
        if not columns or lacking:
            there = ", ".join(columns[:20]) or "none"
            raise SourceFailedError(
                SourceCause.WRONG_COLUMNS,
                self.reader.excerpt(f"the query has no column {', '.join(lacking) or 'at all'}"),
                self.reader.excerpt(f"correct `columns`, or the query: its columns are {there}"),
                is_down=True,
            )

    def _explained(self, error: Exception, seconds: float) -> SourceFailedError:
        state = sqlstate_of(error)
        if state is not None:
            cause, cure = (
                _BY_STATE.get(state)
                or _BY_STATE.get(state[:2])
                or (SourceCause.QUERY_FAILED, _QUERY)
            )
            words = str(error.args[0]) if error.args else type(error).__name__
            return SourceFailedError(
                cause, self.reader.excerpt(f"{words} (SQLSTATE {state})"), cure, is_down=True
            )
        if isinstance(error, TimeoutError):
            cure = _BY_STATE["57014"][1]
            return SourceFailedError(
                SourceCause.TIMEOUT, f"no answer within {seconds:.3g} s", cure, is_down=True
            )
        if isinstance(error, OSError):
            why = why_not_connected(error)
            return SourceFailedError(
                SourceCause.UNREACHABLE, why.words, why.cure or _ADDRESS, is_down=True
            )
        if "connection" in str(error):
            return SourceFailedError(
                SourceCause.UNREACHABLE, "the connection was lost", _ADDRESS, is_down=True
            )
        # the driver's own: an id that isn't of the column's type
        return SourceFailedError(
            SourceCause.QUERY_FAILED,
            self.reader.excerpt(str(error)),
            "compare ids as texts, request_id::text = ANY($1::text[])",
            is_down=True,
        )


def _bytes_of(value: object) -> int:
    """About how large a value is; of what is neither a text nor bytes, as a text."""
    return len(value) if isinstance(value, str | bytes) else len(str(value))
