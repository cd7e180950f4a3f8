"""Random worlds and batches, and the comparison of two databases row by row.

The world is tight on purpose: budgets near a threshold, small buckets, caps
within reach, so that the order of decisions inside a batch matters.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from sql.calls import NOON, Calls

if TYPE_CHECKING:
    from random import Random

TENANTS = [f"t{number}" for number in range(8)]
# Identity values, times of writing and physical row addresses differ; all else is equal.
UNEQUAL = {"reservation_id", "updated_at", "limits_ctid", "limits_xmin", "eve_ctid", "eve_xmin"}


async def build(calls: Calls, dice: Random) -> None:
    """Three pools near their thresholds, eight tenants of every kind."""
    for name, environment in (("d", "production"), ("d", "test"), ("e", "production")):
        limit = dice.choice([600, 1000, 3000])
        await calls.department(
            name,
            environment,
            locale=dice.choice(["en", "zh-CN"]),
            monthly_tokens=dice.choice([None, limit]),
            monthly_cost_cents=dice.choice([None, 2]),
            downgrade_model=dice.choice([None, "small"]),
            downgrade_from=dice.choice([None, ["big"]]),
            allowed_models=dice.choice([None, None, ["big", "small"]]),
        )
    for number, name in enumerate(TENANTS):
        await calls.tenant(
            name,
            department_id=["d", "d", "d", "e", "d", None, None, "e"][number],
            environment="test" if number == 4 else "production",
            enforce=["on", "on", "observe", "on", "on", "on", "off", "on"][number],
            daily_completions=dice.choice([None, 5, 12]),
            daily_tokens=dice.choice([None, 500]),
            monthly_cost_cents=dice.choice([None, 1]),
            bucket_capacity=dice.choice([2.0, 6.0, 1000.0]),
            bucket_refill_per_sec=dice.choice([0.0, 0.5]),
            stale_policy=dice.choice(["estimate", "partial", "release"]),
        )
    for number in range(dice.randrange(20)):
        await calls.settle(
            dice.choice(TENANTS), f"old{number}", (dice.randrange(100), 20, 1_000_000)
        )
    for number in range(10):
        await calls.reserve(dice.choice(TENANTS), f"r{number}", amounts(dice), model="big")
    if dice.random() < 0.6:
        await calls.top_up("d", 300, 1, "k", NOON + timedelta(minutes=dice.randrange(1, 9)))


def amounts(dice: Random) -> tuple[int, int, int]:
    return (
        dice.choice([0, 1, 10, 60]),
        dice.choice([0, 5, 40]),
        dice.choice([0, 99, 1_500_000, 9_999_999]),
    )


def reserve_elements(dice: Random, count: int) -> list[Any]:
    """New requests, replays, conflicts, unknown tenants, and elements that are none."""
    items: list[Any] = []
    wild = dice.random() < 0.5  # else calm: new ids, and hardly anything odd
    for _ in range(count):
        fresh = dice.random() < (0.6 if wild else 0.97)
        one = element(dice, f"n{dice.randrange(10**9)}" if fresh else f"r{dice.randrange(40)}")
        one["model"] = dice.choice(["big", "big", "small", "other", None] if wild else ["big"])
        if not wild:
            items.append(one)
            if dice.random() < 0.05:
                items.append(dict(one))
            continue
        if dice.random() < 0.3:
            one["priority"] = dice.choice(["high", "low", "normal", "urgent"])
        if dice.random() < 0.2:
            one["ttl_seconds"] = dice.choice([30, 900])
        items.append(one)
        if dice.random() < 0.15:
            items.append(dict(one))
        if dice.random() < 0.1:
            items.append({**one, "out_tokens": 41})
        if dice.random() < 0.1:
            items.append(dice.choice(bad_elements()))
    return items


def settle_elements(dice: Random, count: int) -> list[Any]:
    """First ends, corrections, replays, conflicting usage ids, unreserved usage."""
    items: list[Any] = []
    for _ in range(count):
        one = element(dice, f"r{dice.randrange(15)}")
        if dice.random() < 0.5:
            one["usage_id"] = dice.choice(["u1", "u2"])
        elif dice.random() < 0.2:
            one |= {"in_tokens": None, "out_tokens": None, "cost_nanos": None}
        elif dice.random() < 0.2:
            one["cost_nanos"] = None
        items.append(one)
        if dice.random() < 0.2:
            items.append(dict(one))
        if dice.random() < 0.1:
            items.append(dice.choice(bad_elements()))
    return items


def element(dice: Random, request_id: str) -> dict[str, Any]:
    names = ("in_tokens", "out_tokens", "cost_nanos")
    tenant = "ghost" if dice.random() < 0.04 else dice.choice(TENANTS)
    figures = dict(zip(names, amounts(dice), strict=True))
    return {"tenant": tenant, "request_id": request_id, **figures}


def bad_elements() -> list[Any]:
    good = {"tenant": "t0", "in_tokens": 1, "out_tokens": 1, "cost_nanos": 1}
    return [
        7,
        None,
        {"tenant": "t0"},
        {**good, "request_id": ""},
        {**good, "request_id": "x" * 201},
        {**good, "request_id": "x", "in_tokens": -1},
        {**good, "request_id": "x", "colour": "red"},
    ]


async def singly(calls: Calls, function: str, items: list[Any]) -> list[dict[str, Any]]:
    """The same elements one call after another, told in the batch's words."""
    word = "reason" if function == "reserve" else "outcome"
    rows = []
    for ordinal, one in enumerate(items, 1):
        row = await single(calls, function, one)
        rows.append({"ordinal": ordinal, **({word: row} if isinstance(row, str) else row)})
    return rows


