"""Brings a database to this version: one script, one transaction, safe to repeat.

The script is sql/migrate/1_open.sql, each file of sql/migrations/ that isn't
recorded yet, every file of sql/functions/ and sql/views/, 3_close.sql and
sql/roles.sql. `--print` writes the same script for psql.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worker.errors import (
    DatabaseAccessError,
    DatabaseError,
    DatabaseFullError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    LockTimeoutError,
    SchemaAmbiguousError,
    SchemaNewerError,
    SchemaUnfitError,
    SerializationError,
    UnsupportedServerError,
)
from worker.postgres.errors import translate
from worker.postgres.queries import load_queries
from worker.telemetry import redact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import asyncpg

    from worker.assets import Assets

ATTEMPTS = 40
PAUSE_SECONDS = 0.5
_AS_OWNER = "migrate as the owner of the schema and of its tables"
_OWN_WORDS = (
    DatabaseUnreachableError,
    LockTimeoutError,
    SchemaAmbiguousError,
    SchemaNewerError,
    SchemaUnfitError,
    SerializationError,
    UnsupportedServerError,
)
_VIEW = re.compile(r"^CREATE OR REPLACE VIEW (\w+)", re.MULTILINE)
_FUNCTION = re.compile(
    r"^CREATE (?:OR REPLACE )?FUNCTION (\w+)\(.*?\bAS (\$\w*\$)(.*?)\2", re.MULTILINE | re.DOTALL
)
_ROLES_HEADER = (
    "-- Run once by an administrator, in this database.\nSET search_path TO {schema};\n\n"
)
_PRINT_HEADER = (
    "-- quota-worker migrate --print. Apply with: psql -v ON_ERROR_STOP=1 -f THIS_FILE\n"
    "-- All of it is one transaction; it may be applied again.\n"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the script; `label` names the file in an error."""

    label: str
    sql: str


@dataclass(frozen=True, slots=True)
class MigrateResult:
    """What a migrate did. `roles_sql` is set when an administrator must run it."""

    schema: str
    applied: tuple[str, ...]
    warnings: tuple[str, ...]
    roles_sql: str | None


def build_script(assets: Assets) -> list[Piece]:
    """The script in order; pure but for reading the files."""
    migrations = assets.sql_files("migrations")
    functions = assets.sql_files("functions")
    values = {
        "known": _array([path.stem for path in migrations]),
        "functions": _array([path.stem for path in functions]),
    }
    pieces = [_filled(assets, "migrate/1_open.sql", values)]
    pieces += [
        _filled(
            assets,
            "migrate/2_step.sql",
            {
                "tag": f"$quota_step_{path.stem[:4]}$",
                "name": _literal(path.stem),
                "checksum": _literal(checksum(text)),
                "body": _dollar_quoted(text),
            },
            label=f"migrations/{path.name}",
        )
        for path in migrations
        for text in (path.read_text(encoding="utf-8"),)
    ]
    pieces += [
        Piece(f"{path.parent.name}/{path.name}", path.read_text(encoding="utf-8"))
        for path in functions
    ]
    pieces += [
        _filled(
            assets,
            "migrate/2_views.sql",
            {
                "tag": "$quota_views$",
                "views": _array(_VIEW.findall(text)),
                "body": _dollar_quoted(text),
            },
            label=f"views/{path.name}",
        )
        for path in assets.sql_files("views")
        for text in (path.read_text(encoding="utf-8"),)
    ]
    pieces.append(_filled(assets, "migrate/3_close.sql", values))
    pieces.append(Piece("roles.sql", assets.read("sql/roles.sql")))
    return pieces


def print_script(assets: Assets) -> str:
    """The whole script for psql; it carries its own BEGIN and COMMIT."""
    parts = [f"-- sql/{piece.label}\n{piece.sql.strip()}\n" for piece in build_script(assets)]
    return "\n".join(
        [
            _PRINT_HEADER,
            assets.read("sql/migrate/0_begin.sql"),
            *parts,
            assets.read("sql/migrate/4_commit.sql"),
        ]
    )


