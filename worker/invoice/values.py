"""Dates and numbers as exports write them. A ValueError says what is wrong and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final
from unicodedata import category

from worker.status_text import clipped
from worker.untrusted import visible

if TYPE_CHECKING:
    from datetime import tzinfo

MAX_TOKENS: Final = 10**18
MAX_COST: Final = Decimal(10**12)
MAX_DECIMALS: Final = 30
MAX_NUMBER_LETTERS: Final = 60
YEARS: Final = range(2000, 2200)
_SECONDS_DIGITS: Final = 10
_MILLIS_DIGITS: Final = 13
_NAMED: Final = 2
_ISO: Final = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d{1,9})?)? ?(Z|z|UTC|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_SLASHED: Final = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})(?: \d{1,2}:\d\d(?::\d\d)?)?", re.ASCII)
_PACKED: Final = re.compile(r"(\d{4})(\d\d)(\d\d)", re.ASCII)
_UNIX: Final = re.compile(r"(\d{10}|\d{13})(?:\.0+)?", re.ASCII)
_PLAIN: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_SIMPLE: Final = re.compile(r"\d{1,12}(?:\.\d{1,20})?", re.ASCII)
# What a sign may stand for; a code before it says which.
_DOLLARS: Final = "USD AUD CAD HKD NZD SGD TWD MXN ARS CLP COP"
_SIGNS: Final = {
    "$": tuple(_DOLLARS.split()),
    "\u00a5": ("CNY", "JPY"),
    "\uffe5": ("CNY", "JPY"),
    "\u5143": ("CNY",),
    "\u20ac": ("EUR",),
    "\u00a3": ("GBP",),
    "US$": ("USD",),
    "A$": ("AUD",),
    "C$": ("CAD",),
    "HK$": ("HKD",),
    "CN\u00a5": ("CNY",),
    "JP\u00a5": ("JPY",),
}
_ANY_SIGN: Final = "|".join(re.escape(one) for one in sorted(_SIGNS, key=len, reverse=True))
_BEFORE: Final = re.compile(rf"([+-]?)\s*({_ANY_SIGN})\s*([^\s].*)", re.DOTALL)
_BEHIND: Final = re.compile(rf"(.*[^\s])\s*({_ANY_SIGN})", re.DOTALL)
_GROUPS: Final = "' \u00a0\u202f\u2019"
# One mark before three digits: it may part thousands, or be the decimal mark.
_ONE_GROUP: Final = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
# A point that can only be the decimal mark, or commas that can only part thousands.
_SETTLING: Final = re.compile(
    r"[+-]?(?:0*\.\d+|0\d*\.\d+|\d{4,}\.\d+|\d{1,3}\.(?:\d{1,2}|\d{4,})|\d+\.\d+[eE][+-]?\d+"
    r"|[1-9]\d{0,2}(?:,\d{3})+\.\d+|[1-9]\d{0,2}(?:,\d{3}){2,})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a row is of: its day in the export's zone, and the moment if it has a time.

    ``sure``: the text named its own offset, so that no zone was needed.
    """

    day: date
    moment: datetime | None = None
    sure: bool = False


def parse_stamp(text: str, zone: tzinfo, slashed: str | None) -> Stamp:
    """A day, a time, or seconds or milliseconds since 1970. Raises ValueError."""
    text = text.strip()
    if not text:
        raise ValueError("the date is empty")
    try:
        stamp = _stamp(text, zone, slashed)
    except (ValueError, OverflowError) as error:
        if "--dates" in str(error):
            raise
        stamp = None
    if stamp is None or stamp.day.year not in YEARS:
        raise ValueError(f"{_shown(text)} is no date like 2026-10-05 or 2026-10-05T12:00:00Z")
    return stamp


def _stamp(text: str, zone: tzinfo, slashed: str | None) -> Stamp | None:
    if found := _ISO.fullmatch(text):
        day = date(int(found[1]), int(found[2]), int(found[3]))
        if found[4] is None:
            return Stamp(day)
        offset = _offset(found[7])
        at = datetime(
            day.year,
            day.month,
            day.day,
            int(found[4]),
            int(found[5]),
            int(found[6] or 0),
            tzinfo=offset or zone,
        )
        return Stamp(at.astimezone(zone).date(), at, offset is not None)
    if found := _UNIX.fullmatch(text):
        number = int(found[1])
        seconds = number if len(found[1]) == _SECONDS_DIGITS else number // 1000
        at = datetime.fromtimestamp(seconds, UTC)
        return Stamp(at.astimezone(zone).date(), at, sure=True)
    if found := _PACKED.fullmatch(text):
        return Stamp(date(int(found[1]), int(found[2]), int(found[3])))
    if found := _SLASHED.fullmatch(text):
        if slashed is None:
            raise ValueError(
                f"{_shown(text)} may begin with the day or the month: say --dates dmy or mdy"
            )
        first, second, year = int(found[1]), int(found[2]), int(found[3])
        return Stamp(date(year, first, second) if slashed == "mdy" else date(year, second, first))
    return None


def _offset(text: str | None) -> timezone | None:
    if text is None:
        return None
    if text in {"Z", "z", "UTC"}:
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    span = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-span if text[0] == "-" else span)


