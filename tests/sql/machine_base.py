"""What the state machine stands on: a database, the model, and its own clock.

One example is one emptied database, one billing zone and one session time zone.
Time is the machine's own and travels as p_now: over midnight, month ends and
DST days, and now and then a few seconds back, as clocks of two sessions differ.
"""

from __future__ import annotations

import asyncio
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import asyncpg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from model.days import day_of, start_of_day
from model.ledger import Ledger
from model.records import Budget, Limits, Refused, Usage
from sql import clones
from sql.calls import Calls
from sql.invariants import check_everything

if TYPE_CHECKING:
    from collections.abc import Coroutine

EDGES = {
    "UTC": [date(2025, 2, 1), date(2024, 2, 29), date(2024, 3, 1), date(2026, 1, 1)],
    "Asia/Shanghai": [date(2025, 5, 1), date(2025, 12, 31)],
    "America/New_York": [date(2025, 3, 9), date(2025, 11, 2), date(2025, 11, 1)],
    "Australia/Lord_Howe": [date(2025, 4, 6), date(2025, 10, 5), date(2025, 10, 1)],
}
SESSION_ZONES = ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"]
POOLS = [("d", "production"), ("d", "test"), ("e", "production")]
TENANTS = ["a", "b", "c", "observed", "off", "legacy"]

THRESHOLDS = [(75, 90, 98), (75, 90, 98), (10, 20, 30), (50, 50, 50), (1, 99, 100)]

tokens = st.sampled_from([0, 1, 7, 50, 100])
costs = st.sampled_from([0, 1, 1500, 9_999_999, 10_000_000, 12_345_678])
amounts = st.tuples(tokens, tokens, costs)
small_cap = st.sampled_from([None, None, 0, 3, 8, 20])
token_cap = st.sampled_from([None, None, 0, 100, 400, 1000])
cent_cap = st.sampled_from([None, None, 0, 1, 3, 9])
models = st.sampled_from(["big", "small", "other"])
priorities = st.sampled_from(["normal", "normal", "high", "low"])
skews = st.sampled_from([0, 0, 0, 1, 3])
tenants = st.sampled_from(TENANTS)
usage_ids = st.sampled_from([None, "u1", "u2", "u3"])

CAPS = {
    "daily_completions": small_cap,
    "daily_input_tokens": token_cap,
    "daily_output_tokens": token_cap,
    "daily_tokens": token_cap,
    "daily_cost_cents": cent_cap,
    "monthly_completions": small_cap,
    "monthly_tokens": token_cap,
    "monthly_cost_cents": cent_cap,
}


class LedgerBase(RuleBasedStateMachine):
    """See the module; `template` is the DSN of a migrated, empty database nobody uses."""

    conn: ClassVar[asyncpg.Connection[Any]]
    loop: ClassVar[asyncio.AbstractEventLoop]

    def __init__(self) -> None:
        super().__init__()
        self.ids = 0
        self.keys: list[tuple[str, str]] = []
        self.ready = False

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize(data=st.data(), zone=st.sampled_from(sorted(EDGES)))
    def begin(self, data: st.DataObject, zone: str) -> None:
        edge = data.draw(st.sampled_from(EDGES[zone]), label="edge")
        offset = data.draw(st.sampled_from([-90, -1, 0, 7199, 43_200]), label="seconds from it")
        session = data.draw(st.sampled_from(SESSION_ZONES), label="session zone")
        self.now = start_of_day(edge, zone) + timedelta(seconds=offset)
        self.model = Ledger(zone)
        self.wait(self.connect(zone, session))
        for name in TENANTS:
            self.wait(self.add_tenant(name, data))
        for pool in POOLS[:2]:
            lines = data.draw(st.sampled_from(THRESHOLDS), label="thresholds")
            budget = Budget(
                warn_pct=lines[0],
                downgrade_pct=lines[1],
                protect_pct=lines[2],
                monthly_tokens=data.draw(st.sampled_from([None, 400, 1000]), label="tokens"),
                monthly_cost_cents=data.draw(st.sampled_from([None, 4, 20]), label="cents"),
                downgrade_from=data.draw(st.sampled_from([None, ["big"]])),
                downgrade_model=data.draw(st.sampled_from([None, "small"])),
                allowed_models=data.draw(st.sampled_from([None, None, ["big", "small"]])),
            )
            self.model.departments.budgets[pool] = budget
            self.wait(self.calls.department(*pool, **vars(budget)))

    async def connect(self, zone: str, session: str) -> None:
        self.calls = Calls(self.conn)
        await clones.empty(self.conn)
        await self.conn.execute(f"SET TimeZone = '{session}'")
        await self.calls.zone(zone)
        self.ready = True

    async def add_tenant(self, name: str, data: st.DataObject) -> None:
        limits = Limits()
        for cap, choice in CAPS.items():
            setattr(limits, cap, data.draw(choice, label=cap))
        limits.department_id = {"a": "d", "b": "d", "observed": "d", "legacy": "d"}.get(name)
        limits.enforce = {"observed": "observe", "off": "off"}.get(name, "on")
        limits.stale_policy = data.draw(st.sampled_from(["estimate", "partial", "release"]))
        wide = name in ("legacy", "off")
        limits.bucket_capacity = Fraction(10**6 if wide else data.draw(st.sampled_from([1, 3, 50])))
        limits.bucket_refill_per_sec = Fraction(data.draw(st.sampled_from(["0", "1/2", "4"])))
        self.model.tenants[name] = limits
        await self.calls.put("tenant_limits", {"tenant_id": name, **columns_of(limits)})

    def both(self, sql: Coroutine[Any, Any, Any], mine: Any) -> tuple[Any, Any] | None:
        """(database's answer, model's answer), or None where both raise the same SQLSTATE."""
        state = None
        answer = None
        try:
            answer = self.wait(sql)
        except asyncpg.PostgresError as error:
            state = str(error.sqlstate)
        refused = None
        expected = None
        try:
            expected = mine()
        except Refused as error:
            refused = error.sqlstate
        if refused is not None:
            assert state == refused, f"{state or answer}, model {refused}"
            return None
        assert state is None, f"raised {state}, model {expected}"
        return answer, expected

    def written(self, tenant: str, day: date, change: Usage, days: int) -> None:
        """Own caps bind at once near today; all else from the next reconcile, run here."""
        self.model.write_directly(tenant, day, change)
        if abs(days) > 1 or self.model.tenants[tenant].department_id is not None:
            self.reconcile()

    def reconcile(self) -> None:
        for _ in range(50):
            if not self.wait(
                self.calls.conn.fetchval("SELECT quota_book_legacy(1000, $1)", self.now)
            ):
                break
        else:
            raise AssertionError("quota_book_legacy never comes to an end")
        self.model.book_direct_writes()

    def moved_to(self, moment: datetime) -> None:
        if day_of(moment, self.model.zone) != day_of(self.now, self.model.zone):
            self.reconcile()
        self.now = moment

    @invariant()
    def the_tables_agree(self) -> None:
        if self.ready:
            self.wait(check_everything(self.calls, self.model, POOLS))


def columns_of(limits: Limits) -> dict[str, Any]:
    values = dict(vars(limits))
    for name in ("bucket_capacity", "bucket_refill_per_sec"):
        values[name] = float(values[name])
    return values
