"""What the other jobs, and the tick that runs them, ask of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

    from worker.models import (
        CrossingCounts,
        JobRun,
        JobSchedule,
        MissingTold,
        MonthRolled,
        PacesNoted,
        ReportDue,
        ReportsBuilt,
        TickLease,
        UntoldCrossing,
        UpkeepBatch,
        WatchTold,
    )


class Months(Protocol):
    """What roll_month needs."""

    async def months_to_roll(self, now: datetime | None) -> Sequence[date]:
        """First days of the months that have usage and aren't closed, oldest first."""

    async def book_adjustments(self, now: datetime | None) -> int:
        """Book what changed in closed months in an open one; returns how many changes."""

    async def book_legacy(self, month: date, limit: int, now: datetime | None) -> int:
        """Fold in at most ``limit`` direct writes of a month that is due to close."""

    async def roll(self, month: date, now: datetime | None) -> MonthRolled:
        """Recompute one open month's totals, closing it when its grace is over."""


class Warnings(Protocol):
    """What soft_warn needs: finding crossings and writing log and outbox rows."""

    async def decide(self, limit: int, now: datetime | None) -> CrossingCounts:
        """Log the untold crossings of at most ``limit`` subjects, with their messages."""

    async def count_untold(self, now: datetime | None) -> int:
        """How many crossings ``decide`` would log now; changes nothing."""

    async def untold(self, limit: int, now: datetime | None) -> Sequence[UntoldCrossing]:
        """At most ``limit`` of them, of each cap the highest threshold; changes nothing."""


class Diagnosis(Protocol):
    """What diagnose needs: finding groups of requests without usage, and telling them."""

    async def tell_missing(self, limit: int, now: datetime | None) -> MissingTold:
        """Tell at most ``limit`` untold groups in one message, written with the note of it."""

    async def count_untold(self, now: datetime | None) -> int:
        """How many groups ``tell_missing`` would tell now; changes nothing."""


class Watch(Protocol):
    """What watch needs: the usual pace of each hour, and telling what stands out from it."""

    async def note_hours(self, limit: int, now: datetime | None) -> PacesNoted:
        """Note at most ``limit`` complete hours that aren't yet, oldest first."""

    async def tell(self, limit: int, now: datetime | None) -> WatchTold:
        """Tell at most ``limit`` burning caps and as many runaways, written with the note of it."""

    async def count_untold(self, limit: int, now: datetime | None) -> WatchTold:
        """What ``tell`` would tell now, in no message; changes nothing."""


class Upkeep(Protocol):
    """What upkeep needs: removing rows by age. ``keeps`` names the setting that says how long."""

    @property
    def off(self) -> bool:
        """Whether nothing is to be removed at all."""

    async def remove(self, table: str, keeps: str, limit: int, now: datetime | None) -> UpkeepBatch:
        """Remove at most ``limit`` rows, going on where the last call stopped."""

    async def count(self, table: str, keeps: str, limit: int, now: datetime | None) -> int:
        """How many rows ``remove`` would remove, counted to ``limit``; changes nothing."""


class RoiReports(Protocol):
    """What roi_report needs: the reports of closed months, and their mails."""

    async def count_due(self, now: datetime | None) -> int:
        """How many reports are to be built; changes nothing."""

    async def due(
        self, limit: int, after: ReportDue | None, now: datetime | None
    ) -> Sequence[ReportDue]:
        """At most ``limit`` of them in order, those behind ``after``."""

    async def build(
        self, month: date, departments: Sequence[str], now: datetime | None
    ) -> ReportsBuilt:
        """Build these of one month, each stored with its mails in one transaction."""


class JobRuns(Protocol):
    """The tick's lease and the record of each job's run. Lease times are real time."""

    async def due(self, schedules: Sequence[JobSchedule], now: datetime | None) -> Sequence[str]:
        """The names of the jobs that are due, in the order given; changes nothing."""

    async def begin(
        self,
        owner: str,
        lease_seconds: int,
        schedules: Sequence[JobSchedule],
        now: datetime | None,
        *,
        may_idle: bool = False,
    ) -> TickLease | None:
        """Take the lease and open a run of each due job; None when another tick has it.

        ``may_idle``: where it is certain that no job would find anything, the tick is
        written down as done at once (``TickLease.idle``).
        """

    async def renew(self, lease: TickLease, lease_seconds: int) -> bool:
        """Prolong the lease; False when a later tick took it."""

    async def record(
        self,
        lease: TickLease,
        runs: Sequence[JobRun],
        *,
        release: bool,
        now: datetime | None,
        idle: bool = False,
    ) -> int:
        """Write how jobs ended, give the lease back if ``release``; returns how many.

        Runs that a later tick took over are left to it. ``idle``: all jobs ran, and found
        nothing to do.
        """


class Crossings(Protocol):
    """What the long-running process asks: whether a crossing waits to be told."""

    async def wait(self) -> bool:
        """Return when it is time to look, within a second or as one is made, and what was seen."""

    async def close(self) -> None:
        """Release what waiting opened. Idempotent."""
