"""The ledger's contract in plain Python, without a single running counter.

Every figure is summed anew from the requests that were admitted and from the
charges that came without one, so that it shares no bookkeeping with what it
checks. Times are aware; money is integer nanos; buckets are Fractions.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction

from model.days import day_of, end_of_day, end_of_month, month_of
from model.departments import Departments
from model.ending import Endings
from model.records import (
    BIGINT_MAX,
    NANOS_MAX,
    NANOS_PER_CENT,
    NOTHING,
    TOKENS_MAX,
    Answer,
    Limits,
    Refused,
    Reservation,
    Usage,
)

PRIORITIES = ("high", "normal", "low")


class Ledger(Endings):
    """Tenants, pools and requests of one deployment in one billing zone."""

    def __init__(self, zone: str = "UTC") -> None:
        self.zone = zone
        self.tenants: dict[str, Limits] = {}
        self.departments = Departments()
        self.reservations: dict[tuple[str, str], Reservation] = {}
        self.legacy: dict[tuple[str, date], Usage] = {}
        self.unbooked: dict[tuple[str, date], Usage] = {}
        self.buckets: dict[str, tuple[Fraction, datetime]] = {}

    # what is used -----------------------------------------------------------------

    def day_used(self, tenant: str, day: date) -> Usage:
        """Posted and held of one tenant's day, direct writes included."""
        used = self.legacy.get((tenant, day), NOTHING)
        for one in self.reservations.values():
            if one.tenant == tenant and one.period == day:
                used += one.used
        return used

    def day_held(self, tenant: str, day: date) -> Usage:
        held = NOTHING
        for one in self.reservations.values():
            if one.tenant == tenant and one.period == day and one.state == "open":
                held += one.estimate
        return held

    def days(self, tenant: str) -> set[date]:
        """Every day on which the tenant has a request or a charge."""
        days = {day for (name, day) in self.legacy if name == tenant}
        return days | {one.period for one in self.reservations.values() if one.tenant == tenant}

    def month_used(self, tenant: str, day: date) -> Usage:
        used = NOTHING
        for other in self.days(tenant):
            if month_of(other) == month_of(day):
                used += self.day_used(tenant, other)
        return used

    def everything(self) -> list[Reservation]:
        return list(self.reservations.values())

    # the bucket -------------------------------------------------------------------

    def bucket(self, tenant: str, now: datetime) -> tuple[Fraction, datetime]:
        """Tokens at `now`; a clock behind the bucket's adds nothing and moves nothing."""
        limits = self.tenants[tenant]
        tokens, at = self.buckets.get(tenant, (limits.bucket_capacity, now))
        gone = Fraction(max((now - at).total_seconds(), 0))
        tokens = min(limits.bucket_capacity, tokens + gone * limits.bucket_refill_per_sec)
        return tokens, max(at, now)

    def take_token(self, tenant: str, now: datetime) -> bool:
        """Off draws none; an observed tenant draws none that isn't there."""
        if self.tenants[tenant].enforce == "off":
            return False
        tokens, at = self.bucket(tenant, now)
        taken = tokens >= 1
        self.buckets[tenant] = (tokens - 1 if taken else tokens, at)
        return taken

    def give_token_back(self, one: Reservation, now: datetime) -> None:
        if one.tenant not in self.tenants or one.tenant not in self.buckets:
            return
        tokens, at = self.bucket(one.tenant, now)
        capacity = self.tenants[one.tenant].bucket_capacity
        self.buckets[one.tenant] = (min(capacity, tokens + 1), at)

    # admission --------------------------------------------------------------------

    def reserve(
        self,
        tenant: str,
        request_id: str,
        amounts: tuple[int, int, int],
        now: datetime,
        *,
        model: str | None = None,
        priority: str = "normal",
        ttl_seconds: int | None = None,
    ) -> Answer:
        check_id(tenant)
        check_id(request_id)
        check_amounts(amounts)
        if priority not in PRIORITIES:
            raise Refused("QW002")
        limits = self.tenants.get(tenant)
        if limits is None:
            return Answer(allowed=False, reason="unknown_tenant")
        known = self.reservations.get((tenant, request_id))
        if known is not None:
            return replay(known, amounts, model)

        estimate = Usage(*amounts, completions=1)
        answer = self.decide(tenant, estimate, now, model=model, priority=priority)
        if limits.enforce == "off":
            answer = Answer(allowed=True, reason="ok", model=model)
        elif limits.enforce == "observe":
            observed = None if answer.allowed else answer.reason
            answer = Answer(
                allowed=True, reason="ok", observed_reason=observed, tier=answer.tier, model=model
            )
        if not answer.allowed:
            return answer
        day = day_of(now, self.zone)
        self.check_counters(tenant, day, estimate)
        taken = self.take_token(tenant, now)
        ttl = limits.reservation_ttl_seconds if ttl_seconds is None else ttl_seconds
        self.reservations[(tenant, request_id)] = Reservation(
            tenant=tenant,
            request_id=request_id,
            estimate=estimate,
            requested_model=model,
            period=day,
            admitted_at=now,
            ttl_seconds=ttl,
            expires_at=later(now, ttl),
            department=limits.department_id,
            environment=limits.environment,
            answer=answer,
            token_taken=taken,
        )
        return answer

    def decide(
        self,
        tenant: str,
        estimate: Usage,
        now: datetime,
        *,
        model: str | None = None,
        priority: str = "normal",
    ) -> Answer:
        """The decision of an enforcing tenant; changes nothing."""
        limits = self.tenants[tenant]
        day = day_of(now, self.zone)
        tier, answered, notice = "normal", model, False
        pool = None if limits.department_id is None else (limits.department_id, limits.environment)
        if pool in self.departments.budgets and pool is not None:
            budget = self.departments.budgets[pool]
            room = self.departments.room(self.everything(), pool, day, now)
            tier = self.departments.tier(pool, room)
            notice = tier in ("downgrade", "protected", "exhausted")
            month_end = end_of_month(day, self.zone)
            if budget.allowed_models is not None and model not in budget.allowed_models:
                return Answer(allowed=False, reason="model_not_allowed", tier=tier, notice=notice)
            reason = None
            if tier == "protected" and priority != "high":
                reason = "department_protected"
            elif tier == "exhausted" or not room.fits(estimate):
                reason = "department_budget_exhausted"
            if reason is not None:
                return Answer(
                    allowed=False,
                    reason=reason,
                    tier=tier,
                    notice=notice,
                    resets_at=month_end,
                    retry_after=seconds(now, month_end),
                )
            answered = self.departments.answered_model(pool, tier, model)
        refusal = self.by_caps(tenant, estimate, now) or self.by_bucket(tenant, now)
        if refusal is not None:
            return replace(refusal, tier=tier, notice=notice)
        return Answer(allowed=True, reason="ok", tier=tier, model=answered, notice=notice)

    def by_caps(self, tenant: str, estimate: Usage, now: datetime) -> Answer | None:
        """The first cap, in the order of the contract, that refuses."""
        day = day_of(now, self.zone)
        today = self.day_used(tenant, day)
        month = self.month_used(tenant, day)
        for reason, dimension, cap in self.tenants[tenant].caps():
            if cap is None:
                continue
            monthly = reason.startswith("monthly")
            used = amount(month if monthly else today, dimension)
            if used >= cap or used + amount(estimate, dimension) > cap:
                ends = end_of_month(day, self.zone) if monthly else end_of_day(day, self.zone)
                return Answer(
                    allowed=False,
                    reason=reason,
                    limit_value=cap,
                    limit_used=used,
                    resets_at=ends,
                    retry_after=seconds(now, ends),
                )
        return None

    def by_bucket(self, tenant: str, now: datetime) -> Answer | None:
        limits = self.tenants[tenant]
        tokens, at = self.bucket(tenant, now)
        if tokens >= 1:
            return None
        refill = limits.bucket_refill_per_sec
        wait = None
        if refill > 0 and limits.bucket_capacity >= 1 and at <= now:
            wait = (1 - tokens) / refill
        return Answer(allowed=False, reason="rate_limited", retry_after=wait)

    def check_counters(self, tenant: str, day: date, added: Usage) -> None:
        used = self.day_used(tenant, day) + added
        if max(used.tokens_in, used.tokens_out, used.completions) > BIGINT_MAX:
            raise Refused("QW002")

    # programs of the tutorial -----------------------------------------------------

    def check_and_charge(
        self, tenant: str, tokens_in: int, tokens_out: int, cents: int, now: datetime
    ) -> tuple[bool, str]:
        limits = self.tenants.get(tenant)
        if limits is None:
            return (False, "unknown_tenant")
        charge = Usage(tokens_in, tokens_out, cents * NANOS_PER_CENT, 1)
        answer = self.decide(tenant, charge, now)
        if not answer.allowed and limits.enforce == "on":
            return (False, answer.reason)
        self.take_token(tenant, now)
        day = day_of(now, self.zone)
        self.legacy[(tenant, day)] = self.legacy.get((tenant, day), NOTHING) + charge
        if limits.department_id is not None:
            pool = (limits.department_id, limits.environment)
            self.departments.charge_legacy(pool, month_of(day), charge)
        return (True, "ok")

    def write_directly(self, tenant: str, day: date, change: Usage) -> None:
        """A plain UPDATE (or INSERT) of quota_usage: the tenant's own caps see it at once."""
        self.legacy[(tenant, day)] = self.legacy.get((tenant, day), NOTHING) + change
        self.unbooked[(tenant, day)] = self.unbooked.get((tenant, day), NOTHING) + change

    def book_direct_writes(self) -> None:
        """What reconcile does with them: the department's month counts them too."""
        for (tenant, day), change in self.unbooked.items():
            limits = self.tenants.get(tenant)
            if limits is not None and limits.department_id is not None:
                pool = (limits.department_id, limits.environment)
                self.departments.charge_legacy(pool, month_of(day), change)
        self.unbooked.clear()


