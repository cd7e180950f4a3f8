"""What one outcome cost, and what was got for it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from worker.money import NANOS_PER_UNIT
from worker.periods import previous_month
from worker.roi.figures import TOKENS_PER_MILLION, Reason, Unknown, change, known, ratio
from worker.roi.summary import MetricFigures, UnitFigures

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from worker.roi.facts import Amounts, Facts
    from worker.roi.figures import Figure

METRICS_MAX: Final = 12
USUAL_METRICS: Final = ("orders", "gmv")  # told also where nobody imported them


def is_used(amounts: Amounts) -> bool:
    """Whether there was any usage."""
    return (amounts.completions, amounts.tokens, amounts.cost_nanos) != (0, 0, 0)


def cost_per_million_tokens(amounts: Amounts) -> Figure:
    """Nanos: cost * 1,000,000 / (input + output tokens)."""
    return ratio(amounts.cost_nanos * TOKENS_PER_MILLION, amounts.tokens, Reason.NO_USAGE)


def cost_per_one(amounts: Amounts, outcome: Decimal | None) -> Figure:
    """Nanos: cost / outcome. A month without usage has none, though its cost is 0."""
    if outcome is None:
        return Unknown(Reason.NO_OUTCOMES)
    if not is_used(amounts):
        return Unknown(Reason.NO_USAGE)
    return ratio(amounts.cost_nanos, outcome, Reason.OUTCOME_ZERO)


def outcome_per_million_tokens(amounts: Amounts, outcome: Decimal | None) -> Figure:
    """Outcome for a million tokens: outcome * 1,000,000 / (input + output tokens)."""
    if outcome is None:
        return Unknown(Reason.NO_OUTCOMES)
    return ratio(Fraction(outcome) * TOKENS_PER_MILLION, amounts.tokens, Reason.NO_USAGE)


def outcome_per_cost_unit(amounts: Amounts, outcome: Decimal | None) -> Figure:
    """Outcome for one unit of the billing currency: outcome * 1,000,000,000 / cost in nanos."""
    if outcome is None:
        return Unknown(Reason.NO_OUTCOMES)
    if not is_used(amounts):
        return Unknown(Reason.NO_USAGE)
    return ratio(Fraction(outcome) * NANOS_PER_UNIT, amounts.cost_nanos, Reason.NO_COST)


def unit_figures(
    amounts: Amounts | None, outcome: Decimal | None, otherwise: Reason = Reason.NOT_RECORDED
) -> UnitFigures:
    """All of a month's figures of one metric; ``otherwise``: why, where ``amounts`` is None."""
    value = Unknown(Reason.NO_OUTCOMES) if outcome is None else known(outcome)
    if amounts is None:
        missing = Unknown(otherwise)
        return UnitFigures(value, missing, missing, missing)
    return UnitFigures(
        value=value,
        cost_per_one=cost_per_one(amounts, outcome),
        per_million_tokens=outcome_per_million_tokens(amounts, outcome),
        per_cost_unit=outcome_per_cost_unit(amounts, outcome),
    )


def metric_figures(
    metric: str, now: tuple[Amounts, Decimal | None], before: tuple[Amounts | None, Decimal | None]
) -> MetricFigures:
    """A metric's figures of both months, each with its change: (now - before) / before."""
    these, those = unit_figures(*now), unit_figures(*before, Reason.NO_MONTH_BEFORE)
    return MetricFigures(
        metric=metric,
        now=these,
        before=those,
        change=UnitFigures(
            value=change(these.value, those.value),
            cost_per_one=change(these.cost_per_one, those.cost_per_one),
            per_million_tokens=change(these.per_million_tokens, those.per_million_tokens),
            per_cost_unit=change(these.per_cost_unit, those.per_cost_unit),
        ),
    )


def make_metrics(facts: Facts, own: Amounts, metrics: Iterable[str]) -> tuple[MetricFigures, ...]:
    """Of each metric, against the month before as it was told."""
    before = {one.month: one for one in facts.history}.get(previous_month(facts.month))
    return tuple(
        metric_figures(
            metric,
            (own, facts.outcomes.get(metric)),
            (before.own, before.outcomes.get(metric)) if before else (None, None),
        )
        for metric in metrics
    )


def name_metrics(facts: Facts, compared: Iterable[str]) -> tuple[list[str], list[str]]:
    """Which metrics a report shows, and which are too many.

    orders and gmv always, then those of the month itself, then those that only other months or
    departments have, each by name.
    """
    others = {name for month in facts.history for name in month.outcomes}
    others.update(compared)
    names = list(dict.fromkeys((*USUAL_METRICS, *sorted(facts.outcomes), *sorted(others))))
    return names[:METRICS_MAX], sorted(names[METRICS_MAX:])
