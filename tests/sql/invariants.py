"""The eight invariants of the contract, read from the tables and held against the model.

1, 2 and 8 compare sums over reservations with the counters, day by day and
pool by pool; 3 and 6 compare each reservation with the model's; 4 looks for a
negative counter; 5 and 7 are asserted by the machine at the step itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.days import month_of
from model.records import NOTHING, Usage

if TYPE_CHECKING:
    from datetime import date

    from model.ledger import Ledger
    from sql.calls import Calls, Row

USAGE_ROWS = """
SELECT tenant_id, period, completions, input_tokens, output_tokens,
       cost_cents::numeric * 10000000 + cost_subcent_nanos AS cost_nanos,
       cost_cents, cost_subcent_nanos, held_input_tokens, held_output_tokens, held_cost_nanos
  FROM quota_usage
"""

FROM_RESERVATIONS = """
SELECT tenant_id, period,
       sum(estimated_in_tokens) FILTER (WHERE state = 'open') AS held_in,
       sum(estimated_out_tokens) FILTER (WHERE state = 'open') AS held_out,
       sum(estimated_cost_nanos) FILTER (WHERE state = 'open') AS held_cost,
       sum(charged_in_tokens) FILTER (WHERE state <> 'open') AS charged_in,
       sum(charged_out_tokens) FILTER (WHERE state <> 'open') AS charged_out,
       sum(charged_cost_nanos) FILTER (WHERE state <> 'open') AS charged_cost,
       count(*) FILTER (WHERE completion_counted) AS completions
  FROM quota_reservations
 GROUP BY tenant_id, period
"""

BY_DEPARTMENT = """
SELECT department_id, environment, date_trunc('month', period)::date AS month,
       sum(CASE WHEN state = 'open' THEN estimated_in_tokens + estimated_out_tokens
                ELSE charged_in_tokens + charged_out_tokens END) AS tokens,
       sum(CASE WHEN state = 'open' THEN estimated_cost_nanos ELSE charged_cost_nanos END) AS cost,
       coalesce(sum(estimated_in_tokens + estimated_out_tokens)
           FILTER (WHERE state = 'open'), 0) AS held_tokens,
       coalesce(sum(estimated_cost_nanos) FILTER (WHERE state = 'open'), 0) AS held_cost
  FROM quota_reservations
 WHERE department_id IS NOT NULL
 GROUP BY 1, 2, 3
"""

COUNTERS = """
SELECT department_id, environment, month, sum(tokens_used) AS tokens_used,
       sum(tokens_held) AS tokens_held, sum(cost_used_nanos) AS cost_used_nanos,
       sum(cost_held_nanos) AS cost_held_nanos
  FROM quota_department_slots
 GROUP BY 1, 2, 3
"""

RESERVATION_ROWS = """
SELECT tenant_id, request_id, state, period, department_id, environment,
       estimated_in_tokens, estimated_out_tokens, estimated_cost_nanos,
       charged_in_tokens, charged_out_tokens, charged_cost_nanos, completion_counted,
       expires_at, admitted_at, unreserved, progress_out_tokens
  FROM quota_reservations
