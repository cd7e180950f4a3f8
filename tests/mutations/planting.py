"""How a bug is planted: a textual change of one function file, applied to a cloned database.

A search text that doesn't occur exactly once is an error: the list has to
follow the SQL. So is a killer that fails on the sound functions, or a planted
text that PostgreSQL can't parse: a test must turn red for the bug's own reason.
"""

from __future__ import annotations

import importlib
import inspect
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from acceptance.warnings_world import World
from worker.postgres.pool import open_pool

from sql import clones
from sql.calls import Calls, open_connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FUNCTIONS = Path(__file__).resolve().parents[2] / "sql" / "functions"
UNPARSABLE = "42"  # the SQLSTATE class of syntax errors and unknown names


@dataclass(frozen=True)
class Killer:
    """One test function, of tests/sql where no folder is named, and its parameters' values."""

    module: str
    test: str
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.module}::{self.test}{self.values or ''}"


@dataclass(frozen=True)
class Planted:
    """A bug: `edits` of one file in sql/functions, and the test that must notice."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    killer: Killer
    tries: int = 1  # races may need several


def bug(name: str, file: str, search: str, replace: str, killer: Killer, **more: Any) -> Planted:
    """A bug of one edit."""
    return Planted(name, file, ((search, replace),), killer, **more)


def killed_by(module: str, test: str, **values: Any) -> Killer:
    return Killer(module, test, values)


def mutated(planted: Planted) -> str:
    """The file's text with the bug in it."""
    text = (FUNCTIONS / planted.file).read_text(encoding="utf-8")
    for search, replace in planted.edits:
        found = text.count(search)
        if found != 1:
            raise LookupError(f"{planted.name}: {found} times in {planted.file}: {search!r}")
        text = text.replace(search, replace)
    return text


@asynccontextmanager
async def copy_of(dsn: str) -> AsyncIterator[str]:
    """The DSN of a clone that is dropped afterwards."""
    name = await clones.clone(dsn)
    try:
        yield urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))
    finally:
        await clones.drop(dsn, name)


async def plant(dsn: str, planted: Planted) -> None:
    """Replaces the functions under the search path that they were made with."""
    conn = await open_connection(dsn)
    try:
        config = await conn.fetchval(
            "SELECT proconfig FROM pg_proc WHERE proname = 'quota_reserve'"
        )
        path = next(one for one in config if one.startswith("search_path="))
        await conn.execute(f"SET search_path = {path.removeprefix('search_path=')}")
        await conn.execute(mutated(planted))
    finally:
        await conn.close()


class Fixtures:
    """What tests ask for, on one database; closed at the end."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._opened: list[asyncpg.Connection[Any]] = []
        self._pools: list[asyncpg.Pool[Any]] = []

    async def connect(self, **settings: Any) -> asyncpg.Connection[Any]:
        self._opened.append(await asyncpg.connect(self._dsn, statement_cache_size=0, **settings))
        return self._opened[-1]

    async def made(self, name: str) -> Any:
        match name:
            case "dsn":
                return self._dsn
            case "connect":
                return self.connect
            case "conn":
                return await self.connect()
            case "calls":
                return Calls(await self.connect())
            case "world":
                return World(await self.connect())
            case "pool":
                self._pools.append(await open_pool(self._dsn))
                return self._pools[-1]
        raise LookupError(f"no planted bug has asked for {name!r} yet: add it here")

    async def close(self) -> None:
        for pool in self._pools:
            pool.terminate()
        for conn in self._opened:
            if not conn.is_closed():
                await conn.close()


async def run_killer(dsn: str, killer: Killer) -> None:
    """Calls the test function with the fixtures that it asks for."""
    module = killer.module if "." in killer.module else f"sql.{killer.module}"
    test = getattr(importlib.import_module(module), killer.test)
    fixtures = Fixtures(dsn)
    asked = [name for name in inspect.signature(test).parameters if name not in killer.values]
    try:
        await test(**{name: await fixtures.made(name) for name in asked}, **killer.values)
    finally:
        await fixtures.close()


async def is_red(dsn: str, planted: Planted) -> bool:
    """Whether the killer notices the bug; on the sound functions it must pass."""
    async with copy_of(dsn) as sound:
        await run_killer(sound, planted.killer)
    for _ in range(planted.tries):
        async with copy_of(dsn) as sick:
            await plant(sick, planted)
            try:
                await run_killer(sick, planted.killer)
            except (AssertionError, pytest.fail.Exception):  # the latter: nothing was raised
                return True
            except asyncpg.PostgresError as error:
                if str(error.sqlstate).startswith(UNPARSABLE):
                    raise
                return True
    return False
