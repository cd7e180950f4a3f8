"""A month's life in a ledger: random calls of its own functions, each noted in the books."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from month.books import BUDGET_REASON, CAP_REASONS, Amounts, Books, Pool, Request

from model.days import day_of, month_of
from model.records import Budget, Limits

TENANTS = 24
# beside them, and nobody else's
SEE_SAW = "seesaw"
CENT = 10_000_000
SOFT_WARN_PCTS = (0, 50, 80, 80, 80, 90, 100)
# caps that a day's or a month's work of one tenant reaches now and then
CAPS = {
    "daily_completions": (6, 14),
    "daily_input_tokens": (800, 2_000),
    "daily_output_tokens": (400, 1_200),
    "daily_tokens": (1_000, 3_000),
    "daily_cost_cents": (12, 40),
    "monthly_completions": (60, 160),
    "monthly_tokens": (9_000, 30_000),
    "monthly_cost_cents": (120, 500),
}
POOLS: dict[Pool, tuple[str, ...]] = {
    ("dept1", "production"): ("tenant00", "tenant01", "tenant02"),
    ("dept2", "production"): ("tenant03", "tenant04"),
    ("dept2", "test"): ("tenant05",),
}
OWNERS = {
    "dept1": (["owner1@example.com"], ["money@example.com", "OPS@example.com"]),
    "dept2": ([], ["money@example.com"]),
}


class World:
    """One connection that nobody disturbs, a clock, and what has been done so far."""

    def __init__(
        self, conn: asyncpg.Connection[Any], rng: random.Random, zone: str, now: datetime
    ) -> None:
        self.conn = conn
        self.rng = rng
        self.now = now
        self.books = Books(zone)
        self._ids = 0
        self._swings = 0
        self._swung_on = day_of(now, zone)
        self._acts: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._reserve, 30),
            (self._burst, 12),
            (self._rush, 1),
            (self._too_large, 4),
            (self._settle, 18),
            (self._correct, 6),
            (self._refund, 3),
            (self._release, 4),
            (self._write_directly, 4),
            (self._change_cap, 4),
            (self._change_full_cap, 8),
            (self._change_budget, 2),
            (self._top_up, 2),
            (self._change_soft_warn_pct, 1),
        ]

    async def begin(self) -> None:
        await self.conn.execute("UPDATE quota_settings SET billing_zone = $1", self.books.zone)
        for department, environment in POOLS:
            owners, finance = OWNERS[department]
            await self.conn.execute(
                "INSERT INTO departments (department_id, name, owner_emails, finance_emails)"
                " VALUES ($1, $1, $2, $3) ON CONFLICT DO NOTHING",
                department,
                owners,
                finance,
            )
            budget = Budget(
                monthly_tokens=self.rng.choice([None, self.rng.randint(15_000, 60_000)]),
                monthly_cost_cents=self.rng.choice([0, self.rng.randint(200, 900)]),
            )
            if budget.monthly_tokens is None:
                budget.monthly_cost_cents = self.rng.randint(200, 900)
            self.books.budgets[department, environment] = budget
            await self.conn.execute(
                "INSERT INTO department_budgets (department_id, environment, monthly_tokens,"
                " monthly_cost_cents) VALUES ($1, $2, $3, $4)",
                department,
                environment,
                budget.monthly_tokens,
                budget.monthly_cost_cents,
            )
        for number in range(TENANTS):
            await self._tenant(f"tenant{number:02}", zero=number == TENANTS - 1)
        await self._tenant(SEE_SAW, zero=False)

    async def _tenant(self, name: str, *, zero: bool) -> None:
        limits = Limits(
            **{
                cap: self.rng.randint(*span) if self.rng.random() < 0.45 else None
                for cap, span in CAPS.items()
            }
        )
        if zero:
            limits.daily_output_tokens = 0
        if name == SEE_SAW:
            limits = Limits(**(dict.fromkeys(CAPS) | {"monthly_completions": 100}))
        for pool, members in POOLS.items():
            if name in members:
                limits.department_id, limits.environment = pool
        limits.stale_policy = self.rng.choice(["estimate", "release"])
        self.books.limits[name] = limits
        self.books.soft_warn_pct[name] = self.rng.choice(SOFT_WARN_PCTS)
        values = {
            "tenant_id": name,
            "soft_warn_pct": self.books.soft_warn_pct[name],
            "department_id": limits.department_id,
            "environment": limits.environment,
            "stale_policy": limits.stale_policy,
            "bucket_capacity": 1e9,
            "bucket_refill_per_sec": 1e6,
        } | {cap: getattr(limits, cap) for cap in CAPS}
        marks = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        await self.conn.execute(
            f"INSERT INTO tenant_limits ({', '.join(values)}) VALUES ({marks})", *values.values()
        )

    # a stretch of time ------------------------------------------------------------

    async def live(self, until: datetime, acts: int) -> None:
        """So many acts at random moments up to `until`, then what reconcile does."""
        span = (until - self.now).total_seconds()
        moments = sorted(self.rng.uniform(0, 0.98 * span) for _ in range(acts))
        begun = self.now
        kinds, weights = zip(*self._acts, strict=True)
        for moment in moments:
            self.now = max(self.now, begun + timedelta(seconds=moment))
            await self.rng.choices(kinds, weights)[0]()
        self.now = until
        await self._see_saw()
        if self.rng.random() < 0.7:
            await self._reconcile()

    async def _reconcile(self) -> None:
        for one in self.books.requests:
            if one.is_open and one.expires_at <= self.now:
                release = self.books.limits[one.tenant].stale_policy == "release"
                self.books.charged(one, (0, 0, 0, 0) if release else one.charge)
        await self.conn.fetch("SELECT * FROM quota_expire_stale(10000, $1)", self.now)
        await self.conn.fetchval("SELECT quota_book_legacy(10000, $1)", self.now)
        self.books.reconciled()

    # requests ---------------------------------------------------------------------

    def _some_tenant(self) -> str:
        return f"tenant{self.rng.randrange(TENANTS):02}"

    async def _ask(self, tenant: str, amounts: Amounts) -> None:
        self._ids += 1
        request_id = f"r{self._ids}"
        row = await self.conn.fetchrow(
            "SELECT allowed, reason FROM quota_reserve($1, $2, $3, $4, $5, p_app => $6,"
            " p_model => 'big', p_ttl_seconds => $7, p_now => $8)",
            tenant,
            request_id,
            *amounts[1:],
            f"app{self._ids % 3}",
            3_600,
            self.now,
        )
        if row["allowed"]:
            pool = self.books.pool_of(tenant)
            day = day_of(self.now, self.books.zone)
            ends = self.now + timedelta(hours=1)
            self.books.admitted(Request(tenant, request_id, day, pool, amounts, ends))
        elif row["reason"] in CAP_REASONS or row["reason"] == BUDGET_REASON:
            self.books.refused(tenant, row["reason"], self.now)

    def _amounts(self) -> Amounts:
        rng = self.rng
        return (1, rng.randint(20, 300), rng.randint(10, 150), rng.randint(CENT // 2, 5 * CENT))

    async def _reserve(self) -> None:
        await self._ask(self._some_tenant(), self._amounts())

    async def _burst(self) -> None:
        tenant = self._some_tenant()
        for _ in range(self.rng.randint(2, 8)):
            self.now += timedelta(seconds=2)
            await self._ask(tenant, self._amounts())

    async def _rush(self) -> None:
        """Many at once: their messages will be collected."""
        for _ in range(TENANTS):
            await self._burst()

    async def _too_large(self) -> None:
        await self._ask(self._some_tenant(), (1, 40_000, 20_000, 700 * CENT))

    def _chosen(self, *, is_open: bool) -> Request | None:
        known = [one for one in self.books.requests[-400:] if one.is_open == is_open]
        return self.rng.choice(known) if known else None

    async def _settle(self) -> None:
        one = self._chosen(is_open=True)
        if one is not None:
            await self._charge(one, self.rng.choice([0.2, 0.8, 1.0, 1.0, 1.5]))

    async def _correct(self) -> None:
        one = self._chosen(is_open=False)
        if one is not None:
            await self._charge(one, self.rng.choice([0.1, 0.5, 1.1, 2.0]))

    async def _refund(self) -> None:
        """So much of one tenant's day that usage may fall below what was told."""
        tenant, today = self._some_tenant(), day_of(self.now, self.books.zone)
        todays = [one for one in self.books.requests if (one.tenant, one.day) == (tenant, today)]
        for one in todays[: self.rng.randint(1, 8)]:
            await self._charge(one, 0.02)

    async def _charge(self, one: Request, share: float) -> None:
        self._ids += 1
        figures = [max(1, round(amount * share)) for amount in one.charge[1:]]
        row = await self.conn.fetchrow(
            "SELECT outcome, in_tokens, out_tokens, cost_nanos"
            " FROM quota_settle($1, $2, $3, $4, $5, p_usage_id => $6, p_now => $7)",
            one.tenant,
            one.request_id,
            *figures,
            f"u{self._ids}",
            self.now,
        )
        if row["outcome"] != "replayed":
            self.books.charged(one, (1, row["in_tokens"], row["out_tokens"], row["cost_nanos"]))

    async def _release(self) -> None:
        one = self._chosen(is_open=True)
        if one is not None:
            await self.conn.execute(
                "SELECT quota_release($1, $2, 0, 0, 0, $3)", one.tenant, one.request_id, self.now
            )
            self.books.charged(one, (0, 0, 0, 0))

    # people and old programs --------------------------------------------------------

    async def _write_directly(self) -> None:
        """The tutorial's own UPDATE: more, or back what was written so before."""
        tenant = self._some_tenant()
        day = day_of(self.now, self.books.zone) - timedelta(days=self.rng.choice([0, 0, 0, 1, 4]))
        if (tenant, day) not in self.books.used:
            return
        written = self.books.direct[tenant, day]
        if any(written) and self.rng.random() < 0.6:
            change = tuple(-one for one in written)
        else:
            completions, tokens_in, tokens_out, nanos = self._amounts()
            change = (completions * 3, tokens_in, tokens_out, nanos // CENT * CENT)
        await self.conn.execute(
            "UPDATE quota_usage SET completions = completions + $3, input_tokens = input_tokens"
            " + $4, output_tokens = output_tokens + $5, cost_cents = cost_cents + $6"
            " WHERE tenant_id = $1 AND period = $2",
            tenant,
            day,
            *change[:3],
            change[3] // CENT,
        )
        self.books.written(tenant, day, change)

    async def _see_saw(self) -> None:
        """One tenant's month goes up and down all the time: at three ticks once each."""
        self._swings += 1
        if self._swings % 3 == 0:
            return
        sign = 1 if self._swings % 3 == 1 else -1
        # down where it went up
        day = day_of(self.now, self.books.zone) if sign == 1 else self._swung_on
        self._swung_on = day
        await self.conn.execute(
            "INSERT INTO quota_usage AS u (tenant_id, period, completions) VALUES ($1, $2, $3)"
            " ON CONFLICT (tenant_id, period) DO UPDATE SET completions = u.completions + $3",
            SEE_SAW,
            day,
            sign * 85,
        )
        self.books.written(SEE_SAW, day, (sign * 85, 0, 0, 0))

    async def _change_full_cap(self) -> None:
        """A cap that is nearly full is changed so that usage lies about a threshold."""
        today = day_of(self.now, self.books.zone)
        near = [
            (subject[1], f"{name}_{subject[3]}".replace("cost", "cost_cents"), standing.used)
            for name, kind, start in (
                ("daily", "day", today),
                ("monthly", "month", month_of(today)),
            )
            for subject, standing in self.books.standings(kind, start, self.now).items()
            if subject[0] == "tenant" and standing.used * 2 > standing.cap
        ]
        if not near:
            return
        tenant, cap, used = self.rng.choice(near)
        unit = CENT if cap.endswith("cents") else 1
        share = self.rng.choice([42, 45, 70, 73, 74, 75, 76, 78, 84, 90, 94, 95, 99, 102])
        await self._set_cap(tenant, cap, max(1, used * 100 // (share * unit)))

    async def _change_cap(self) -> None:
        tenant = self._some_tenant()
        limits, cap = self.books.limits[tenant], self.rng.choice(list(CAPS))
        old = getattr(limits, cap)
        if old == 0:
            return
        if old is None:
            new = self.rng.choice([None, self.rng.randint(*CAPS[cap])])
        else:
            factor = self.rng.choice([0.6, 0.9, 1.04, 1.2, 1.7, None])
            new = factor and max(1, round(old * factor))
        await self._set_cap(tenant, cap, new)

    async def _set_cap(self, tenant: str, cap: str, new: int | None) -> None:
        setattr(self.books.limits[tenant], cap, new)
        await self.conn.execute(
            f"UPDATE tenant_limits SET {cap} = $2 WHERE tenant_id = $1", tenant, new
        )

    async def _change_budget(self) -> None:
        pool = self.rng.choice(list(POOLS))
        budget = self.books.budgets[pool]
        factor = self.rng.choice([0.7, 0.95, 1.1, 1.5])
        if budget.monthly_tokens is not None:
            budget.monthly_tokens = round(budget.monthly_tokens * factor)
        if budget.monthly_cost_cents is not None:
            budget.monthly_cost_cents = round(budget.monthly_cost_cents * factor)
        await self.conn.execute(
            "UPDATE department_budgets SET monthly_tokens = $3, monthly_cost_cents = $4"
            " WHERE department_id = $1 AND environment = $2",
            *pool,
            budget.monthly_tokens,
            budget.monthly_cost_cents,
        )

    async def _top_up(self) -> None:
        pool = self.rng.choice(list(POOLS))
        self._ids += 1
        share = self.rng.choice([0.02, 0.1, 0.4])
        budget = self.books.budgets[pool]
        tokens = round((budget.monthly_tokens or 0) * share)
        cents = round((budget.monthly_cost_cents or 0) * share)
        ends = (self.now + timedelta(hours=self.rng.choice([5, 50, 500]))).replace(microsecond=0)
        await self.conn.execute(
            "SELECT quota_topup($1, $2, $3, $4, $5, 'boss', 'need', $6, $7)",
            *pool,
            tokens,
            cents,
            f"k{self._ids}",
            ends,
            self.now,
        )
        self.books.topups.append((pool, tokens, cents, self.now, ends))

    async def _change_soft_warn_pct(self) -> None:
        tenant = self._some_tenant()
        self.books.soft_warn_pct[tenant] = self.rng.choice(SOFT_WARN_PCTS)
        await self.conn.execute(
            "UPDATE tenant_limits SET soft_warn_pct = $2 WHERE tenant_id = $1",
            tenant,
            self.books.soft_warn_pct[tenant],
        )

    # the books against the ledger ----------------------------------------------------

    async def check_books(self) -> None:
        """The two agree on what was used: else a difference in alerts would say nothing."""
        rows = await self.conn.fetch(
            "SELECT tenant_id, period, completions, input_tokens, output_tokens,"
            " (cost_cents::numeric * 10000000 + cost_subcent_nanos)::bigint FROM quota_usage"
        )
        _same({tuple(row)[:2]: tuple(row)[2:] for row in rows}, self.books.used)
        rows = await self.conn.fetch(
            "SELECT department_id, environment, month, sum(tokens_used)::bigint,"
            " sum(cost_used_nanos)::bigint FROM quota_department_slots GROUP BY 1, 2, 3"
        )
        _same({(tuple(row)[:2], row[2]): tuple(row)[3:] for row in rows}, self.books.months)


def _same(ledger: dict[Any, tuple[int, ...]], books: Mapping[Any, tuple[int, ...]]) -> None:
    wrong = {
        key: (ledger.get(key), books.get(key))
        for key in ledger.keys() | books.keys()
        if any(ledger.get(key, ())) or any(books.get(key, ()))
        if ledger.get(key) != books.get(key)
    }
    assert not wrong, f"ledger and books differ: {wrong}"
