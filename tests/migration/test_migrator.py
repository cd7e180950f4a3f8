"""The migrator itself, on small trees of SQL."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import asyncpg
import pytest

from worker import errors
from worker.postgres.embedded import EmbeddedServer
from worker.postgres.migrate import print_script

from conftest import chosen_binaries
from scripts import SmallAssets, catalog, migrate, psql, run_sql, value


@pytest.fixture
def small(tmp_path: Path) -> SmallAssets:
    return SmallAssets(tmp_path / "tree")


async def tables(dsn: str) -> list[str]:
    sql = "SELECT array_agg(relname::text ORDER BY 1) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    return await value(dsn, sql) or []


async def test_applies_records_and_repeats_without_change(new_database, small) -> None:
    dsn = await new_database()
    result = await migrate(dsn, small.assets)
    assert (result.schema, result.applied, result.warnings) == ("public", ("0001_base",), ())
    before = catalog(dsn)
    again = await migrate(dsn, small.assets)
    assert again.applied == ()
    assert catalog(dsn) == before
    row = await value(
        dsn, "SELECT array_agg(name || ' ' || length(checksum)) FROM quota_migrations"
    )
    assert row == ["0001_base 64"]


async def test_a_second_migration_is_added_and_functions_are_renewed(new_database, small) -> None:
    dsn = await new_database()
    await migrate(dsn, small.assets)
    small.write(
        "migrations/0002_more",
        "CREATE TABLE quota_more (n int); INSERT INTO quota_more VALUES (1), (2);",
    )
    small.write(
        "functions/quota_internal",
        "CREATE OR REPLACE FUNCTION quota_internal() RETURNS int LANGUAGE sql AS 'SELECT 2';",
    )
    assert (await migrate(dsn, small.assets)).applied == ("0002_more",)
    assert await value(dsn, "SELECT quota_internal()") == 2
    assert await value(dsn, "SELECT count(*) FROM quota_more") == 2


@pytest.mark.parametrize(
    "broken",
    [
        ("migrations/0002_broken", "CREATE TABLE quota_half (n int); SELECT 1 / 0;"),
        ("functions/quota_zz", "CREATE FUNCTION quota_zz() RETURNS nonsense LANGUAGE sql AS '';"),
        (
            "views/v_quota_zz",
            "CREATE OR REPLACE VIEW v_quota_zz AS SELECT no_such_column FROM tenant_limits;",
        ),
    ],
)
async def test_a_failing_step_leaves_nothing(new_database, small, broken) -> None:
    dsn = await new_database()
    small.write(*broken)
    with pytest.raises(errors.DatabaseError) as caught:
        await migrate(dsn, small.assets)
    assert f"sql/{broken[0]}.sql" in str(caught.value)
    assert "nothing was changed" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert await tables(dsn) == []
    small.remove(broken[0])
    assert (await migrate(dsn, small.assets)).applied == ("0001_base",)


async def test_many_at_once_apply_it_once(new_database, small) -> None:
    dsn = await new_database()
    small.write("migrations/0002_slow", "CREATE TABLE quota_slow (n int); SELECT pg_sleep(0.3);")
    results = await asyncio.gather(*(migrate(dsn, small.assets) for _ in range(5)))
    applied = [result.applied for result in results if result.applied]
    assert applied == [("0001_base", "0002_slow")]
    assert await value(dsn, "SELECT count(*) FROM quota_migrations") == 2


async def test_in_four_databases_at_once_the_roles_are_made_once(server_home, small) -> None:
    """Roles belong to the cluster: the migrations of its databases race for them."""
    server = EmbeddedServer(server_home / "pg", binaries=chosen_binaries(), durable=False)
    with server:
        names = [f"d{i}" for i in range(4)]
        for name in names:
            await run_sql(server.dsn, f"CREATE DATABASE {name}")
        results = await asyncio.gather(
            *(migrate(server.dsn_of(name), small.assets) for name in names)
        )
        assert [result.roles_sql for result in results] == [None] * 4
        count = "SELECT count(*) FROM pg_roles WHERE rolname ~ '^quota_(gateway|worker|reader)$'"
        assert await value(server.dsn, count) == 3


async def test_a_newer_schema_is_refused_and_unchanged(new_database, small) -> None:
    dsn = await new_database()
    small.write("migrations/0002_more", "CREATE TABLE quota_more (n int);")
    await migrate(dsn, small.assets)
    small.remove("migrations/0002_more")
    small.write(
        "functions/quota_internal",
        "CREATE OR REPLACE FUNCTION quota_internal() RETURNS int LANGUAGE sql AS 'SELECT 3';",
    )
    before = catalog(dsn)
    with pytest.raises(errors.SchemaNewerError, match="0002_more") as caught:
        await migrate(dsn, small.assets)
    assert caught.value.exit_code == 2
    assert catalog(dsn) == before
    assert await value(dsn, "SELECT quota_internal()") == 1


async def test_an_edited_migration_is_named(new_database, small) -> None:
    dsn = await new_database()
    await migrate(dsn, small.assets)
    path = small.root / "sql/migrations/0001_base.sql"
    path.write_text(path.read_text() + "-- edited\n")
    result = await migrate(dsn, small.assets)
    assert result.warnings == (
        "the migration 0001_base was applied with another text than this program has",
    )


async def test_a_busy_table_is_waited_for_in_short_turns(new_database, small) -> None:
    """Gateways queue behind a waiting ALTER TABLE: it must not wait long at a time."""
    dsn = await new_database()
    await migrate(dsn, small.assets)
    small.write("migrations/0002_add", "ALTER TABLE tenant_limits ADD COLUMN extra int DEFAULT 5;")
    await run_sql(dsn, "INSERT INTO tenant_limits (tenant_id) VALUES ('a')")
    holder = await asyncpg.connect(dsn, statement_cache_size=0)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("SELECT * FROM tenant_limits")
    pauses = 0

    async def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        # While the migrator sleeps, a gateway gets its turn at once.
        await asyncio.wait_for(
            value(dsn, "UPDATE tenant_limits SET soft_warn_pct = 81 RETURNING 1"), 1
        )
        if pauses == 2:
            await transaction.rollback()

    result = await migrate(dsn, small.assets, pause=pause)
    await holder.close()
    assert result.applied == ("0002_add",)
    assert pauses == 2


async def test_a_table_that_stays_busy_ends_in_one_line(new_database, small) -> None:
    dsn = await new_database()
    await migrate(dsn, small.assets)
    small.write("migrations/0002_add", "ALTER TABLE tenant_limits ADD COLUMN extra int;")
    holder = await asyncpg.connect(dsn, statement_cache_size=0)
    async with holder.transaction():
        await holder.execute("SELECT * FROM tenant_limits")
        with pytest.raises(errors.LockTimeoutError, match="2 tries") as caught:
            await migrate(dsn, small.assets, attempts=2, pause=asyncio.sleep)
    await holder.close()
    assert caught.value.retryable
    assert "\n" not in str(caught.value)


async def test_the_schema_where_tenant_limits_lies(new_database, small) -> None:
    dsn = await new_database()
    await run_sql(dsn, 'CREATE SCHEMA app; CREATE SCHEMA "O\'Neil ""x"""')
    await run_sql(
        dsn,
        f'SET search_path TO "O\'Neil ""x"""; {(small.root / "sql/migrations/0001_base.sql").read_text()}',
    )
    result = await migrate(dsn, small.assets)
    assert result.schema == 'O\'Neil "x"'
    assert await tables(dsn) == []
    # Whoever calls by full name, from any search_path, gets the same tables.
    sql = 'SELECT "O\'Neil ""x""".quota_reserve(\'t\')'
    assert await value(dsn, sql) == "UTCt"
    # A second schema with the table: unclear, unless the search_path says which.
    await run_sql(
        dsn, 'CREATE TABLE app.tenant_limits (LIKE "O\'Neil ""x""".tenant_limits INCLUDING INDEXES)'
    )
    with pytest.raises(errors.SchemaAmbiguousError, match="search_path"):
        await migrate(dsn, small.assets)
    assert (await migrate(dsn + "&options=-csearch_path%3Dapp", small.assets)).schema == "app"


