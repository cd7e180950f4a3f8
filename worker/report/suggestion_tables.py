"""What would have cost less, in words, with each formula and the numbers in it."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from worker.money import NANOS_PER_UNIT
from worker.report.cells import Count, Money, Quantity, Share, Table
from worker.report.reader import plain
from worker.roi.summary import SuggestionKind, Unit

if TYPE_CHECKING:
    from worker.report.cells import Cell
    from worker.report.detail import Build
    from worker.roi.summary import Number, Suggestion

PLACES_TOLD: Final = 6  # of prices and shares within a formula
_NAME: Final = re.compile(r"[a-z_]+")


def suggestion_tables(build: Build) -> tuple[Table, ...]:
    """The suggestions; where there is room with a table of their formulas' numbers.

    Else the numbers stand with the formula. A formula gives money of money: nanos of nanos, and
    units of units.
    """
    every = build.summary.suggestions
    whole = build.detail.whole
    rows: list[tuple[Cell, ...]] = []
    for number, one in enumerate(every, 1):
        saving = build.say(f"saving_{one.saving_kind}")
        formula = one.formula
        if not whole:
            label = f"{number}. {_sentence(build, one)}"
            rows.append((label, Money(one.saving_nanos), f"{saving}: {_worked(build, one)}"))
        else:
            rows.append((_sentence(build, one), Money(one.saving_nanos), saving, formula))
    notes: tuple[str, ...] = (build.say("suggestions_none"),)
    if rows:
        notes = (build.say("suggestions_note"), *((build.say("numbers_note"),) if whole else ()))
    keys = ("suggestion", "saving", "note", "formula") if whole else (
        "suggestion", "saving", "formula")  # fmt: skip
    table = Table(
        key="suggestions",
        title=build.say("suggestions"),
        columns=build.columns(*keys),
        rows=tuple(rows),
        numbered=whole,
        notes=notes,
    )
    return (table, _numbers_table(build)) if whole and rows else (table,)


def _worked(build: Build, one: Suggestion) -> str:
    """The formula, and the same with its numbers in place of their names."""
    numbers = {number.name: _told(build, number) for number in one.numbers}
    worked = _NAME.sub(lambda found: numbers[found[0]], one.formula)
    return f"{_signs(one.formula)} = {_signs(worked)}"


def _signs(formula: str) -> str:
    for sign, shown in (("*", "×"), ("/", "÷"), ("1000000", "1,000,000")):  # noqa: RUF001  the sign
        formula = formula.replace(sign, shown)
    return formula


def _numbers_table(build: Build) -> Table:
    rows = tuple(
        (f"{number}", one.name, build.say(f"n_{one.name}"), _cell(one))
        for number, suggestion in enumerate(build.summary.suggestions, 1)
        for one in suggestion.numbers
    )
    keys = ("suggestion", "number_name", "note", "number_value")
    return Table("numbers", build.say("numbers"), build.columns(*keys), rows)


def _cell(number: Number) -> Cell:
    match number.unit:
        case Unit.NANOS | Unit.PRICE:
            return Money(number.value)
        case Unit.SHARE:
            return Share(number.value)
        case Unit.TOKENS | Unit.COUNT if number.value.denominator == 1:
            return Count(int(number.value))
    return Quantity(number.value)


def _told(build: Build, number: Number) -> str:
    """So exactly that the saving can be recomputed: millions of tokens are multiplied by it."""
    match number.unit:
        case Unit.PRICE:
            price = plain(number.value / NANOS_PER_UNIT, 2, PLACES_TOLD)
            return f"{price} {build.reader.currency}"
        case Unit.SHARE:
            return f"{plain(number.value * 100, 0, PLACES_TOLD)}%"
    return build.reader.show(_cell(number))


def _sentence(build: Build, one: Suggestion) -> str:
    app = build.name(one.app) if one.app else build.say("unnamed_apps")
    model = build.name(one.model) if one.model else build.say("unnamed_models")
    numbers = {number.name: number.value for number in one.numbers}
    show = build.reader.show
    match one.kind:
        case SuggestionKind.SHORT_ANSWERS:
            average = Fraction(one.amounts.output_tokens, max(one.amounts.completions, 1))
            return build.say(
                "short_answers",
                app=app,
                model=model,
                average=f"{round(average):,}",
                other_model=build.name(one.other_model),
            )
        case SuggestionKind.STALE:
            return build.say("stale_suggestion", app=app, count=f"{one.amounts.stale_count:,}")
        case SuggestionKind.TEST_IN_PRODUCTION:
            key, name = ("subject_app", one.app) if one.app else ("subject_tenant", one.tenant)
            return build.say("test_in_production", subject=build.say(key, name=build.name(name)))
        case SuggestionKind.TEST_SHARE:
            return build.say("test_share", allowed=show(Share(numbers["allowed_share"])))
        case SuggestionKind.UNCACHED:
            cached = Fraction(one.amounts.cached_in_tokens, max(one.amounts.input_tokens, 1))
            return build.say(
                "uncached",
                app=app,
                model=model,
                own_share=show(Share(cached)),
                other_app=build.name(one.other_app),
                other_share=show(Share(numbers["other_share"])),
            )
