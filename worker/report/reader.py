"""Numbers, money, dates and words as the reader of a language is used to them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from worker.money import NANOS_PER_UNIT
from worker.report.cells import (
    Change,
    Count,
    DayOf,
    Missing,
    Money,
    MonthOf,
    Quantity,
    Share,
)
from worker.report.words_en import WORDS as ENGLISH
from worker.report.words_zh import WORDS as CHINESE
from worker.roi.facts import PRODUCTION, TEST
from worker.roi.figures import PLACES_MAX, Reason, rounded
from worker.roi.units import USUAL_METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from worker.report.cells import Cell

SIGNIFICANT: Final = 3  # digits of an amount below 1, at least
MONEY_PLACES: Final = 2
PERCENT: Final = 100
ORDERS: Final = USUAL_METRICS[0]
LEAST_PERCENT: Final = Fraction(1, 20)  # less of a percent would be shown as 0.0
_WORDS: Final[Mapping[str, Mapping[str, str]]] = {"en": ENGLISH, "zh-CN": CHINESE}
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905  a list
_SIGNS: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {"USD": "$", "CNY": "CN¥", "EUR": "€", "GBP": "£", "JPY": "¥", "HKD": "HK$"},
    "zh-CN": {"USD": "US$", "CNY": "¥", "EUR": "€", "GBP": "£", "JPY": "JP¥", "HKD": "HK$"},
}


def language_of(locale: str | None) -> str:
    """The report's language for a locale: zh-CN for every Chinese one, else en."""
    return "zh-CN" if (locale or "").lower().replace("_", "-").split("-")[0] == "zh" else "en"


@dataclass(frozen=True, slots=True)
class Reader:
    """Shows cells in one language; ``currency`` is the billing currency's code."""

    language: str
    currency: str

    def say(self, key: str, **parts: str | int) -> str:
        """The sentence or word of this key; braces in the parts mean nothing."""
        return _WORDS[self.language][key].format(**parts)

    def show(self, cell: Cell) -> str:  # noqa: PLR0911  one line for each kind
        """The cell as text; nothing is shown as a dash, never as 0."""
        match cell:
            case None:
                return "–"  # noqa: RUF001  a dash is meant
            case str():
                return cell
            case Money(nanos=nanos):
                return self.money(nanos)
            case Count(number=number):
                return f"{number:,}"
            case Quantity(number=amount):
                return plain(amount)
            case Share(part=part):
                return percent(part)
            case Change(part=part):
                return f"{'+' if part > 0 else ''}{percent(part)}"
            case MonthOf(first=first):
                return self.month(first)
            case DayOf(day=day):
                return self.day(day)
        return self.why(cell)

    def why(self, missing: Missing) -> str:
        """The reason in words."""
        metric = self.metric_inside(missing.metric) if missing.metric else self.say("some_outcomes")
        return self.say(str(missing.reason), metric=metric)

    def beside(self, against: str, cell: Cell) -> str:
        """What a headline is to be seen against, and how it compares; or why it can't be."""
        if cell == "":
            return against
        if isinstance(cell, Missing):
            if cell.reason is Reason.NO_MONTH_BEFORE:
                return self.say("nothing_to_compare")
            return self.say("no_comparison", why=self.why(cell))
        return self.say("compared", against=against, value=self.show(cell))

    def money(self, nanos: Fraction | int) -> str:
        """With the currency's sign where readers know it, else with its code."""
        units = Fraction(nanos) / NANOS_PER_UNIT
        shown = plain(abs(units), MONEY_PLACES)
        sign = _SIGNS[self.language].get(self.currency)
        less = "-" if units < 0 else ""
        if shown.startswith("<"):
            less, shown = f"{less}<", shown[1:]
        return f"{less}{shown} {self.currency}" if sign is None else f"{less}{sign}{shown}"

    def month(self, first: date) -> str:
        """Oct 2026; 2026年10月."""
        if self.language == "en":
            return f"{_MONTHS[first.month - 1]} {first.year}"
        return f"{first.year}年{first.month}月"

    def day(self, day: date) -> str:
        """1 Oct; 10月1日."""
        if self.language == "en":
            return f"{day.day} {_MONTHS[day.month - 1]}"
        return f"{day.month}月{day.day}日"

    def metric(self, name: str) -> str:
        """A metric at the head of a line."""
        return self.say(f"metric_{name}") if name in USUAL_METRICS else name

    def metric_inside(self, name: str) -> str:
        """A metric within a sentence."""
        return self.say(f"metric_in_sentence_{name}") if name in USUAL_METRICS else name

    def cost_of_one(self, measure: str) -> str:
        """What a measure is called: cost per order, or per million tokens."""
        if not measure:
            return self.say("cost_per_million")
        if measure == ORDERS:
            return self.say("one_orders")
        return self.say("one_other", metric=self.metric(measure))

    def environment(self, name: str) -> str:
        """Production, test, or whatever it is called."""
        return self.say(f"environment_{name}") if name in {PRODUCTION, TEST} else name


def places_for(value: Fraction, least: int) -> int:
    """How many decimals show an amount: 2 from 1 on, below it 3 digits that tell something."""
    size = abs(value)
    if size >= 1 or not size:
        return max(least, 2)
    return next(
        (n for n in range(2, PLACES_MAX) if size * 10**n >= 10 ** (SIGNIFICANT - 1)), PLACES_MAX
    )


def plain(value: Fraction, least_decimals: int = 0, places: int = 0) -> str:
    """A number to read, thousands grouped, a half to the even neighbour; no amount shows as 0.

    ``places``: decimals that are kept where it has them.
    """
    number = rounded(value, max(places_for(value, least_decimals), places))
    if value and not number:
        return f"<{'-' if value < 0 else ''}0.{'0' * (PLACES_MAX - 1)}1"
    whole, _, decimals = f"{number:,f}".partition(".")
    decimals = decimals.rstrip("0").ljust(least_decimals, "0")
    return f"{whole}.{decimals}" if decimals else whole


def percent(part: Fraction) -> str:
    """25.0%; what is no 0 isn't shown as 0."""
    hundredths = part * PERCENT
    if hundredths and abs(hundredths) < LEAST_PERCENT:
        return "<0.1%" if hundredths > 0 else "-<0.1%"
    return f"{rounded(hundredths, 1):,f}%"
