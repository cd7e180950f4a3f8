"""Small asset trees, psql, and a comparable picture of a catalog."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import asyncpg

from worker.assets import Assets
from worker.postgres.migrate import MigrateResult, Migrator

from conftest import chosen_binaries

TUTORIAL = (Path(__file__).parent / "tutorial.sql").read_text(encoding="utf-8")

# What a small deployment needs for roles and warnings to have something to do.
BASE = """
CREATE TABLE IF NOT EXISTS tenant_limits (
    tenant_id text PRIMARY KEY, daily_completions int DEFAULT 1000,
    daily_input_tokens bigint, daily_output_tokens bigint, daily_cost_cents bigint,
    monthly_cost_cents bigint, bucket_capacity double precision NOT NULL DEFAULT 10,
    bucket_refill_per_sec double precision NOT NULL DEFAULT 1,
    soft_warn_pct int NOT NULL DEFAULT 80);
CREATE TABLE IF NOT EXISTS quota_settings (singleton boolean PRIMARY KEY, billing_zone text);
INSERT INTO quota_settings VALUES (true, 'UTC') ON CONFLICT DO NOTHING;
"""
ZONE = """
CREATE OR REPLACE FUNCTION quota_zone() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$ SELECT billing_zone FROM quota_settings $$;
"""
RESERVE = """
CREATE OR REPLACE FUNCTION quota_reserve(p_tenant text) RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN RETURN quota_zone() || p_tenant; END $$;
"""
INTERNAL = """
CREATE OR REPLACE FUNCTION quota_internal() RETURNS int LANGUAGE sql AS 'SELECT 1';
"""
VIEW = """
CREATE OR REPLACE VIEW v_quota_status AS
SELECT tenant_id, quota_zone() AS zone FROM tenant_limits;
"""


class SmallAssets:
    """A tree with the real migrator's own SQL and small files besides."""

    def __init__(self, root: Path) -> None:
        self.root = root
        real = Assets().root / "sql"
        for name in ("migrations", "functions", "views", "queries"):
            (root / "sql" / name).mkdir(parents=True, exist_ok=True)
        shutil.copytree(real / "migrate", root / "sql" / "migrate")
        shutil.copy(real / "roles.sql", root / "sql")
        shutil.copy(real / "queries" / "migrate.sql", root / "sql" / "queries")
        self.write("migrations/0001_base", BASE)
        self.write("functions/quota_reserve", RESERVE)
        self.write("functions/quota_zone", ZONE)
        self.write("functions/quota_internal", INTERNAL)
        self.write("views/v_quota_status", VIEW)

    def write(self, name: str, text: str) -> None:
        (self.root / "sql" / f"{name}.sql").write_text(text, encoding="utf-8")

    def remove(self, name: str) -> None:
        (self.root / "sql" / f"{name}.sql").unlink()

    @property
    def assets(self) -> Assets:
        return Assets(self.root)


async def migrate(dsn: str, assets: Assets | None = None, **arguments) -> MigrateResult:
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        return await Migrator(connection, assets or Assets(), **arguments).migrate()
    finally:
        await connection.close()


async def run_sql(dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def value(dsn: str, sql: str, *arguments):
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        return await connection.fetchval(sql, *arguments)
    finally:
        await connection.close()


def psql(dsn: str, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [chosen_binaries().program("psql"), "-X", "-q", *options, "-d", dsn, "-f", "-"],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def catalog(dsn: str, *options: str) -> str:
    """The schema as pg_dump writes it, without what differs from run to run."""
    done = subprocess.run(
        [chosen_binaries().program("pg_dump"), "-s", *options, "-d", dsn],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    # A random word guards newer dumps against injection.
    return "\n".join(
        line
        for line in done.stdout.splitlines()
        if not line.startswith(("\\restrict", "\\unrestrict"))
    )
