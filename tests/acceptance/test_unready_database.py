"""A database that isn't there, or isn't migrated: one line that says what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from acceptance.program import quota_worker

if TYPE_CHECKING:
    from conftest import NewDatabase

ROOT = Path(__file__).resolve().parent.parent
TUTORIAL = ROOT / "migration" / "tutorial.sql"
TRACE = ROOT.parent / "worker" / "traces" / "tiny.csv"
COMMANDS = (
    ("settings",),
    ("settings", "set", "currency", "CNY"),
    ("status",),
    ("status", "somebody"),
    ("tick",),
    ("tick", "--dry-run"),
    ("tick", "--jobs", "reconcile"),
    ("run", "deliver"),
    ("replay", str(TRACE), "--create-tenants", "--tenants", "1"),
    ("replay", str(TRACE), "--tenants", "1"),
)


@pytest.mark.parametrize("kind", ["empty", "the tutorial's"])
async def test_a_database_that_is_not_migrated(new_database: NewDatabase, kind: str) -> None:
    dsn = await new_database()
    if kind != "empty":
        connection = await asyncpg.connect(dsn, statement_cache_size=0)
        await connection.execute(TUTORIAL.read_text(encoding="utf-8"))
        await connection.close()
    done = await asyncio.gather(*(quota_worker(dsn, *words) for words in COMMANDS))
    for words, ended in zip(COMMANDS, done, strict=True):
        # settings tell which database it is that isn't migrated
        shown = f"database  {dsn}\n" if words == ("settings",) else ""
        assert (ended.code, ended.out) == (2, shown), words
        (line,) = ended.err.splitlines()
        assert "run quota-worker migrate" in line
        assert "HINT" not in line, words
    if kind != "empty":
        connection = await asyncpg.connect(dsn, statement_cache_size=0)
        made = "SELECT count(*) FROM tenant_limits WHERE tenant_id LIKE 'replay%'"
        assert await connection.fetchval(made) == 0
        await connection.close()


async def test_a_database_that_does_not_exist(dsn: str) -> None:
    missing = dsn.replace(dsn.split("/")[3].split("?", maxsplit=1)[0], "nowhere", 1)
    done = await quota_worker(missing, "status")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        'quota-worker: database "nowhere" does not exist'
        " (There is no such database: create it, or correct its name in POSTGRES_DSN.)\n"
    )
