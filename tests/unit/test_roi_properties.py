"""Random months: sums to the nano, any order, and every figure against a spreadsheet's way."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from unit.roi_world import OCTOBER, SEPTEMBER, months
from worker.roi.facts import AMOUNT_NAMES, Amounts, Facts, Peer
from worker.roi.figures import Figure, Known, Reason, Unknown
from worker.roi.formulas import evaluate
from worker.roi.gathering import total
from worker.roi.report import summarize
from worker.roi.splits import TOP_APPS, TOP_MODELS, TOP_TENANTS
from worker.roi.summary import LineKind, Split, Summary, UnitFigures

MANY = 2_000 if os.environ.get("QUOTA_WORKER_LONG") else 40


def summed(many: Iterable[Amounts]) -> Amounts:
    """Column by column, as a spreadsheet would: not by the module's own sum."""
    rows = list(many)
    return Amounts(**{name: sum(getattr(row, name) for row in rows) for name in AMOUNT_NAMES})


def own(facts: Facts) -> list:
    return [part for part in facts.parts if part.belongs_to == facts.month]


def splits(summary: Summary) -> dict[str, Split]:
    found = {
        "app": summary.splits.apps,
        "model": summary.splits.models,
        "environment": summary.splits.environments,
        "tenant_id": summary.splits.tenants,
    }
    if summary.splits.departments is not None:
        found["department_id"] = summary.splits.departments
    return found


def lines_and_splits_add_up_to_the_parts(facts: Facts, summary: Summary) -> None:
    assert summary.ledger.total == summed(part.amounts for part in facts.parts)
    assert summary.ledger.total == summed(line.amounts for line in summary.ledger.lines)
    assert summary.ledger.own == summed(part.amounts for part in own(facts))
    for label, split in splits(summary).items():
        assert split.total == summary.ledger.own, label
        assert summed(line.amounts for line in split.lines) == split.total, label
        assert summed(line.amounts for line in split.every) == split.total, label
        keys = Counter(getattr(part, label) for part in own(facts))
        assert sum(line.members for line in split.lines) == len(keys), label
        assert {line.key for line in split.every} == set(keys), label
        for line in split.every:
            mine = [one.amounts for one in own(facts) if getattr(one, label) == line.key]
            assert line.amounts == summed(mine)
            assert (line.kind == LineKind.UNNAMED) == (line.key == "")
    assert len(summary.splits.apps.lines) <= TOP_APPS + 2
    assert len(summary.splits.models.lines) <= TOP_MODELS + 2
    assert len(summary.splits.tenants.lines) <= TOP_TENANTS + 1


def the_order_of_anything_changes_nothing(
    facts: Facts, summary: Summary, chance: random.Random
) -> None:
    def shuffled(many: Iterable) -> tuple:
        return tuple(chance.sample(list(many), len(list(many))))

    again = replace(
        facts,
        parts=shuffled(facts.parts),
        days=iter(shuffled(facts.days)),  # read once
        budgets=shuffled(facts.budgets),
        history=shuffled(facts.history),
        peers=shuffled(facts.peers),
        prices=shuffled(facts.prices),
        outcomes=dict(shuffled(facts.outcomes.items())),
    )
    assert summarize(again) == summary


