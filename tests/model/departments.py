"""Departments in the model: budgets, top-ups, tiers, which requests a month consists of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime

from model.days import month_of
from model.records import NANOS_PER_CENT, NOTHING, Budget, Refused, Reservation, TopUp, Usage


@dataclass(frozen=True)
class Room:
    """A pool's limits (budget plus live top-ups) and what is used of them; None: no limit."""

    tokens_limit: int | None
    cost_limit: int | None
    used: Usage

    def reaches(self, percent: int) -> bool:
        """Whether tokens or cost, whichever is higher, stand at `percent` or above."""
        pairs = ((self.tokens_limit, self.used.tokens), (self.cost_limit, self.used.cost))
        for limit, used in pairs:
            if limit is None:
                continue
            if limit <= 0 or used * 100 >= percent * limit:
                return True
        return False

    def fits(self, estimate: Usage) -> bool:
        if self.tokens_limit is not None and self.used.tokens + estimate.tokens > self.tokens_limit:
            return False
        return self.cost_limit is None or self.used.cost + estimate.cost <= self.cost_limit


@dataclass
class Departments:
    """Budgets and top-ups by pool; months are summed from the reservations each time."""

    budgets: dict[tuple[str, str], Budget] = field(default_factory=dict)
    topups: dict[tuple[str, str], TopUp] = field(default_factory=dict)
    legacy: dict[tuple[str, str, date], Usage] = field(default_factory=dict)

    def month_used(
        self, reservations: list[Reservation], pool: tuple[str, str], month: date
    ) -> tuple[Usage, Usage]:
        """(used, held) of a pool's month."""
        used = self.legacy.get((*pool, month), NOTHING)
        held = NOTHING
        for one in reservations:
            if (one.department, one.environment) != pool or month_of(one.period) != month:
                continue
            used += one.used
            if one.state == "open":
                held += one.estimate
        return used, held

    def room(
        self, reservations: list[Reservation], pool: tuple[str, str], day: date, now: datetime
    ) -> Room:
        budget = self.budgets[pool]
        live = [
            one
            for one in self.topups.values()
            if (one.department, one.environment) == pool and one.valid_from <= now < one.expires_at
        ]
        tokens = budget.monthly_tokens
        cents = budget.monthly_cost_cents
        used, _ = self.month_used(reservations, pool, month_of(day))
        return Room(
            None if tokens is None else tokens + sum(one.tokens for one in live),
            None
            if cents is None
            else (cents + sum(one.cost_cents for one in live)) * NANOS_PER_CENT,
            used,
        )

    def tier(self, pool: tuple[str, str], room: Room) -> str:
        budget = self.budgets[pool]
        if room.reaches(100):
            return "exhausted"
        if room.reaches(budget.protect_pct):
            return "protected"
        if room.reaches(budget.downgrade_pct):
            return "downgrade"
        if room.reaches(budget.warn_pct):
            return "warning"
        return "normal"

    def answered_model(self, pool: tuple[str, str], tier: str, model: str | None) -> str | None:
        """The model after the tier's rule; only downgrade and protected change it."""
        budget = self.budgets[pool]
        if tier not in ("downgrade", "protected") or budget.downgrade_model is None:
            return model
        if budget.downgrade_from is not None and model not in budget.downgrade_from:
            return model
        return budget.downgrade_model

    def top_up(self, one: TopUp) -> None:
        """Adds an allowance once; the same key with other values raises QW001."""
        key = (one.department, one.key)
        known = self.topups.get(key)
        if known is None:
            self.topups[key] = one
            return
        same = (known.environment, known.tokens, known.cost_cents, known.expires_at)
        if same != (one.environment, one.tokens, one.cost_cents, one.expires_at):
            raise Refused("QW001")

    def charge_legacy(self, pool: tuple[str, str], month: date, amount: Usage) -> None:
        key = (*pool, month)
        self.legacy[key] = self.legacy.get(key, NOTHING) + amount
