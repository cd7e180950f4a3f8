"""Days and months of the billing zone: half-open, right through DST changes.

A day begins with the first instant that carries its date: where midnight
doesn't exist (a DST jump at 00:00) that is the first instant after it, and
where it exists twice the earlier one. Same rule as SQL's quota_day_start.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


ZONE_NEARNESS: Final = 0.85  # difflib's, a letter of a name: China is not Chita
CITY_MIN_LETTERS: Final = 4
ABBREVIATION_MAX_LETTERS: Final = 6  # in capitals


def load_zone(name: str) -> ZoneInfo:
    """An IANA zone; raises ValueError for a name that isn't one."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone") from None


def near_zone(name: str) -> str | None:
    """The zone that may have been meant by a name that is none: of its region and city, or city.

    An abbreviation gets no guess: CST is at home in Shanghai, Chicago and Havana. Nor does
    GMT+8: Etc/GMT+8 is eight hours to the other side.
    """
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    wanted = name.lower().replace(" ", "_")
    if wanted == "utc":
        return "UTC"
    zones = {
        zone.lower(): zone
        for zone in sorted(available_timezones(), reverse=True)
        if "/" in zone and not zone.startswith("Etc/")
    }
    # of two zones with a city of one name the first one stays, such as America/Indianapolis
    cities = {folded.rpartition("/")[2]: zone for folded, zone in zones.items()}
    known = zones if "/" in wanted else cities
    short = ABBREVIATION_MAX_LETTERS if name.isupper() else CITY_MIN_LETTERS - 1
    if "/" not in wanted and len(wanted) <= short:
        return None
    near = get_close_matches(wanted, known, n=1, cutoff=ZONE_NEARNESS)
    return known[near[0]] if near else None


def day_of(moment: datetime, zone: ZoneInfo) -> date:
    """The billing day of an aware moment."""
    return _aware(moment).astimezone(zone).date()


def month_of(day: date) -> date:
    """The first day of the day's month."""
    return day.replace(day=1)


def next_month(day: date) -> date:
    """The first day of the month after the day's month."""
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def previous_month(day: date) -> date:
    """The first day of the month before the day's month."""
    return (day.replace(day=1) - timedelta(days=1)).replace(day=1)


def day_start(day: date, zone: ZoneInfo) -> datetime:
    """The first instant of the day, in UTC."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    start = midnight.astimezone(UTC)
    if start.astimezone(zone).date() == day:
        return start
    # Midnight falls into a gap; read with the offset before it, the instant lies
    # after the gap's end, so step back to the jump itself.
    late = midnight.replace(fold=1).astimezone(UTC)
    low, high = min(start, late) - timedelta(hours=3), max(start, late) + timedelta(hours=3)
    for _ in range(40):
        middle = low + (high - low) / 2
        if middle.astimezone(zone).date() < day:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0) if high.microsecond == 0 else _ceil_second(high)


def day_bounds(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """[start, end) of the day, in UTC."""
    return day_start(day, zone), day_start(day + timedelta(days=1), zone)


def month_bounds(month: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """[start, end) of the month that the day lies in, in UTC."""
    return day_start(month_of(month), zone), day_start(next_month(month), zone)


def parse_month(text: str) -> date:
    """The first day of a month written as 2026-10; raises ValueError."""
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        raise ValueError(f"{text!r} is no month like 2026-10") from None


def _ceil_second(moment: datetime) -> datetime:
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a moment needs a zone")
    return moment