def function_bodies(assets: Assets) -> set[tuple[str, str]]:
    """Each function of this version: its name, and its body's MD5 as the server computes it."""
    return {
        (name, hashlib.md5(body.encode(), usedforsecurity=False).hexdigest())
        for path in assets.sql_files("functions")
        for name, _, body in _FUNCTION.findall(path.read_text(encoding="utf-8"))
    }


def roles_script(assets: Assets, schema: str) -> str:
    """The roles and their rights for psql, for an administrator of the database."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return _ROLES_HEADER.format(schema=quoted) + assets.read("sql/roles.sql")


def checksum(text: str) -> str:
    """SHA-256 of a migration's text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


class Migrator:
    """Applies the script on a connection that nothing else uses meanwhile."""

    def __init__(
        self,
        connection: asyncpg.Connection[asyncpg.Record],
        assets: Assets,
        *,
        attempts: int = ATTEMPTS,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._connection = connection
        self._assets = assets
        self._attempts = attempts
        self._pause = pause
        self._queries = load_queries(assets, "migrate")

    async def migrate(self) -> MigrateResult:
        """Apply what is missing, in one transaction of its own; idempotent.

        Waits for locks at most half a second at a time, then starts over, so
        that gateways aren't held up. Raises SchemaNewerError,
        SchemaAmbiguousError, UnsupportedServerError, LockTimeoutError, or
        DatabaseError with the file's name; then nothing was changed.
        """
        script = build_script(self._assets)
        for attempt in range(1, self._attempts + 1):
            try:
                return await self._apply(script)
            except (LockTimeoutError, SerializationError) as error:
                if attempt == self._attempts:
                    raise LockTimeoutError(
                        f"others kept the tables busy in {attempt} tries ({error}): "
                        "nothing was changed, run quota-worker migrate again"
                    ) from error
                await self._pause(PAUSE_SECONDS)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _apply(self, script: list[Piece]) -> MigrateResult:
        warnings: list[str] = []

        def listen(_connection: object, message: Any) -> None:  # noqa: ANN401  asyncpg's type is private
            if message.severity_en == "WARNING":
                warnings.append(message.message)

        self._connection.add_log_listener(listen)
        try:
            async with self._connection.transaction(isolation="read_committed"):
                await self._run(script[0])
                before = {row["name"] for row in await self._fetch("applied_migrations")}
                for piece in script[1:]:
                    await self._run(piece)
                after = [row["name"] for row in await self._fetch("applied_migrations")]
                schema = (await self._fetch("transaction_schema"))[0]["schema_name"]
                missing = await self._fetch("missing_roles")
            await asyncio.sleep(0)  # asyncpg hands messages over by call_soon
        finally:
            self._connection.remove_log_listener(listen)
        return MigrateResult(
            schema=schema,
            applied=tuple(name for name in after if name not in before),
            warnings=tuple(warnings),
            roles_sql=roles_script(self._assets, schema) if missing else None,
        )

    async def _run(self, piece: Piece) -> None:
        try:
            await self._connection.execute(piece.sql)
        except Exception as error:
            ours = translate(error)
            if ours is None:
                raise
            # The opening's own refusals are complete; any other fault needs its file's name,
            # and not the advice to run this very command.
            if isinstance(ours, _OWN_WORDS) or not isinstance(ours, DatabaseError):
                raise ours from error
            text = redact(" ".join(str(error).split()))
            cure = f": {_AS_OWNER}" if isinstance(ours, DatabaseAccessError) else ""
            if isinstance(ours, DatabaseReadOnlyError | DatabaseFullError):
                cure = f" ({ours.default_message()})"
            raise type(ours)(f"sql/{piece.label}: {text}; nothing was changed{cure}") from error

    async def _fetch(self, name: str) -> list[asyncpg.Record]:
        return await self._connection.fetch(self._queries[name])


def _filled(assets: Assets, name: str, values: dict[str, str], label: str | None = None) -> Piece:
    text = assets.read(f"sql/{name}")
    head, *rest = text.split("{{")
    for part in rest:
        key, after = part.split("}}", 1)
        head += values[key] + after
    return Piece(label or name, head)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _array(names: list[str]) -> str:
    return "ARRAY[" + ", ".join(_literal(name) for name in names) + "]"


def _dollar_quoted(text: str) -> str:
    tag = f"$quota_body_{checksum(text)[:12]}$"
    return f"{tag}\n{text}\n{tag}"
