"""The audit's remarks: what they say of unpriced usage, and when they go."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from sql.auditing import DAY, MAY
from sql.calls import NOON

if TYPE_CHECKING:
    from datetime import datetime

    from sql.calls import Calls

MINUTE = timedelta(minutes=1)
APRIL = date(2026, 4, 1)


async def remarks(calls: Calls, kind: str, now: datetime) -> dict[str, str]:
    """Causes of the open month's remarks, by the request that each names."""
    rows = await calls.rows("SELECT * FROM quota_audit($1, $2)", MAY, now)
    return {r["request_id"]: r["cause"] for r in rows if r["kind"] == kind}


async def append(calls: Calls, now: datetime, *rows: tuple[str, str, str, int]) -> list[str]:
    """Rows of the inbox (tenant, request, usage id, cost) and what came of them."""
    for tenant, request, usage_id, cost in rows:
        await calls.conn.execute(
            "INSERT INTO quota_usage_inbox (tenant_id, request_id, usage_id, input_tokens,"
            " output_tokens, cost_nanos, received_at) VALUES ($1, $2, $3, 10, 5, $4, $5)",
            *(tenant, request, usage_id, cost, now),
        )
    await calls.conn.execute("SELECT quota_book_inbox(100, $1)", now)
    done = await calls.rows(
        "SELECT outcome FROM quota_usage_inbox WHERE booked_at = $1 ORDER BY inbox_id", now
    )
    return [row["outcome"] for row in done]


async def test_what_was_set_aside_in_the_inbox_goes_once_right_usage_came(calls: Calls) -> None:
    await calls.tenant()
    for request in ("by_inbox", "by_settle", "bad"):
        await calls.reserve(request_id=request)
    for request in ("by_inbox", "by_settle"):
        await calls.settle(request_id=request, usage_id="u1")
    wrong = (
        *(("t", "by_inbox", "u1", 7), ("t", "by_settle", "u1", 7)),
        *(("t", "bad", "u1", 10**16), ("nobody", "never", "u1", 1)),
    )
    outcomes = ["conflict", "conflict", "invalid", "invalid"]
    assert await append(calls, NOON + MINUTE, *wrong) == outcomes
    assert len(await remarks(calls, "inbox", NOON + MINUTE)) == 3  # a row for each tenant and cause
    # the first usage once more settles no conflict; neither does one that is refused again
    again = (("t", "by_inbox", "u1", 100), ("t", "by_settle", "u1", 8), ("t", "bad", "u2", 10**16))
    assert await append(calls, NOON + 2 * MINUTE, *again) == ["replayed", "conflict", "invalid"]
    found = await remarks(calls, "inbox", NOON + 2 * MINUTE)
    assert found.keys() == {"by_settle", "bad", "never"}
    counted = "SELECT sum(found) FROM quota_audit($1, $2) WHERE kind = 'inbox'"
    assert await calls.conn.fetchval(counted, MAY, NOON + 2 * MINUTE) == 6

    later = NOON + 3 * MINUTE
    right = (("t", "by_inbox", "u2", 100), ("t", "bad", "u1", 7))
    assert await append(calls, later, *right) == ["replayed", "settled"]
    settled = await calls.settle(
        request_id="by_settle", usage_id="u2", amounts=(10, 5, 7), now=later
    )
    assert settled["outcome"] == "corrected"
    assert (await remarks(calls, "inbox", later)).keys() == {"never"}
    assert (await remarks(calls, "inbox", NOON + 40 * DAY)).keys() == {"never"}
    assert await remarks(calls, "inbox", NOON + MINUTE + 40 * DAY) == {}
    # whom the ledger comes to know before that is no remark either
    await calls.tenant("nobody")
    await calls.settle("nobody", "never", now=later)
    assert await remarks(calls, "inbox", later) == {}


async def test_a_sources_fault_goes_once_its_request_has_usage(calls: Calls) -> None:
    await calls.tenant()
    reasons = {
        "told": "unreadable",
        "lost": "wrong_number",
        "costly": "no_rate",
        "who": "not_asked",
    }
    for request, reason in reasons.items():
        if request != "who":
            await calls.reserve(request_id=request)
        await calls.conn.execute(
            "INSERT INTO quota_source_faults (tenant_id, request_id, source, reason, excerpt,"
            " first_seen_at, seen_at) VALUES ('t', $1, 'log', $2, '', $3, $3)",
            *(request, reason, NOON),
        )
    await calls.settle(request_id="lost", amounts=(None, None, None))
    await calls.settle(request_id="costly", amounts=(5, 5, None))
    assert (await remarks(calls, "source", NOON)).keys() == reasons.keys()
    later = NOON + MINUTE
    await calls.settle(request_id="told", now=later)
    await calls.settle(request_id="costly", amounts=(5, 5, 9), now=later)
    assert (await remarks(calls, "source", later)).keys() == {"lost", "who"}
    assert await remarks(calls, "source", NOON + 40 * DAY) == {}


async def test_unpriced_usage_says_what_it_is_charged_and_what_is_missing(calls: Calls) -> None:
    await calls.tenant()
    await calls.conn.execute(
        "INSERT INTO quota_prices (origin, model, currency, input, output) VALUES ('file', 'm-cny', 'CNY', 1, 1)"
    )
    for request, model in (("known", "m-cny"), ("unknown", "m-odd"), ("nameless", None)):
        await calls.reserve(request_id=request)
        await calls.settle(request_id=request, amounts=(5, 5, None), model=model)
    await calls.settle(request_id="stray", amounts=(5, 5, None), model="m-odd")
    assert await remarks(calls, "unpriced", NOON) == {
        "known": "usage of model m-cny without a cost is charged in proportion to its estimate: "
        "its price is known, the rate of the price's currency is missing",
        "unknown": "usage of model m-odd without a cost is charged in proportion to its estimate: "
        "no price is known",
        "nameless": "usage of an unnamed model without a cost is charged in proportion to its "
        "estimate: a price needs the model's name",
        "stray": "usage of model m-odd without a cost is charged nothing, as nobody reserved it: "
        "no price is known",
    }
    assert (await calls.reservation(request_id="stray"))["charged_cost_nanos"] == 0


async def test_how_a_month_stands(calls: Calls) -> None:
    async def states() -> list[str]:
        months = (MAY, APRIL)
        state = "SELECT quota_audit_state($1, $2)"
        return [await calls.conn.fetchval(state, month, NOON) for month in months]

    assert await states() == ["open", "no_charges"]
    await calls.tenant()
    await calls.settle(now=NOON - 20 * DAY)
    assert await states() == ["open", "not_closed"]
    await calls.conn.execute("SELECT quota_roll_month($1, $2)", APRIL, NOON)
    assert await states() == ["open", "closed"]