def a_part_in_pieces_is_the_same(facts: Facts, summary: Summary, pieces: int) -> None:
    split = []
    for part in facts.parts:
        share = Amounts(*(getattr(part.amounts, name) // pieces for name in AMOUNT_NAMES))
        split += [replace(part, amounts=share)] * (pieces - 1)
        rest = part.amounts - total([share] * (pieces - 1))
        split.append(replace(part, amounts=rest))
    assert summarize(replace(facts, parts=tuple(split))) == summary


def cell(dividend: object, divisor: object) -> Fraction | None:
    """=IFERROR(dividend / divisor, ""), and nothing for a divisor below 0."""
    if dividend is None or divisor is None or Fraction(divisor) <= 0:  # type: ignore[arg-type]
        return None
    return Fraction(dividend) / Fraction(divisor)  # type: ignore[arg-type]


def sheet(amounts: Amounts | None, outcome: object) -> list[Fraction | None]:
    """The columns value, cost per one, per million tokens, per unit of currency."""
    value = None if outcome is None else Fraction(outcome)  # type: ignore[arg-type]
    if amounts is None:
        return [value, None, None, None]
    tokens = amounts.input_tokens + amounts.output_tokens
    used = bool(tokens or amounts.completions or amounts.cost_nanos)
    money = Fraction(amounts.cost_nanos, 10**9)
    return [
        value,
        cell(amounts.cost_nanos, value) if used else None,
        cell(value, Fraction(tokens, 10**6)),
        cell(value, money),
    ]


def columns(figures: UnitFigures) -> list[Figure]:
    return [
        figures.value,
        figures.cost_per_one,
        figures.per_million_tokens,
        figures.per_cost_unit,
    ]


def figures_are_those_of_a_spreadsheet(facts: Facts, summary: Summary) -> None:
    mine = summed(part.amounts for part in own(facts))
    before = next((one for one in facts.history if one.month == SEPTEMBER), None)
    for metric in summary.metrics:
        now = sheet(mine, facts.outcomes.get(metric.metric))
        then = sheet(
            before.own if before else None, before.outcomes.get(metric.metric) if before else None
        )
        assert [one.value for one in columns(metric.now)] == now
        assert [one.value for one in columns(metric.before)] == then
        assert [one.value for one in columns(metric.change)] == [
            None if a is None or b is None else cell(a - b, b)
            for a, b in zip(now, then, strict=True)
        ]
    for point in summary.trend[:-1]:
        month = next((one for one in facts.history if one.month == point.month), None)
        for name, units in point.units.items():
            outcome = month.outcomes.get(name) if month else None
            assert [one.value for one in columns(units)] == sheet(month and month.own, outcome)
    tokens = mine.input_tokens + mine.output_tokens
    assert summary.cost_per_million_tokens.value == cell(mine.cost_nanos, Fraction(tokens, 10**6))
    shares = summary.shares
    assert shares.stale_count_share.value == cell(mine.stale_count, mine.completions)
    assert shares.stale_cost_share.value == cell(mine.stale_cost_nanos, mine.cost_nanos)
    requests = mine.completions + mine.released_count
    assert shares.released_share.value == cell(mine.released_count, requests)
    assert shares.downgraded_token_share.value == cell(mine.downgraded_tokens, tokens)
    assert shares.cached_share.value == cell(mine.cached_in_tokens, mine.input_tokens)
    assert summary.ledger.unpriced_share.value == cell(mine.unpriced_count, mine.completions)
    if before is not None:
        assert summary.changes.cost.value == cell(
            mine.cost_nanos - before.own.cost_nanos, before.own.cost_nanos
        )
    for split in splits(summary).values():
        for line in split.lines:
            assert line.cost_share.value == cell(line.amounts.cost_nanos, mine.cost_nanos)
            assert line.token_share.value == cell(line.amounts.tokens, tokens)


def budgets_and_days_are_those_of_a_spreadsheet(facts: Facts, summary: Summary) -> None:
    for use in summary.budgets:
        here = [one for one in facts.budgets if one.environment == use.environment]
        limited = [one for one in here if one.cost_nanos is not None]
        spent = sum(
            part.amounts.cost_nanos
            for part in own(facts)
            if part.environment == use.environment
            and (not limited or part.department_id in {one.department_id for one in limited})
        )
        assert use.cost_used_nanos == spent
        if not limited:
            assert (use.cost_allowed_nanos, use.cost_share) == (None, Unknown(Reason.NO_BUDGET))
            continue
        allowed = sum((one.cost_nanos or 0) + one.topup_cost_nanos for one in limited)
        assert use.cost_allowed_nanos == allowed
        assert use.cost_share == Known(Fraction(spent, allowed) if allowed else Fraction(1))
    assert {curve.environment for curve in summary.curves} == {d.environment for d in facts.days}
    for curve in summary.curves:
        mine = [day for day in facts.days if day.environment == curve.environment]
        assert [point.day for point in curve.points] == [
            OCTOBER + timedelta(days=n) for n in range(31)
        ]
        used = [one.amounts for one in own(facts) if one.environment == curve.environment]
        assert curve.rest == summed(used) - summed(day.amounts for day in mine)
        for point in curve.points:
            assert point.cost_nanos == sum(d.amounts.cost_nanos for d in mine if d.day == point.day)
            assert point.tokens_so_far == sum(
                d.amounts.input_tokens + d.amounts.output_tokens for d in mine if d.day <= point.day
            )
        if curve.cost_cap_nanos is not None:
            assert curve.even_cost_nanos == Known(Fraction(curve.cost_cap_nanos, 31))


def unit_cost(amounts: Amounts | None, outcomes: dict, measure: str) -> Fraction | None:
    """Cost per million tokens, or per one of the metric; None where it can't be computed."""
    if amounts is None:
        return None
    if measure == "":
        return cell(amounts.cost_nanos, Fraction(amounts.tokens, 10**6))
    return sheet(amounts, outcomes.get(measure))[1]


def are_too_few(one: Peer, measure: str) -> bool:
    """Whether one of the two months has less than a place needs."""
    if min(one.now.completions, one.before.completions) < 100:
        return True
    outcomes = one.outcomes_now, one.outcomes_before
    return bool(measure) and min(each[measure] for each in outcomes) < 30


def ranks_and_medians_are_those_of_a_sorted_list(facts: Facts, summary: Summary) -> None:
    mine = summed(part.amounts for part in own(facts))
    tickets = any("tickets" in one.outcomes_now for one in facts.peers)
    measures = ["", "orders", "gmv", "tickets"][: 4 if tickets else 3]
    assert [one.measure for one in summary.standings] == measures
    for standing in summary.standings:
        now = [unit_cost(one.now, dict(one.outcomes_now), standing.measure) for one in facts.peers]
        costs = sorted(value for value in now if value is not None)
        assert standing.of == len(costs)
        own_cost = (
            unit_cost(mine, dict(facts.outcomes), standing.measure) if facts.department else None
        )
        assert standing.own.value == own_cost
        if own_cost is None:
            assert standing.rank is None
        else:
            assert standing.rank == 1 + sum(cost < own_cost for cost in costs)
        if standing.median.value is not None:
            middle = costs[(len(costs) - 1) // 2] + costs[len(costs) // 2]
            assert standing.median.value == middle / 2


def improvements_are_those_of_a_sorted_list(facts: Facts, summary: Summary) -> None:
    for standing, incentives in zip(summary.standings, summary.incentives, strict=True):
        fell, too_few = {}, 0
        for one in facts.peers:
            now = unit_cost(one.now, dict(one.outcomes_now), standing.measure)
            then = unit_cost(one.before, dict(one.outcomes_before), standing.measure)
            if now is not None and then is not None and then > 0:
                if are_too_few(one, standing.measure):
                    too_few += 1
                else:
                    fell[one.department_id] = (then - now) / then
        assert (incentives.of, incentives.too_few) == (len(fell), too_few)
        for line in incentives.lines:
            assert line.improvement == fell[line.department_id]
            assert line.rank == 1 + sum(other > line.improvement for other in fell.values())
        assert [line.rank for line in incentives.lines] == sorted(x.rank for x in incentives.lines)
        assert (incentives.own is not None) == bool(facts.department and "d" in fell)


def a_suggestion_is_its_formula(facts: Facts, summary: Summary) -> None:
    for one in summary.suggestions:
        names = {number.name: number.value for number in one.numbers}
        assert evaluate(one.formula, names) == one.saving_nanos
        # by Python itself, as a second reader of the same text
        assert eval(one.formula, {}, names) == one.saving_nanos  # noqa: S307  the module's own text
        assert one.saving_nanos * 100 >= summary.ledger.own.cost_nanos > 0
        assert all(name in one.formula for name in names)


def a_month_without_usage_has_reasons_and_no_figures(facts: Facts, month: date) -> None:
    empty = replace(facts, month=month, parts=(), days=(), history=())
    summary = summarize(empty)
    assert summary.ledger.total == Amounts()
    assert summary.cost_per_million_tokens == Unknown(Reason.NO_USAGE)
    assert summary.suggestions == summary.curves == ()
    assert all(split.lines == () for split in splits(summary).values())
    for metric in summary.metrics:
        figures = columns(metric.now)[1:]
        told = metric.metric in facts.outcomes
        assert set(figures) == {Unknown(Reason.NO_USAGE if told else Reason.NO_OUTCOMES)}
    assert len(summary.trend) == 6
    assert [point.own for point in summary.trend[:-1]] == [None] * 5
    assert summary.changes.cost == Unknown(Reason.NO_MONTH_BEFORE)


@settings(max_examples=MANY, deadline=None, database=None)
@given(
    months(),
    st.randoms(use_true_random=False),
    st.integers(2, 5),
    st.sampled_from([date(2026, 2, 1), date(2024, 2, 1), date(2026, 12, 1)]),
)
def test_a_random_month_holds_all_that_must_hold(
    facts: Facts, chance: random.Random, pieces: int, other: date
) -> None:
    """One draw for all, as drawing takes longer than any of them."""
    summary = summarize(facts)
    lines_and_splits_add_up_to_the_parts(facts, summary)
    figures_are_those_of_a_spreadsheet(facts, summary)
    budgets_and_days_are_those_of_a_spreadsheet(facts, summary)
    ranks_and_medians_are_those_of_a_sorted_list(facts, summary)
    improvements_are_those_of_a_sorted_list(facts, summary)
    a_suggestion_is_its_formula(facts, summary)
    the_order_of_anything_changes_nothing(facts, summary, chance)
    a_part_in_pieces_is_the_same(facts, summary, pieces)
    a_month_without_usage_has_reasons_and_no_figures(facts, other)