def replay(known: Reservation, amounts: tuple[int, int, int], model: str | None) -> Answer:
    """The first answer again, or QW001 where the figures differ."""
    if known.unreserved or known.answer is None:
        return Answer(allowed=True, reason="ok", replayed=True, model=model)
    if known.estimate.figures != amounts or known.requested_model != model:
        raise Refused("QW001")
    first = known.answer
    return Answer(
        allowed=True,
        reason="ok",
        observed_reason=first.observed_reason,
        replayed=True,
        tier=first.tier,
        model=first.model,
        notice=first.notice,
    )


def amount(usage: Usage, dimension: str) -> int:
    return {
        "completions": usage.completions,
        "input_tokens": usage.tokens_in,
        "output_tokens": usage.tokens_out,
        "tokens": usage.tokens,
        "cost": usage.cost,
    }[dimension]


def seconds(start: datetime, end: datetime) -> Fraction:
    gap = end - start
    return Fraction(gap.days * 86_400 + gap.seconds) + Fraction(gap.microseconds, 1_000_000)


def later(moment: datetime, ttl_seconds: int) -> datetime:
    return datetime.fromtimestamp(moment.timestamp() + ttl_seconds, tz=moment.tzinfo)


def check_id(text: str) -> None:
    """1 to 200 characters, none of them a control character."""
    if not 1 <= len(text) <= 200:
        raise Refused("QW002")
    if any(ord(one) < 32 or 127 <= ord(one) < 160 for one in text):
        raise Refused("QW002")


def check_amounts(amounts: tuple[int, int, int]) -> None:
    tokens_in, tokens_out, cost = amounts
    if not (0 <= tokens_in <= TOKENS_MAX and 0 <= tokens_out <= TOKENS_MAX):
        raise Refused("QW002")
    if not 0 <= cost <= NANOS_MAX:
        raise Refused("QW002")
