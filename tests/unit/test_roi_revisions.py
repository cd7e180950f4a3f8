"""What makes a new revision of a report."""

from __future__ import annotations

from dataclasses import replace

from unit.roi_world import ONE, amounts, decimals, facts, part, peer
from worker.roi.report import summarize
from worker.roi.revisions import fingerprint, told_figures


def test_a_revision_is_judged_by_the_months_own_figures_alone() -> None:
    known = facts(part(amounts(30 * ONE, 1000)), outcomes=decimals(orders=3))
    told = told_figures(summarize(known))
    assert told["orders.cost_per_one"] == str(10 * ONE)
    assert told["production.budget_cost_used"] == "no_budget"
    beside = replace(
        known,
        peers=(peer("d", amounts(1)), peer("e", amounts(2), outcomes_now=decimals(tickets=5))),
    )
    assert fingerprint(told_figures(summarize(beside))) == fingerprint(told)
    other = told_figures(summarize(replace(known, outcomes=decimals(orders=4))))
    assert {name for name in told if told[name] != other[name]} == {
        "orders", "orders.cost_per_one", "orders.per_million_tokens", "orders.per_cost_unit"
    }  # fmt: skip
    assert fingerprint(other) != fingerprint(told)
