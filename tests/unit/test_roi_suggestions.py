"""Suggestions: only where the data carry them, each saving recomputed by hand."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from unit.roi_world import MILLION, ONE, amounts, facts, part
from worker.roi.facts import Amounts, Part, Price
from worker.roi.formulas import evaluate
from worker.roi.report import summarize
from worker.roi.suggestions import sounds_like_test
from worker.roi.summary import SavingKind, Suggestion, SuggestionKind, Unit

DEAR = Price("dear", Decimal(3), Decimal(15), Decimal("0.3"))
MINI = Price("mini", Decimal("0.15"), Decimal("0.6"))
NANO = Price("nano", Decimal("0.05"), Decimal("0.4"))
# 2 million input tokens, of them 500,000 cached; 100,000 output: 4.50 + 0.15 + 1.50
SHORT = Amounts(1_000, 2 * MILLION, 500_000, 100_000, 6_150_000_000)
CHEAP = Amounts(500, MILLION, 0, 200_000, 270_000_000)


def suggest(*parts: Part, prices: tuple[Price, ...] = (DEAR, MINI, NANO)) -> list[Suggestion]:
    return list(summarize(facts(*parts, prices=prices)).suggestions)


def kinds(found: list[Suggestion]) -> list[SuggestionKind]:
    return [one.kind for one in found]


def test_a_dear_model_for_short_answers() -> None:
    found = suggest(part(SHORT, model="dear", app="tags"), part(CHEAP, model="mini", app="chat"))
    (one,) = found
    assert (one.kind, one.saving_kind) == (SuggestionKind.SHORT_ANSWERS, SavingKind.COST)
    assert (one.app, one.model, one.other_model) == ("tags", "dear", "mini")
    # mini has no price for cached input: 2 million at 0.15 and 100,000 at 0.60
    assert one.saving_nanos == 6_150_000_000 - 300_000_000 - 60_000_000
    assert one.amounts == SHORT
    prices = {n.name: n.value for n in one.numbers if n.unit == Unit.PRICE}
    assert prices == {
        "other_input_price": 150_000_000,
        "other_cached_price": 150_000_000,
        "other_output_price": 600_000_000,
    }


def test_the_cheapest_of_the_models_in_use_is_taken_and_no_other() -> None:
    parts = [part(SHORT, model="dear"), part(CHEAP, model="mini"), part(CHEAP, model="nano")]
    assert suggest(*parts)[0].other_model == "nano"
    # nano has a price, but is not used
    assert suggest(*parts[:2])[0].other_model == "mini"


@pytest.mark.parametrize(
    "why",
    [
        {"output_tokens": 200_001},
        {"completions": 99, "output_tokens": 9_900},
        {"stale_count": 101, "stale_cost_nanos": 1},
        {"unpriced_count": 101},
        {"cached_in_tokens": 2 * MILLION + 1},
    ],
)
def test_no_suggestion_where_the_data_do_not_carry_it(why: dict[str, int]) -> None:
    usual = {
        "completions": 1_000,
        "input_tokens": 2 * MILLION,
        "output_tokens": 200_000,
        "cost_nanos": 6 * ONE,
    }
    sound = part(Amounts(**usual), model="dear")
    assert kinds(suggest(sound, part(CHEAP, model="mini"))) == [SuggestionKind.SHORT_ANSWERS]
    odd = part(Amounts(**(usual | why)), model="dear")
    assert suggest(odd, part(CHEAP, model="mini")) == []


def test_no_suggestion_without_prices_or_a_cheaper_model() -> None:
    parts = (part(SHORT, model="dear"), part(CHEAP, model="mini"))
    assert suggest(*parts, prices=()) == []
    assert suggest(*parts, prices=(DEAR,)) == []
    assert suggest(*parts, prices=(MINI,)) == []
    assert suggest(parts[0]) == []
    # more than half of the price: not so dear
    near = Price("mini", Decimal("1.9"), Decimal("7.6"), Decimal("0.2"))
    assert suggest(*parts, prices=(DEAR, near)) == []
    # charges without a request have no model
    assert suggest(part(SHORT, model="", app=""), parts[1]) == []


def test_a_saving_of_less_than_a_hundredth_is_not_worth_a_line() -> None:
    big = part(Amounts(500, MILLION, 0, 500 * 1_000, 1_000 * ONE), model="big", app="big")
    parts = (part(SHORT, model="dear"), part(CHEAP, model="mini"))
    assert suggest(*parts, big) == []


def test_stale_charges_by_app() -> None:
    stale = amounts(60, 10, n=10, stale_count=4, stale_cost_nanos=30)
    found = suggest(
        part(stale, app="worst"),
        part(amounts(400, 10, n=10, stale_count=1, stale_cost_nanos=9), app="some"),
        part(amounts(40, 10, n=10), app="none"),
    )
    assert [(one.app, one.saving_nanos, one.saving_kind) for one in found] == [
        ("worst", 30, SavingKind.COST_AT_MOST),
        ("some", 9, SavingKind.COST_AT_MOST),
    ]
    # 39 of 800 is less than a twentieth
    assert suggest(part(stale, app="worst"), part(amounts(740, 1), app="none")) == []


def test_tests_that_draw_on_the_production_pool() -> None:
    found = suggest(
        part(amounts(30, 1), app="chat-test", tenant_id="acme"),
        part(amounts(20, 1), app="chat", tenant_id="QA2"),
        part(amounts(100, 1), app="chat", tenant_id="acme"),
        part(amounts(10, 1), app="chat-test", tenant_id="qa2", environment="test"),
    )
    assert [(one.kind, one.app, one.tenant, one.saving_nanos) for one in found] == [
        (SuggestionKind.TEST_IN_PRODUCTION, "chat-test", "", 30),
        (SuggestionKind.TEST_IN_PRODUCTION, "", "QA2", 20),
    ]
    assert {one.saving_kind for one in found} == {SavingKind.PRODUCTION_BUDGET}


@pytest.mark.parametrize(
    "name",
    [
        "chat-test",
        "test_bot",
        "Load.Testing",
        "QA",
        "uat3",
        "crm-dev",
        "客服测试",
        "STAGING/eu",
        "stage",
    ],
)
def test_names_that_sound_like_tests(name: str) -> None:
    assert sounds_like_test(name)


@pytest.mark.parametrize(
    "name",
    ["", "contest", "latest", "dev-portal", "attestation", "客服", "stage-lights", "--", "1"],
)
def test_names_that_do_not(name: str) -> None:
    assert not sounds_like_test(name)


def test_a_large_share_of_tests() -> None:
    found = suggest(part(amounts(70, 1)), part(amounts(30, 1), environment="test"))
    assert [(one.kind, one.saving_nanos) for one in found] == [(SuggestionKind.TEST_SHARE, 10)]
    assert suggest(part(amounts(80, 1)), part(amounts(20, 1), environment="test")) == []


def test_an_input_that_another_app_has_cached() -> None:
    # output is long, so that nothing else is suggested
    cached = Amounts(100, 400_000, 300_000, 100_000, ONE)
    plain = Amounts(200, MILLION, 100_000, 200_000, 5 * ONE)
    parts = (
        part(cached, model="dear", app="faq"),
        part(plain, model="dear", app="crm"),
        part(Amounts(200, MILLION, 999_000, 200_000, ONE), model="mini", app="crm"),
    )
    (one,) = suggest(*parts)
    assert (one.kind, one.saving_kind) == (SuggestionKind.UNCACHED, SavingKind.COST_AT_MOST)
    assert (one.app, one.model, one.other_app) == ("crm", "dear", "faq")
    # three quarters of a million, less what is cached, at 3 - 0.3
    assert one.saving_nanos == 650_000 * Fraction("2.7") * 1_000
    flat = Price("dear", Decimal(3), Decimal(15))
    assert suggest(*parts, prices=(flat,)) == []
    short = part(Amounts(501, MILLION, 0, 501_000, 5 * ONE), model="dear", app="crm")
    assert suggest(parts[0], short) == []


def test_three_of_a_kind_and_the_greatest_first() -> None:
    parts = [
        part(Amounts(1_000, 2 * MILLION, 0, 100_000, (7 + n) * ONE), model="dear", app=f"app{n}")
        for n in range(5)
    ]
    found = suggest(*parts, part(CHEAP, model="mini"))
    assert [one.app for one in found] == ["app4", "app3", "app2"]


def test_nothing_is_suggested_where_nothing_was_spent() -> None:
    assert suggest(part(amounts(-5, 5), app="test")) == []
    assert suggest() == []


@pytest.mark.parametrize(
    "formula",
    [
        "cost ** 2",
        "cost / cost",
        "cost / 0",
        "other",
        "cost.real",
        "print(cost)",
        "-cost",
        "1.5 * cost",
        "'a' * cost",
        "True + cost",
    ],
)
def test_a_formula_is_names_whole_numbers_and_four_signs(formula: str) -> None:
    with pytest.raises(ValueError, match="is no formula of cost"):
        evaluate(formula, {"cost": Fraction(1)})


def test_a_formula_is_exact() -> None:
    third = {"a": Fraction(1, 3), "b": Fraction(2)}
    assert evaluate("(a + b) * 3 / 7 - a", third) == Fraction(2, 3)


def test_a_formula_that_is_no_text_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="can't be read as a formula"):
        evaluate("cost *", {"cost": Fraction(1)})
