"""Ticks and jobs, what waits, what was given up, what the figures hint at. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.doctor.finding import FAULT, NOTE, WARNING, Finding, named, ok, one_line, span, times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from worker.doctor.facts import (
        BacklogFacts,
        DriftFacts,
        JobFacts,
        OutboxFacts,
        RequestFacts,
        SourceFacts,
        TickFacts,
    )

TICK_SECONDS_MAX: Final = 900
# A job that failed so long isn't helped by the next tick.
FAILING_SECONDS: Final = 3_600
FULL_OUTBOX: Final = 10_000
WAITING_SECONDS: Final = 3_600
OVERDUE_SECONDS: Final = 900
CROSSING_SECONDS: Final = 900
SHARE: Final = 0.05
REQUESTS_MIN: Final = 20
MEGABYTE: Final = 2**20
DISK_FAULT_BYTES: Final = 256 * MEGABYTE
DISK_WARNING_BYTES: Final = 2048 * MEGABYTE
STATUS: Final = "quota-worker status"


def ticks(found: TickFacts, *, enforcing: bool) -> list[Finding]:
    """Whether a schedule is at work."""
    cure = "quota-worker tick shows whether one can run; then look at the schedule and its log"
    if found.last_at is None:
        return [
            Finding(
                "ticks",
                WARNING if enforcing else NOTE,
                "no tick ever ran here: nobody is warned, and holds of lost calls stay",
                "quota-worker install --kind cron",
            )
        ]
    since = (found.at - found.last_at).total_seconds()
    if since <= TICK_SECONDS_MAX or found.running:
        return ok("ticks", f"the last tick was {span(since)} ago")
    return [
        Finding(
            "ticks",
            FAULT,
            f"no tick for {span(since)}: nobody is warned, and holds of lost calls stay",
            cure,
        )
    ]


def jobs(found: Sequence[JobFacts], intervals: Mapping[str, int], now: datetime) -> list[Finding]:
    """Which jobs fail, or never come to an end. `intervals`: the seconds of each job's slot."""
    told = []
    for job in found:
        if job.outcome not in {"failed", "unfinished"}:
            continue
        since = job.done_at or job.first_at or now
        seconds = (now - since).total_seconds()
        is_long = seconds > FAILING_SECONDS + intervals.get(job.job, 0)
        if job.outcome == "unfinished" and not is_long:
            continue
        last = f"last done {span(seconds)} ago" if job.done_at else "no run on record was done"
        if job.outcome == "failed":
            what = f"{job.job} fails ({last}): {one_line(job.error or 'see the log')}"
        else:
            what = f"{job.job} leaves work at each tick ({last})"
        told.append(
            Finding(
                "jobs",
                FAULT if is_long and job.outcome == "failed" else WARNING,
                what,
                f"quota-worker run {job.job} --debug, with the schedule's configuration",
            )
        )
    return told or ok("jobs", "no job fails")


def dead(found: Sequence[OutboxFacts], now: datetime) -> list[Finding]:
    """Messages that were given up."""
    gone = [one for one in found if one.dead]
    if not gone:
        return ok("dead", "no message was given up")
    since = min(one.dead_since for one in gone if one.dead_since is not None)
    return [
        Finding(
            "dead",
            WARNING,
            f"{times(sum(one.dead for one in gone), 'message')} on "
            f"{named([one.channel for one in gone])} "
            f"given up, the oldest {span((now - since).total_seconds())} old",
            "quota-worker alerts --state dead; quota-worker channel test "
            f"{one_line(gone[0].channel)}; then quota-worker alerts retry ID or alerts ack ID",
        )
    ]


def waiting(found: Sequence[OutboxFacts], served: Sequence[str], now: datetime) -> list[Finding]:
    """Messages that wait too long, too many, or for a channel that nobody serves."""
    told = []
    strange = [one.channel for one in found if one.waiting and one.channel not in served]
    if strange:
        told.append(
            Finding(
                "waiting",
                WARNING,
                f"messages wait for {named(strange)}, which isn't configured here",
                "quota-worker --config FILE doctor with the schedule's configuration, or define "
                "it again: an hour after it was made a message is told on the fallback",
            )
        )
    late = [one for one in found if one.overdue]
    if late:
        since = min(one.waiting_since for one in late if one.waiting_since is not None)
        told.append(
            Finding(
                "waiting",
                WARNING,
                f"{times(sum(one.overdue for one in late), 'message')} on "
                f"{named([one.channel for one in late])} waited for over an hour, the oldest for "
                f"{span((now - since).total_seconds())}",
                "quota-worker alerts --state pending tells why; quota-worker channel test "
                f"{one_line(late[0].channel)}",
            )
        )
    total = sum(one.waiting for one in found)
    if total >= FULL_OUTBOX:
        told.append(
            Finding(
                "waiting",
                WARNING,
                f"{times(total, 'message')} wait: a channel's rate needs "
                "long for so many, though digests take most of them",
                "quota-worker alerts --state pending; let fewer tenants warn (soft_warn_pct), or "
                "withdraw what is no news any more with quota-worker alerts ack ID",
            )
        )
    return told or ok("waiting", f"{times(total, 'message')} on the way")


