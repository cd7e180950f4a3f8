"""The arithmetic against exact fractions, and the price table against the package that filled it."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from fractions import Fraction

import asyncpg
from genai_prices import Usage, data_snapshot

from worker.assets import Assets
from worker.postgres.prices import PostgresPrices
from worker.postgres.queries import load_queries
from worker.prices.package import installed_prices, meant


async def test_equal_to_exact_fractions_for_any_figures(conn: asyncpg.Connection) -> None:
    chance = random.Random(30)  # noqa: S311  a test's figures
    cases = []
    for _ in range(1000):
        tokens = chance.choice([0, 1, chance.randrange(10**4), chance.randrange(10**7)])
        cases.append(
            (
                Decimal(chance.randrange(10**7)).scaleb(-chance.randrange(9)),
                chance.choice(
                    [None, Decimal(chance.randrange(10**6)).scaleb(-chance.randrange(9))]
                ),
                Decimal(chance.randrange(10**7)).scaleb(-chance.randrange(9)),
                chance.choice([Decimal(1), Decimal(chance.randrange(1, 10**6)).scaleb(-4)]),
                tokens,
                chance.choice([None, 0, tokens, chance.randint(0, tokens)]),
                chance.choice([0, chance.randrange(10**6)]),
            )
        )
    got = await conn.fetch(
        "SELECT quota_price_nanos(a, b, c, d, i, k, o) AS nanos FROM unnest($1::numeric[], $2::numeric[],"
        " $3::numeric[], $4::numeric[], $5::bigint[], $6::bigint[], $7::bigint[])"
        " WITH ORDINALITY AS u (a, b, c, d, i, k, o, n) ORDER BY n",
        *map(list, zip(*cases, strict=True)),
    )
    for case, answer in zip(cases, got, strict=True):
        per_input, per_cached, per_output, per_unit, tokens, cached, out = case
        part = cached or 0
        exact = (
            (tokens - part) * Fraction(per_input)
            + part * Fraction(per_input if per_cached is None else per_cached)
            + out * Fraction(per_output)
        ) * Fraction(per_unit)
        nanos = exact / 1_000_000 * 1_000_000_000
        assert answer["nanos"] == (nanos + Fraction(1, 2)).__floor__(), case


async def test_equal_to_the_packages_own_answers(conn: asyncpg.Connection) -> None:
    package = installed_prices()
    await PostgresPrices(conn, load_queries(Assets(), "prices")).put_package(package)
    providers = data_snapshot.get_snapshot().providers
    owners = {id(model): (p.id, model.id) for p in providers for model in p.models}
    chance = random.Random(6)  # noqa: S311  a test's sample
    # which model a name means: each spelt name, with prefixes, dates and odd ones
    spelt = [name.name for name in package.names]
    names = [
        *chance.sample(spelt, 150),
        *(f"{p.id}/{m.id}" for p in providers for m in chance.sample(p.models, min(4, len(p.models)))),
        *(f"{name}-20251211" for name in chance.sample(spelt, 40)),
        *(f"{name}-2026-01-02" for name in chance.sample(spelt, 40)),
        "", "/", "x/", "/x", "litellm/gpt-4o", "GPT-4O", "gpt-5.2-20251211", "bedrock/x",
    ]  # fmt: skip
    answers = await conn.fetch(
        "SELECT n, m.provider, m.model FROM unnest($1::text[]) n, quota_price_match(lower(n)) m",
        names,
    )
    found = {each["n"]: (each["provider"], each["model"]) for each in answers}
    wanted = {name: meant(name, providers) for name in names}
    assert found == {name: owners.get(id(model), (None, None)) for name, model in wanted.items()}
    # and what its tokens cost, at any time, below and above tiers
    left_out = {name for name, _ in package.left_out}
    moments = [
        datetime(2026, month, day, hour, 30, tzinfo=UTC)
        for month, day in ((1, 5), (8, 16), (8, 17), (9, 10), (10, 14), (11, 30))
        for hour in (0, 2, 5, 17)
    ]
    asked, expected = [], []
    for name, model in wanted.items():
        if model is None or "/".join(owners[id(model)]) in left_out:
            continue
        if name.endswith(":batch") and not model.id.endswith(":batch"):
            continue  # the package, unasked, takes the standard price
        tokens = chance.choice([0, 1, 100_000, 100_001, 200_000, 272_001, 999_999])
        cached, out, now = (
            chance.randint(0, tokens),
            chance.randrange(10_000),
            chance.choice(moments),
        )
        provider = next(p for p in providers if p.id == owners[id(model)][0])
        with localcontext(prec=50):
            usage = Usage(input_tokens=tokens, cache_read_tokens=cached, output_tokens=out)
            total = model.calc_price(usage, provider, genai_request_timestamp=now).total_price
        asked.append((name, tokens, cached, out, now))
        expected.append((Fraction(total) * 10**9 + Fraction(1, 2)).__floor__())
    got = await conn.fetch(
        "SELECT quota_price(m, i, c, o, t) AS nanos FROM unnest($1::text[], $2::bigint[], $3::bigint[],"
        " $4::bigint[], $5::timestamptz[]) WITH ORDINALITY AS u (m, i, c, o, t, n) ORDER BY n",
        *map(list, zip(*asked, strict=True)),
    )
    assert len(asked) > 250
    assert dict(zip(asked, (each["nanos"] for each in got), strict=True)) == dict(
        zip(asked, expected, strict=True)
    )
