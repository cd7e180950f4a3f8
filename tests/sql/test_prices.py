"""Prices: what a usage without a cost is charged, and what waits until its price is known."""

from __future__ import annotations

import asyncio
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from worker.assets import Assets
from worker.postgres.prices import PostgresPrices
from worker.postgres.queries import load_queries
from worker.prices.package import installed_prices

from sql.calls import NOON, Calls, at
from sql.priced import assert_sums, price_unpriced, pricing, put, rate, row

if TYPE_CHECKING:
    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]

CASE_30 = (27_147, 27_146, 351, 8_603_760)


async def test_cached_input_tiers_batch_and_the_price_in_force(conn: Connection) -> None:
    price = pricing(conn)
    await put(conn)
    tokens, cached, out, nanos = CASE_30
    assert await price("m", tokens, cached, out) == nanos
    assert await price("M", tokens, cached, out) == nanos  # names are compared without case
    assert await price("any/m", tokens, cached, out) == nanos
    assert await price("m:batch", tokens, cached, out) is None
    assert await price("n", tokens, cached, out) is None
    assert await price(None, tokens, cached, out) is None

    await put(conn, model="no-cached", cached_input=None, input=Decimal(2), output=Decimal(0))
    assert await price("no-cached", 1000, 400, 9) == 2_000_000
    # one rounding, at the end, half away from zero
    await put(conn, model="half", input=Decimal("0.0005"), output=Decimal("0.0005"))
    assert await price("half", 1, None, 0) == 1
    assert await price("half", 1, None, 1) == 1
    await put(conn, model="less", input=Decimal("0.000499"))
    assert await price("less", 1, None, 0) == 0
    # a tier reprices the whole request, above its bound
    tiered = {"model": "tiered", "cached_input": None, "output": Decimal(10)}
    await put(conn, **tiered, input=Decimal(1))
    await put(conn, **tiered | {"output": Decimal(20)}, input=Decimal(2), input_above=200_000)
    assert await price("tiered", 200_000, None, 1) == 200_000_000 + 10_000
    assert await price("tiered", 200_001, None, 1) == 400_002_000 + 20_000
    # batch, and a price that begins in the middle of a day
    await put(conn, model="tiered", processing="batch", input=Decimal("0.5"))
    assert await price("tiered:batch", 1000, None, 0) == 500_000
    await put(conn, model="tiered", valid_from=NOON, input=Decimal(7))
    assert await price("tiered", 1000, None, 0, NOON - timedelta(microseconds=1)) == 1_000_000
    assert await price("tiered", 300_000, None, 0, NOON) == 7 * 300_000_000
    # by the time of day, and a price that is known to have conditions of its own
    night = datetime(1, 1, 1, 16, 30).time()  # noqa: DTZ001  a time of day, in UTC
    await put(conn, model="timed", input=Decimal(4))
    await put(conn, model="timed", input=Decimal(1), from_time=night)
    assert await price("timed", 1000, 0, 0, at("2026-05-15T16:29:59")) == 4_000_000
    assert await price("timed", 1000, 0, 0, at("2026-05-15T16:30:00")) == 1_000_000
    await put(conn, model="timed", valid_from=NOON, input=None, cached_input=None, output=None)
    assert await price("timed", 1000, 0, 0) is None
    # more than one call may cost
    assert await price("m", 10**12, 0, 10**12) is None


async def test_overrides_beat_the_package_and_the_nearest_beats_the_others(
    conn: Connection,
) -> None:
    price = pricing(conn)
    await PostgresPrices(conn, load_queries(Assets(), "prices")).put_package(installed_prices())
    dated = ("gpt-4o-2024-08-06", "openai/gpt-4o-2024-08-06", "azure/gpt-4o")
    assert [await price(name, 1000, 0, 0) for name in ("gpt-4o", *dated)] == [2_500_000] * 4
    assert await price("claude-3-5-sonnet-20241022", 1000, 0, 0) == 3_000_000
    assert await price("gpt-audio", 1000, 0, 0) is None
    await put(conn, model="gpt-4o", valid_from=NOON, input=Decimal(9))
    assert await price("gpt-4o", 1000, 0, 0, NOON - timedelta(seconds=1)) == 2_500_000
    assert [await price(name, 1000, 0, 0) for name in ("gpt-4o", *dated)] == [9_000_000] * 4
    await put(conn, model="gpt-4o", provider="openai", input=Decimal(8))
    await put(conn, model="gpt-4o-2024-08-06", input=Decimal(7))
    await put(conn, model="gpt-4o", provider="azure", input=Decimal(6))
    asked = ("gpt-4o", "gpt-4o-2024-08-06", "openai/gpt-4o", "azure/gpt-4o", "other/gpt-4o")
    assert [await price(name, 1000, 0, 0) for name in asked] == [
        9_000_000,  # its own name, whatever the provider
        7_000_000,
        8_000_000,
        6_000_000,
        9_000_000,
    ]
    assert (await price("gpt-4o:batch", 1000, 0, 0, at("2026-11-15"))) == 1_250_000


