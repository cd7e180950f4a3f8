"""Do the export's days begin at another hour than was said? Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from worker.invoice.reading import MOMENTS
from worker.periods import day_start, load_zone, next_month

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime
    from zoneinfo import ZoneInfo

    from worker.invoice.figures import LedgerMonth

STEP: Final = timedelta(minutes=30)
MOST_STEPS: Final = 28  # 14 hours to either side


@dataclass(frozen=True, slots=True)
class ZoneFit:
    """How the ledger fits the invoice's days: as they were compared, and by other days.

    ``apart``: the daily differences added up, none making up for another, by the days that were
    compared. ``billed_apart``: the same by billing days; None: those were compared.
    ``best_apart``: by days that begin ``shift`` later than those compared, which is a zone of
    ``offset``. ``cancelling``: how much of the differences makes up for itself between days, as
    where days begin at the wrong hour.
    """

    apart: int
    billed_apart: int | None
    shift: timedelta
    offset: timedelta
    best_apart: int
    cancelling: int

    @property
    def offset_name(self) -> str:
        """Such as UTC+08:00."""
        minutes = int(self.offset.total_seconds()) // 60
        return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def fit_zone(
    kind: str, zone: ZoneInfo, ledger: LedgerMonth, invoice_days: Mapping[date, int], measure: str
) -> ZoneFit | None:
    """Compare the ledger by days that begin at other hours; None: the export's times are sure.

    ``invoice_days``: the judged measure by day, ``kind``: what the export has of times.
    """
    if kind == MOMENTS or not ledger.times:
        return None
    amounts = [(at, figures.of(measure)) for at, figures in ledger.times]
    billed_apart = None
    if ledger.days_zone is not None:
        billing = _starts(ledger.month, load_zone(ledger.zone))
        billed_apart = _apart(_by_days(amounts, billing), invoice_days)
    starts = _starts(ledger.month, load_zone(ledger.days_zone or ledger.zone))
    as_said = _by_days(amounts, starts)
    apart = _apart(as_said, invoice_days)
    tried = []
    for step in range(-MOST_STEPS, MOST_STEPS + 1):
        shift = step * STEP
        days = _by_days(amounts, [(day, start + shift) for day, start in starts])
        tried.append((_apart(days, invoice_days), abs(step), shift))
    best_apart, _, shift = min(tried)
    said = starts[0][1].astimezone(zone).utcoffset() or timedelta()
    cancelling = apart - abs(sum(as_said.values()) - sum(invoice_days.values()))
    return ZoneFit(apart, billed_apart, shift, said - shift, best_apart, cancelling)


def month_starts(month: date, zone: ZoneInfo) -> list[datetime]:
    """The first instants of the month's days in a zone, and the end's as one more; in UTC."""
    end = next_month(month)
    days = [month + timedelta(days=number) for number in range((end - month).days + 1)]
    return [day_start(day, zone) for day in days]


def _starts(month: date, zone: ZoneInfo) -> list[tuple[date, datetime]]:
    starts = month_starts(month, zone)
    return [(month + timedelta(days=number), start) for number, start in enumerate(starts)]


def _by_days(
    amounts: list[tuple[datetime, int]], starts: list[tuple[date, datetime]]
) -> dict[date, int]:
    """The amounts, ascending by time, added up by day; what lies outside is left out."""
    found: dict[date, int] = {}
    place, last = 0, len(starts) - 1
    for at, amount in amounts:
        if at < starts[0][1]:
            continue
        while place < last and at >= starts[place + 1][1]:
            place += 1
        if place == last:
            break
        found[starts[place][0]] = found.get(starts[place][0], 0) + amount
    return found


def _apart(ours: Mapping[date, int], theirs: Mapping[date, int]) -> int:
    return sum(abs(ours.get(day, 0) - theirs.get(day, 0)) for day in ours.keys() | theirs.keys())
