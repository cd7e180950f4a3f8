"""What would have cost less, from the month's data alone, each with its saving and formula.

Savings may overlap, so they are never added up. What the data don't carry is not suggested:
no price, no answer of known length, a cost that is a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from worker.money import NANOS_PER_UNIT
from worker.roi.facts import NOTHING, PRODUCTION, TEST, UNNAMED
from worker.roi.formulas import evaluate
from worker.roi.gathering import grouped
from worker.roi.summary import Number, SavingKind, Suggestion, SuggestionKind, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from worker.roi.facts import Amounts, Facts, Price
    from worker.roi.gathering import Gathered

LEAST_SAVING: Final = Fraction(1, 100)  # of the month's own cost
OF_ONE_KIND_MAX: Final = 3
COMPLETIONS_MIN: Final = 100  # fewer say nothing about how an app behaves
GUESSED_MAX: Final = Fraction(1, 10)  # of completions that are stale or unpriced
SHORT_ANSWER_TOKENS: Final = 200  # on average
CHEAPER_BY: Final = Fraction(1, 2)  # another model's cost is at most this share
STALE_SHARE: Final = Fraction(1, 20)  # of cost
TEST_SHARE: Final = Fraction(1, 5)  # of cost
LONG_INPUT_TOKENS: Final = 2_000  # on average; shorter prompts are seldom cached
CACHED_LESS_BY: Final = Fraction(1, 5)  # of the input, than another app's with the same model

TEST_WORDS: Final = frozenset(
    "test tests testing loadtest staging sandbox uat qa".split()  # noqa: SIM905  reads as a list
)
TEST_LAST_WORDS: Final = frozenset({"dev", "stage"})  # dev-portal is for developers
TEST_PIECES: Final = ("测试", "沙箱", "预发")  # of a language without spaces

AT_OTHER_MODEL: Final = (
    "cost - ((input - cached) * other_input_price + cached * other_cached_price"
    " + output * other_output_price) / 1000000"
)
AT_OTHER_SHARE: Final = "(input * other_share - cached) * (input_price - cached_price) / 1000000"
ABOVE_SHARE: Final = "test_cost - cost * allowed_share"
ALL_OF_IT: Final = "cost"


@dataclass(frozen=True, slots=True)
class Rates:
    """Nanos of the billing currency for a million tokens."""

    input: Fraction
    cached: Fraction
    output: Fraction

    def cost(self, amounts: Amounts) -> Fraction:
        """What the tokens cost at these, in nanos times a million."""
        plain = amounts.input_tokens - amounts.cached_in_tokens
        return (
            plain * self.input
            + amounts.cached_in_tokens * self.cached
            + amounts.output_tokens * self.output
        )


def make_suggestions(facts: Facts, gathered: Gathered) -> tuple[Suggestion, ...]:
    """The greatest savings first, three of a kind at most, each 1 % of the month's cost or more."""
    least = gathered.own.cost_nanos * LEAST_SAVING
    if least <= 0:
        return ()
    rates = {price.model: _rates(price) for price in facts.prices}
    uses = grouped(gathered.uses, lambda key: key[1:])  # by (model, app)
    found = [
        *_short_answers(uses, rates, least),
        *_stale(gathered, least),
        *_test_in_production(gathered, least),
        *_test_share(gathered),
        *_uncached(uses, rates, least),
    ]
    found.sort(key=lambda one: (-one.saving_nanos, one.kind, one.app, one.model, one.tenant))
    result: list[Suggestion] = []
    for one in found:
        alike = sum(other.kind == one.kind for other in result)
        if one.saving_nanos >= least and alike < OF_ONE_KIND_MAX:
            result.append(one)
    return tuple(result)


def _rates(price: Price) -> Rates:
    cached = price.input if price.cached_input is None else price.cached_input
    return Rates(*(Fraction(one) * NANOS_PER_UNIT for one in (price.input, cached, price.output)))


def _tells(amounts: Amounts) -> bool:
    """Whether the amounts say how an app behaves: enough of them, and hardly any guessed."""
    guessed = max(amounts.stale_count, amounts.unpriced_count)
    return (
        amounts.completions >= COMPLETIONS_MIN
        and guessed <= amounts.completions * GUESSED_MAX
        and 0 <= amounts.cached_in_tokens <= amounts.input_tokens
        and amounts.output_tokens >= 0
    )


def _suggestion(
    kind: SuggestionKind,
    saving_kind: SavingKind,
    formula: str,
    numbers: Iterable[Number],
    amounts: Amounts,
    **about: str,
) -> Suggestion:
    named = tuple(numbers)
    saving = evaluate(formula, {one.name: one.value for one in named})
    return Suggestion(
        kind=kind,
        saving_kind=saving_kind,
        saving_nanos=saving,
        formula=formula,
        numbers=named,
        amounts=amounts,
        **about,
    )


def _number(name: str, value: Fraction | int, unit: Unit) -> Number:
    return Number(name, Fraction(value), unit)


