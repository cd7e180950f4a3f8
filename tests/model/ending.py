"""How a reservation ends in the model: settle, release, progress, expiry, late usage."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, datetime, timedelta

from model.days import day_of
from model.records import (
    NANOS_MAX,
    NOTHING,
    PROGRESS_CEILING_SECONDS,
    TOKENS_MAX,
    Ended,
    Limits,
    Outcome,
    Refused,
    Reservation,
    Usage,
)

Figures = tuple[int | None, int | None, int | None]


class Endings:
    """The half of the ledger that ends requests; state lives in Ledger."""

    zone: str
    tenants: dict[str, Limits]
    reservations: dict[tuple[str, str], Reservation]
    legacy: dict[tuple[str, date], Usage]

    def give_token_back(self, one: Reservation, now: datetime) -> None:
        """The bucket is the other half's: Ledger overrides this."""
        raise AssertionError(f"no bucket for {one} at {now}")

    def settle(
        self,
        tenant: str,
        request_id: str,
        figures: Figures,
        now: datetime,
        *,
        usage_id: str | None = None,
    ) -> Outcome:
        check_figures(figures)
        known = self.reservations.get((tenant, request_id))
        if known is None:
            return self.post_unreserved(tenant, request_id, figures, now, usage_id)
        if known.state == "open":
            charge = figured(known, figures)
            missing = figures == (None, None, None)
            self.end(known, "settled", charge)
            known.usage_missing = missing
            self.remember(known, usage_id, figures)
            return outcome(known, "estimated" if missing else "settled")
        return self.correct(known, figures, usage_id)

    def correct(self, known: Reservation, figures: Figures, usage_id: str | None) -> Outcome:
        """Usage that arrives after the end: the charge becomes the latest one."""
        if usage_id is not None and usage_id in known.usage_ids:
            if known.usage_ids[usage_id] != figures:
                raise Refused("QW001")
            return outcome(known, "replayed")
        if figures == (None, None, None):
            return outcome(known, "replayed", "estimated")
        charge = figured(known, figures)
        self.remember(known, usage_id, figures)
        known.corrected = True
        if charge == known.charged:
            # Late figures that equal the charge: no counter moves, so both words fit.
            words = ["replayed"]
            if known.state != "settled" or known.usage_missing:
                words.append("corrected")
            known.usage_missing = False
            return outcome(known, *words)
        known.charged = charge
        known.usage_missing = False
        return outcome(known, "corrected")

    def post_unreserved(
        self, tenant: str, request_id: str, figures: Figures, now: datetime, usage_id: str | None
    ) -> Outcome:
        existed = tenant in self.tenants or any(
            name == tenant for name, _ in [*self.reservations, *self.legacy]
        )
        if not existed or figures == (None, None, None):
            raise Refused("QW002")
        limits = self.tenants.get(tenant)
        one = Reservation(
            tenant=tenant,
            request_id=request_id,
            estimate=NOTHING,
            requested_model=None,
            period=day_of(now, self.zone),
            admitted_at=now,
            ttl_seconds=0,
            expires_at=now,
            department=None if limits is None else limits.department_id,
            environment="production" if limits is None else limits.environment,
            unreserved=True,
        )
        self.reservations[(tenant, request_id)] = one
        self.end(one, "settled", figured(one, figures))
        self.remember(one, usage_id, figures)
        return outcome(one, "unreserved")

    def release_choices(self, tenant: str, request_id: str, figures: Figures) -> list[Usage]:
        """The charges that the contract's words allow for this release; one unless progress
        exceeds what the caller states."""
        one = self.reservations[(tenant, request_id)]
        tokens_in, tokens_out, cost = (value or 0 for value in figures)
        if one.progress <= tokens_out:
            counted = int(one.progress > 0 or (tokens_in, tokens_out, cost) != (0, 0, 0))
            return [Usage(tokens_in, tokens_out, cost, counted)]
        choices = []
        for taken in (max(tokens_in, one.estimate.tokens_in), tokens_in):
            for share in (taken, one.estimate.tokens_in):
                rule = in_proportion(one.estimate, share + one.progress)
                choices += [
                    Usage(taken, one.progress, rule, 1),
                    Usage(taken, one.progress, max(rule, cost), 1),
                ]
        return choices

    def release(
        self,
        tenant: str,
        request_id: str,
        figures: Figures,
        now: datetime,
        charged: Usage | None = None,
    ) -> Outcome:
        """`charged`: which of the choices the database took, where there are several."""
        check_figures(figures)
        one = self.reservations.get((tenant, request_id))
        if one is None:
            return Outcome(frozenset({"unknown"}), NOTHING)
        if one.state == "released":
            # The same release again is a replay; with other figures, or after late usage,
            # either word fits.
            same = one.released == figures and not one.corrected
            return outcome(one, "replayed", *([] if same else ["already_final"]))
        if one.state != "open":
            return outcome(one, "already_final")
        choices = self.release_choices(tenant, request_id, figures)
        charge = charged if charged in choices else choices[0]
        one.released = figures
        untouched = charge == NOTHING and one.progress == 0
        self.end(one, "released", charge)
        if untouched and one.token_taken:
            self.give_token_back(one, now)
        return outcome(one, "released")

    def progress(self, tenant: str, request_id: str, tokens_out: int, now: datetime) -> str:
        """Returns the state after: open, ended or unknown."""
        if not 0 <= tokens_out <= TOKENS_MAX:
            raise Refused("QW002")
        one = self.reservations.get((tenant, request_id))
        if one is None:
            return "unknown"
        if one.state != "open":
            return "ended"
        one.progress = max(one.progress, tokens_out)
        ceiling = one.admitted_at + timedelta(seconds=PROGRESS_CEILING_SECONDS)
        wished = min(now + timedelta(seconds=one.ttl_seconds), ceiling)
        one.expires_at = max(one.expires_at, wished)
        return "open"

    def overdue(self, now: datetime) -> list[Reservation]:
        """Open reservations whose time ran out, oldest first."""
        late = [
            one
            for one in self.reservations.values()
            if one.state == "open" and one.expires_at <= now
        ]
        return sorted(late, key=lambda one: one.expires_at)

    def expire(self, chosen: Collection[tuple[str, str]]) -> list[Ended]:
        """Ends the chosen overdue reservations by their tenants' policies."""
        done = []
        for key in chosen:
            one = self.reservations[key]
            limits = self.tenants.get(one.tenant)
            policy = "estimate" if limits is None else limits.stale_policy
            charge = one.estimate
            if policy == "release":
                charge = NOTHING
            elif policy == "partial":
                tokens_in = one.estimate.tokens_in
                cost = in_proportion(one.estimate, tokens_in + one.progress)
                charge = Usage(tokens_in, one.progress, cost, 1)
            self.end(one, "expired", charge)
            done.append(Ended(one.tenant, one.request_id, policy, charge))
        return done

    def end(self, one: Reservation, state: str, charge: Usage) -> None:
        one.state = state
        one.charged = charge

    def remember(self, one: Reservation, usage_id: str | None, figures: Figures) -> None:
        if usage_id is not None:
            one.usage_ids[usage_id] = figures


def outcome(one: Reservation, *words: str) -> Outcome:
    return Outcome(frozenset(words), one.charged)


def figured(one: Reservation, figures: Figures) -> Usage:
    """Figures as a charge; none at all: the estimate; no cost: the estimate's in proportion."""
    tokens_in, tokens_out, cost = figures
    if tokens_in is None or tokens_out is None:
        return one.estimate
    if cost is None:
        cost = in_proportion(one.estimate, tokens_in + tokens_out)
    return Usage(tokens_in, tokens_out, cost, 1)


def in_proportion(estimate: Usage, tokens: int) -> int:
    """Cost x tokens / estimated tokens, rounded up; without estimated tokens its whole cost."""
    if estimate.tokens == 0:
        return estimate.cost
    return -(-estimate.cost * tokens // estimate.tokens)


def check_figures(figures: Figures) -> None:
    for value, top in zip(figures, (TOKENS_MAX, TOKENS_MAX, NANOS_MAX), strict=True):
        if value is not None and not 0 <= value <= top:
            raise Refused("QW002")
    if (figures[0] is None) != (figures[1] is None):
        raise Refused("QW002")
    if figures[0] is None and figures[2] is not None:
        raise Refused("QW002")
