"""QW002: what no function accepts, and that nothing is half done then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from model.records import BIGINT_MAX
from sql.calls import NOON, sqlstate_of

if TYPE_CHECKING:
    from sql.calls import Calls

BAD_AMOUNTS = [
    (-1, 0, 0),
    (0, -1, 0),
    (0, 0, -1),
    (10**12 + 1, 0, 0),
    (0, 10**12 + 1, 0),
    (0, 0, 10**15 + 1),
    (BIGINT_MAX, BIGINT_MAX, BIGINT_MAX),
    (-BIGINT_MAX - 1, 0, 0),
]
BAD_IDS = ["", "x" * 201, "x" * 10_000, "a\nb", "a\tb", "a\x1fb", "a\x7fb", "\x01"]
TABLES = ["quota_usage", "quota_reservations"]


async def contents(calls: Calls) -> list[Any]:
    return [await calls.rows(f"SELECT * FROM {name} ORDER BY 1, 2") for name in TABLES]


@pytest.mark.parametrize("amounts", BAD_AMOUNTS)
async def test_amounts_out_of_bounds(calls: Calls, amounts: tuple[int, int, int]) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r")
    before = await contents(calls)
    assert await sqlstate_of(calls.reserve(amounts=amounts)) == "QW002"
    assert await sqlstate_of(calls.settle(amounts=amounts)) == "QW002"
    assert await sqlstate_of(calls.settle(request_id="new", amounts=amounts)) == "QW002"
    assert await sqlstate_of(calls.release(amounts=amounts)) == "QW002"
    assert await contents(calls) == before


async def test_the_largest_amounts_pass(calls: Calls) -> None:
    await calls.tenant()
    assert (await calls.reserve(request_id="r", amounts=(10**12, 10**12, 10**15)))["allowed"]
    row = await calls.settle(amounts=(10**12, 10**12, 10**15))
    assert row["outcome"] == "settled"
    assert await calls.figures() == (1, 10**12, 10**12, 10**15)


@pytest.mark.parametrize("name", BAD_IDS)
async def test_ids_that_are_no_ids(calls: Calls, name: str) -> None:
    await calls.tenant()
    before = await contents(calls)
    assert await sqlstate_of(calls.reserve(request_id=name)) == "QW002"
    assert await sqlstate_of(calls.reserve(name)) == "QW002"
    assert await sqlstate_of(calls.settle(request_id=name)) == "QW002"
    assert await contents(calls) == before


async def test_a_usage_id_is_an_id_too(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r")
    for name in ("x" * 201, "a\nb"):
        assert await sqlstate_of(calls.settle(usage_id=name)) == "QW002"
    assert (await calls.reservation())["state"] == "open"


@pytest.mark.parametrize(
    "name", ["x" * 200, "租户-七", "a b", "<at id=all></at>", 'a"b\\', "'; --"]
)
async def test_odd_but_valid_ids_pass(calls: Calls, name: str) -> None:
    await calls.tenant(name)
    assert (await calls.reserve(name, name))["allowed"]
    assert (await calls.settle(name, name, usage_id=name))["outcome"] == "settled"


@pytest.mark.parametrize("priority", ["", "urgent", "HIGH", "normal "])
async def test_a_priority_nobody_knows(calls: Calls, priority: str) -> None:
    await calls.tenant()
    assert await sqlstate_of(calls.reserve(priority=priority)) == "QW002"
    assert await calls.rows("SELECT * FROM quota_reservations") == []


async def test_usage_for_a_tenant_that_never_existed(calls: Calls) -> None:
    assert await sqlstate_of(calls.settle("ghost")) == "QW002"
    assert await contents(calls) == [[], []]


@pytest.mark.parametrize("column", ["input_tokens", "output_tokens", "completions"])
async def test_a_counter_that_would_overflow(calls: Calls, column: str) -> None:
    await calls.tenant()
    await calls.conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens,"
        " cost_cents) SELECT 't', $1::date, 0, 0, 0, 0",
        NOON.date(),
    )
    await calls.conn.execute(f"UPDATE quota_usage SET {column} = {BIGINT_MAX}")
    before = await contents(calls)
    assert await sqlstate_of(calls.reserve()) == "QW002"
    assert await sqlstate_of(calls.settle()) == "QW002"
    assert await contents(calls) == before


async def test_a_negative_or_huge_progress(calls: Calls) -> None:
    await calls.tenant()
    await calls.reserve(request_id="r")
    for tokens in (-1, 10**12 + 1):
        assert await sqlstate_of(calls.progress(tokens_out=tokens)) == "QW002"
    assert (await calls.reservation())["progress_out_tokens"] == 0


async def test_null_where_a_value_must_stand(calls: Calls) -> None:
    await calls.tenant()
    for amounts in ((None, 1, 1), (1, None, 1), (1, 1, None)):
        assert await sqlstate_of(calls.reserve(amounts=amounts)) == "QW002"  # type: ignore[arg-type]
    assert await calls.rows("SELECT * FROM quota_reservations") == []