async def test_another_currency_is_converted_by_the_rate_of_the_day_of_admission(
    conn: Connection, calls: Calls
) -> None:
    price = pricing(conn)
    await conn.execute("UPDATE quota_settings SET currency = 'CNY', billing_zone = 'Asia/Shanghai'")
    await put(conn, input=Decimal(1), cached_input=None)
    await put(conn, model="own", currency="CNY", input=Decimal(3))
    assert await price("own", 1000, 0, 0) == 3_000_000
    assert await price("m", 1000, 0, 0) is None
    await calls.tenant("t")
    await calls.settle("t", "early", (1000, 0, None), model="m", now=NOON - timedelta(days=3))
    await calls.settle("t", "late", (1000, 0, None), model="m", now=NOON)
    assert await row(conn, "late") == (0, True, "no_rate")
    await rate(conn, "USD", date(2026, 5, 14), "7.1")
    await rate(conn, "USD", date(2026, 5, 15), "7.2000000015")
    assert await price("m", 1000, 0, 0, at("2026-05-14T15:59:59")) == 7_100_000
    assert await price("m", 1000, 0, 0, at("2026-05-14T16:00:00")) == 7_200_000  # Shanghai's 15th
    assert await price("m", 10**9, 0, 0) == 7_200_000_001_500
    assert await price_unpriced(conn) == 1
    assert await row(conn, "late") == (7_200_000, False, None)
    assert await row(conn, "early") == (0, True, "no_rate")
    await rate(conn, "USD", date(2026, 5, 1), "7")
    assert await price_unpriced(conn) == 1
    assert await row(conn, "early") == (7_000_000, False, None)
    await assert_sums(conn)


async def test_usage_without_a_cost_is_priced_once_and_a_cost_that_comes_later_wins(
    conn: Connection, calls: Calls
) -> None:
    await calls.tenant("t", department_id="sales")
    await put(conn)
    tokens, cached, out, nanos = CASE_30
    usage = (tokens, out, None)

    async def settle(request: str, figures: tuple[int | None, ...], **more: Any) -> tuple[Any, ...]:
        done = await calls.settle("t", request, figures, **more)
        return done["outcome"], done["cost_nanos"]

    assert (await calls.reserve("t", "r", (100, 100, 1000), model="m"))["allowed"]
    assert await settle("r", usage, cached=cached) == ("settled", nanos)
    assert await row(conn, "r") == (nanos, False, None)
    # again, also when prices have changed since, with an id or without: nothing
    await conn.execute("UPDATE quota_prices SET input = 100, loaded_at = clock_timestamp()")
    assert await settle("r", usage, cached=cached) == ("replayed", nanos)
    assert await settle("r", usage, usage_id="u") == ("replayed", nanos)
    assert await settle("r", usage, usage_id="u") == ("replayed", nanos)
    assert await price_unpriced(conn) == 0
    # other cached tokens are another usage; and its cost, when it comes, is the charge
    await conn.execute("UPDATE quota_prices SET input = 1.4")
    assert await settle("r", usage, cached=0) == (
        "corrected",
        tokens * 1400 + out * 4400,
    )
    assert await settle("r", (tokens, out, 77)) == ("corrected", 77)
    assert await settle("r", usage) == ("replayed", 77)

    # unknown: in proportion to the estimate, listed, until a price or a cost comes
    for request in ("priced", "told", "never"):
        await calls.reserve("t", request, (100, 100, 1000), model="later")
        assert await settle(request, (150, 50, None)) == ("settled", 1000)
        assert await row(conn, request) == (1000, True, "unknown_model")
    assert await settle("nameless", (5, 5, None)) == ("unreserved", 0)
    assert await row(conn, "nameless") == (0, True, "no_model")
    assert await settle("told", (150, 50, 5)) == ("corrected", 5)
    assert await row(conn, "told") == (5, False, None)
    await calls.settle("t", "never", (150, 50, None), model="nobody", usage_id="n")
    assert await price_unpriced(conn) == 0
    await put(conn, model="later", input=Decimal(1), output=Decimal(1))
    assert await price_unpriced(conn) == 1
    assert await row(conn, "priced") == (200_000, False, None)
    assert await settle("priced", (150, 50, None)) == ("replayed", 200_000)
    assert [await row(conn, request) for request in ("never", "nameless")] == [
        (1000, True, "unknown_model"),
        (0, True, "no_model"),
    ]
    # what came as an estimate, or expired, is priced when its figures come
    await calls.reserve("t", "silent", (150, 50, 9), model="later")
    assert (await settle("silent", (None, None, None)))[0] == "estimated"
    assert await settle("silent", (150, 50, None)) == ("corrected", 200_000)
    await calls.reserve("t", "stale", (150, 50, 9), model="later", now=NOON - timedelta(hours=1))
    await calls.expire(now=NOON)
    assert await settle("stale", (150, 50, None)) == ("corrected", 200_000)
    # a charge by estimate is a guess, too, though it is of the very tokens
    await calls.reserve("t", "gone", (7, 7, 70), model="nobody", now=NOON - timedelta(hours=1))
    await calls.expire(now=NOON)
    assert await settle("gone", (7, 7, None)) == ("corrected", 70)
    assert await row(conn, "gone") == (70, True, "unknown_model")
    await assert_sums(conn)


