"""The ROI report's figures one by one: values by hand, and the reasons where there is none."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

import pytest

from unit.roi_world import (
    MILLION,
    OCTOBER,
    ONE,
    SEPTEMBER,
    amounts,
    decimals,
    facts,
    part,
    peer,
)
from worker.roi.facts import Amounts, Budget, Day, Facts, Month, Price
from worker.roi.figures import (
    Known,
    Reason,
    Unknown,
    change,
    known,
    positive,
    ratio,
    rounded,
)
from worker.roi.report import summarize
from worker.roi.splits import TOP_APPS, TOP_TENANTS
from worker.roi.summary import LedgerKind, LineKind
from worker.roi.units import METRICS_MAX, unit_figures

AUGUST = date(2026, 8, 1)
TENTH = date(2026, 10, 10)


def test_a_month_by_hand() -> None:
    # 12.00 for 4 million tokens, 300 orders, 9,000 of GMV; the month before 8.00, 2 million, 160
    summary = summarize(
        facts(
            part(amounts(12 * ONE, 4 * MILLION, n=1_000)),
            outcomes=decimals(orders=300, gmv="9000.50"),
            history=(
                Month(SEPTEMBER, amounts(8 * ONE, 2 * MILLION), outcomes=decimals(orders=160)),
            ),
        )
    )
    orders, gmv = summary.metrics
    assert (orders.metric, gmv.metric) == ("orders", "gmv")
    assert orders.now.cost_per_one == known(40_000_000)  # 0.04
    assert orders.now.per_million_tokens == known(75)
    assert orders.now.per_cost_unit == known(25)
    assert orders.before.cost_per_one == known(50_000_000)
    assert orders.change.cost_per_one == known(Fraction(-1, 5))
    assert orders.change.per_million_tokens == known(Fraction(-1, 16))
    assert orders.change.value == known(Fraction(140, 160))
    assert gmv.now.per_cost_unit == known(Fraction("9000.50") / 12)
    assert gmv.before.value == Unknown(Reason.NO_OUTCOMES)
    assert gmv.change.per_cost_unit == Unknown(Reason.NO_OUTCOMES_BEFORE)
    assert summary.changes.cost == known(Fraction(1, 2))
    assert summary.changes.tokens == known(1)
    assert summary.cost_per_million_tokens == known(3 * ONE)


@pytest.mark.parametrize(
    ("what", "outcome", "expected"),
    [
        (amounts(5, 5), None, ["no_outcomes"] * 4),
        (amounts(5, 5), "0", ["0", "outcome_zero", "0", "0"]),
        (Amounts(), "7", ["7", "no_usage", "no_usage", "no_usage"]),
        (Amounts(), None, ["no_outcomes"] * 4),
        # a model that costs nothing: an order costs 0 indeed
        (amounts(0, 500_000), "7", ["7", "0", "14", "no_cost"]),
        # charges that count no tokens
        (amounts(ONE, 0), "2", ["2", "500000000", "no_usage", "2"]),
        # corrections beyond the usage
        (amounts(-ONE, 0), "2", ["2", "-500000000", "no_usage", "no_cost"]),
        (None, "7", ["7", "not_recorded", "not_recorded", "not_recorded"]),
    ],
)
def test_a_figure_that_can_not_be_computed_says_why(
    what: Amounts | None, outcome: str | None, expected: list[str]
) -> None:
    figures = unit_figures(what, None if outcome is None else Decimal(outcome))
    found = [
        figures.value,
        figures.cost_per_one,
        figures.per_million_tokens,
        figures.per_cost_unit,
    ]
    assert [str(one.value if one.reason is None else one.reason) for one in found] == expected


def test_a_department_without_outcomes_is_told_so_for_the_metrics_of_others() -> None:
    others = peer("e", amounts(1, 1), outcomes_now=decimals(tickets=3))
    summary = summarize(facts(part(amounts(1, 1)), peers=(others,)))
    assert [one.metric for one in summary.metrics] == ["orders", "gmv", "tickets"]
    assert {one.now.cost_per_one for one in summary.metrics} == {Unknown(Reason.NO_OUTCOMES)}


def test_more_metrics_than_are_shown_are_named() -> None:
    mine = decimals(**{f"m{n:02}": n + 1 for n in range(15)})
    summary = summarize(facts(part(amounts(1, 1)), outcomes=mine))
    shown = [one.metric for one in summary.metrics]
    assert len(shown) == METRICS_MAX
    assert sorted({*shown, *summary.metrics_left_out}) == sorted({"orders", "gmv", *mine})
    assert len(summary.metrics_left_out) == 5


def test_nothing_divides_by_zero_or_less() -> None:
    assert positive(0) is positive(-3) is positive(Decimal("-0.0")) is None
    assert ratio(1, 0, Reason.NO_COST) == Unknown(Reason.NO_COST)
    assert ratio(Decimal("0.1"), 3, Reason.NO_COST) == Known(Fraction(1, 30))
    assert change(known(5), known(0)) == Unknown(Reason.NOTHING_BEFORE)
    assert change(known(5), Unknown(Reason.NO_USAGE)) == Unknown(Reason.NOTHING_BEFORE)
    assert change(known(5), Unknown(Reason.NO_MONTH_BEFORE)) == Unknown(Reason.NO_MONTH_BEFORE)
    # this month's own reason goes first
    assert change(Unknown(Reason.NO_COST), Unknown(Reason.NO_USAGE)) == Unknown(Reason.NO_COST)


@pytest.mark.parametrize(
    ("value", "places", "expected"),
    [
        (Fraction(1, 3), 4, "0.3333"),
        (Fraction(5, 2), 0, "2"),
        (Fraction(7, 2), 0, "4"),
        (Fraction(-1, 8), 2, "-0.12"),
        (Fraction(10**40, 3), 1, "3" * 40 + ".3"),
        (7, 2, "7.00"),
        (Fraction(1, 10**30), 12, "0.000000000000"),
    ],
)
def test_rounding_is_for_showing_and_to_the_even(
    value: Fraction, places: int, expected: str
) -> None:
    assert f"{rounded(value, places):f}" == expected


def test_rounding_has_bounds() -> None:
    with pytest.raises(InvalidOperation):
        rounded(Fraction(10**201), 0)
    with pytest.raises(ValueError, match="places must be 0 to 12, not 13"):
        rounded(1, 13)


def test_the_extremes_that_pass_can_be_shown() -> None:
    least, most = decimals(orders="1e-40"), decimals(orders="9e40")
    huge = amounts(10**30, 10**30)
    for now, then, this, that in (
        (huge, amounts(1, 1), least, most),
        (amounts(1, 1), huge, most, least),
    ):
        summary = summarize(
            facts(part(now), outcomes=this, history=(Month(SEPTEMBER, then, outcomes=that),))
        )
        orders = summary.metrics[0]
        for figures in (orders.now, orders.before, orders.change):
            for figure in (figures.cost_per_one, figures.per_million_tokens, figures.per_cost_unit):
                assert figure.value is not None
                assert rounded(figure.value, 12).is_finite()


def test_the_ledger_s_lines_are_the_total_to_the_nano() -> None:
    summary = summarize(
        facts(
            part(amounts(700, 70)),
            part(amounts(31, 3, unpriced_count=1), department_id="", tenant_id="lost"),
            part(amounts(-11, -1), belongs_to=SEPTEMBER),
            part(amounts(5, 1), belongs_to=AUGUST),
            part(amounts(2, 1), belongs_to=AUGUST, department_id="e"),
            department=None,
        )
    )
    ledger = summary.ledger
    assert [(line.kind, line.belongs_to, line.amounts.cost_nanos) for line in ledger.lines] == [
        (LedgerKind.DEPARTMENTS, OCTOBER, 700),
        (LedgerKind.WITHOUT_DEPARTMENT, OCTOBER, 31),
        (LedgerKind.ADJUSTMENT, AUGUST, 7),
        (LedgerKind.ADJUSTMENT, SEPTEMBER, -11),
    ]
    assert ledger.total.cost_nanos == 727
    assert (ledger.own.cost_nanos, ledger.adjustments.cost_nanos) == (731, -4)
    assert (ledger.unpriced_count, ledger.unpriced_share) == (1, known(Fraction(1, 2)))
    # figures of the month leave out what belongs to others
    assert summary.splits.tenants.total == ledger.own
    departments = summary.splits.departments
    assert departments is not None
    assert [(line.kind, line.key) for line in departments.lines] == [
        (LineKind.NAMED, "d"),
        (LineKind.UNNAMED, ""),
    ]


def test_forty_apps_and_thousands_of_tenants_end_in_one_line() -> None:
    parts = [
        part(amounts(n + 1, n), app=f"a{n % 40}" * 50, tenant_id=f"t{n}") for n in range(1_000)
    ]
    parts.append(part(amounts(10**9), app=""))
    splits = summarize(facts(*parts)).splits
    kinds = [line.kind for line in splits.apps.lines]
    assert kinds == [LineKind.NAMED] * TOP_APPS + [LineKind.UNNAMED, LineKind.OTHERS]
    assert splits.apps.lines[-1].members == 40 - TOP_APPS
    assert len(splits.apps.every) == 41
    assert [line.key for line in splits.tenants.lines[:3]] == ["t", "t999", "t998"]
    assert splits.tenants.lines[-1].members == 1_001 - TOP_TENANTS
    assert sum(line.amounts.cost_nanos for line in splits.tenants.lines) == sum(
        one.amounts.cost_nanos for one in parts
    )
    # a single one left over is named rather than called others
    few = summarize(facts(*(part(amounts(1), app=f"a{n}") for n in range(TOP_APPS + 1))))
    assert {line.kind for line in few.splits.apps.lines} == {LineKind.NAMED}


def test_equals_stand_by_tokens_then_by_name() -> None:
    split = summarize(
        facts(
            part(amounts(5, 1), app="b"), part(amounts(5, 1), app="a"), part(amounts(5, 2), app="c")
        )
    ).splits.apps
    assert [line.key for line in split.lines] == ["c", "a", "b"]
    assert {line.cost_share for line in split.lines} == {known(Fraction(1, 3))}


def test_the_trend_has_six_months_without_a_gap() -> None:
    january = date(2026, 1, 1)
    summary = summarize(
        facts(
            part(amounts(3), belongs_to=january),
            month=january,
            outcomes=decimals(orders=3),
            history=(
                Month(date(2025, 12, 1), Amounts()),
                Month(date(2025, 10, 1), amounts(7), amounts(-2), decimals(orders=2)),
                Month(date(2025, 7, 1), amounts(9)),
            ),
        )
    )
    assert [(f"{p.month:%Y-%m}", p.own and p.own.cost_nanos) for p in summary.trend] == [
        ("2025-08", None),
        ("2025-09", None),
        ("2025-10", 7),
        ("2025-11", None),
        ("2025-12", 0),
        ("2026-01", 3),
    ]
    assert summary.trend[2].adjustments == amounts(-2)
    orders = [point.units["orders"].cost_per_one for point in summary.trend]
    assert orders[0] == Unknown(Reason.NOT_RECORDED)
    assert orders[2:] == [
        known(Fraction(7, 2)),
        Unknown(Reason.NOT_RECORDED),
        Unknown(Reason.NO_OUTCOMES),
        known(1),
    ]
    assert summary.metrics[0].before.cost_per_one == Unknown(Reason.NO_OUTCOMES)
    assert summary.metrics[0].change.cost_per_one == Unknown(Reason.NO_OUTCOMES_BEFORE)
    assert summary.changes.before == Amounts()
    assert summary.changes.cost == Unknown(Reason.NOTHING_BEFORE)


def test_budgets_with_top_ups_without_a_limit_and_of_nothing() -> None:
    parts = (
        part(amounts(60, 900)),
        part(amounts(5, 5), environment="test"),
        part(amounts(10**6, 10**6), belongs_to=SEPTEMBER),
    )
    production, test = summarize(
        facts(
            *parts,
            budgets=(
                Budget("d", "production", None, 100, topup_tokens=50, topup_cost_nanos=20),
                Budget("d", "test", 0, 0),
            ),
        )
    ).budgets
    assert production.cost_share == known(Fraction(60, 120))
    # a top-up makes no limit of none
    assert (production.tokens_allowed, production.tokens_share) == (
        None,
        Unknown(Reason.NO_BUDGET),
    )
    # as v_department_status has it: a budget of 0 is used up
    assert (test.cost_allowed_nanos, test.cost_share, test.tokens_share) == (0, known(1), known(1))


def test_shares_by_hand() -> None:
    shares = summarize(
        facts(part(Amounts(80, 600, 150, 400, 1_000, 8, 50, 20, 4, 10, 250)), part(Amounts()))
    ).shares
    assert shares.stale_count_share == known(Fraction(1, 10))
    assert shares.stale_cost_share == known(Fraction(1, 20))
    assert shares.released_share == known(Fraction(1, 5))  # of 100 requests
    assert shares.downgraded_token_share == known(Fraction(1, 4))
    assert shares.cached_share == known(Fraction(1, 4))
    assert (shares.stale_count, shares.released_count, shares.downgraded_count) == (8, 20, 10)


def test_token_budgets_have_top_ups_too() -> None:
    (use,) = summarize(
        facts(part(amounts(0, 75)), budgets=(Budget("d", "production", 100, None, 50, 9),))
    ).budgets
    assert (use.tokens_allowed, use.tokens_share, use.topup_tokens) == (
        150,
        known(Fraction(1, 2)),
        50,
    )
    assert (use.cost_allowed_nanos, use.topup_cost_nanos) == (None, 0)


def test_the_budget_of_all_is_of_those_who_have_one() -> None:
    use = summarize(
        facts(
            part(amounts(60)),
            part(amounts(500), department_id="e"),
            department=None,
            budgets=(Budget("d", "production", None, 100), Budget("e", "production", None, None)),
        )
    ).budgets[0]
    assert (use.cost_used_nanos, use.cost_allowed_nanos, use.departments_with_cost) == (60, 100, 1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"month": TENTH}, "a report's month is its first day, not 2026-10-10"),
        ({"through": SEPTEMBER}, "2026-09-01 lies outside of 2026-10"),
        ({"history": (Month(OCTOBER, Amounts()),)}, "history before 2026-10 can't have 2026-10-01"),
        ({"history": (Month(SEPTEMBER, Amounts()),) * 2}, "history have .* twice"),
        ({"days": (Day("test", SEPTEMBER, Amounts()),)}, "2026-09-01 lies outside of 2026-10"),
        ({"parts": (part(Amounts(), department_id="e"),)}, "'d' can't have figures of 'e'"),
        ({"budgets": (Budget("e", "test", 1, 1),)}, "'d' can't have figures of 'e'"),
        ({"parts": (part(Amounts(), belongs_to=date(2026, 11, 1)),)}, "can belong to 2026-11-01"),
        ({"parts": (part(Amounts(), belongs_to=date(2026, 9, 2)),)}, "can belong to 2026-09-02"),
        ({"parts": (part(amounts(Decimal(1))),)}, "cost_nanos must be a whole number"),  # type: ignore[arg-type]
        ({"peers": (peer("e", Amounts()),) * 2}, "peers have 'e' twice"),
        ({"prices": (Price("m", Decimal(1), Decimal(1)),) * 2}, "prices have 'm' twice"),
        ({"outcomes": {"orders": Decimal(-1)}}, "orders must be a finite number of at least 0"),
        ({"outcomes": {"orders": Decimal("NaN")}}, "orders must be a finite number"),
        ({"outcomes": {"orders": Decimal("1e999999")}}, "orders must be within 1e±40"),
        ({"outcomes": {"orders": Decimal("1." + "0" * 50 + "1")}}, "more than 40 decimals"),
    ],
)
def test_facts_that_contradict_themselves_are_refused(wrong: dict, said: str) -> None:
    bad: Facts = replace(facts(part(amounts(1))), **wrong)
    with pytest.raises(ValueError, match=said):
        summarize(bad)


def test_every_reason_is_documented() -> None:
    documented = (Path(__file__).resolve().parents[2] / "docs" / "roi.md").read_text("utf-8")
    assert [reason for reason in Reason if f"| `{reason}` |" not in documented] == []


def test_unpriced_cost_is_told_exactly_or_as_at_most() -> None:
    whole = part(amounts(5, 10, n=2, unpriced_count=2), model="new")
    some = part(amounts(7, 10, n=3, unpriced_count=1), model="old")
    other = part(amounts(100, 10, n=3), model="priced")
    late = part(amounts(1_000, 10, unpriced_count=1), model="x", belongs_to=SEPTEMBER)
    exact = summarize(facts(whole, other, late)).ledger
    assert (exact.unpriced_cost_nanos, exact.unpriced_at_most) == (5, False)
    most = summarize(facts(whole, some, other)).ledger
    assert (most.unpriced_cost_nanos, most.unpriced_at_most) == (12, True)
    none = summarize(facts(other)).ledger
    assert (none.unpriced_cost_nanos, none.unpriced_at_most) == (0, False)


def test_what_downgrades_saved_in_money_says_why_it_is_not_told() -> None:
    used = part(amounts(5, 10, downgraded_count=1, downgraded_tokens=10))
    assert summarize(facts(used)).shares.downgraded_saving == Unknown(Reason.ASKED_NOT_KEPT)
