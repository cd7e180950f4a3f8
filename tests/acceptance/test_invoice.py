"""`quota-worker invoice compare` as a process on a real database that it could not write to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from acceptance.program import quota_worker

from sql.calls import Calls, at

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import asyncpg

    from acceptance.program import Finished

DOLLAR = 10**9
HEADER = "start_time_iso,start_time,amount_value,amount_currency,line_item\n"
USAGE = (
    "usage_date_utc,model_version,usage_input_tokens_no_cache,usage_input_tokens_cache_read,"
    "usage_output_tokens\n"
)


def noon(day: int) -> datetime:
    return at(f"2026-10-{day:02}T12:00:00")


async def make_month(calls: Calls) -> None:
    """Ten days of a model's requests; one of them without usage, at a wild estimate."""
    await calls.tenant("t")
    for day in range(1, 11):
        now = noon(day)
        await calls.reserve("t", f"r{day}", (1000, 100, DOLLAR), model="gpt-4o", now=now)
        if day != 10:
            await calls.settle(
                "t", f"r{day}", (1000, 100, DOLLAR), model="gpt-4o-2024-08-06", cached=400, now=now
            )
    await calls.expire(now=noon(11))


def openai_cost(folder: Path, days: dict[int, str]) -> str:
    """OpenAI's export of costs: the day's input and output."""
    path = folder / "cost.csv"
    rows = [
        f"2026-10-{day:02}T00:00:00+00:00,{int(at(f'2026-10-{day:02}T00:00').timestamp())},"
        f'{amount},usd,"gpt-4o-2024-08-06, {kind}"\n'
        for day, amount in days.items()
        for kind in ("input", "output")
    ]
    path.write_text(HEADER + "".join(rows), encoding="utf-8")
    return str(path)


async def compare(dsn: str, *words: str) -> Finished:
    """With the role that operators have, on sessions that can't write anything."""
    options = "-c%20role%3Dquota_worker%20-c%20default_transaction_read_only%3Don"
    return await quota_worker(
        f"{dsn}&options={options}", "invoice", "compare", *words, "--month", "2026-10"
    )