class Numbers:
    """Reads a file's numbers with one decimal mark, "." or ","; None: "." unless in doubt.

    Groups of three may be parted by the other mark, a space or an apostrophe; none begins with 0.
    ``settled``: the decimal mark was said, or some number of the file could only be read so.
    ``doubt``: what may be read in two ways about a number since it was last emptied, "": nothing;
    it counts only if nothing settles it in the whole file. ``doubtful``: the file's delimiter is
    a semicolon or a tab, as where people write decimal commas: 1.234 may be a thousand, too.
    """

    def __init__(self, decimal: str | None, *, doubtful: bool = False) -> None:
        self._mark = decimal or "."
        self._other = "." if self._mark == "," else ","
        self._doubtful = doubtful
        self.settled = decimal is not None
        self.doubt = ""
        groups = re.escape(_GROUPS + self._other)
        self._grouped = re.compile(
            rf"[+-]?[1-9]\d{{0,2}}(?:([{groups}])\d{{3}})(?:\1\d{{3}})*(?:{re.escape(self._mark)}\d+)?",
            re.ASCII,
        )

    def count(self, text: str) -> int:
        """A count of tokens; empty is 0. Raises ValueError."""
        if text.isascii() and text.isdigit() and len(text) < _MILLIS_DIGITS:
            return int(text)
        bare = text.strip()
        if not bare:
            return 0
        value = self._number(bare)
        if value != value.to_integral_value() or not 0 <= value <= MAX_TOKENS:
            raise ValueError(f"{_shown(text)} is no count of tokens{self._hint(bare)}")
        if not self.settled and _ONE_GROUP.fullmatch(bare):
            # a part of a token there is not: only thousands end so
            if "," in bare and not bare.endswith("000"):
                self.settled = True
            else:
                self._in_doubt(bare)
        return int(value)

    def amount(self, text: str) -> Decimal:
        """An amount of money in units of its currency, exactly. Raises ValueError.

        A currency's sign may stand before or behind it: see check_sign.
        """
        if self._mark == "." and _SIMPLE.fullmatch(text):
            if not self.settled and "." in text:
                self._doubt_amount(text)
            return Decimal(text)
        _, bare = _signed(text)
        if strange := [one for one in bare if category(one) == "Sc"]:
            raise ValueError(
                f"{_shown(text)} has the sign {strange[0]}, which is not known here: take the signs"
                " away, and say --currency"
            )
        value = self._number(bare)
        if not self.settled:
            self._doubt_amount(bare.strip())
        if abs(value) > MAX_COST:
            raise ValueError(f"{_shown(text)} is more than an invoice can have")
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and -exponent > MAX_DECIMALS:
            raise ValueError(f"{_shown(text)} has more than {MAX_DECIMALS} decimals")
        return value

    def _number(self, text: str) -> Decimal:
        bare = text.strip()
        if len(bare) <= MAX_NUMBER_LETTERS:
            self.settled = self.settled or bool(_SETTLING.fullmatch(bare))
            if found := self._grouped.fullmatch(bare):
                bare = bare.replace(found[1], "")
            if self._mark == ",":
                bare = "" if "." in bare else bare.replace(",", ".")
            if _PLAIN.fullmatch(bare):
                try:
                    return Decimal(bare)
                except InvalidOperation:
                    pass
        raise ValueError(f"{_shown(text)} is no number{self._hint(text)}")

    def _hint(self, text: str) -> str:
        """What to do where the other decimal mark seems to be meant."""
        if self._other not in text and not (self._mark in text and _ONE_GROUP.search(text)):
            return ""
        name = "comma" if self._other == "," else "point"
        return f": with a decimal {name} say --decimal {self._other}"

    def _doubt_amount(self, bare: str) -> None:
        if _SETTLING.fullmatch(bare):
            self.settled = True
        elif ("," in bare or self._doubtful) and _ONE_GROUP.fullmatch(bare):
            self._in_doubt(bare)

    def _in_doubt(self, bare: str) -> None:
        self.doubt = (
            f"{_shown(bare)} may be a decimal or a thousand, and no number of the file shows which:"
            " say --decimal , or --decimal ."
        )


def check_sign(text: str, currency: str) -> None:
    """That an amount's sign, if it has one, may be that of its currency. Raises ValueError."""
    if text[-1:].isdigit() and text[0].isdigit():
        return
    sign, _ = _signed(text)
    if sign is None or currency in _SIGNS[sign]:
        return
    meant = _SIGNS[sign]
    name = " or ".join(meant) if len(meant) <= _NAMED else f"a dollar such as {meant[0]}"
    raise ValueError(
        f"{_shown(text)} is in {name}, and the row counts as {currency}: say --currency"
        f" {meant[0]}, or what the column of currencies is"
    )


def _signed(text: str) -> tuple[str | None, str]:
    """An amount's sign and the rest of it; None: it has none."""
    bare = text.strip()
    if len(bare) > MAX_NUMBER_LETTERS:
        return None, text
    if found := _BEFORE.fullmatch(bare):
        return found[2], found[1] + found[3]
    if found := _BEHIND.fullmatch(bare):
        return found[2], found[1]
    return None, text


def _shown(text: str) -> str:
    return f"'{clipped(visible(text))}'"
