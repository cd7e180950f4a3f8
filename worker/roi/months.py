"""The month itself: its ledger lines, trend, budgets, shares and days."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from worker.periods import next_month, previous_month
from worker.roi.facts import NOTHING, UNNAMED, Month
from worker.roi.figures import Figure, Reason, Unknown, change, known, ratio
from worker.roi.gathering import grouped, total
from worker.roi.summary import (
    BudgetUse,
    Changes,
    Curve,
    CurvePoint,
    Ledger,
    LedgerKind,
    LedgerLine,
    Shares,
    TrendPoint,
)
from worker.roi.units import unit_figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date

    from worker.roi.facts import Amounts, Budget, Facts
    from worker.roi.gathering import Gathered

TREND_MONTHS: Final = 6  # the report's month is the last of them


def make_ledger(facts: Facts, gathered: Gathered) -> Ledger:
    """The month's own usage, with and without a department, and each adjusted month: their sum.

    The unpriced share is unpriced requests / completions of the month's own usage. Their cost is
    that of the uses (environment, model, app) that have some: all of it where every request of
    these is unpriced, else at most that.
    """
    sides = grouped(gathered.owners, lambda key: key[0] != UNNAMED)
    lines = [
        LedgerLine(LedgerKind.DEPARTMENTS, facts.month, sides.get(True, NOTHING)),
        *(
            LedgerLine(LedgerKind.ADJUSTMENT, of, gathered.adjustments[of])
            for of in sorted(gathered.adjustments)
        ),
    ]
    if False in sides:
        lines.insert(1, LedgerLine(LedgerKind.WITHOUT_DEPARTMENT, facts.month, sides[False]))
    own, adjustments = gathered.own, total(gathered.adjustments.values())
    unpriced = [one for one in gathered.uses.values() if one.unpriced_count]
    return Ledger(
        lines=tuple(lines),
        own=own,
        adjustments=adjustments,
        total=own + adjustments,
        unpriced_count=own.unpriced_count,
        unpriced_share=ratio(own.unpriced_count, own.completions, Reason.NO_USAGE),
        unpriced_cost_nanos=sum(one.cost_nanos for one in unpriced),
        unpriced_at_most=any(one.unpriced_count != one.completions for one in unpriced),
    )


def make_changes(facts: Facts, own: Amounts) -> Changes:
    """(now - before) / before of the months' own usage, the month before as it was told."""
    found = {one.month: one for one in facts.history}.get(previous_month(facts.month))
    if found is None:
        missing = Unknown(Reason.NO_MONTH_BEFORE)
        return Changes(missing, missing, missing, None)
    before = found.own
    return Changes(
        completions=change(known(own.completions), known(before.completions)),
        tokens=change(known(own.tokens), known(before.tokens)),
        cost=change(known(own.cost_nanos), known(before.cost_nanos)),
        before=before,
    )


def make_trend(facts: Facts, ledger: Ledger, metrics: Sequence[str]) -> tuple[TrendPoint, ...]:
    """Six months without a gap, this one last, each with its own usage's cost per outcome."""
    recorded = {one.month: one for one in facts.history}
    recorded[facts.month] = Month(facts.month, ledger.own, ledger.adjustments, facts.outcomes)
    points: list[TrendPoint] = []
    month = facts.month
    for _ in range(TREND_MONTHS):
        found = recorded.get(month)
        points.append(
            TrendPoint(
                month=month,
                own=found.own if found else None,
                adjustments=found.adjustments if found else None,
                units={
                    metric: unit_figures(
                        found.own if found else None,
                        found.outcomes.get(metric) if found else None,
                    )
                    for metric in metrics
                },
            )
        )
        month = previous_month(month)
    return tuple(reversed(points))


def make_shares(own: Amounts) -> Shares:
    """Shares of the month's own usage.

    stale: stale_count / completions, and stale_cost / cost. released: released_count /
    (completions + released_count). downgraded: downgraded_tokens / tokens. cached:
    cached_in_tokens / input_tokens.
    """
    requests = own.completions + own.released_count
    return Shares(
        stale_count=own.stale_count,
        stale_cost_nanos=own.stale_cost_nanos,
        stale_count_share=ratio(own.stale_count, own.completions, Reason.NO_USAGE),
        stale_cost_share=ratio(own.stale_cost_nanos, own.cost_nanos, Reason.NO_COST),
        released_count=own.released_count,
        released_share=ratio(own.released_count, requests, Reason.NO_USAGE),
        downgraded_count=own.downgraded_count,
        downgraded_tokens=own.downgraded_tokens,
        downgraded_token_share=ratio(own.downgraded_tokens, own.tokens, Reason.NO_USAGE),
        cached_share=ratio(own.cached_in_tokens, own.input_tokens, Reason.NO_USAGE),
    )