def backlog(found: BacklogFacts) -> list[Finding]:
    """What reconcile and roll_month should have worked off."""
    told: list[Finding] = []

    def late(since: datetime | None, seconds: float) -> bool:
        return since is not None and (found.at - since).total_seconds() > seconds

    if found.overdue:
        told.append(
            Finding(
                "overdue",
                WARNING,
                f"{times(found.overdue, 'reservation')} should have ended: what they hold is "
                "kept from their tenants",
                "quota-worker run reconcile, with the schedule's configuration",
            )
        )
    else:
        told += ok("overdue", "no reservation is overdue")
    if late(found.inbox_since, WAITING_SECONDS):
        told.append(
            Finding(
                "inbox",
                WARNING,
                f"usage waits in quota_usage_inbox for over an hour, {times(found.inbox, 'row')}",
                "quota-worker run reconcile; quota-worker audit says what it can't book",
            )
        )
    else:
        told += ok("inbox", f"{times(found.inbox, 'row')} of the usage inbox wait")
    if found.unpriced:
        told.append(
            Finding(
                "unpriced",
                WARNING,
                f"{times(found.unpriced, 'request')} without a price: until it comes the "
                "estimate's cost counts",
                "quota-worker price unpriced",
            )
        )
    else:
        told += ok("unpriced", "every request has its price")
    if late(found.crossed_at, CROSSING_SECONDS):
        told.append(
            Finding(
                "crossings",
                WARNING,
                "crossings of thresholds wait to be looked at for over 15 min",
                "quota-worker run soft_warn",
            )
        )
    else:
        told += ok("crossings", "no crossing waits")
    if found.closed_early is not None:
        month = f"{found.closed_early:%Y-%m}"
        told.append(
            Finding(
                "months",
                WARNING,
                f"{month} was closed before it was over: what is charged in it after that is in "
                "no totals",
                f"once it is over: quota-worker audit --month {month} --repair",
            )
        )
    if found.unclosed is not None:
        told.append(
            Finding(
                "months",
                WARNING,
                f"{found.unclosed:%Y-%m} should have been closed",
                "quota-worker months says what keeps it open",
            )
        )
    elif found.closed_early is None:
        told += ok("months", "no month is overdue, and none was closed before it was over")
    return told


def requests(found: RequestFacts) -> list[Finding]:
    """How gateways use the ledger."""
    return [
        *_share(
            found,
            Finding(
                "unreserved",
                WARNING,
                "came without a reservation: nothing held them to a limit",
                "let the gateway call quota_reserve first; quota-worker status NAME shows which "
                "app it is",
            ),
            found.unreserved,
        ),
        *_share(
            found,
            Finding(
                "usage-missing",
                WARNING,
                "ended without usage figures: their estimates stay charged",
                "quota-worker estimates; stream_options.include_usage in the gateway",
            ),
            found.usage_missing,
        ),
    ]


def _share(found: RequestFacts, bad: Finding, number: int) -> list[Finding]:
    """The finding with its figures where it is so of too many requests."""
    share = number / found.requests if found.requests else 0.0
    if found.requests < REQUESTS_MIN or share <= SHARE:
        return ok(bad.check, f"{number:,} of the last 24 hours' {found.requests:,} requests")
    words = f"{share:.0%} of the last 24 hours' {found.requests:,} requests {bad.what}"
    return [bad._replace(what=words)]


def sources(found: Sequence[SourceFacts], *, configured: bool) -> list[Finding]:
    """Whether answers of the usage sources were set aside."""
    if not found:
        return ok("sources", "nothing was set aside" if configured else "none is configured")
    return [
        Finding(
            "sources",
            WARNING,
            f"answers of {one_line(one.source)} on {times(one.requests, 'request')} were set "
            f"aside in the last 24 hours ({one_line(one.one_reason)}"
            + (", and others)" if one.reasons > 1 else ")"),
            f"quota-worker source faults {one_line(one.source)}",
        )
        for one in found
    ]


def drift(found: DriftFacts) -> list[Finding]:
    """A cheap hint; proof is audit's."""
    told = []
    if not found.holds_agree:
        told.append("what is held isn't what open reservations hold")
    if found.below_zero:
        told.append(f"{times(found.below_zero, 'day')} of tenants have a counter below zero")
    if not told:
        return ok("drift", "a cheap look finds none; quota-worker audit proves it")
    return [Finding("drift", WARNING, "; ".join(told), "quota-worker audit")]


def disk(folder: str, free_bytes: int) -> list[Finding]:
    """The embedded server's."""
    what = f"{free_bytes // MEGABYTE:,} MB free for the embedded server in {one_line(folder)}"
    if free_bytes >= DISK_WARNING_BYTES:
        return ok("disk", what)
    severity = FAULT if free_bytes < DISK_FAULT_BYTES else WARNING
    return [
        Finding(
            "disk",
            severity,
            what,
            "make room; or move the folder while nothing runs, and export QUOTA_WORKER_DATA=FOLDER",
        )
    ]
