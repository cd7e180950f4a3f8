"""Random batches decide exactly as the same calls made singly on a cloned database.

QUOTA_WORKER_BATCHES (default 300) batches over worlds of twenty batches each;
QUOTA_WORKER_SEED chooses other ones.
"""

from __future__ import annotations

import os
from datetime import timedelta
from random import Random

from sql import clones
from sql.batch_worlds import (
    assert_same_answers,
    assert_same_contents,
    build,
    contents,
    reserve_elements,
    settle_elements,
    singly,
)
from sql.calls import NOON, Calls

BATCHES = int(os.environ.get("QUOTA_WORKER_BATCHES", "300"))
SEED = int(os.environ.get("QUOTA_WORKER_SEED", "20261130"))
PER_WORLD = 20
SHORT_WORLDS = 8


async def run_world(together: Calls, apart: Calls, number: int) -> None:
    """One world on two databases: batches here, single calls there, the same throws."""
    dice = Random(SEED + number)  # noqa: S311 - a repeatable game, no secret
    twins = Random(SEED + number)  # noqa: S311 - the other clone is built by equal throws
    for calls in (together, apart):
        calls.now = NOON
        await clones.empty(calls.conn)
    await build(together, dice)
    await build(apart, twins)
    for step in range(PER_WORLD):
        now = NOON + timedelta(seconds=step * dice.choice([0, 1, 70]))
        together.now = apart.now = now
        function = dice.choice(["reserve", "reserve", "settle"])
        size = dice.choice([1, 2, 4, 7, 12])
        make = reserve_elements if function == "reserve" else settle_elements
        items = make(dice, size)
        call = together.reserve_batch if function == "reserve" else together.settle_batch
        batch = await call(items)
        single = await singly(apart, function, items)
        told = f"world {number}, step {step}, {function}: {items}"
        try:
            assert_same_answers(batch, single)
            assert_same_contents(await contents(together), await contents(apart))
        except AssertionError as error:
            raise AssertionError(f"{told}\n{error}") from error
        if dice.random() < 0.2:
            for calls in (together, apart):
                await calls.expire(now=now + timedelta(seconds=40))


async def test_batches_equal_single_calls(dsn: str) -> None:
    async with clones.cloned(dsn) as one, clones.cloned(dsn) as two:
        for number in range(max(1, BATCHES // PER_WORLD)):
            await run_world(Calls(one), Calls(two), number)


async def some_worlds_agree(dsn: str) -> None:
    """A short run, for planted bugs."""
    async with clones.cloned(dsn) as one, clones.cloned(dsn) as two:
        for number in range(SHORT_WORLDS):
            await run_world(Calls(one), Calls(two), number)