def _short_answers(
    uses: Mapping[tuple[str, str], Amounts], rates: Mapping[str, Rates], least: Fraction
) -> Iterator[Suggestion]:
    """Answers of at most 200 tokens on average from a model that costs twice another's or more.

    The other one is the cheapest for the same tokens among those with a price that the month
    used, too.
    """
    models = grouped(uses, lambda key: key[0])
    others = {
        model: rates[model]
        for model, amounts in models.items()
        if model in rates and amounts.completions >= COMPLETIONS_MIN
    }
    for (model, app), amounts in uses.items():
        if amounts.cost_nanos < least or not _tells(amounts) or model not in rates:
            continue
        if amounts.output_tokens > SHORT_ANSWER_TOKENS * amounts.completions:
            continue
        other = min(others, key=lambda name: (others[name].cost(amounts), name), default=model)
        if other == model:
            continue
        if others[other].cost(amounts) > rates[model].cost(amounts) * CHEAPER_BY:
            continue
        there = others[other]
        yield _suggestion(
            SuggestionKind.SHORT_ANSWERS,
            SavingKind.COST,
            AT_OTHER_MODEL,
            (
                _number("cost", amounts.cost_nanos, Unit.NANOS),
                _number("input", amounts.input_tokens, Unit.TOKENS),
                _number("cached", amounts.cached_in_tokens, Unit.TOKENS),
                _number("output", amounts.output_tokens, Unit.TOKENS),
                _number("other_input_price", there.input, Unit.PRICE),
                _number("other_cached_price", there.cached, Unit.PRICE),
                _number("other_output_price", there.output, Unit.PRICE),
            ),
            amounts,
            app=app,
            model=model,
            other_model=other,
        )


def _stale(gathered: Gathered, least: Fraction) -> Iterator[Suggestion]:
    """A stale share of cost of 5 % or more: apps that should send usage. At most all of it."""
    if gathered.own.stale_cost_nanos < gathered.own.cost_nanos * STALE_SHARE:
        return
    for app, amounts in grouped(gathered.uses, lambda key: key[2]).items():
        if amounts.stale_cost_nanos >= least:
            yield _suggestion(
                SuggestionKind.STALE,
                SavingKind.COST_AT_MOST,
                "stale_cost",
                (_number("stale_cost", amounts.stale_cost_nanos, Unit.NANOS),),
                amounts,
                app=app,
            )


def sounds_like_test(name: str) -> bool:
    """Whether an app or tenant is called like a test: chat-test, qa_bot, crm-dev, 客服测试."""
    words = [word.rstrip("0123456789") for word in re.split(r"[\W_]+", name.casefold()) if word]
    return (
        not TEST_WORDS.isdisjoint(words)
        or bool(words and words[-1] in TEST_LAST_WORDS)
        or any(piece in name for piece in TEST_PIECES)
    )


def _test_in_production(gathered: Gathered, least: Fraction) -> Iterator[Suggestion]:
    """Apps, then tenants, that are called like tests and draw on the production pool."""
    here = {key: one for key, one in gathered.uses.items() if key[0] == PRODUCTION}
    there = {key: one for key, one in gathered.owners.items() if key[1] == PRODUCTION}
    for label, sums in (
        ("app", grouped(here, lambda key: key[2])),
        ("tenant", grouped(there, lambda key: key[2])),
    ):
        for name, amounts in sums.items():
            if amounts.cost_nanos >= least and sounds_like_test(name):
                yield _suggestion(
                    SuggestionKind.TEST_IN_PRODUCTION,
                    SavingKind.PRODUCTION_BUDGET,
                    ALL_OF_IT,
                    (_number("cost", amounts.cost_nanos, Unit.NANOS),),
                    amounts,
                    **{label: name},
                )


def _test_share(gathered: Gathered) -> Iterator[Suggestion]:
    """The test environment took more than a fifth of the month's cost: what it took beyond."""
    amounts = grouped(gathered.uses, lambda key: key[0]).get(TEST, NOTHING)
    if amounts.cost_nanos > gathered.own.cost_nanos * TEST_SHARE:
        yield _suggestion(
            SuggestionKind.TEST_SHARE,
            SavingKind.COST,
            ABOVE_SHARE,
            (
                _number("test_cost", amounts.cost_nanos, Unit.NANOS),
                _number("cost", gathered.own.cost_nanos, Unit.NANOS),
                _number("allowed_share", TEST_SHARE, Unit.SHARE),
            ),
            amounts,
        )


def _uncached(
    uses: Mapping[tuple[str, str], Amounts], rates: Mapping[str, Rates], least: Fraction
) -> Iterator[Suggestion]:
    """Long inputs of which far less is cached than of another app's with the same model."""
    best: dict[str, tuple[Fraction, str]] = {}
    for (model, app), amounts in sorted(uses.items()):
        if _has_long_input(amounts) and app != UNNAMED:
            share = Fraction(amounts.cached_in_tokens, amounts.input_tokens)
            if model not in best or share > best[model][0]:
                best[model] = (share, app)
    for (model, app), amounts in uses.items():
        if model not in rates or model not in best or amounts.cost_nanos < least:
            continue
        here, (share, other_app) = rates[model], best[model]
        if here.cached >= here.input or not _has_long_input(amounts):
            continue
        if share - Fraction(amounts.cached_in_tokens, amounts.input_tokens) < CACHED_LESS_BY:
            continue
        yield _suggestion(
            SuggestionKind.UNCACHED,
            SavingKind.COST_AT_MOST,
            AT_OTHER_SHARE,
            (
                _number("input", amounts.input_tokens, Unit.TOKENS),
                _number("other_share", share, Unit.SHARE),
                _number("cached", amounts.cached_in_tokens, Unit.TOKENS),
                _number("input_price", here.input, Unit.PRICE),
                _number("cached_price", here.cached, Unit.PRICE),
            ),
            amounts,
            app=app,
            model=model,
            other_app=other_app,
        )


def _has_long_input(amounts: Amounts) -> bool:
    return _tells(amounts) and amounts.input_tokens >= LONG_INPUT_TOKENS * amounts.completions
