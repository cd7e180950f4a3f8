"""What the audit's tests share: a busy tenant, damage to plant, and what must hold after a mend."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from sql.calls import NOON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sql.calls import Calls, Row

TODAY = NOON.date()
DAY = timedelta(days=1)
MAY = date(2026, 5, 1)
CENT = 10_000_000
# used by tenant t today, as `busy` leaves it
RIGHT = (3, 66, 16, 2 * CENT + 755)


async def audit(calls: Calls, month: date | None = None, severity: str = "drift") -> list[Row]:
    """The rows of one severity, ordered by place."""
    rows = await calls.rows("SELECT * FROM quota_audit($1, $2)", month, calls.now)
    found = [row for row in rows if row["severity"] == severity]
    return sorted(
        found, key=lambda r: (str(r["tenant_id"]), r["period"], r["kind"], r["dimension"])
    )


async def repair(calls: Calls, month: date | None = None, limit: int = 1000) -> list[Row]:
    return await calls.rows("SELECT * FROM quota_audit_repair($1, $2, $3)", month, limit, calls.now)


async def assert_mended(calls: Calls, month: date | None = None) -> list[Row]:
    """Repair, and a second repair that changes nothing; the mends."""
    mends = await repair(calls, month)
    assert await audit(calls, month) == []
    before = await everything(calls)
    assert await repair(calls, month) == []
    assert await everything(calls) == before
    logged = await calls.rows("SELECT * FROM quota_repairs ORDER BY repair_id")
    assert [row for row in logged if mends and row["run"] == mends[0]["run"]] == mends
    return mends


async def everything(calls: Calls) -> list[list[Row]]:
    tables = ("quota_usage", "quota_reservations", "quota_department_slots", "quota_adjustments")
    return [await calls.rows(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4") for table in tables]


def places(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [
        (r["kind"], r["tenant_id"], r["period"], r["dimension"], r["expected"], r["found"])
        for r in rows
    ]


async def plant(calls: Calls, sets: str, day: date = TODAY) -> None:
    await calls.conn.execute(
        f"UPDATE quota_usage SET {sets} WHERE tenant_id = 't' AND period = $1", day
    )


async def make_busy(calls: Calls) -> None:
    """Tenant t of department d: `open` holds today, `done` and `late` ended; `other` beside it."""
    await calls.department("d", monthly_tokens=10**6, monthly_cost_cents=10**6)
    await calls.tenant(department_id="d", monthly_tokens=10**6)
    await calls.tenant("other")
    for name, amounts in (("open", (40, 9, 700)), ("done", (20, 5, 300)), ("late", (8, 3, 50))):
        await calls.reserve(request_id=name, amounts=amounts)
    await calls.settle(request_id="done", amounts=(18, 4, 2 * CENT + 5))
    await calls.reserve(request_id="old", amounts=(10, 10, 10), now=NOON - DAY)
    await calls.settle(request_id="old", amounts=(9, 9, 9), now=NOON - DAY)
    await calls.settle(request_id="late", amounts=(8, 3, 50))
    await calls.reserve("other", "x", (1, 1, 1))
    assert await audit(calls) == []
