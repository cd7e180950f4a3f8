"""Months as people and Excel write them: what is sure is taken, the rest has advice."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from worker.outcomes.shape import plain, shown

MAX_LETTERS: Final = 40
YEARS: Final = range(2000, 2200)
_MONTHS: Final = range(1, 13)
_NAMES: Final = "janfebmaraprmayjunjulaugsepoctnovdec"
_NAME: Final = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_MIDNIGHT: Final = r"(?:[T ]00?:00(?::00(?:\.0+)?)?Z?)?"
_FLAGS: Final = re.ASCII | re.IGNORECASE
_SURE: Final = tuple(
    re.compile(text, _FLAGS)
    for text in (
        r"(?P<year>\d{4})(?:[-/]|年)(?P<month>\d{1,2})月?份?",
        r"(?P<year>\d{4})\.?(?P<month>\d\d)",
        r"(?P<month>\d{1,2})[-/.](?P<year>\d{4})",
        _NAME + r"[ ,/-]*(?P<year>\d{4})",
        r"(?P<year>\d{4})[ ,/-]*" + _NAME,
        _NAME + r"-(?P<year>\d\d)",  # how Excel shows what was typed as 2026-10
        # the first of a month, as Excel has months that are dates
        r"(?P<year>\d{4})(?:[-/.]|年)(?P<month>\d{1,2})(?:[-/.]|月)(?P<day>\d{1,2})日?" + _MIDNIGHT,
        r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)",
    )
)
_ADVICE: Final = tuple(
    (re.compile(text, _FLAGS), advice)
    for text, advice in (
        (
            r"\d{1,2}[-/.]\d{1,2}[-/.]\d{4}" + _MIDNIGHT,
            "may begin with the day or with the month: write it like 2026-10",
        ),
        (rf"(?:\d{{1,2}}[ -])?{_NAME}", "has no year: write it like 2026-10"),
        (
            r"[34567]\d{4}",
            "looks like Excel's number of a day: make the column text, and write it like 2026-10",
        ),
        (r"\d{4}\.\d", "may be the first month or the tenth: write it like 2026-10"),
    )
)


def parse_month(text: str) -> date:
    """The month's first day. Raises ValueError."""
    bare = plain(text)
    if not bare:
        raise ValueError("the month is empty: write it like 2026-10")
    if len(bare) <= MAX_LETTERS:
        for form in _SURE:
            if (found := form.fullmatch(bare)) and (month := _first_day(found.groupdict(), text)):
                return month
        for form, advice in _ADVICE:
            if form.fullmatch(bare):
                raise ValueError(f"{shown(text)} {advice}")
    raise ValueError(f"{shown(text)} is no month: write it like 2026-10")


def _first_day(parts: dict[str, str | None], text: str) -> date | None:
    """None: there is no such month, or it is out of the ledger's range."""
    name = parts.get("name")
    month = (
        int(parts.get("month") or 0) if name is None else _NAMES.index(name[:3].lower()) // 3 + 1
    )
    year = int(parts["year"] or 0)
    year += 2000 if year < 100 else 0  # noqa: PLR2004  two digits of a year
    if year not in YEARS or month not in _MONTHS:
        return None
    if int(parts.get("day") or 1) != 1:
        raise ValueError(
            f"{shown(text)} is a day, and a value is of a whole month: write it like"
            f" {year}-{month:02}"
        )
    return date(year, month, 1)
