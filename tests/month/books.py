"""What was used, by the test's own bookkeeping of what it did: nothing is read back from the ledger.

Amounts are (completions, input tokens, output tokens, nanos). Only whether a request was
admitted, and what an ending charged, is the ledger's own answer.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import NamedTuple

from model.days import day_of, month_of, next_month
from model.records import NANOS_PER_CENT, Budget, Limits

Amounts = tuple[int, int, int, int]
Pool = tuple[str, str]
# What a refusal by a cap is called; others (a tier's, an empty bucket's) exhaust nothing.
CAP_REASONS = frozenset(reason for reason, _, _ in Limits().caps())
BUDGET_REASON = "department_budget_exhausted"


class Standing(NamedTuple):
    """Where one cap stands in one period. `refused_at`: the latest refusal by it."""

    used: int
    cap: int
    thresholds: dict[int, str]
    refused_at: datetime | None


@dataclass
class Request:
    tenant: str
    request_id: str
    day: date
    pool: Pool | None
    charge: Amounts
    expires_at: datetime
    is_open: bool = True


@dataclass
class Books:
    zone: str
    limits: dict[str, Limits] = field(default_factory=dict)
    soft_warn_pct: dict[str, int] = field(default_factory=dict)
    budgets: dict[Pool, Budget] = field(default_factory=dict)
    # pool, tokens, cents, from, until
    topups: list[tuple[Pool, int, int, datetime, datetime]] = field(default_factory=list)
    used: dict[tuple[str, date], Amounts] = field(default_factory=lambda: defaultdict(_nothing))
    months: dict[tuple[Pool, date], tuple[int, int]] = field(
        default_factory=lambda: defaultdict(_no_month)
    )
    direct: dict[tuple[str, date], Amounts] = field(default_factory=lambda: defaultdict(_nothing))
    unbooked: list[tuple[str, date, Amounts]] = field(default_factory=list)
    refusals: dict[tuple[str, date, str], datetime] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    # what happens -----------------------------------------------------------------

    def pool_of(self, tenant: str) -> Pool | None:
        limits = self.limits[tenant]
        pool = (limits.department_id or "", limits.environment)
        return pool if pool in self.budgets else None

    def refused(self, tenant: str, reason: str, at: datetime) -> None:
        self.refusals[tenant, day_of(at, self.zone), reason] = at

    def admitted(self, request: Request) -> None:
        self.requests.append(request)
        self._add(request.tenant, request.day, request.pool, request.charge)

    def charged(self, request: Request, charge: Amounts) -> None:
        """It ended, or was corrected: the charge is the new one, on the day of admission."""
        change = _plus(charge, tuple(-one for one in request.charge))
        self._add(request.tenant, request.day, request.pool, change)
        request.charge = charge
        request.is_open = False

    def written(self, tenant: str, day: date, change: Amounts) -> None:
        """A plain UPDATE: the tenant's at once, the department's when reconcile finds it."""
        self.used[tenant, day] = _plus(self.used[tenant, day], change)
        self.direct[tenant, day] = _plus(self.direct[tenant, day], change)
        self.unbooked.append((tenant, day, change))

    def reconciled(self) -> None:
        for tenant, day, change in self.unbooked:
            self._add_month(self.pool_of(tenant), day, change)
        self.unbooked.clear()

    def _add(self, tenant: str, day: date, pool: Pool | None, change: Amounts) -> None:
        self.used[tenant, day] = _plus(self.used[tenant, day], change)
        self._add_month(pool, day, change)

    def _add_month(self, pool: Pool | None, day: date, change: Amounts) -> None:
        if pool is not None:
            tokens, nanos = self.months[pool, month_of(day)]
            self.months[pool, month_of(day)] = (tokens + change[1] + change[2], nanos + change[3])

    # where it stands --------------------------------------------------------------

    def standings(self, period_kind: str, start: date, at: datetime) -> dict[tuple, Standing]:
        """Every cap above 0, by (subject kind, subject, environment, dimension)."""
        found = self._tenants(period_kind, start)
        if period_kind == "month":
            for pool in self.budgets:
                found |= self._department(pool, start, at)
        return found

    def _tenants(self, period_kind: str, start: date) -> dict[tuple, Standing]:
        end = next_month(start) if period_kind == "month" else None
        sums: dict[str, Amounts] = defaultdict(_nothing)
        latest: dict[tuple[str, str], datetime] = {}
        for (tenant, day), amounts in self.used.items():
            if day == start or (end is not None and start <= day < end):
                sums[tenant] = _plus(sums[tenant], amounts)
        for (tenant, day, reason), moment in self.refusals.items():
            if day == start or (end is not None and start <= day < end):
                latest[tenant, reason] = max(moment, latest.get((tenant, reason), moment))
        found = {}
        for tenant, limits in self.limits.items():
            completions, tokens_in, tokens_out, nanos = sums[tenant]
            used = {
                "completions": completions,
                "input_tokens": tokens_in,
                "output_tokens": tokens_out,
                "tokens": tokens_in + tokens_out,
                "cost": nanos,
            }
            soft = self.soft_warn_pct[tenant]
            thresholds = ({soft: "warning"} if soft else {}) | {100: "exhausted"}
            for reason, dimension, cap in limits.caps():
                # a cap of 0 raises no message
                if cap and reason.startswith("monthly" if end else "daily"):
                    key = ("tenant", tenant, limits.environment, dimension)
                    found[key] = Standing(
                        used[dimension], cap, thresholds, latest.get((tenant, reason))
                    )
        return found

    def _department(self, pool: Pool, month: date, at: datetime) -> dict[tuple, Standing]:
        budget = self.budgets[pool]
        live = [one for one in self.topups if one[0] == pool and one[3] <= at < one[4]]
        tokens_used, nanos_used = self.months[pool, month]
        caps = {}
        if budget.monthly_tokens is not None:
            caps["tokens"] = (tokens_used, budget.monthly_tokens + sum(one[1] for one in live))
        if budget.monthly_cost_cents is not None:
            cents = budget.monthly_cost_cents + sum(one[2] for one in live)
            caps["cost"] = (nanos_used, cents * NANOS_PER_CENT)
        thresholds = {
            budget.warn_pct: "warning",
            budget.downgrade_pct: "downgrade",
            budget.protect_pct: "protected",
            100: "exhausted",
        }
        refusals = [
            moment
            for (tenant, day, reason), moment in self.refusals.items()
            if reason == BUDGET_REASON and month_of(day) == month and self.pool_of(tenant) == pool
        ]
        # it doesn't say which of the two was meant: the fuller one, a budget of 0 before all
        fuller = max(sorted(caps), key=lambda one: _share(*caps[one]), default=None)
        return {
            ("department", *pool, dimension): Standing(
                used, cap, thresholds, max(refusals, default=None) if dimension == fuller else None
            )
            for dimension, (used, cap) in caps.items()
            if cap > 0
        }


def _share(used: int, cap: int) -> float:
    return used / cap if cap > 0 else float("inf")


def _nothing() -> Amounts:
    return (0, 0, 0, 0)


def _no_month() -> tuple[int, int]:
    return (0, 0)


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return tuple(a + b for a, b in zip(one, other, strict=True))  # type: ignore[return-value]