def budget_share(used: int, allowed: int | None) -> Figure:
    """Used / allowed; a budget of 0 reads as used up, as everywhere in the ledger."""
    if allowed is None:
        return Unknown(Reason.NO_BUDGET)
    return known(Fraction(used, allowed) if allowed > 0 else 1)


def make_budgets(facts: Facts, gathered: Gathered) -> tuple[BudgetUse, ...]:
    """Each environment's own usage / (budget + top-ups); of all: where there is that budget."""
    used = grouped(gathered.owners, lambda key: key[:2])
    environments = sorted(
        {environment for _, environment in used}
        | {environment for environment, _ in gathered.days}
        | {one.environment for one in facts.budgets}
    )
    return tuple(
        _budget_use(
            environment,
            [one for one in facts.budgets if one.environment == environment],
            {of: amounts for (of, where), amounts in used.items() if where == environment},
        )
        for environment in environments
    )


def _budget_use(environment: str, budgets: Sequence[Budget], used: dict[str, Amounts]) -> BudgetUse:
    by_tokens = [one for one in budgets if one.tokens is not None]
    by_cost = [one for one in budgets if one.cost_nanos is not None]
    tokens = total(used.get(one.department_id, NOTHING) for one in by_tokens).tokens
    cost = total(used.get(one.department_id, NOTHING) for one in by_cost).cost_nanos
    whole = total(used.values())
    # a top-up never turns a budget that isn't there into a limit
    token_limit = _sum((one.tokens or 0) + one.topup_tokens for one in by_tokens)
    cost_limit = _sum((one.cost_nanos or 0) + one.topup_cost_nanos for one in by_cost)
    return BudgetUse(
        environment=environment,
        tokens_used=tokens if by_tokens else whole.tokens,
        tokens_allowed=token_limit,
        tokens_share=budget_share(tokens, token_limit),
        cost_used_nanos=cost if by_cost else whole.cost_nanos,
        cost_allowed_nanos=cost_limit,
        cost_share=budget_share(cost, cost_limit),
        topup_tokens=sum(one.topup_tokens for one in by_tokens),
        topup_cost_nanos=sum(one.topup_cost_nanos for one in by_cost),
        departments_with_tokens=len(by_tokens),
        departments_with_cost=len(by_cost),
    )


def _sum(numbers: Iterable[int]) -> int | None:
    found = list(numbers)
    return sum(found) if found else None


def make_curves(
    facts: Facts, gathered: Gathered, budgets: Iterable[BudgetUse]
) -> tuple[Curve, ...]:
    """Each environment that has days: every day up to the last that has begun, usage or not.

    An even day is the cap / the month's days. In the report of all a cap is shown only where
    every department with usage has one.
    """
    return tuple(
        _curve(facts, gathered, use, _covers(facts, gathered, use))
        for use in budgets
        if any(environment == use.environment for environment, _ in gathered.days)
    )


def _covers(facts: Facts, gathered: Gathered, use: BudgetUse) -> tuple[bool, bool]:
    """Whether the environment's token and cost budgets are of all whose usage the days have."""
    users = {of for of, environment, _ in gathered.owners if environment == use.environment}
    here = [one for one in facts.budgets if one.environment == use.environment]
    return (
        users <= {one.department_id for one in here if one.tokens is not None},
        users <= {one.department_id for one in here if one.cost_nanos is not None},
    )


def _curve(facts: Facts, gathered: Gathered, use: BudgetUse, covers: tuple[bool, bool]) -> Curve:
    after = next_month(facts.month)
    mine = {
        day: amounts for (where, day), amounts in gathered.days.items() if where == use.environment
    }
    end = max(facts.through or after - timedelta(days=1), *mine)
    points: list[CurvePoint] = []
    tokens = cost = 0
    for number in range((end - facts.month).days + 1):
        day: date = facts.month + timedelta(days=number)
        amounts = mine.get(day, NOTHING)
        tokens += amounts.tokens
        cost += amounts.cost_nanos
        points.append(CurvePoint(day, amounts.tokens, amounts.cost_nanos, tokens, cost))
    token_cap = use.tokens_allowed if covers[0] else None
    cost_cap = use.cost_allowed_nanos if covers[1] else None
    length = (after - facts.month).days

    def even(cap: int | None) -> Figure:
        return Unknown(Reason.NO_BUDGET) if cap is None else known(Fraction(cap, length))

    return Curve(
        environment=use.environment,
        points=tuple(points),
        cost_cap_nanos=cost_cap,
        token_cap=token_cap,
        even_cost_nanos=even(cost_cap),
        even_tokens=even(token_cap),
        rest=total(one for key, one in gathered.owners.items() if key[1] == use.environment)
        - total(mine.values()),
    )
