"""The ledger's side of an invoice check: every part, and all of it together, on one database."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import asyncpg
import pytest

from worker.assets import Assets
from worker.errors import UsageError
from worker.invoice.figures import NOTHING, Figures, LedgerMonth, Part, total
from worker.invoice.zones import month_starts
from worker.periods import load_zone
from worker.postgres.invoice import PostgresInvoice
from worker.postgres.pool import connect_arguments
from worker.postgres.queries import load_queries

from sql.calls import at

if TYPE_CHECKING:
    from sql.calls import Calls

MONTH = date(2026, 5, 1)
DAY = date(2026, 5, 15)
CENT = 10_000_000


async def read(dsn: str, wanted: str | None = None, zone: str | None = None) -> LedgerMonth:
    """On a connection that could not write."""
    arguments = connect_arguments()
    arguments["server_settings"] = {"default_transaction_read_only": "on"}
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1, **arguments) as pool:
        invoice = PostgresInvoice(pool, load_queries(Assets(), "invoice"))
        assert await invoice.billing_rules() == (
            await pool.fetchval("SELECT quota_zone()"),
            "USD",
        )
        chosen = None if wanted is None else lambda names: sorted(names & {wanted})
        return await invoice.month(MONTH, chosen, None if zone is None else load_zone(zone))


async def make_world(calls: Calls) -> None:
    await calls.tenant("t")
    await calls.tenant("drops", stale_policy="release")
    # settled, with cached input; downgraded to another model by the answer
    await calls.reserve("t", "settled", (100, 50, 900), model="big")
    await calls.settle("t", "settled", (90, 40, 800), model="small", cached=30)
    # no usage: by estimate, and dropped; told so by the caller
    await calls.reserve("t", "stale", (10, 5, 70), model="big", ttl_seconds=60)
    await calls.reserve("drops", "dropped", (11, 6, 71), model="big", ttl_seconds=60)
    await calls.expire(now=calls.now + timedelta(minutes=5))  # type: ignore[operator]
    await calls.reserve("t", "missing", (20, 7, 80), model="big")
    await calls.settle("t", "missing", (None, None, None))
    # never reserved, without a cost; still open; given up after a part
    await calls.settle("t", "unreserved", (30, 8, None), model="odd")
    await calls.reserve("t", "open", (40, 9, 90), model="big")
    await calls.reserve("t", "part", (50, 10, 100), model="big")
    await calls.release("t", "part", (50, 3, 60))
    # another month, which is not read
    await calls.reserve("t", "june", (1, 1, 1), model="big", now=at("2026-06-01T00:00:00"))
    await calls.settle("t", "june", (1, 1, 1), now=at("2026-06-01T00:00:00"))


async def test_each_part_is_told_and_all_together_is_what_the_counters_have(
    dsn: str, calls: Calls
) -> None:
    await make_world(calls)
    # legacy programs: one write folded in, one that waits
    sql = "UPDATE quota_usage SET input_tokens = input_tokens + $1, cost_cents = cost_cents + $2"
    await calls.conn.execute(f"{sql} WHERE tenant_id = 't' AND period = $3", 1000, 2, DAY)
    await calls.conn.execute("SELECT quota_book_legacy(1000, $1)", calls.now)
    await calls.conn.execute(f"{sql} WHERE tenant_id = 't' AND period = $3", 500, 1, DAY)
    month = await read(dsn)
    assert (month.month, month.zone, month.currency) == (MONTH, "UTC", "USD")
    cells = {cell.model: cell for cell in month.cells}
    assert set(cells) == {"big", "small", "odd"}
    assert {cell.day for cell in month.cells} == {DAY}
    assert cells["small"].charged == Part(1, Figures(90, 30, 40, 800))
    big = cells["big"]
    assert big.charged == Part(4, Figures(10 + 20 + 50, 0, 5 + 7 + 3, 70 + 80 + 60))
    assert big.stale == Part(2, Figures(30, 0, 12, 150))
    assert big.dropped == Part(1, Figures(11, 0, 6, 71))
    assert big.held == Part(1, Figures(40, 0, 9, 90))
    assert (big.unreserved, big.unpriced) == (Part(), Part())
    assert cells["odd"].unreserved == cells["odd"].unpriced == Part(1, Figures(30, 0, 8, 0))
    assert month.legacy == {DAY: Figures(1500, 0, 0, 3 * CENT)}
    assert month.unlisted == {}

    used = await calls.row(
        "SELECT sum(input_tokens)::bigint AS i, sum(output_tokens)::bigint AS o,"
        " sum(cost_cents::numeric * 10000000 + cost_subcent_nanos)::bigint AS c"
        " FROM quota_usage WHERE period = $1",
        DAY,
    )
    known = total(cell.charged.figures + cell.held.figures for cell in month.cells)
    known += total(month.legacy.values())
    assert (known.in_tokens, known.out_tokens, known.cost_nanos) == tuple(used.values())

    # a request that is forgotten is missed by the day's counters
    await calls.conn.execute("DELETE FROM quota_reservations WHERE request_id = 'settled'")
    month = await read(dsn)
    assert month.unlisted == {DAY: Figures(90, 0, 40, 800)}

    # some models alone: neither other models nor what has none
    month = await read(dsn, "odd")
    assert [cell.model for cell in month.cells] == ["odd"]
    assert (month.legacy, month.unlisted) == ({}, {})
    assert total(figures for _, figures in month.times) == Figures(30, 0, 8, 0)


async def test_times_reach_beyond_the_month_and_days_are_of_the_billing_zone(
    dsn: str, calls: Calls
) -> None:
    await calls.zone("Asia/Shanghai")
    await calls.tenant("t")
    for number, moment in enumerate(
        # before the window; the last of April there; the first of May there, twice a half hour
        ["04-28T15:00:00", "04-30T15:59:59", "04-30T16:00:00", "04-30T16:29:59", "04-30T16:30:00"]
    ):
        now = at(f"2026-{moment}")
        await calls.reserve("t", f"r{number}", (1, 1, 1), now=now)
        await calls.settle("t", f"r{number}", (10**number, 0, 1), now=now)
    month = await read(dsn)
    assert [(cell.day, cell.model) for cell in month.cells] == [(MONTH, "")]
    assert month.cells[0].charged == Part(3, Figures(11100, 0, 0, 3))
    assert [(moment.isoformat(), one.in_tokens) for moment, one in month.times] == [
        ("2026-04-30T15:30:00+00:00", 10),
        ("2026-04-30T16:00:00+00:00", 1100),
        ("2026-04-30T16:30:00+00:00", 10000),
    ]
    assert (month.legacy, month.unlisted, NOTHING) == ({}, {}, Figures())
    assert (month.days_zone, month.own) == (None, None)
    # zones whose days begin together have the same days
    assert await read(dsn, zone="Asia/Taipei") == month


async def test_the_days_of_another_zone_are_made_of_the_requests_themselves(
    dsn: str, calls: Calls
) -> None:
    """Its month's ends are of other billing months; what has no times stays on its billing day."""
    await calls.zone("Asia/Shanghai")
    await calls.tenant("t")
    # of Shanghai's May alone; of everybody's, two of them; of Kathmandu's and UTC's; of UTC's alone
    moments = [
        "04-30T16:00:00",
        "05-02T17:00:00",
        "05-02T18:20:00",
        "05-31T16:00:00",
        "05-31T23:59:59",
    ]
    for number, moment in enumerate(moments):
        now, model = at(f"2026-{moment}"), "odd" if number == 4 else "even"
        await calls.reserve("t", f"r{number}", (1, 1, 1), model=model, now=now)
        if number != 2:
            await calls.settle("t", f"r{number}", (0, 0, 10**number), now=now)
    await calls.conn.execute(
        "INSERT INTO quota_usage (tenant_id, period, cost_cents) VALUES ('old', '2026-05-01', 5)"
    )
    month = await read(dsn, zone="UTC")
    assert (month.zone, month.days_zone, month.own) == (
        "Asia/Shanghai",
        "UTC",
        Figures(cost_nanos=1 + 10 + 5 * CENT),
    )
    second, last = date(2026, 5, 2), date(2026, 5, 31)
    assert {(one.day, one.model, one.charged.figures.cost_nanos) for one in month.cells} == {
        (second, "even", 10),
        (last, "even", 1000),
        (last, "odd", 10_000),
    }
    assert {one.day: one.held.requests for one in month.cells if one.held.requests} == {second: 1}
    assert (month.legacy, month.unlisted) == ({MONTH: Figures(cost_nanos=5 * CENT)}, {})

    # 18:15 UTC is midnight in Kathmandu: no half hour
    month = await read(dsn, zone="Asia/Kathmandu")
    assert {one.day: one.charged.requests for one in month.cells} == {
        second: 1,
        date(2026, 5, 3): 0,
        last: 1,
    }
    # a request that is forgotten is missed on its billing day
    await calls.conn.execute("DELETE FROM quota_reservations WHERE request_id = 'r1'")
    month = await read(dsn, zone="UTC")
    assert month.unlisted == {date(2026, 5, 3): Figures(cost_nanos=10)}
    assert month.own == Figures(cost_nanos=1 + 10 + 5 * CENT)
    month = await read(dsn, "odd", "UTC")
    assert [one.charged.figures.cost_nanos for one in month.cells] == [10_000]
    assert month.own == NOTHING