async def test_an_invoice_that_agrees_and_one_that_a_stale_estimate_explains(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    await make_month(Calls(conn))
    agrees = openai_cost(tmp_path, dict.fromkeys(range(1, 11), "0.5000000000000000"))
    done = await compare(dsn, agrees)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "invoice  openai-cost, days of UTC: 20 rows"
    assert lines[-1] == (
        "within tolerance: the models' differences add up to 0.0000 USD, 0.0 % of the invoice;"
        " 1 % is allowed"
    )

    # the tenth request really used a fifth of its estimate
    lower = openai_cost(tmp_path, {**dict.fromkeys(range(1, 10), "0.5"), 10: "0.1"})
    done = await compare(dsn, lower)
    assert done.code == 1
    assert "gpt-4o       10.0000   9.2000     +0.8000  +8.7  beyond" in done.out
    assert next(line for line in done.out.splitlines() if line.startswith("2026-10-10")).split()[
        1:
    ] == ["1.0000", "0.2000", "+0.8000", "+400.0", "beyond"]
    assert "- requests without usage are charged by estimate" in done.out
    assert ": 1 request, 1.0000 USD, 1,100 tokens\n" in done.out
    assert (await compare(dsn, lower, "--tolerance", "8.7%")).code == 0

    done = await compare(dsn, lower, "--json", "--only", "gpt-4*")
    document = json.loads(done.out)
    assert (done.code, document["within_tolerance"], document["measure"]) == (1, False, "cost")
    assert document["models"][0]["names"] == ["gpt-4o", "gpt-4o-2024-08-06"]
    assert document["days"][0]["difference"]["cost_nanos"] == DOLLAR * 8 // 10
    assert [(one["kind"], one["cost_nanos"]) for one in document["explanations"]] == [
        ("stale", DOLLAR)
    ]


async def test_tokens_of_another_zone_with_cached_input_apart_and_legacy_charges(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    calls = Calls(conn)
    await calls.zone("Asia/Shanghai")
    await calls.tenant("t")
    # in the evening of UTC's day: in Shanghai it is the next one
    for day in range(1, 11):
        now, amounts = at(f"2026-10-{day:02}T20:00:00"), (1000 * day, 100, DOLLAR)
        await calls.reserve("t", f"r{day}", amounts, model="claude-3-5-sonnet-20241022", now=now)
        await calls.settle("t", f"r{day}", amounts, cached=400 * day, now=now)
    await conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, input_tokens, cost_cents)"
        " VALUES ('old', '2026-10-03', 7, 5)"
    )
    path = tmp_path / "usage.csv"
    rows = [f"2026-10-{n:02},Claude Sonnet 3.5,{600 * n},0,100\n" for n in range(1, 11)]
    path.write_text(USAGE + "".join(rows), encoding="utf-16")
    done = await compare(dsn, str(path), "--json")
    assert done.code == 1
    document = json.loads(done.out)
    assert (document["billing_zone"], document["export_zone"]) == ("Asia/Shanghai", "UTC")
    assert [one["model"] for one in document["models"]] == ["claude-sonnet-3-5", "(legacy charges)"]
    found = {one["kind"]: one for one in document["explanations"]}
    assert found["cached"]["tokens"] == 22_000
    assert (found["legacy"]["tokens"], found["legacy"]["cost_nanos"]) == (7, 50_000_000)
    assert found["zone"]["tokens"] > 0
    assert "the invoice's days are of UTC, the ledger's of Asia/Shanghai" in found["zone"]["text"]
    # by UTC's days, and so on the same ones
    assert document["compared_zone"] == "UTC"
    assert [one["invoice"]["output_tokens"] for one in document["days"]].count(100) == 10
    assert {one["difference"]["output_tokens"] for one in document["days"]} == {0}


