"""Random usages of random requests, with and without a cost, against a model of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sql.calls import NOON, Calls
from sql.priced import assert_sums, price_unpriced, put

if TYPE_CHECKING:
    import asyncpg

# model: price per input, cached input and output token in nanos; None: not known until the end
KNOWN = {"a": (3000, 500, 7000), "a:batch": (1500, 1500, 3500), "b": (11, 11, 13)}
LATER = {"c": (900, 90, 1100)}
MODELS = (*KNOWN, *LATER, "never", None)
STEPS = 250


@dataclass
class Request:
    """The latest usage, as the contract has it; `cost` None where it came without one."""

    model: str | None
    tokens: tuple[int, int] | None = None
    cached: int | None = None
    cost: int | None = None

    def settle(
        self, tokens: tuple[int, int], cost: int | None, model: str | None, cached: int | None
    ) -> None:
        told = cost is None and self.cost is not None and tokens == self.tokens
        self.model = model or self.model
        self.cached = self.cached if cached is None else cached
        self.cost = self.cost if told else cost
        self.tokens = tokens

    def charge(self, known: dict[str, tuple[int, int, int]]) -> int | None:
        """What it costs by these prices; None: nobody knows."""
        prices = known.get(self.model or "")
        if self.tokens is None or self.cost is not None or prices is None:
            return self.cost
        total, out = self.tokens
        cached = min(self.cached or 0, total)
        return (total - cached) * prices[0] + cached * prices[1] + out * prices[2]


async def prices(conn: asyncpg.Connection, table: dict[str, tuple[int, int, int]]) -> None:
    for name, amounts in table.items():
        model, _, processing = name.partition(":")
        keys = ("input", "cached_input", "output")
        columns = {key: Decimal(each) / 1000 for key, each in zip(keys, amounts, strict=True)}
        await put(conn, model=model, processing=processing or "standard", **columns)


async def test_the_charge_is_the_latest_usage_at_its_price(conn: asyncpg.Connection) -> None:
    chance = random.Random(4)  # noqa: S311  a test's operations
    await prices(conn, KNOWN)
    calls = Calls(conn)
    await calls.tenant("t", department_id="sales", bucket_capacity=1e6)
    requests: dict[str, Request] = {}
    for _ in range(STEPS):
        name = f"r{chance.randrange(60)}"
        if name not in requests:
            requests[name] = Request(chance.choice(MODELS))
            if chance.random() < 0.8:
                await calls.reserve("t", name, (100, 50, 10_000), model=requests[name].model)
            else:
                requests[name].model = None  # never reserved
                await settle(calls, chance, name, requests[name])
            continue
        what = chance.random()
        if what < 0.1:
            await calls.release("t", name)
        elif what < 0.15:
            await conn.execute("SELECT quota_expire_stale(5, $1)", NOON + timedelta(hours=1))
        elif what < 0.2:
            await price_unpriced(conn)
        else:
            await settle(calls, chance, name, requests[name])
    await assert_sums(conn)
    await prices(conn, LATER)
    while await price_unpriced(conn):
        pass
    await assert_sums(conn)
    rows = await conn.fetch("SELECT * FROM quota_reservations")
    assert len(rows) == len(requests)
    used = [row for row in rows if requests[row["request_id"]].tokens is not None]
    assert len(used) > len(requests) / 3
    for row in used:
        request = requests[row["request_id"]]
        assert (row["charged_in_tokens"], row["charged_out_tokens"]) == request.tokens
        assert row["unpriced"] == (request.charge(KNOWN | LATER) is None), row
        if not row["unpriced"]:
            assert row["charged_cost_nanos"] == request.charge(KNOWN | LATER), row


async def settle(calls: Calls, chance: random.Random, name: str, request: Request) -> None:
    """One usage: often one that came before in part, so that replays and corrections mix."""
    tokens = request.tokens if chance.random() < 0.4 else None
    tokens = tokens or chance.choice([(100, 50), (0, 0), (chance.randrange(500), 9)])
    cost = chance.choice([None, None, None, chance.randrange(99_999)])
    model = chance.choice([None, None, *MODELS])
    cached = chance.choice([None, None, 0, chance.randint(0, tokens[0])])
    more: dict[str, Any] = {"model": model, "cached": cached}
    done = await calls.settle("t", name, (*tokens, cost), **more)
    after = replace(request)
    after.settle(tokens, cost, model, cached)
    # what changes nothing leaves its labels behind; but a guess is settled by the same figure, too
    found_out = request.charge(KNOWN) is None and after.charge(KNOWN) is not None
    if done["outcome"] != "replayed" or found_out:
        request.settle(tokens, cost, model, cached)