async def test_the_first_schema_of_the_search_path_otherwise(new_database, small) -> None:
    dsn = await new_database()
    await run_sql(dsn, "CREATE SCHEMA ledger")
    result = await migrate(dsn + "&options=-csearch_path%3Dnone,ledger,public", small.assets)
    assert result.schema == "ledger"
    assert await tables(dsn) == []
    other = await new_database()
    for path in ("none", "pg_catalog"):
        with pytest.raises(errors.SchemaAmbiguousError, match="search_path"):
            await migrate(f"{other}&options=-csearch_path%3D{path}", small.assets)


async def test_a_function_that_calls_by_name_cannot_be_hijacked(new_database, small) -> None:
    dsn = await new_database()
    await migrate(dsn, small.assets)
    setting = await value(dsn, "SELECT proconfig FROM pg_proc WHERE proname = 'quota_reserve'")
    assert setting == ["search_path=public, pg_temp"]


async def test_printed_script_equals_migrate(new_database, small) -> None:
    script = print_script(small.assets)
    by_psql, by_us = await new_database(), await new_database()
    for options in ([], ["-1"], ["-v", "ON_ERROR_STOP=1"]):
        done = psql(by_psql, script, *options)
        assert done.returncode == 0, done.stderr
        assert "ERROR" not in done.stderr
    await migrate(by_us, small.assets)
    assert catalog(by_psql) == catalog(by_us)
    sql = "SELECT array_agg(name || checksum) FROM quota_migrations"
    assert await value(by_psql, sql) == await value(by_us, sql)
    assert (await migrate(by_psql, small.assets)).applied == ()