async def test_the_verdict_is_the_same_by_days_and_by_times(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    """0.8 charged too much; the ends of UTC's month and of Shanghai's differ by the same 0.8."""
    calls = Calls(conn)
    await calls.zone("Asia/Shanghai")
    await make_month(calls)
    ends = {"2026-09-30T20:00:00": DOLLAR // 10, "2026-10-31T20:00:00": DOLLAR * 9 // 10}
    for moment, nanos in ends.items():
        await calls.reserve("t", moment, (1, 1, nanos), model="gpt-4o", now=at(moment))
        await calls.settle("t", moment, (1, 1, nanos), now=at(moment))
    used = {**{f"2026-10-{day:02}": "1.0" for day in range(1, 10)}, "2026-10-10": "0.2"}

    path = tmp_path / "rows.csv"

    async def checked(rows: list[str]) -> tuple[int, dict[str, Any]]:
        path.write_text("date,model,cost\n" + "".join(f"{row}\n" for row in rows))
        done = await compare(dsn, str(path), "--json")
        return done.code, json.loads(done.out)

    days = [f"{day},gpt-4o,{amount}" for day, amount in used.items()]
    times = [f"{day}T12:00:00Z,gpt-4o,{amount}" for day, amount in used.items()]
    last, before = "2026-10-31T20:00:00Z,gpt-4o,0.9", "2026-09-30T20:00:00Z,gpt-4o,0.1"
    for rows, zone in (
        ([*days, "2026-10-31,gpt-4o,0.9"], "UTC"),
        ([*times, last], "UTC"),  # of UTC's month, as its days are
        ([before, *times], "Asia/Shanghai"),
        ([before, *times, last], "Asia/Shanghai"),
    ):
        code, document = await checked(rows)
        assert (code, document["within_tolerance"], document["spread"]) == (
            1,
            False,
            8 * DOLLAR // 10,
        )
        assert document["compared_zone"] == zone
        own = document["own_month"]
        assert (own and own["cost_nanos"]) == (DOLLAR * 101 // 10 if zone == "UTC" else None)
    # the other way round: what is right is not refused for a busy end of the month
    right = [row.replace(",0.2", ",1.0") for row in [*days, "2026-10-31,gpt-4o,0.9"]]
    code, document = await checked(right)
    assert (code, document["spread"], document["explanations"][0]["kind"]) == (0, 0, "zone")
    done = await compare(dsn, str(path))
    assert done.out.splitlines()[1:3] == [
        "ledger   2026-10, by the invoice's days, of UTC, USD",
        "         its own month, billing days of Asia/Shanghai, comes to 10.1000 USD, 0.8000 less",
    ]


async def test_currencies_and_what_is_refused(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    await make_month(Calls(conn))
    columns = ("--columns", "date=Tag,cost=Kosten,currency=Währung", "--decimal", ",")
    path = tmp_path / "kosten.csv"
    path.write_text(
        "Tag;Kosten;Währung\n2026-10-01;7,00;CNY\n2026-10-02;9,00;USD\n", encoding="utf-8-sig"
    )
    done = await compare(dsn, str(path), *columns)
    assert (done.code, done.out) == (2, "")
    assert "there is no rate of CNY to USD for 2026-10-01 or before" in done.err
    await conn.execute("INSERT INTO quota_currency_rates VALUES ('CNY', '2026-01-01', 0.142857)")
    done = await compare(dsn, str(path), *columns)
    assert done.code == 0
    assert "- 7 CNY of the invoice were converted by the day's rate to USD" in done.out

    path.write_text("Tag;Kosten;Währung\ngestern;7,00;CNY\n2026-10-02;x;USD\n", encoding="utf-8")
    done = await compare(dsn, str(path), *columns)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "quota-worker: kosten.csv: 2 rows are broken, nothing was compared",
        "line 2: 'gestern' is no date like 2026-10-05 or 2026-10-05T12:00:00Z",
        "line 3: 'x' is no number",
    ]


async def test_a_model_that_was_chosen_counts_and_tokens_are_judged_apart(
    dsn: str, conn: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    calls = Calls(conn)
    await calls.tenant("t")
    for model, nanos in (("gpt-3.5-turbo", DOLLAR), ("openai/gpt-4o", 9 * DOLLAR), ("x", DOLLAR)):
        await calls.reserve("t", model, (1000, 100, nanos), model=model, now=noon(1))
        await calls.settle("t", model, (1000, 100, nanos), now=noon(1))
    path = tmp_path / "rows.csv"

    async def checked(content: str, *words: str) -> Finished:
        path.write_text(content)
        return await compare(dsn, str(path), *words)

    only = ("--only", "gpt-3.5*", "--only", "gpt-4o")
    costs = "date,model,cost\n2026-10-01,gpt-4o,9\n2026-10-01,gpt-3.5-turbo,10.94\n"
    done = await checked(costs, *only)
    assert done.code == 1
    assert "gpt-3-5-turbo  1.0000  10.9400     -9.9400  -90.9  beyond" in done.out
    done = await checked(costs, *only, "--only", "gemini-2.5*", "--model", "o3=x")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "quota-worker: --model 'o3' is no model of the invoice: nothing was compared",
        "--only 'gemini-2.5*' is no model, neither of the invoice nor of the ledger",
    ]
    # what is output is called input
    done = await checked("date,input_tokens,output_tokens\n2026-10-01,300,3000\n")
    assert done.code == 1
    assert "2026-10-01  out     300    3,000      -2,700   -90.0  beyond" in done.out
    # a database of the version before
    lost = await conn.fetchval("DELETE FROM quota_migrations WHERE name ~ '^0005' RETURNING name")
    done = await compare(dsn, str(path))
    assert (done.code, done.out) == (2, "")
    assert f"the database lacks the migration {lost} (" in done.err
    assert "run quota-worker migrate" in done.err
