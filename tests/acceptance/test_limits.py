"""`quota-worker limits` and `topup` on a real database, with the role that operators have."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.program import environment, quota_worker
from worker.assets import Assets
from worker.limits.reading import parse_limits
from worker.limits.showing import TOML_HEADER, toml_table
from worker.postgres.limits import PostgresLimits
from worker.postgres.queries import load_queries

from sql.calls import Calls, at

if TYPE_CHECKING:
    import asyncpg

    from acceptance.program import Finished
    from worker.limits.comparing import Verdict

    from conftest import Connect

HEAD = "format_version = 1\n"
ACME = """
[departments.marketing]
name = "Marketing"
[departments.marketing.budgets.production]
monthly_cost_cents = 300000
[tenants.acme]
department_id = "marketing"
daily_completions = 2000
monthly_cost_cents = "unlimited"
"""
# QUOTA_WORKER_LIMITS_ROWS=1000000 for the full size
ROWS = int(os.environ.get("QUOTA_WORKER_LIMITS_ROWS", "5000"))
PEAK_MB = 80
# rusage would count the test's own memory, too, from before the exec
WITH_PEAK = """
import sys
from worker.cli import run
code = run(sys.argv[1:])
status = open("/proc/self/status").read()
print(next(line for line in status.splitlines() if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""


def as_operator(dsn: str) -> str:
    return f"{dsn}&options=-c%20role%3Dquota_worker"


async def run(dsn: str, *words: str) -> Finished:
    return await quota_worker(as_operator(dsn), *words)


def limits_of(conn: asyncpg.Connection[Any]) -> PostgresLimits:
    return PostgresLimits(conn, load_queries(Assets(), "limits"))


async def apply(conn: asyncpg.Connection[Any], text: str, by: str = "ann") -> Verdict:
    """As the command does."""
    file = parse_limits((HEAD + text).encode(), "l.toml")
    async with limits_of(conn).applying(file.wanted) as applying:
        if applying.verdict.faults:
            raise file.refusal(list(applying.verdict.faults))
        await applying.put(by, file.name, file.sha256)
    return applying.verdict


async def as_toml(conn: asyncpg.Connection[Any]) -> str:
    pages = [page async for page in limits_of(conn).pages(None)]
    return "\n".join([TOML_HEADER, *(toml_table(one) for page in pages for one in page)])


async def tables(conn: asyncpg.Connection[Any]) -> list[Any]:
    return [
        [dict(row) for row in await conn.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")]
        for table in ("departments", "department_budgets", "tenant_limits")
    ]


async def test_a_file_is_shown_tried_applied_and_shown_again(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    file = tmp_path / "limits.toml"
    file.write_text(HEAD + ACME)
    tried = await run(dsn, "limits", "apply", str(file), "--dry-run")
    assert (tried.code, tried.err) == (0, "nothing was changed: --dry-run\n")
    assert tried.out.splitlines()[-1].startswith("would be 3 added, 0 changed, 0 removed")
    assert '+   monthly_cost_cents = "unlimited"' in tried.out
    assert await tables(conn) == [[], [], []]
    done = await run(dsn, "limits", "apply", str(file), "--by", "ann", "--json")
    assert (done.code, done.err) == (0, "")
    assert [one["name"] for one in json.loads(done.out)["changes"]] == ["marketing"] * 2 + ["acme"]
    row = await conn.fetchrow("SELECT * FROM tenant_limits")
    assert row is not None
    assert (row["daily_completions"], row["monthly_cost_cents"]) == (2000, None)
    assert row["daily_cost_cents"] == 5000  # the column's default

    shown = await run(dsn, "limits", "show", "--toml")
    file.write_text(shown.out)
    again = await run(dsn, "limits", "apply", str(file))
    assert again.out.startswith("0 added, 0 changed, 0 removed, 3 as the file has them; what it")
    bad = tmp_path / "bad.toml"
    bad.write_text(f"{HEAD}[tenants.acme]\ndaily_completions = 1\nlocal = 'en'\ndaily_tokens = -1")
    refused = await run(dsn, "limits", "apply", str(bad))
    assert (refused.code, refused.out) == (2, "")
    assert "line 4, tenants.acme.local is not known: did you mean locale?" in refused.err
    history = await run(dsn, "limits", "history", "acme")
    assert "apply    tenant acme  by ann" in history.out
    assert "limits.toml" in history.out


async def test_a_block_and_an_allowance_from_the_command_line(
    dsn: str, conn: asyncpg.Connection[Any]
) -> None:
    await apply(conn, ACME)
    await conn.execute("INSERT INTO tenant_limits (tenant_id) VALUES ('marketing')")
    calls = Calls(conn, now=None)
    told = await run(dsn, "limits", "block", "acme", "--for", "2h", "--reason", "leaked key")
    assert told.code == 0
    assert told.out.startswith("tenant acme is blocked until ")
    assert (await calls.reserve("acme"))["limit_name"] == "blocked"
    await conn.execute("INSERT INTO tenant_limits (tenant_id) VALUES ('--help')")
    odd = await run(dsn, "limits", "block", "--for", "2h", "--reason", "r", "--", "--help")
    assert "quota-worker limits unblock -- --help ends the block now" in odd.err
    assert (await run(dsn, "limits", "unblock", "--", "--help")).code == 0
    status = await run(dsn, "status")
    assert "blocked    tenant acme until " in status.out
    assert ": leaked key" in status.out
    both = await run(dsn, "limits", "block", "marketing", "--for", "1h", "--reason", "x")
    assert both.code == 2
    assert "marketing is a tenant and a department: say --tenant or --department" in both.err
    freed = await run(dsn, "limits", "unblock", "acme")
    assert "tenant acme passes again" in freed.out
    assert (await calls.reserve("acme"))["allowed"]
    words = ["marketing", "--cost", "499.50", "--expires", "2099-12-31", "--approved-by", "cfo"]
    words += ["--reason", "campaign", "--key", "ticket-1"]
    added = await run(dsn, "topup", *words)
    assert added.out == (
        "added 499.50 USD for marketing (production), until 2100-01-01 00:00:00 UTC; key ticket-1\n"
    )
    assert added.err == ""
    idle = await run(dsn, "topup", *words[:-1], "ticket-2", "--environment", "test")
    assert "note: no budget of cost here, so nothing limits that" in idle.err
    assert (await run(dsn, "topup", *words)).out.startswith("added before with the key ticket-1")
    other = await run(dsn, "topup", *words[:2], "500", *words[3:])
    assert other.code == 1
    assert "the key ticket-1 was used for another allowance" in other.err
    assert await conn.fetchval("SELECT sum(cost_cents) FROM quota_topups") == 2 * 49_950
    actions = await conn.fetch("SELECT action FROM quota_limit_changes ORDER BY change_id")
    assert [row["action"] for row in actions[3:]] == [
        *("block", "block", "unblock", "unblock", "topup", "topup")
    ]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["limits"], "say which: quota-worker limits show, apply, block"),
        (["limits", "block", "acme", "--for", "2x", "--reason", "r"], "--for is no span of time"),
        (["limits", "block", "acme", "--for", "2h", "--reason", " "], "--reason is empty"),
        (["limits", "block", "acmee", "--for", "2h", "--reason", "r"], "did you mean acme?"),
        (["limits", "show", "acmee"], "did you mean acme?"),
        (["limits", "history", "acmee"], "did you mean acme?"),
        (["topup", "marketting", "--cost", "5", "--expires", "7d"], "did you mean marketing?"),
        (["topup", "marketing", "--expires", "7d"], "say how much: --tokens N, --cost X"),
        (["topup", "marketing", "--cost", "5.001", "--expires", "7d"], "--cost needs an amount"),
        (["topup", "marketing", "--cost", "-5", "--expires", "7d"], "--cost needs an amount"),
        (["topup", "marketing", "--tokens", "1e9", "--expires", "7d"], "--tokens needs a whole"),
        (
            ["topup", "marketing", "--tokens", "0" * 30 + "9" * 16, "--expires", "7d"],
            "needs a whole",
        ),
        (
            ["topup", "marketing", "--tokens", "9" * 5000, "--expires", "7d"],
            "--tokens needs a whole",
        ),
        (["topup", "marketing", "--tokens", "0" * 5000, "--expires", "7d"], "that adds nothing"),
        (["topup", "marketing", "--cost", "9" * 5000, "--expires", "7d"], "--cost needs an amount"),
        (["topup", "marketing", "--cost", "5", "--expires", "soon"], "--expires is no time"),
        (["topup", "marketing", "--cost", "5", "--expires", "2020-01-01"], "is over already"),
        (["topup", "marketing", "--cost", "5", "--expires", "7d", "--key", "k"], "is a span from"),
    ],
)
async def test_wrong_words_are_met_with_what_to_do(
    dsn: str,
    conn: asyncpg.Connection[Any],
    words: list[str],
    fault: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from worker import cli

    await apply(conn, ACME)
    if words[0] == "topup":
        words = [*words, "--approved-by", "cfo", "--reason", "r"]
    for name in [one for one in os.environ if one.startswith("QUOTA_WORKER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("POSTGRES_DSN", as_operator(dsn))
    assert await asyncio.to_thread(cli.run, words) == 2
    told = capsys.readouterr().err
    assert fault in told
    assert len(told.splitlines()) == 1
    assert await conn.fetchval("SELECT count(*) FROM quota_topups") == 0
    assert await conn.fetchval("SELECT count(*) FROM quota_blocks") == 0


async def test_every_column_comes_back_from_a_shown_file(conn: asyncpg.Connection[Any]) -> None:
    await conn.execute(
        "INSERT INTO departments VALUES ('d \"1\" é', E'N\\\\ame', 'zh-CN', '{a@b,c@d}', '{}'), ('e', NULL, NULL, '{}', '{}')"
    )
    await conn.execute(
        "INSERT INTO department_budgets VALUES ('e', 'test', 9223372036854775807, NULL, 1, 1, 100, '{}', 'm', '{x,y}'),"
        " ('d \"1\" é', 'production', NULL, 0, 75, 90, 98, NULL, NULL, NULL)"
    )
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions, bucket_capacity, bucket_refill_per_sec, department_id,"
        " enforce, monthly_tokens, locale) VALUES ('租户.1', NULL, 0.1, 1e15, 'e', 'observe', 0, 'en'), ('t', 0, 10, 0, NULL, 'off', NULL, NULL)"
    )
    before = await tables(conn)
    text = await as_toml(conn)
    assert (await apply(conn, text.removeprefix(TOML_HEADER))).changes == ()
    await conn.execute("DELETE FROM departments; DELETE FROM department_budgets")
    await conn.execute("DELETE FROM tenant_limits WHERE tenant_id = 't'")
    await conn.execute("UPDATE tenant_limits SET daily_completions = 5, locale = NULL")
    await apply(conn, text.removeprefix(TOML_HEADER))
    assert await tables(conn) == before


async def test_rows_that_no_file_could_make_are_shown_and_the_rest_applies(
    conn: asyncpg.Connection[Any],
) -> None:
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, department_id)"
        " VALUES ('', NULL), ('a' || chr(10), NULL), ('plain', 'gone')"
    )
    await conn.execute("INSERT INTO departments (department_id) VALUES ('')")
    shown = [one.key.subject async for page in limits_of(conn).pages(None) for one in page]
    assert shown == ["", "", "a\n", "plain"]
    verdict = await apply(conn, (await as_toml(conn)).partition("\n")[2].replace(HEAD, ""))
    assert (verdict.changes, verdict.unchanged) == ((), 1)


async def test_a_refused_file_changes_nothing_and_records_nothing(
    conn: asyncpg.Connection[Any],
) -> None:
    await apply(conn, ACME)
    before = await tables(conn)
    text = "[tenants.acme]\ndaily_tokens = 5\n[tenants.b]\ndepartment_id = 'nowhere'\n"
    with pytest.raises(Exception, match="is no department"):
        await apply(conn, text)
    assert await tables(conn) == before
    assert await conn.fetchval("SELECT count(*) FROM quota_limit_changes") == 3


async def test_what_was_changed_by_sql_is_told_and_recorded_once(
    conn: asyncpg.Connection[Any],
) -> None:
    await apply(conn, ACME)
    await conn.execute("UPDATE tenant_limits SET daily_completions = 7, daily_tokens = 8")
    verdict = await apply(conn, ACME)
    assert [one.columns for one in verdict.drifts] == [
        {"daily_completions": (2000, 7), "daily_tokens": (None, 8)}
    ]
    assert [one.columns for one in verdict.changes] == [{"daily_completions": (7, 2000)}]
    assert (await apply(conn, ACME)).drifts == ()
    # found, though the file has nothing to change in it
    await conn.execute("UPDATE tenant_limits SET daily_tokens = 9")
    verdict = await apply(conn, ACME)
    assert (len(verdict.drifts), verdict.changes) == (1, ())
    assert (await apply(conn, ACME)).drifts == ()
    await conn.execute("DELETE FROM tenant_limits")
    verdict = await apply(conn, ACME)
    assert (verdict.drifts[0].is_gone, verdict.changes[0].is_new) == (True, True)
    rows = await conn.fetch(
        "SELECT action, changed_by, after ->> 'daily_completions' AS n FROM quota_limit_changes"
        " WHERE subject = 'acme' ORDER BY change_id"
    )
    nobody = "(not known)"
    assert [tuple(row) for row in rows] == [
        ("apply", "ann", "2000"),
        ("found", nobody, "7"),
        ("apply", "ann", "2000"),
        ("found", nobody, "2000"),
        ("found", nobody, None),
        ("apply", "ann", "2000"),
    ]


async def test_of_two_applies_at_once_the_second_sees_the_first(connect: Connect) -> None:
    one, two = await connect(), await connect()
    await apply(one, ACME)
    texts = [f"[tenants.acme]\ndaily_completions = {n}\n" for n in (1, 2)]
    first, second = await asyncio.gather(apply(one, texts[0]), apply(two, texts[1]))
    pairs = sorted(verdict.changes[0].columns["daily_completions"] for verdict in (first, second))
    assert pairs in ([(1, 2), (2000, 1)], [(2, 1), (2000, 2)])
    assert (first.drifts, second.drifts) == ((), ())


async def test_two_applies_wait_for_each_other(connect: Connect) -> None:
    one, two = await connect(), await connect()
    wanted = parse_limits((HEAD + ACME).encode(), "l.toml").wanted
    async with limits_of(one).applying(wanted):
        waiting = asyncio.create_task(apply(two, "[tenants.other]\n"))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
    await waiting


async def test_who_owes_and_is_moved_or_removed_goes_on_owing(
    conn: asyncpg.Connection[Any],
) -> None:
    calls = Calls(conn)
    await apply(conn, ACME)
    await calls.reserve("acme", "open", (10, 5, 100))
    await calls.settle("acme", "done", (7, 8, 9))
    await apply(conn, '[departments.sales]\n[tenants.acme]\ndepartment_id = "sales"\n')
    await calls.reserve("acme", "moved", (1, 1, 1))
    month = at("2026-05-01").date()
    used = await calls.department_used("marketing", "production", month)
    assert (used["tokens_used"], used["tokens_held"]) == (30, 15)
    gone = "[departments.{}]\nremove = true\n"
    text = gone.format("marketing") + gone.format("sales") + "[tenants.acme]\nremove = true\n"
    verdict = await apply(conn, text)
    assert [one.is_removed for one in verdict.changes] == [True] * 4
    assert await tables(conn) == [[], [], []]
    assert (await calls.reserve("acme"))["reason"] == "unknown_tenant"
    assert (await calls.settle("acme", "open", (20, 20, 20)))["outcome"] == "settled"
    used = await calls.department_used("marketing", "production", month)
    assert (used["tokens_used"], used["tokens_held"]) == (55, 0)
    assert await calls.figures("acme") == (3, 28, 29, 30)


async def test_limits_bind_with_the_next_request(conn: asyncpg.Connection[Any]) -> None:
    calls = Calls(conn)
    await apply(conn, ACME)
    for _ in range(2):
        assert (await calls.reserve("acme"))["allowed"]
    await apply(conn, "[tenants.acme]\ndaily_completions = 2\n")
    assert (await calls.reserve("acme"))["reason"] == "daily_cap_reached"
    await apply(conn, '[tenants.acme]\ndaily_completions = "unlimited"\n')
    assert (await calls.reserve("acme"))["allowed"]
    await apply(conn, "[departments.marketing.budgets.production]\nmonthly_cost_cents = 0\n")
    assert (await calls.reserve("acme"))["reason"] == "department_budget_exhausted"


async def test_a_great_many_tenants_are_shown_in_little_memory(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id) SELECT 'tenant-' || n FROM generate_series(1, $1::int) n",
        ROWS,
    )
    out = tmp_path / "all.toml"
    with out.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WITH_PEAK, "limits", "show", "--toml",
            stdout=stream, stderr=asyncio.subprocess.PIPE, env=environment(as_operator(dsn)),
        )  # fmt: skip
        _, said = await process.communicate()
        assert process.returncode == 0
    with out.open(encoding="utf-8") as stream:
        assert sum(line.startswith("[tenants.") for line in stream) == ROWS
    assert int(said.split()[-2]) < PEAK_MB * 1024