async def test_names_that_are_no_models_are_refused(
    dsn: str, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    await calls.tenant("t")
    for name in ("a", "b"):
        await calls.settle("t", name, (1, 1, 1), model=name)
    monkeypatch.setattr("worker.postgres.invoice.MAX_CELLS", 1)
    with pytest.raises(UsageError, match="2026-05 has more than 1 days and models: the names that"):
        await read(dsn)
    monkeypatch.setattr("worker.postgres.invoice.MAX_CELLS", 2)
    assert len((await read(dsn)).cells) == 2


async def test_rates_by_currency_and_day(dsn: str, calls: Calls) -> None:
    await calls.conn.execute(
        "INSERT INTO quota_currency_rates (currency, valid_from, rate) VALUES"
        " ('CNY', '2026-04-01', 0.14), ('CNY', '2026-05-31', 0.15), ('CNY', '2026-06-01', 9),"
        " ('EUR', '2026-05-01', 1.1), ('JPY', '2026-05-01', 0.01)"
    )
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1, **connect_arguments()) as pool:
        invoice = PostgresInvoice(pool, load_queries(Assets(), "invoice"))
        assert await invoice.rates(["CNY", "EUR", "GBP"], MONTH) == {
            "CNY": [
                (date(2026, 4, 1), Decimal("0.14")),
                (date(2026, 5, 31), Decimal("0.15")),
            ],
            "EUR": [(date(2026, 5, 1), Decimal("1.1"))],
        }
        assert await invoice.rates([], MONTH) == {}


@pytest.mark.parametrize("name", ["ledger_cells", "ledger_times"])
async def test_where_the_month_begins_is_not_asked_for_each_row(calls: Calls, name: str) -> None:
    """It made a month of a million requests take ten times as long."""
    query = load_queries(Assets(), "invoice")[name]
    starts = month_starts(MONTH, load_zone("UTC"))
    values = [MONTH, 9, starts] if name == "ledger_cells" else [MONTH, None]
    plan = await calls.rows(f"EXPLAIN {query}", *values)
    text = "\n".join(str(row["QUERY PLAN"]) for row in plan)
    assert "InitPlan 2" in text
    assert "timezone(" not in text.casefold().partition("scan on quota_reservations")[2]
    assert "at time zone" not in text.casefold()
