"""Which crossings must be told, when and as what: the contract in plain Python.

Written from the contract's words, and sharing no code and no table with what it judges.
Where they leave something open it is read as the heads of the SQL functions do: what a
refusal told early is measured from what was used then, and a month's end counts the
allowances that were live in its last instant.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

from month.books import Books, Standing

from model.days import day_of, month_of, next_month, start_of_day

RANKS = ("exhausted", "protected", "downgrade", "warning")
MARGIN_POINTS = 5
REARMED_BY_USAGE_MAX = 3
ONE_TICK = timedelta(minutes=1)
FIRST_LOOK = timedelta(days=1)


class Cap(NamedTuple):
    """One cap in one period."""

    subject_kind: str
    subject: str
    environment: str
    dimension: str
    period_kind: str
    period_start: date


@dataclass
class Telling:
    """One time that a threshold was logged."""

    state: str
    severity: str
    used: int
    cap: int
    refused_at: datetime | None
    cap_seen: int
    below_since: datetime | None = None
    rearmed_at: datetime | None = None
    rearmed_by: str | None = None

    @property
    def share(self) -> Fraction:
        return Fraction(self.used * 100, self.cap)


class Message(NamedTuple):
    """What one subject is told at one tick; `told`: (dimension, period kind, start, threshold)."""

    at: datetime
    subject_kind: str
    subject: str
    environment: str
    severity: str
    past: bool
    digest: bool
    told: frozenset[tuple[str, str, date, int]]


@dataclass
class Expected:
    """Every telling by cap and threshold, oldest first; `messages` in the order of the ticks."""

    zone: str
    log: dict[tuple[Cap, int], list[Telling]] = field(default_factory=lambda: defaultdict(list))
    messages: list[Message] = field(default_factory=list)
    seen_at: datetime | None = None

    def tick(self, now: datetime, books: Books) -> list[Message]:
        """Judge one tick; the same tick again changes nothing."""
        since = min(self.seen_at or now - FIRST_LOOK, now)
        self._rearm(now, books)
        groups: dict[tuple[bool, bool, tuple[str, str, str]], list[tuple[Cap, int, str]]]
        groups = defaultdict(list)
        for kind, start, past, at in self._periods(since, now):
            for subject, standing in books.standings(kind, start, at).items():
                cap = Cap(*subject, kind, start)
                for threshold, telling in self._untold(cap, standing, past=past):
                    self.log[cap, threshold].append(telling)
                    if telling.state != "superseded":
                        group = (past, telling.state == "digest", cap[:3])
                        groups[group].append((cap, threshold, telling.severity))
        told = [
            Message(
                now,
                *subject,
                severity=min((one[2] for one in members), key=RANKS.index),
                past=past,
                digest=digest,
                told=frozenset((*cap[3:], threshold) for cap, threshold, _ in members),
            )
            for (past, digest, subject), members in groups.items()
        ]
        self.messages += told
        self.seen_at = now
        return told

    def _periods(self, since: datetime, now: datetime) -> list[tuple[str, date, bool, datetime]]:
        """(kind, start, past, the instant to judge at): the open ones, and those that ended since."""
        today, first = day_of(now, self.zone), day_of(since, self.zone)
        days = [today - timedelta(days=n) for n in range((today - first).days + 1)]
        months = sorted({month_of(day) for day in days})
        return [("day", day, day < today, now) for day in days] + [
            (
                "month",
                month,
                month < month_of(today),
                min(now, start_of_day(next_month(month), self.zone) - timedelta(microseconds=1)),
            )
            for month in months
        ]

    def _rearm(self, now: datetime, books: Books) -> None:
        today = day_of(now, self.zone)
        open_now = {
            (kind, start): books.standings(kind, start, now)
            for kind, start in (("day", today), ("month", month_of(today)))
        }
        for (cap, threshold), tellings in self.log.items():
            standing = open_now.get((cap.period_kind, cap.period_start), {}).get(cap[:4])
            if not tellings or tellings[-1].rearmed_at or standing is None:
                continue
            telling = tellings[-1]
            share = Fraction(standing.used * 100, standing.cap)
            changed = standing.cap != telling.cap_seen
            fallen = (
                standing.used < telling.used
                and share < min(Fraction(threshold), telling.share) - MARGIN_POINTS
            )
            by_usage = sum(one.rearmed_by == "usage" for one in tellings)
            if changed and share < threshold - MARGIN_POINTS:
                telling.rearmed_at, telling.rearmed_by = now, "cap"
            elif (
                fallen
                and telling.below_since is not None
                and now >= telling.below_since + ONE_TICK
                and by_usage < REARMED_BY_USAGE_MAX
            ):
                telling.rearmed_at, telling.rearmed_by = now, "usage"
            telling.cap_seen = standing.cap
            telling.below_since = (telling.below_since or now) if fallen else None

    def _untold(self, cap: Cap, standing: Standing, *, past: bool) -> list[tuple[int, Telling]]:
        new = [
            threshold
            for threshold in standing.thresholds
            if not self._stands(cap, threshold) and self._reached(cap, threshold, standing)
        ]
        found = []
        for threshold in sorted(new):
            if threshold < max(new) or self._told_higher(cap, threshold, standing):
                state = "superseded"
            elif past:
                state = "past" if threshold == 100 else "digest"
            else:
                state = "told"
            refused_at = standing.refused_at if threshold == 100 else None
            severity = standing.thresholds[threshold]
            found.append(
                (
                    threshold,
                    Telling(state, severity, standing.used, standing.cap, refused_at, standing.cap),
                )
            )
        return found

    def _stands(self, cap: Cap, threshold: int) -> bool:
        """Told, and not to be told again."""
        tellings = self.log.get((cap, threshold))
        return bool(tellings) and tellings[-1].rearmed_at is None

    def _reached(self, cap: Cap, threshold: int, standing: Standing) -> bool:
        if standing.used * 100 >= threshold * standing.cap:
            return True
        if threshold < 100 or standing.refused_at is None:
            return False
        tellings = self.log.get((cap, 100))
        if tellings and standing.refused_at <= (tellings[-1].rearmed_at or standing.refused_at):
            return False
        return not self._told_of_the_other(cap, standing.refused_at)

    def _told_of_the_other(self, cap: Cap, refused_at: datetime) -> bool:
        """A pool's refusal was told of the dimension that was the fuller one then."""
        if cap.subject_kind != "department":
            return False
        return any(
            one.refused_at is not None and one.refused_at >= refused_at
            for dimension in {"tokens", "cost"} - {cap.dimension}
            for one in self.log.get((cap._replace(dimension=dimension), 100), ())
        )

    def _told_higher(self, cap: Cap, threshold: int, standing: Standing) -> bool:
        """Usage has passed a higher one that is told; what only a refusal told is no higher."""
        return any(
            telling.rearmed_at is None
            and (telling.share >= higher or standing.used * 100 >= higher * standing.cap)
            for (other, higher), tellings in self.log.items()
            if other == cap and higher > threshold
            for telling in tellings
        )