"""


async def check_days(calls: Calls, model: Ledger) -> None:
    """Invariants 1, 2 and 4 per tenant and day."""
    sums = {(r["tenant_id"], r["period"]): r for r in await calls.rows(FROM_RESERVATIONS)}
    seen = set()
    for row in await calls.rows(USAGE_ROWS):
        key = (row["tenant_id"], row["period"])
        seen.add(key)
        used = Usage(
            row["input_tokens"], row["output_tokens"], int(row["cost_nanos"]), row["completions"]
        )
        held = (row["held_input_tokens"], row["held_output_tokens"], row["held_cost_nanos"])
        mine = sums.get(key, {})
        open_sum = tuple(int(mine.get(n) or 0) for n in ("held_in", "held_out", "held_cost"))
        assert held == open_sum, f"held of {key} is {held}, open reservations say {open_sum}"
        legacy = model.legacy.get(key, NOTHING)
        ended = Usage(
            int(mine.get("charged_in") or 0),
            int(mine.get("charged_out") or 0),
            int(mine.get("charged_cost") or 0),
            int(mine.get("completions") or 0),
        )
        total = ended + legacy + Usage(*open_sum)
        assert used == total, f"used of {key} is {used}, requests and legacy say {total}"
        assert used == model.day_used(*key), f"used of {key}: {used}, model {model.day_used(*key)}"
        low = min(*used.figures, used.completions, *held, row["cost_cents"])
        assert low >= 0, f"a counter of {key} is negative: {used} {held}"
        assert 0 <= row["cost_subcent_nanos"] <= 9_999_999
    for tenant in {name for name, _ in [*model.reservations, *model.legacy]}:
        for day in model.days(tenant):
            if (tenant, day) not in seen:
                assert model.day_used(tenant, day) == NOTHING, f"no row for {tenant} on {day}"


async def check_departments(
    calls: Calls, model: Ledger, pools: list[tuple[str, str]], months: set[date]
) -> None:
    """Invariants 1, 4 and 8 per pool and month."""
    sums = {
        (r["department_id"], r["environment"], r["month"]): r
        for r in await calls.rows(BY_DEPARTMENT)
    }
    counters = {
        (r["department_id"], r["environment"], r["month"]): r for r in await calls.rows(COUNTERS)
    }
    for pool in pools:
        for month in months:
            got = figures_of(counters.get((*pool, month), {}))
            used, held = model.departments.month_used(model.everything(), pool, month)
            want = (used.tokens, held.tokens, used.cost, held.cost)
            assert got == want, f"{pool} {month:%Y-%m}: {got}, model {want}"
            legacy = model.departments.legacy.get((*pool, month), NOTHING)
            mine = sums.get((*pool, month), {})
            tables = (
                int(mine.get("tokens") or 0) + legacy.tokens,
                int(mine.get("held_tokens") or 0),
                int(mine.get("cost") or 0) + legacy.cost,
                int(mine.get("held_cost") or 0),
            )
            assert got == tables, f"{pool} {month:%Y-%m}: {got}, reservations say {tables}"
            assert min(got) >= 0


def figures_of(row: Row) -> tuple[int, int, int, int]:
    return (
        int(row.get("tokens_used") or 0),
        int(row.get("tokens_held") or 0),
        int(row.get("cost_used_nanos") or 0),
        int(row.get("cost_held_nanos") or 0),
    )


async def check_reservations(calls: Calls, model: Ledger) -> None:
    """Invariants 3 and 6: each request stands where its history puts it."""
    rows = {(r["tenant_id"], r["request_id"]): r for r in await calls.rows(RESERVATION_ROWS)}
    assert rows.keys() == model.reservations.keys()
    for key, one in model.reservations.items():
        row = rows[key]
        assert row["state"] == one.state, f"{key} is {row['state']}, model {one.state}"
        assert row["period"] == one.period, f"{key} lies on {row['period']}, model {one.period}"
        assert row["department_id"] == one.department, key
        assert row["environment"] == one.environment, key
        assert row["completion_counted"] == bool(one.used.completions), key
        if not one.unreserved:
            assert row["expires_at"] == one.expires_at, key
            estimate = tuple(
                row[f"estimated_{n}"] for n in ("in_tokens", "out_tokens", "cost_nanos")
            )
            assert estimate == one.estimate.figures, key
        if one.state != "open":
            charged = tuple(row[f"charged_{n}"] for n in ("in_tokens", "out_tokens", "cost_nanos"))
            assert charged == one.charged.figures, f"{key}: {charged}, model {one.charged}"


async def check_everything(calls: Calls, model: Ledger, pools: list[tuple[str, str]]) -> None:
    months = {month_of(one.period) for one in model.reservations.values()}
    months |= {month for (_, _, month) in model.departments.legacy}
    await check_days(calls, model)
    await check_reservations(calls, model)
    await check_departments(calls, model, pools, months)