RESERVE_KEYS = {"model", "app", "api_key", "end_user", "priority", "ttl_seconds"}
SETTLE_KEYS = {"usage_id", "model", "cached_in_tokens"}
REQUIRED = {"tenant", "request_id", "in_tokens", "out_tokens", "cost_nanos"}


async def single(calls: Calls, function: str, one: Any) -> dict[str, Any] | str:
    """A row, or `invalid` / `conflict`."""
    optional = RESERVE_KEYS if function == "reserve" else SETTLE_KEYS
    if not isinstance(one, dict) or not set(one) >= REQUIRED or set(one) - REQUIRED - optional:
        return "invalid"
    figures = (one["in_tokens"], one["out_tokens"], one["cost_nanos"])
    extra = {key: one[key] for key in optional & set(one)}
    call = calls.reserve if function == "reserve" else calls.settle
    try:
        return await call(one["tenant"], one["request_id"], figures, **extra)
    except asyncpg.PostgresError as error:
        return {"QW001": "conflict", "QW002": "invalid"}[str(error.sqlstate)]


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """Every column, but of reservation_id only whether there is one."""
    return {
        **row,
        **(
            {"reservation_id": row["reservation_id"] is not None}
            if ("reservation_id" in row)
            else {}
        ),
    }


def assert_same_answers(batch: list[dict[str, Any]], single: list[dict[str, Any]]) -> None:
    assert len(batch) == len(single)
    for one, two in zip(batch, single, strict=True):
        for word in ("reason", "outcome"):
            if two.get(word) in ("invalid", "conflict") and len(two) == 2:
                assert one[word] == two[word], f"batch {one}\nsingly {two}"
                break
        else:
            assert comparable(one) == comparable(two), f"batch {one}\nsingly {two}"


async def contents(calls: Calls) -> dict[str, list[dict[str, Any]]]:
    """The ledger's tables, but for identity values and times of writing."""
    kept: dict[str, list[dict[str, Any]]] = {}
    for table, keys in (
        ("quota_usage", "tenant_id, period"),
        ("quota_reservations", "tenant_id, request_id"),
    ):
        rows = await calls.rows(f"SELECT * FROM {table} ORDER BY {keys}")
        kept[table] = [{k: v for k, v in row.items() if k not in UNEQUAL} for row in rows]
    month = NOON.date().replace(day=1)
    pools = [("d", "production"), ("d", "test"), ("e", "production")]
    kept["departments"] = [await calls.department_used(*pool, month) for pool in pools]
    return kept


Contents = dict[str, list[dict[str, Any]]]


def assert_same_contents(batch: Contents, single: Contents) -> None:
    """Equal in every column of every row; names what differs."""
    for table, rows in batch.items():
        others = single[table]
        assert len(rows) == len(others), f"{table}: {len(rows)} rows, singly {len(others)}"
        for one, two in zip(rows, others, strict=True):
            unequal = {name: (one[name], two[name]) for name in one if one[name] != two[name]}
            assert not unequal, f"{table}: (batch, singly) {unequal} in {one}"