async def test_batches_and_the_inbox_price_alike(conn: Connection, calls: Calls) -> None:
    await calls.tenant("t", department_id="sales")
    await put(conn, input=Decimal(4), output=Decimal(4), cached_input=Decimal(1))
    await put(conn, processing="batch", input=Decimal(2), output=Decimal(2), cached_input=None)
    await calls.reserve("t", "held", (1, 1, 1), model="m")
    usages = [
        {"request_id": "one", "model": "m", "cached_in_tokens": 10},
        {"request_id": "two", "model": "m:batch"},
        {"request_id": "three", "model": "x"},
    ]
    done = await calls.settle_batch(
        [{"tenant": "t", "in_tokens": 100, "out_tokens": 10} | usage for usage in usages]
    )
    assert [each["cost_nanos"] for each in done] == [90 * 4000 + 10_000 + 40_000, 220_000, 0]
    await conn.execute(
        "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens, model, processing)"
        " SELECT 't', r, 100, 10, m, p FROM (VALUES ('held', NULL, 'batch'), ('four', 'm', 'standard'),"
        " ('five', 'm:batch', 'batch'), ('six', NULL, 'batch')) v (r, m, p)"
    )
    await conn.execute("SELECT quota_book_inbox(100, $1)", NOON)
    assert await row(conn, "held") == (220_000, False, None)
    assert await row(conn, "four") == (440_000, False, None)
    assert await row(conn, "five") == (220_000, False, None)
    assert await row(conn, "six") == (0, True, "no_model")
    with pytest.raises(asyncpg.CheckViolationError, match="quota_usage_inbox_processing"):
        await conn.execute(
            "INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens, processing)"
            " VALUES ('t', 'r', 1, 1, 'slow')"
        )
    await assert_sums(conn)


async def test_a_price_that_comes_after_the_month_closed_is_an_adjustment(
    conn: Connection, calls: Calls
) -> None:
    october, november = date(2026, 10, 1), date(2026, 11, 1)
    admitted, closing = at("2026-10-20T12:00:00"), at("2026-11-05T00:00:00")
    await calls.tenant("t", department_id="sales")
    await calls.settle("t", "r", (1000, 0, None), model="m", now=admitted)
    await conn.execute("SELECT quota_roll_month($1, $2)", october, closing)
    await put(conn, input=Decimal(1))
    assert await price_unpriced(conn, closing) == 1
    await conn.execute("SELECT quota_book_adjustments($1)", closing)
    await conn.execute("SELECT quota_roll_month($1, $2)", november, closing)
    totals = await conn.fetch(
        "SELECT month, belongs_to, completions, cost_nanos FROM quota_monthly_totals ORDER BY month"
    )
    assert [tuple(each) for each in totals] == [
        (october, october, 1, 0),
        (november, october, 0, 1_000_000),
    ]
    assert (await calls.usage("t", admitted.date()))["cost_subcent_nanos"] == 1_000_000
    await assert_sums(conn)


