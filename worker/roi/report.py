"""A month's facts become the summary that every form of the report shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.roi.checks import check_facts
from worker.roi.gathering import gather
from worker.roi.months import (
    make_budgets,
    make_changes,
    make_curves,
    make_ledger,
    make_shares,
    make_trend,
)
from worker.roi.ranking import compare, make_above, make_incentives, make_places, make_standings
from worker.roi.splits import make_splits
from worker.roi.suggestions import make_suggestions
from worker.roi.summary import Summary
from worker.roi.units import cost_per_million_tokens, make_metrics, name_metrics

if TYPE_CHECKING:
    from worker.roi.facts import Facts
    from worker.roi.gathering import Gathered
    from worker.roi.ranking import Comparison


def summarize(
    facts: Facts, comparison: Comparison | None = None, gathered: Gathered | None = None
) -> Summary:
    """Computes all figures, exactly; reads the facts' parts and days once.

    ``comparison``: of the facts' peers, where it was made for other reports of the same month
    (``compare``); None: it is made here. ``gathered``: parts and days that were summed up as they
    were read, instead of the facts' own. Raises ValueError for facts that contradict
    themselves, such as a part of another department or month.
    """
    check_facts(facts)
    if gathered is None:
        gathered = gather(facts)
    own = gathered.own
    if comparison is None:
        comparison = compare(facts.peers)
    metrics, left_out = name_metrics(facts, comparison.metrics)
    comparison = comparison.of(metrics)
    ledger = make_ledger(facts, gathered)
    budgets = make_budgets(facts, gathered)
    return Summary(
        month=facts.month,
        zone=facts.zone,
        currency=facts.currency,
        provisional=facts.provisional,
        department=facts.department,
        ledger=ledger,
        changes=make_changes(facts, own),
        trend=make_trend(facts, ledger, metrics),
        budgets=budgets,
        cost_per_million_tokens=cost_per_million_tokens(own),
        outcomes=dict(facts.outcomes),
        metrics=make_metrics(facts, own, metrics),
        splits=make_splits(facts, gathered),
        shares=make_shares(own),
        curves=make_curves(facts, gathered, budgets),
        standings=make_standings(facts, own, comparison),
        incentives=make_incentives(facts, comparison),
        above_peers=make_above(facts, comparison),
        places=make_places(facts, comparison, gathered),
        suggestions=make_suggestions(facts, gathered),
        metrics_left_out=tuple(left_out),
    )
