"""quota-worker price, as an operator calls it: from an empty table to a month without guesses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acceptance.program import Finished, quota_worker
from worker.cli import run

if TYPE_CHECKING:
    import asyncpg

    Program = Callable[..., Awaitable[Finished]]

    Connection = asyncpg.Connection[asyncpg.Record]

OVERRIDES = """
[[prices]]
model = "Qwen-Max"
currency = "CNY"
input = 2.4
cached_input = 0.48
output = 9.6

[[prices]]
model = "qwen-max"
currency = "CNY"
valid_from = 2026-12-01
input = 2
output = 8

[[prices]]
model = "case-30"
provider = "acme"
currency = "USD"
input = 1.4
cached_input = 0.26
output = 4.4
"""


@pytest.fixture
def program(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Program:
    """The program's commands, called in this process: its start takes most of a run's time."""
    monkeypatch.setenv("POSTGRES_DSN", dsn)

    async def call(*words: str) -> Finished:
        capsys.readouterr()
        code = await asyncio.to_thread(run, words)
        return Finished(code, *capsys.readouterr())

    return call


async def test_from_unpriced_usage_to_its_price(
    dsn: str, program: Program, conn: Connection, tmp_path: Path
) -> None:
    await conn.execute("INSERT INTO tenant_limits (tenant_id) VALUES ('t')")
    await conn.execute(
        "SELECT quota_settle('t', r, 1000000, 0, NULL, p_model => m) FROM (VALUES ('a', 'gpt-4o'),"
        " ('b', 'qwen-max'), ('c', 'nobodys-model'), ('d', NULL)) v (r, m)"
    )
    empty = await program("price", "unpriced")
    assert empty.code == 0
    assert empty.out.count("quota-worker price update, or price load FILE") == 3
    assert "let the gateway name the model" in empty.out
    unknown = await program("price", "of", "gpt-4o", "--in", "1")
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err == (
        "quota-worker: no prices yet: quota-worker price update, or price load FILE\n"
    )

    updated = await program("price", "update")
    assert updated.code == 0
    assert updated.out.startswith("genai-prices 0.2.")
    assert "waiting for a price: 4;" in updated.err
    overrides = tmp_path / "prices.toml"
    overrides.write_text(OVERRIDES, encoding="utf-8")
    loaded = await program("price", "load", str(overrides))
    assert loaded.out == "prices.toml: 3 overrides in place of all before\n"

    shown = await program("price", "unpriced")
    assert "its price is known by now: the next reconcile takes it" in shown.out
    ticked = await quota_worker(dsn, "run", "reconcile", "--json")
    assert ticked.code == 0, ticked.err
    assert '"priced": 1' in ticked.out
    waiting = await program("price", "unpriced", "--json")
    reasons = {group["model"]: group["reason"] for group in json.loads(waiting.out)["unpriced"]}
    assert reasons == {"qwen-max": "no_rate", "nobodys-model": "unknown_model", None: "no_model"}
    shown = await program("price", "unpriced")
    assert "quota-worker price rates load FILE.csv: CNY in USD from 20" in shown.out

    of = await program("price", "of", "qwen-max", "--in", "1")
    assert of.code == 2
    assert of.err == (
        "quota-worker: no rate of CNY in USD at that day or before: "
        "quota-worker price rates load FILE.csv, with the columns currency,date,rate\n"
    )
    rates = tmp_path / "rates.csv"
    rates.write_text("currency,date,rate\nCNY,2020-01-01,0.14\n", encoding="utf-8")
    assert (await program("price", "rates", "load", str(rates))).code == 0
    assert await conn.fetchval("SELECT priced FROM quota_price_unpriced()") == 1
    charged = await conn.fetch(
        "SELECT request_id, charged_cost_nanos, unpriced FROM quota_reservations ORDER BY 1"
    )
    assert [tuple(row) for row in charged] == [
        ("a", 2_500_000_000, False),
        ("b", charged[1]["charged_cost_nanos"], False),
        ("c", 0, True),
        ("d", 0, True),
    ]
    assert charged[1]["charged_cost_nanos"] in {336_000_000, 280_000_000}  # until December, since

    of = await program("price", "of", "ACME/case-30", "--in", "27147", "--cached", "27146", "--out", "351",
        "--at", "2026-11-01T08:00:00+08:00",
    )  # fmt: skip
    assert of.code == 0, of.err
    assert of.out.splitlines()[0] == "acme/case-30, standard, always (prices.toml)"
    assert [line.split() for line in of.out.splitlines()[3:6]] == [
        ["input", "1", "×", "1.4", "=", "0.0000014"],  # noqa: RUF001
        ["cached", "input", "27,146", "×", "0.26", "=", "0.00705796"],  # noqa: RUF001
        ["output", "351", "×", "4.4", "=", "0.0015444"],  # noqa: RUF001
    ]
    assert of.out.splitlines()[-1] == "cost: 0.00860376 USD (8,603,760 nanos)"
    converted = await quota_worker(
        dsn,
        "price",
        "of",
        "qwen-max",
        "--in",
        "1000",
        "--at",
        "2026-11-01T08:00:00+08:00",
        "--json",
    )
    answer = json.loads(converted.out)
    assert (answer["cost_nanos"], answer["rate"], answer["rate_from"]) == (
        336_000,
        "0.14",
        "2020-01-01",
    )


async def test_long_lists_are_cut_and_say_so(program: Program, tmp_path: Path) -> None:
    prices, rates = tmp_path / "prices.csv", tmp_path / "rates.csv"
    models = "".join(f"model-{number},CNY,1,2\n" for number in range(53))
    prices.write_text(f"model,currency,input,output\n{models}", encoding="utf-8")
    none = await program("price", "rates", "list")
    assert (none.code, none.out) == (0, "")
    assert none.err.startswith("no rates yet: quota-worker price rates load FILE.csv")
    assert (await program("price", "load", str(prices))).code == 0
    for words, lines, last in (
        ((), 52, "and 3 more: --top 0 shows all, price list PART names some"),
        (("model-1", "--top", "10"), 12, "and 1 more: --top 0 shows all, price list PART names"),
        (("--top", "0"), 54, "model-9 "),
    ):
        listed = (await program("price", "list", *words)).out.splitlines()
        assert len(listed) == lines
        assert listed[-1].startswith(last)
    assert len(json.loads((await program("price", "list", "--json")).out)["prices"]) == 53

    days = "".join(f"CNY,2026-01-{day:02},0.{day}\nEUR,2026-01-{day:02},1.1\n" for day in (3, 14))
    rates.write_text(f"currency,date,rate\n{days}", encoding="utf-8")
    assert (await program("price", "rates", "load", str(rates))).code == 0
    listed = await program("price", "rates", "list", "--top", "3")
    assert [" ".join(line.split()[:7]) for line in listed.out.splitlines()[1:]] == [
        "CNY from 2026-01-14 0.14 USD per CNY",
        "EUR from 2026-01-14 1.1 USD per EUR",
        "CNY from 2026-01-03 0.3 USD per CNY",
        "and 1 more: --top 0 shows all,",
    ]
    assert (await program("price", "rates")).out.startswith(listed.out.rpartition("and")[0])
    assert "no rates of GBP yet" in (await program("price", "rates", "list", "GBP")).err
    listed = await program("price", "rates", "list", "cny", "--json")
    assert [(rate["valid_from"], rate["rate"]) for rate in json.loads(listed.out)["rates"]] == [
        ("2026-01-14", "0.14"),
        ("2026-01-03", "0.3"),
    ]


async def test_what_is_left_out_is_named_and_nothing_is_loaded(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTGRES_DSN", "postgresql://nobody@127.0.0.1:1/none")  # not needed for it
    named = await program("price", "update", "--left-out")
    lines = named.out.splitlines()
    assert named.code == 0
    assert all(line.startswith("left out  ") for line in lines)
    assert named.err.endswith(f": {len(lines):,} are left out; nothing was loaded\n")


async def test_what_is_asked_wrongly_is_refused_and_what_looks_alike_is_named(
    program: Program, conn: Connection, tmp_path: Path
) -> None:
    overrides = tmp_path / "prices.csv"
    overrides.write_text(
        "model,currency,input,output\nsome-model,USD,1,2\nother,USD,1,2\n", encoding="utf-8"
    )
    assert (await program("price", "load", str(overrides))).code == 0
    near = await program("price", "list", "sone-model")
    assert (near.code, near.err) == (
        2,
        "quota-worker: no price of sone-model: did you mean some-model?\n",
    )
    listed = await program("price", "list", "some", "--json")
    assert [(row["model"], row["input"]) for row in json.loads(listed.out)["prices"]] == [
        ("some-model", "1")
    ]
    assert "some-model" in (await program("price", "list")).out
    batch = await program("price", "of", "some-model:batch")
    assert "no batch price of some-model:batch" in batch.err

    overrides.write_text("model,currency,input,output\nx,USD,-1,2\ny,usd,1,2\n", encoding="utf-8")
    refused = await program("price", "load", str(overrides))
    assert refused.code == 2
    assert refused.err.splitlines() == [
        "line 2: input must be a number from 0 up, with a point before its decimals",
        "line 3: currency is three capital letters, such as USD",
        f"quota-worker: {overrides}: 2 faults, so nothing of it was loaded",
    ]
    assert await conn.fetchval("SELECT array_agg(model ORDER BY model) FROM quota_prices") == [
        "other",
        "some-model",
    ]
    for words, said in (
        ((), "say which: quota-worker price list"),
        (("rates", "list", "--top", "-1"), "--top needs a number of rows, or 0 for all"),
        (("of", "m", "--in", "x"), "--in is a whole number of tokens"),
        (("of", "m", "--in", "1", "--cached", "2"), "--cached tokens are part of --in"),
        (("of", "m", "--at", "2026-01-01T00:00"), "--at is a time with its offset"),
    ):
        wrong = await program("price", *words)
        assert wrong.code == 2, words
        assert said in wrong.err