async def test_what_can_not_be_priced_hides_nothing_and_is_tried_once_per_change(
    conn: Connection, calls: Calls
) -> None:
    await calls.tenant("t")
    await put(conn, model="other")
    for number in range(30):
        await calls.settle("t", f"x{number:02}", (1, 1, None), model=f"nobody{number}")
    await calls.settle("t", "y", (1000, 0, None), model="m")
    await conn.execute("DELETE FROM quota_reservations WHERE request_id = 'x00'")
    tried = "SELECT count(*) FROM quota_unpriced WHERE tried_at > '-infinity'"
    await put(conn, input=Decimal(1))
    small = "SELECT priced FROM quota_price_unpriced(3)"
    assert [await conn.fetchval(small) for _ in range(2)] == [1, 0]
    assert await row(conn, "y") == (1_000_000, False, None)
    assert await conn.fetchval(tried) == 29
    assert await conn.fetchval("SELECT count(*) FROM quota_unpriced") == 29
    before = await conn.fetchval(
        "SELECT array_agg(xmin::text ORDER BY request_id) FROM quota_unpriced"
    )
    assert await conn.fetchval(small) == 0
    assert before == await conn.fetchval(
        "SELECT array_agg(xmin::text ORDER BY request_id) FROM quota_unpriced"
    )
    # an overflowing counter spoils only its own
    await put(conn, model="nobody7", input=Decimal(10**9))
    await put(conn, model="nobody8", input=Decimal(1))
    await conn.execute("UPDATE quota_usage SET cost_cents = 9223372036854775807 - 1000")
    await conn.execute("SELECT quota_price_unpriced()")
    assert (await row(conn, "x08"))[1] is False
    assert (await row(conn, "x07"))[1] is True


async def test_pricing_beside_settles_ends_with_the_latest_usage(
    conn: Connection, connect: Connect
) -> None:
    calls = Calls(conn)
    await calls.tenant("t", department_id="sales")
    await calls.tenant("s", department_id="sales")
    requests = [(tenant, f"r{n}") for n in range(20) for tenant in ("t", "s")]
    for tenant, request in requests:
        await calls.settle(tenant, request, (1000, 0, None), model="m")
    await put(conn, input=Decimal(1))
    others = [await connect() for _ in range(4)]

    async def cost(other: Connection, part: int) -> None:
        for tenant, request in requests[part::2]:
            await Calls(other).settle(tenant, request, (1000, 0, 55))

    async def sweep(other: Connection) -> None:
        for _ in range(25):
            await other.execute("SELECT quota_price_unpriced(4)")

    await asyncio.gather(cost(others[0], 0), sweep(others[1]), sweep(others[2]))
    charged = await conn.fetch("SELECT tenant_id, charged_cost_nanos AS c FROM quota_reservations")
    assert {(each["tenant_id"], each["c"]) for each in charged} == {("t", 55), ("s", 1_000_000)}
    assert await conn.fetchval("SELECT count(*) FROM quota_unpriced") == 0
    await cost(others[3], 1)
    assert (
        await conn.fetchval(
            "SELECT count(*) FROM quota_reservations WHERE charged_cost_nanos <> 55"
        )
        == 0
    )
    await assert_sums(conn)


async def test_the_migration_lists_what_was_unpriced_before(conn: Connection, calls: Calls) -> None:
    await calls.tenant("t")
    await calls.settle("t", "known", (1, 1, 5), model="m")
    await calls.settle("t", "named", (1, 1, None), model="m")
    await calls.settle("t", "nameless", (1, 1, None))
    await conn.execute(
        "DROP TABLE quota_prices, quota_price_rules, quota_price_names, quota_currency_rates, quota_unpriced CASCADE;"
        "ALTER TABLE quota_usage_inbox DROP COLUMN processing"
    )
    await conn.execute(Assets().read("sql/migrations/0006_prices.sql"))
    await conn.execute(Assets().read("sql/functions/quota_price_unpriced.sql"))
    listed = await conn.fetch("SELECT request_id, model, reason FROM quota_unpriced ORDER BY 1")
    assert [tuple(each) for each in listed] == [
        ("named", "m", "unknown_model"),
        ("nameless", None, "no_model"),
    ]
    await put(conn, input=Decimal(1), output=Decimal(0))
    assert await price_unpriced(conn) == 1
    assert await row(conn, "named") == (1000, False, None)
