"""Text that a spreadsheet must never take for a formula; and numbers as exact as it holds them."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from worker.money import NANOS_PER_UNIT
from worker.report.cells import Change, Count, Money, Quantity, Share
from worker.roi.figures import PLACES_MAX, rounded
from worker.untrusted import visible

if TYPE_CHECKING:
    from worker.report.cells import Cell

SHEET_DIGITS: Final = 15  # more are not kept by spreadsheets
_SHEET: Final = Context(prec=SHEET_DIGITS, rounding=ROUND_HALF_EVEN)
_SHOWN: Final = 10**PLACES_MAX
# What begins a formula, after what may end a cell where another separator is set.
_FORMULA_START: Final = re.compile("(^|[;,|])(\\s*)(?=[=+\\-@\uff1d\uff0b\uff0d\uff20])")


def safe_text(text: str) -> str:
    """For a CSV: visible, and with an apostrophe before whatever a formula could begin with."""
    return _FORMULA_START.sub(r"\1\2'", visible(text))


def number_of(cell: Cell) -> Fraction | None:
    """The cell's exact number, money in units of the currency; None for what is none."""
    match cell:
        case Money(nanos=nanos):
            return Fraction(nanos) / NANOS_PER_UNIT
        case Count(number=whole):
            return Fraction(whole)
        case Quantity(number=amount):
            return amount
        case Share(part=part) | Change(part=part):
            return part
    return None


def plain_number(value: Fraction) -> str:
    """As digits: exactly where 12 decimals or fewer do, else rounded to 12."""
    text = f"{rounded(value, PLACES_MAX):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def sheet_number(value: Fraction) -> Decimal:
    """The number to 15 digits, a half to the even neighbour: all that a spreadsheet keeps."""
    return _SHEET.divide(Decimal(value.numerator), Decimal(value.denominator))


def is_cut(value: Fraction) -> bool:
    """Whether a number of 12 decimals at most has more digits than a spreadsheet keeps."""
    factor, rest = divmod(_SHOWN, value.denominator)
    return not rest and len(str(abs(value.numerator) * factor).rstrip("0")) > SHEET_DIGITS
