"""What makes a new revision of a report."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from unit.roi_world import ONE, amounts, decimals, facts, part, peer
from worker.report.cells import Money, Quantity
from worker.report.corrections import Changed, Correction
from worker.report.detail import WHOLE
from worker.report.document import make_document
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


def test_an_outcome_that_is_called_as_a_figure_is_replaces_none() -> None:
    month = facts(part(amounts(30 * ONE, 1000)), outcomes=decimals(completions=3, cost_nanos=7))
    told = told_figures(summarize(month))
    own = told_figures(summarize(replace(month, outcomes={})))
    assert {name: told[name] for name in own} == own
    assert (told["metric:completions"], told["metric:cost_nanos"]) == ("3", "7")
    assert told["metric:completions.cost_per_one"] == str(10 * ONE)
    # and is told as what it is, under its own name
    changes = tuple(
        Changed(name, told[name], told[name]) for name in ("cost_nanos", "metric:cost_nanos")
    )
    table = make_document(summarize(month), "en", WHOLE, Correction(2, changes)).tables[0]
    assert [(row[0], row[1]) for row in table.rows] == [
        ("Cost", Money(Fraction(30 * ONE))),
        ("cost_nanos", Quantity(Fraction(7))),
    ]
