"""Local days and months of the billing zone, found by search rather than by arithmetic.

The first instant of a local day is looked for on the clock itself, second by
second in a binary search, so that days whose midnight doesn't exist (or exists
twice) come out right without a rule of their own.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo


def day_of(moment: datetime, zone: str) -> date:
    """The local day on which an aware moment falls."""
    return moment.astimezone(ZoneInfo(zone)).date()


def month_of(day: date) -> date:
    """The first day of a day's month."""
    return day.replace(day=1)


def next_month(month: date) -> date:
    """The first day of the month after."""
    return (month.replace(day=28) + timedelta(days=4)).replace(day=1)


@lru_cache(maxsize=4096)
def start_of_day(day: date, zone: str) -> datetime:
    """The first whole second (UTC) whose local day is `day` or later."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    low = int((noon - timedelta(days=3)).timestamp())
    high = int((noon + timedelta(days=3)).timestamp())
    local = ZoneInfo(zone)
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, tz=local).date() >= day:
            high = middle
        else:
            low = middle
    return datetime.fromtimestamp(high, tz=UTC)


def end_of_day(day: date, zone: str) -> datetime:
    """The first instant of the next local day."""
    return start_of_day(day + timedelta(days=1), zone)


def end_of_month(day: date, zone: str) -> datetime:
    """The first instant of the next local month."""
    return start_of_day(next_month(month_of(day)), zone)
