"""Random operations on a real database, each answer held against the model.

The rules for requests come from machine_requests; here are those that change
the surroundings: top-ups, moves, caps, budgets, direct writes, and time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from model.days import day_of, end_of_day, end_of_month
from model.records import NANOS_PER_CENT, TopUp, Usage
from sql.machine_base import CAPS, POOLS, tenants, tokens
from sql.machine_requests import RequestRules


class LedgerMachine(RequestRules):
    """Set `conn` to a connection nobody else uses, and `loop` to its event loop."""

    # administration ---------------------------------------------------------------

    @rule(
        pool=st.sampled_from(POOLS[:2]),
        sums=st.sampled_from([(500, 0), (0, 5), (300, 3)]),
        key=st.sampled_from(["k1", "k2", "k3"]),
        hours=st.sampled_from([1, 30]),
    )
    def top_up(self, pool: tuple[str, str], sums: tuple[int, int], key: str, hours: int) -> None:
        ends = self.now.replace(microsecond=0) + timedelta(hours=hours)
        one = TopUp(*pool, *sums, self.now, ends, key, "cfo", "launch")
        self.both(
            self.calls.top_up(pool[0], *sums, key, ends, environment=pool[1], now=self.now),
            lambda: self.model.departments.top_up(one),
        )

    @rule(tenant=st.sampled_from(["a", "b"]), pool=st.sampled_from([None, *POOLS]))
    def move(self, tenant: str, pool: tuple[str, str] | None) -> None:
        limits = self.model.tenants[tenant]
        limits.department_id, limits.environment = pool or (None, "production")
        self.wait(
            self.calls.change(
                tenant, department_id=limits.department_id, environment=limits.environment
            )
        )

    @rule(tenant=tenants, data=st.data(), name=st.sampled_from(sorted(CAPS)))
    def change_cap(self, tenant: str, data: st.DataObject, name: str) -> None:
        value = data.draw(CAPS[name])
        setattr(self.model.tenants[tenant], name, value)
        self.wait(self.calls.change(tenant, **{name: value}))

    @rule(tenant=tenants, policy=st.sampled_from(["estimate", "partial", "release"]))
    def change_policy(self, tenant: str, policy: str) -> None:
        self.model.tenants[tenant].stale_policy = policy
        self.wait(self.calls.change(tenant, stale_policy=policy))

    @rule(
        pool=st.sampled_from(POOLS[:2]),
        tokens_limit=st.sampled_from([None, 0, 300, 2000]),
        cents=st.sampled_from([None, 0, 6, 40]),
    )
    def change_budget(
        self, pool: tuple[str, str], tokens_limit: int | None, cents: int | None
    ) -> None:
        budget = self.model.departments.budgets[pool]
        budget.monthly_tokens, budget.monthly_cost_cents = tokens_limit, cents
        self.wait(
            self.calls.conn.execute(
                "UPDATE department_budgets SET monthly_tokens = $3, monthly_cost_cents = $4"
                " WHERE department_id = $1 AND environment = $2",
                *pool,
                tokens_limit,
                cents,
            )
        )

    @rule(
        tenant=st.sampled_from(["a", "c", "legacy"]),
        days=st.sampled_from([0, 0, -1, 1, -5]),
        sums=st.tuples(tokens, tokens, st.sampled_from([0, 1, 2])),
    )
    def update_directly(self, tenant: str, days: int, sums: Any) -> None:
        """The tutorial's own correction, as its readers run it."""
        day = day_of(self.now, self.model.zone) + timedelta(days=days)
        done = self.wait(
            self.calls.conn.execute(
                "UPDATE quota_usage SET input_tokens = input_tokens + $3,"
                " output_tokens = output_tokens + $4, cost_cents = cost_cents + $5"
                " WHERE tenant_id = $1 AND period = $2",
                tenant,
                day,
                *sums,
            )
        )
        if done == "UPDATE 1":
            self.written(tenant, day, Usage(sums[0], sums[1], sums[2] * NANOS_PER_CENT), days)

    @rule(
        tenant=st.sampled_from(["a", "c"]),
        days=st.sampled_from([0, -1, -3]),
        sums=st.tuples(tokens, tokens, st.sampled_from([0, 1])),
    )
    def insert_directly(self, tenant: str, days: int, sums: Any) -> None:
        day = day_of(self.now, self.model.zone) + timedelta(days=days)
        done = self.wait(
            self.calls.conn.execute(
                "INSERT INTO quota_usage (tenant_id, period, completions, input_tokens,"
                " output_tokens, cost_cents) VALUES ($1, $2, 1, $3, $4, $5) ON CONFLICT DO NOTHING",
                tenant,
                day,
                *sums,
            )
        )
        if done == "INSERT 0 1":
            self.written(tenant, day, Usage(sums[0], sums[1], sums[2] * NANOS_PER_CENT, 1), days)

    # time -------------------------------------------------------------------------

    @rule(gap=st.sampled_from([1, 2, 31, 599, 601, 1801, 3601]))
    def wait_a_while(self, gap: int) -> None:
        self.moved_to(self.now + timedelta(seconds=gap))

    @rule(gap=st.sampled_from([-1, 0, 1]), month=st.sampled_from([False, False, True]))
    def wait_for_the_edge(self, gap: int, month: bool) -> None:  # noqa: FBT001
        day = day_of(self.now, self.model.zone)
        edge = end_of_month(day, self.model.zone) if month else end_of_day(day, self.model.zone)
        self.moved_to(max(self.now, edge + timedelta(seconds=gap)))
