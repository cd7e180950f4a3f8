"""What every job is handed: the time to judge by, how long it may run, and its ports.

Nothing here talks to a database or a network; the composition root fills in the
adapters and jobs see only the Protocols of ``worker.ports``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from worker.clock import monotonic_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from worker.models import ChannelFailure, ReportFault
    from worker.ports.delivery import Channels, Outbox
    from worker.ports.jobs import Diagnosis, Months, RoiReports, Upkeep, Warnings, Watch
    from worker.ports.ledger import Expiry, Ledger, Outlook, SourceLedger, UsageSource
    from worker.usage import SourceFailure, SourcesNotSet


NO_COUNTS = frozenset({"failures", "would"})


class Deadline:
    """The end of a run, and the wish to stop early (SIGTERM, a lost lease).

    Jobs ask ``reached`` between two bounded steps and never in the middle of one:
    what is held is finished, what is left waits for the next tick.
    """

    __slots__ = ("_ends_at", "_monotonic", "_stopped")

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        """Start counting now; ``seconds`` from the present of ``monotonic``."""
        self._monotonic = monotonic
        self._ends_at = monotonic() + seconds
        self._stopped = False

    def stop(self) -> None:
        """Ask every job to finish what it holds and leave the rest. Idempotent."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """Whether somebody asked to stop, as opposed to time running out."""
        return self._stopped

    def remaining_seconds(self) -> float:
        """Seconds that are left, 0.0 when stopped or over; never negative."""
        if self._stopped:
            return 0.0
        return max(0.0, self._ends_at - self._monotonic())

    def reached(self, margin_seconds: float = 0.0) -> bool:
        """Whether no further step that may take ``margin_seconds`` should begin."""
        return self.remaining_seconds() <= margin_seconds


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Base of each job's typed result.

    A job subclasses it (frozen, slots) with ``int`` fields, each a count that goes to
    ``job_runs.counts`` and the log line under its field's name; ``failures`` go to lines of
    their own, and ``would`` says, in a dry run, what would be told or sent. ``leftover`` says that
    work remains which the next tick must do; ``failed`` counts steps that went wrong
    without stopping the job: both are healthy for the process, but the second makes
    the job's outcome ``failed`` and the tick's exit code 1.
    """

    leftover: bool = False
    failed: int = 0
    failures: tuple[ChannelFailure | SourceFailure | SourcesNotSet | ReportFault, ...] = ()
    would: tuple[str, ...] = ()

    def as_counts(self) -> dict[str, int]:
        """Every count by name, booleans as 0 or 1; the order of the fields."""
        names = [field.name for field in fields(self) if field.name not in NO_COUNTS]
        return {name: int(getattr(self, name)) for name in names}


class Asking(NamedTuple):
    """The usage sources in the order in which they are asked, and the limits of the asking.

    ``wait_seconds``: how long an overdue reservation waits for them before its stale policy.
    """

    ledger: SourceLedger
    sources: tuple[UsageSource, ...]
    wait_seconds: int
    ask_seconds: int


class JobPorts(NamedTuple):
    """The adapters that jobs may use, as Protocols. Built once per process.

    ``asking`` None: no usage source is configured. ``reports`` None: no monthly reports are.
    """

    ledger: Ledger
    expiry: Expiry
    months: Months
    warnings: Warnings
    outbox: Outbox
    channels: Channels
    diagnosis: Diagnosis
    outlook: Outlook
    watch: Watch
    upkeep: Upkeep
    asking: Asking | None = None
    reports: RoiReports | None = None


class JobContext(NamedTuple):
    """One run's surroundings.

    ``now`` is passed on as ``p_now`` to every SQL call; None (production) means the
    database's own clock, read after its locks. It is timezone-aware otherwise.
    ``dry_run``: change nothing, send nothing, count what would be done. ``monotonic`` and
    ``sleep`` are the process's own, in seconds; a simulation moves them by itself.
    """

    now: datetime | None
    deadline: Deadline
    dry_run: bool
    ports: JobPorts
    monotonic: Callable[[], float] = monotonic_seconds
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