async def test_printed_script_fails_whole(new_database, small) -> None:
    dsn = await new_database()
    small.write(
        "functions/quota_zz", "CREATE FUNCTION quota_zz() RETURNS nonsense LANGUAGE sql AS '';"
    )
    for options in ([], ["-1"]):
        assert "nonsense" in psql(dsn, print_script(small.assets), *options).stderr
        assert await tables(dsn) == []


class TestRights:
    @pytest.fixture
    async def plain_owner(self, new_database, pg_server):
        """A database owned by a user without CREATEROLE: (dsn as that user, dsn as superuser)."""
        dsn = await new_database()
        name = f"owner_{uuid.uuid4().hex[:8]}"
        database = dsn.split("@/")[1].split("?")[0]
        await run_sql(
            dsn,
            f"CREATE ROLE {name} LOGIN; ALTER DATABASE {database} OWNER TO {name}; GRANT ALL ON SCHEMA public TO {name}",
        )
        yield pg_server.dsn_of(database, name), dsn
        await run_sql(
            dsn, f"REASSIGN OWNED BY {name} TO CURRENT_USER; DROP OWNED BY {name}; DROP ROLE {name}"
        )

    async def can(self, dsn: str, role: str, kind: str, what: str, right: str) -> bool:
        return await value(dsn, f"SELECT has_{kind}_privilege($1, $2, $3)", role, what, right)

    async def test_each_role_may_do_its_part_only(self, new_database, small) -> None:
        dsn = await new_database()
        await migrate(dsn, small.assets)
        assert await self.can(dsn, "quota_gateway", "function", "quota_reserve(text)", "EXECUTE")
        assert not await self.can(dsn, "quota_gateway", "function", "quota_internal()", "EXECUTE")
        assert not await self.can(dsn, "quota_gateway", "table", "tenant_limits", "SELECT")
        assert not await self.can(dsn, "quota_gateway", "table", "v_quota_status", "SELECT")
        assert await self.can(dsn, "quota_worker", "function", "quota_internal()", "EXECUTE")
        assert await self.can(dsn, "quota_worker", "table", "tenant_limits", "UPDATE")
        assert await self.can(dsn, "quota_reader", "table", "v_quota_status", "SELECT")
        assert not await self.can(dsn, "quota_reader", "table", "tenant_limits", "SELECT")
        assert not await self.can(dsn, "quota_reader", "function", "quota_internal()", "EXECUTE")
        await run_sql(dsn, "SET ROLE quota_reader; SELECT * FROM v_quota_status")
        await run_sql(dsn, "SET ROLE quota_gateway; SELECT quota_reserve('t')")

    async def test_execute_is_not_for_everybody(self, new_database, small) -> None:
        dsn = await new_database()
        await migrate(dsn, small.assets)
        open_to_all = await value(
            dsn,
            "SELECT count(*) FROM pg_proc p, aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a "
            "WHERE p.pronamespace = 'public'::regnamespace AND a.grantee = 0",
        )
        assert open_to_all == 0

    async def test_own_grants_survive_a_drop_and_create(self, new_database, small) -> None:
        dsn = await new_database()
        await migrate(dsn, small.assets)
        role = f"app_{uuid.uuid4().hex[:8]}"
        await run_sql(
            dsn,
            f"CREATE ROLE {role}; GRANT EXECUTE ON FUNCTION quota_reserve(text) TO {role}; GRANT SELECT ON v_quota_status TO {role}",
        )
        small.write(
            "functions/quota_reserve",
            "DROP FUNCTION IF EXISTS quota_reserve(text);\n"
            "CREATE FUNCTION quota_reserve(p_tenant text, OUT a int, OUT b int) LANGUAGE sql AS 'SELECT 1, 2';",
        )
        small.write(
            "views/v_quota_status",
            "DROP VIEW v_quota_status; CREATE VIEW v_quota_status AS SELECT 1 AS n, quota_zone() AS zone;",
        )
        try:
            await migrate(dsn, small.assets)
            assert await self.can(dsn, role, "function", "quota_reserve(text)", "EXECUTE")
            assert await self.can(dsn, role, "table", "v_quota_status", "SELECT")
            assert await self.can(
                dsn, "quota_gateway", "function", "quota_reserve(text)", "EXECUTE"
            )
        finally:
            await run_sql(dsn, f"DROP OWNED BY {role}; DROP ROLE {role}")

    async def test_a_user_without_createrole_migrates(self, plain_owner, small) -> None:
        as_owner, as_admin = plain_owner
        # The roles are the cluster's and exist already: then their rights are given by the owner.
        small.write(
            "queries/migrate",
            (small.root / "sql/queries/migrate.sql")
            .read_text()
            .replace("'quota_gateway'", "'quota_gateway_missing'"),
        )
        roles = (
            (small.root / "sql/roles.sql")
            .read_text()
            .replace("quota_gateway", "quota_gateway_missing")
        )
        (small.root / "sql/roles.sql").write_text(roles)
        result = await migrate(as_owner, small.assets)
        assert result.applied == ("0001_base",)
        assert result.roles_sql is not None
        assert any("quota_gateway_missing" in warning for warning in result.warnings)
        assert await self.can(as_admin, "quota_reader", "table", "v_quota_status", "SELECT")
        # The administrator applies what was printed.
        done = psql(as_admin, result.roles_sql)
        assert (done.returncode, done.stderr) == (0, "")
        try:
            assert await self.can(
                as_admin, "quota_gateway_missing", "function", "quota_reserve(text)", "EXECUTE"
            )
            assert (await migrate(as_owner, small.assets)).roles_sql is None
        finally:
            await run_sql(
                as_admin, "DROP OWNED BY quota_gateway_missing; DROP ROLE quota_gateway_missing"
            )

    async def test_no_right_to_create_is_told_in_one_line(
        self, new_database, pg_server, small
    ) -> None:
        dsn = await new_database()
        name = f"guest_{uuid.uuid4().hex[:8]}"
        await run_sql(dsn, f"CREATE ROLE {name} LOGIN")
        database = dsn.split("@/")[1].split("?")[0]
        try:
            with pytest.raises(errors.DatabaseAccessError) as caught:
                await migrate(pg_server.dsn_of(database, name), small.assets)
        finally:
            await run_sql(dsn, f"DROP ROLE {name}")
        assert "\n" not in str(caught.value)
        assert "permission denied" in str(caught.value)
        assert str(caught.value).endswith(
            "nothing was changed: migrate as the owner of the schema and of its tables"
        )
