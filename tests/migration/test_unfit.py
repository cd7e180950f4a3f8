"""Tables, functions and views of others that migrate can't take over as they are."""

from __future__ import annotations

import pytest

from worker.assets import Assets
from worker.errors import SchemaUnfitError
from worker.postgres.migrate import print_script

from scripts import TUTORIAL, migrate, psql, run_sql, value


@pytest.fixture
async def tutorial(new_database) -> str:
    dsn = await new_database()
    await run_sql(dsn, TUTORIAL)
    return dsn


@pytest.mark.parametrize(
    ("change", "told", "cure"),
    [
        (
            "ALTER TABLE quota_usage DROP CONSTRAINT quota_usage_pkey",
            r"quota_usage has no unique key on \(tenant_id, period\)",
            "ALTER TABLE quota_usage ADD UNIQUE (tenant_id, period)",
        ),
        (
            "ALTER TABLE quota_usage DROP CONSTRAINT quota_usage_pkey, ADD UNIQUE (tenant_id, period) DEFERRABLE",
            r"quota_usage has no unique key",
            (
                "ALTER TABLE quota_usage DROP CONSTRAINT quota_usage_tenant_id_period_key;"
                "CREATE UNIQUE INDEX ON quota_usage (period, tenant_id) INCLUDE (cost_cents)"
            ),
        ),
        (
            "ALTER TABLE quota_usage ADD UNIQUE (period, tenant_id) DEFERRABLE",
            r"quota_usage has the deferrable key quota_usage_period_tenant_id_key,",
            "ALTER TABLE quota_usage DROP CONSTRAINT quota_usage_period_tenant_id_key",
        ),
        (
            (
                "ALTER TABLE tenant_limits DROP CONSTRAINT tenant_limits_pkey;"
                "CREATE UNIQUE INDEX ON tenant_limits (tenant_id) WHERE daily_completions > 0"
            ),
            r"tenant_limits has no unique key on \(tenant_id\)",
            "ALTER TABLE tenant_limits ADD UNIQUE (tenant_id)",
        ),
        (
            (
                "ALTER TABLE quota_usage ADD region text, ADD note text NOT NULL DEFAULT 'x';"
                "UPDATE quota_usage SET region = 'eu'; ALTER TABLE quota_usage ALTER region SET NOT NULL"
            ),
            r"quota_usage wants a value for region,",
            "ALTER TABLE quota_usage ALTER region SET DEFAULT 'eu'",
        ),
    ],
)
async def test_what_no_charge_could_be_booked_in_is_refused_with_its_cure(
    tutorial: str, change: str, told: str, cure: str
) -> None:
    await run_sql(tutorial, change)
    with pytest.raises(SchemaUnfitError, match=told) as caught:
        await migrate(tutorial)
    assert "\n" not in str(caught.value)
    assert "ALTER TABLE" in str(caught.value)
    assert caught.value.exit_code == 2
    assert await value(tutorial, "SELECT to_regclass('quota_migrations')") is None
    await run_sql(tutorial, cure)
    await migrate(tutorial)
    assert await value(
        tutorial, "SELECT allowed FROM quota_check_and_charge('tenant-pro', 1, 1, 1)"
    )


async def test_another_overload_is_named(tutorial: str) -> None:
    await run_sql(
        tutorial,
        "CREATE FUNCTION quota_check_and_charge(text, int, int, int) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    )
    for _ in range(2):
        (told,) = [w for w in (await migrate(tutorial)).warnings if "odd limit" not in w]
        assert "quota_check_and_charge(text, integer, integer, integer)" in told
        assert "drop or rename it" in told


OTHER_VIEW = """
DROP VIEW v_quota_status;
CREATE VIEW v_quota_status AS SELECT tenant_id::varchar AS tenant_id, 1::smallint AS period FROM tenant_limits;
GRANT SELECT ON v_quota_status TO PUBLIC;
"""


@pytest.mark.parametrize("by_psql", [False, True])
async def test_a_view_with_other_columns_is_made_anew_with_its_grants(
    tutorial: str,
    by_psql: bool,  # noqa: FBT001
) -> None:
    await run_sql(tutorial, OTHER_VIEW)
    if by_psql:
        done = psql(tutorial, print_script(Assets()), "-v", "ON_ERROR_STOP=1")
        assert done.returncode == 0, done.stderr
    else:
        await migrate(tutorial)
    assert await value(tutorial, "SELECT count(*) FROM v_quota_status WHERE cost_cap_cents = 200")
    assert await value(
        tutorial,
        "SELECT count(*) FROM pg_class c, aclexplode(c.relacl) a WHERE c.relname = 'v_quota_status'"
        " AND a.grantee = 0 AND a.privilege_type = 'SELECT'",
    )


async def test_views_on_such_a_view_are_named(tutorial: str) -> None:
    await run_sql(tutorial, OTHER_VIEW)
    await run_sql(
        tutorial,
        "CREATE VIEW mine AS SELECT tenant_id FROM v_quota_status;"
        'CREATE MATERIALIZED VIEW "My Board" AS SELECT period FROM v_quota_status',
    )
    with pytest.raises(SchemaUnfitError, match='depend on it: "My Board", mine: drop') as caught:
        await migrate(tutorial)
    assert "\n" not in str(caught.value)
    assert await value(tutorial, "SELECT to_regclass('quota_migrations')") is None
    await run_sql(tutorial, 'DROP VIEW mine; DROP MATERIALIZED VIEW "My Board"')
    await migrate(tutorial)


async def test_a_view_on_ours_stays_when_migrate_runs_again(tutorial: str) -> None:
    await migrate(tutorial)
    await run_sql(tutorial, "CREATE VIEW mine AS SELECT tenant_id FROM v_quota_status")
    await migrate(tutorial)
    assert await value(tutorial, "SELECT count(*) FROM mine") == 4
