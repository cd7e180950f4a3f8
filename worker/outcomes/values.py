"""Names of metrics and numbers as people and Excel write them.

What is sure is taken; a ValueError says what is wrong with the rest, and what would be right.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final
from unicodedata import category

from worker.outcomes.shape import plain, shown

MAX_METRIC_LETTERS: Final = 60
MAX_NUMBER_LETTERS: Final = 60
MAX_WHOLE_DIGITS: Final = 18
MAX_DECIMALS: Final = 12
_METRIC: Final = re.compile(r"[^\W_][\w-]*")

_SPACES: Final = " '\u2019"  # others are made spaces before
_SPACED: Final = re.compile(
    rf"\d{{1,3}}(?:([{_SPACES}])\d{{3}})(?:\1\d{{3}})*(?:[.,]\d+)?", re.ASCII
)
_ONE_GROUP: Final = re.compile(r"[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
_COMMA_GROUPS: Final = r"(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d?(?:,\d\d)+,\d{3})"  # India's, too
_POINT_GROUPS: Final = r"[1-9]\d{0,2}(?:\.\d{3})+"
_BY_POINT: Final = re.compile(rf"{_COMMA_GROUPS}(?:\.\d+)?|\d*\.\d+", re.ASCII)
_BY_COMMA: Final = re.compile(rf"{_POINT_GROUPS}(?:,\d+)?|\d*,\d+", re.ASCII)
_SIMPLE: Final = re.compile(r"\d{1,18}(?:\.\d\d?)?", re.ASCII)  # most are like this
_DIGITS: Final = re.compile(r"\d+", re.ASCII)
_NEGATIVE: Final = re.compile(r"[-\u2212\u2013]\s*[\d.,]|\([\d.,]+\)|[\d.,]+-$", re.ASCII)
_EXPONENT: Final = re.compile(r"[\d.,]+[eE][+-]?\d+", re.ASCII)
_CURRENCY: Final = re.compile(r"[A-Z]{3}\s*[\d.,]+|[\d.,]+\s*(?:[A-Z]{3}|元)")

POINT: Final = "."
COMMA: Final = ","
DOUBT: Final = "?"


def parse_metric(text: str) -> str:
    """A metric's name in small letters. Raises ValueError."""
    name = plain(text).lower()
    if not name:
        raise ValueError("the metric is empty: write its name, such as orders")
    if len(name) > MAX_METRIC_LETTERS:
        raise ValueError(f"{shown(text)} is longer than the {MAX_METRIC_LETTERS} letters of a name")
    if not _METRIC.fullmatch(name):
        better = re.sub(r"[^\w-]+", "_", name).strip("_-")
        advice = f": write {better}" if better else ", such as orders"
        raise ValueError(
            f"{shown(text)} is no metric's name{advice} (letters, digits, _ and -,"
            " the first no _ or -)"
        )
    return name


def mark_of(text: str) -> str | None:
    """What a number tells of its decimal mark: POINT, COMMA, DOUBT, "" for nothing.

    None: it is no number. ``text`` is as `bare_number` returns it.
    """
    if _DIGITS.fullmatch(text):
        return ""
    if _SPACED.fullmatch(text):
        return (
            ""
            if text[-4] in _SPACES
            else COMMA
            if COMMA in text
            else POINT
            if POINT in text
            else ""
        )
    if _ONE_GROUP.fullmatch(text):
        return DOUBT
    if _BY_POINT.fullmatch(text):
        return POINT
    return COMMA if _BY_COMMA.fullmatch(text) else None


def bare_number(text: str) -> str:
    """Without spaces around it, full-width digits as ordinary ones, and no plus sign."""
    return plain(text[: MAX_NUMBER_LETTERS + 1]).removeprefix("+")


class Numbers:
    """Reads numbers of at least 0 whose decimal mark is said, or known from the file.

    ``decimal``: said by the user. ``commas``: the file is parted by commas, as where people
    write decimal points. `note` takes the file's values beforehand: what is sure of some
    decides what is doubtful of others, such as 1,234.
    """

    def __init__(self, decimal: str | None, *, commas: bool) -> None:
        self._said = decimal
        self._commas = commas
        self._seen: set[str] = set()

    def note(self, text: str) -> None:
        """Learn from one value of the file."""
        bare = bare_number(text)
        mark = mark_of(bare)
        if mark == POINT or (mark == COMMA and (not self._commas or POINT in bare)):
            self._seen.add(mark)

    def parse(self, text: str) -> Decimal:
        """The number, exactly. Raises ValueError."""
        if self._said != COMMA and _SIMPLE.fullmatch(text):
            return Decimal(text)
        bare = bare_number(text)
        mark = mark_of(bare) if len(bare) <= MAX_NUMBER_LETTERS else None
        if mark is None:
            raise ValueError(_no_number(text, bare))
        if self._said is None and self._commas and mark == COMMA and POINT not in bare:
            raise ValueError(
                f"{shown(text)} has a decimal comma, or lacks a digit: if that is meant, write"
                f" {bare.replace(',', '.')}, or say --decimal ,"
            )
        if mark == DOUBT:
            mark = self._said or self._usual()
            if mark is None:
                whole = re.sub(r"[.,]", "", bare)
                parted = bare.replace(",", ".")
                raise ValueError(
                    f"{shown(text)} may be {whole} or {parted}: say --decimal , or --decimal ."
                )
        elif self._said is not None and mark not in {"", self._said}:
            other = COMMA if mark == COMMA else POINT
            raise ValueError(f"{shown(text)} has {other} as its decimal mark, and not {self._said}")
        return checked(Decimal(_plain(bare, mark)), text)

    def _usual(self) -> str | None:
        if len(self._seen) == 1:
            return next(iter(self._seen))
        return POINT if self._commas and not self._seen else None


def checked(value: Decimal, text: str) -> Decimal:
    """The value, if it is one that is kept. Raises ValueError."""
    if value < 0:
        raise ValueError(f"{shown(text)} is negative: a value is 0 or more")
    if value >= 10**MAX_WHOLE_DIGITS:
        raise ValueError(f"{shown(text)} has more than {MAX_WHOLE_DIGITS} digits: is it a number?")
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > MAX_DECIMALS:
        raise ValueError(f"{shown(text)} has more than {MAX_DECIMALS} decimals: round it")
    return value


def _plain(text: str, mark: str) -> str:
    groups = _SPACES + (COMMA if mark == POINT else POINT if mark == COMMA else "")
    bare = "".join(one for one in text if one not in groups)
    return bare.replace(COMMA, POINT)


def _no_number(text: str, bare: str) -> str:
    if not bare:
        return "the value is empty: write a number, 0 too, or take the line out"
    if _NEGATIVE.match(bare):
        return f"{shown(text)} is negative: a value is 0 or more"
    if _EXPONENT.fullmatch(bare):
        return (
            f"{shown(text)} is shortened, digits may be lost: show the column as a number without"
            " exponent, and export again"
        )
    if any(category(one) == "Sc" for one in bare) or _CURRENCY.fullmatch(bare):
        return (
            f"{shown(text)} has a currency: write the number alone, amounts are in the billing"
            " currency"
        )
    return f"{shown(text)} is no number: write it like 1234.50"
