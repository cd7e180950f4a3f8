"""`quota-worker audit` as people and programs meet it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from acceptance.program import quota_worker

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

HOSTILE = "evil\x1b[2J\nno drift"


async def test_found_explained_mended_and_clean_again(dsn: str, conn: Connection) -> None:
    clean = await quota_worker(dsn, "audit")
    assert clean.code == 0, clean.err
    month = await conn.fetchval(
        "SELECT to_char(quota_month(quota_day(clock_timestamp())), 'YYYY-MM')"
    )
    assert clean.out == f"{month} (open, UTC): no drift, no remark\n"
    past = await quota_worker(dsn, "audit", "--month", "2020-01")
    assert past.out == "2020-01 (no charges, UTC): no drift, no remark\n"
    nothing = await quota_worker(dsn, "audit", "--repair")
    assert nothing.out == f"{month} (open, UTC): nothing to mend; no drift, no remark\n"

    for name in ("市场部", "evil"):
        await conn.execute("INSERT INTO tenant_limits (tenant_id) VALUES ($1)", name)
        await conn.execute("SELECT quota_reserve($1, $2, 1000, 20, 15000000)", name, f"r{name}")
    await conn.execute("SELECT quota_settle('evil', 'never', 1, 1, NULL)")
    # no function of ours takes such a name; an old database may hold one
    for table in ("tenant_limits", "quota_usage", "quota_reservations"):
        await conn.execute(f"UPDATE {table} SET tenant_id = $1 WHERE tenant_id = 'evil'", HOSTILE)
    await conn.execute(
        "UPDATE quota_reservations SET request_id = $1 WHERE request_id = 'revil'", HOSTILE
    )
    await conn.execute(
        "UPDATE quota_usage SET held_input_tokens = 0, held_output_tokens = 0, held_cost_nanos = 0"
    )

    found = await quota_worker(dsn, "audit")
    assert found.code == 1
    lines = found.out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert " ".join(lines[0].split()) == "where when what dimension expected found off by"
    assert sum(line.startswith("evil\\x1b[2J\\nno drift ") for line in lines) == 4
    (cost,) = (line for line in lines if line.startswith("市场部") and "cost held" in line)
    assert cost.split()[-6:] == ["0.015", "USD", "0.00", "USD", "-0.015", "USD"]
    assert any(
        line
        == "    less is held than open requests ask: as much as request r市场部, which is open,"
        " ought to hold"
        for line in lines
    )
    assert any(
        line.startswith("wrong hold  ") and f"--month {month} --repair" in line for line in lines
    )
    assert lines[-1] == f"{month} (open, UTC): 6 drifts, 1 remark"
    assert len((await quota_worker(dsn, "audit", "--top", "2")).out.splitlines()) < len(lines)

    document = json.loads((await quota_worker(dsn, "audit", "--json", "--month", month)).out)
    assert (document["month"], document["drifts"], document["remarks"]) == (month, 6, 1)
    row = next(r for r in document["rows"] if r["dimension"] == "cost_nanos")
    assert (row["kind"], row["expected"], row["found"]) == ("held", 15_000_000, 0)
    assert {r["severity"] for r in document["rows"]} == {"drift", "remark"}
    assert "mended" not in document

    mended = await quota_worker(dsn, "audit", "--repair")
    assert mended.code == 0, mended.out
    assert mended.out.splitlines()[-1] == f"{month} (open, UTC): 6 mends; now no drift, 1 remark"
    again = json.loads((await quota_worker(dsn, "audit", "--repair", "--json")).out)
    assert (again["mended"], again["repair_run"], again["drifts"]) == ([], None, 0)
    run = await conn.fetchval("SELECT run::text FROM quota_repairs LIMIT 1")
    assert f"(run {run} in quota_repairs)" in mended.out
    assert await conn.fetchval("SELECT count(*) FROM quota_repairs") == 6


async def test_what_it_cannot_audit_is_wrong_usage(dsn: str) -> None:
    for month, words in (
        ("2026-13", "--month 2026-13 is no month like 2026-10"),
        ("\x1b[2J", "is no month like 2026-10"),
        ("2199-01", "2199-01 has not begun: the open month is "),
    ):
        done = await quota_worker(dsn, "audit", "--month", month)
        assert (done.code, done.out) == (2, "")
        assert words in done.err
        assert "\x1b" not in done.err
    assert (await quota_worker(dsn, "audit", "--top", "-1")).code == 2
