"""What became of a message, in words for a terminal: its state, when, why, and what comes next."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from worker.untrusted import for_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from worker.alerts_report import AlertsReport, DeliveryRow
    from worker.assets import Assets


def cause_words(assets: Assets) -> Mapping[str, str]:
    """The words for each cause of a failure: those that the messages use."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(assets.path("templates")),
        autoescape=False,  # noqa: S701  our own words, no HTML
    )
    words: Mapping[str, str] = environment.get_template("labels.en.j2").module.causes  # type: ignore[attr-defined]
    return words


class Words:
    """The words of one report: times in the billing zone, causes as the messages tell them."""

    def __init__(self, report: AlertsReport, zone: ZoneInfo, causes: Mapping[str, str]) -> None:
        self._report = report
        self._zone = zone
        self._causes = causes
        self._fallbacks: dict[str, list[DeliveryRow]] = {}
        for row in report.deliveries:
            if row.fallback_of is not None:
                self._fallbacks.setdefault(row.message_key, []).append(row)

    def moment(self, at: datetime) -> str:
        """With the day, and the zone."""
        return f"{at.astimezone(self._zone):%Y-%m-%d %H:%M:%S} {self._report.billing_zone}"

    def short(self, at: datetime | None) -> str:
        """The time alone where it is today's."""
        if at is None:
            return "at an unknown time"
        local = at.astimezone(self._zone)
        today = self._report.at.astimezone(self._zone).date()
        return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M}"

    def cause(self, cause: str | None) -> str:
        """Why, in words; a cause of a newer version as it is."""
        if cause is None:
            return "no cause is known"
        return self._causes.get(cause, cause)

    def delivery(self, row: DeliveryRow) -> str:
        """What became of the message, in one line."""
        words = getattr(self, f"_{row.state}", self._unheard_of)(row)
        if row.fallback_of is not None:
            words = f"{words}; told here as {row.fallback_of} failed"
        if row.acked_at is not None and row.state != "superseded":
            words = f"{words}; acknowledged {self._by_whom(row)}"
        return words

    def next_tick(self, row: DeliveryRow) -> str:
        """When a message that is due is sent, to stand after a verb."""
        fallback_from = self._report.fallback_from(row)
        if fallback_from is not None:
            since = self._fallback_time(fallback_from)
            return f"on the fallback {since}, as no channel of its name is configured here"
        held_until = self._report.held_until(row)
        if held_until is not None:
            return f"after the quiet hours, which end at {self._quiet_end(held_until)}"
        return "with the next tick"

    def _fallback_time(self, at: datetime) -> str:
        return "with the next tick" if at <= self._report.at else f"from {self.short(at)} on"

    def _quiet_end(self, at: datetime) -> str:
        """In their own zone, as they are configured; within a day, so without the day."""
        from worker.periods import load_zone

        zone = self._report.quiet_zone
        return f"{at.astimezone(load_zone(zone)):%H:%M} {zone}"

    def _pending(self, row: DeliveryRow) -> str:
        fallback_from = self._report.fallback_from(row)
        held_until = self._report.held_until(row)
        if fallback_from is not None:
            since = self._fallback_time(fallback_from)
            when = f"no channel of that name is configured here: told on the fallback {since}"
        elif held_until is not None and held_until > row.next_attempt_at:
            when = f"waits until the quiet hours end at {self._quiet_end(held_until)}"
        elif row.next_attempt_at <= self._report.at:
            when = "waits for the next tick"
        else:
            when = f"waits until {self.short(row.next_attempt_at)}"
        if row.attempts == 0:
            return f"{when}{self._earlier(row)}"
        failed = f"attempt {row.attempts} failed {self.short(row.failed_at)}"
        return f"{when}: {failed}, {self.cause(row.last_failure)}"

    def _earlier(self, row: DeliveryRow) -> str:
        """After a retry by hand the attempts count anew, but why it failed still helps."""
        if row.last_failure is None:
            return ""
        return f": retried by hand, was given up as {self.cause(row.last_failure)}"

    def _sending(self, row: DeliveryRow) -> str:
        if row.lease_until is not None and row.lease_until <= self._report.at:
            cut_off = f"attempt {row.attempts} was cut off, as its worker stopped"
            return f"{cut_off}: to be sent again {self.next_tick(row)}"
        return f"being sent now, attempt {row.attempts}"

    def _sent(self, row: DeliveryRow) -> str:
        digest = "" if row.digest_key is None else " in a digest"
        members = self._report.digest_sizes.get(row.digest_key or "")
        size = f" of {members}" if members else ""
        return f"sent {self.short(row.sent_at)}{digest}{size}, attempt {row.attempts}"

    def _dead(self, row: DeliveryRow) -> str:
        attempts = "1 attempt" if row.attempts == 1 else f"{row.attempts} attempts"
        # one fallback tells for all channels of its alert
        told = [
            f"{other.outbox_id} on {for_terminal(other.channel)}"
            for other in self._fallbacks.get(row.message_key, ())
            if other.channel != row.channel
        ]
        elsewhere = f"told as {', '.join(told)}" if told else "told nowhere else"
        why = self.cause(row.last_failure)
        return f"given up {self.short(row.ended_at)} after {attempts}, {why}; {elsewhere}"

    def _superseded(self, row: DeliveryRow) -> str:
        above = self._report.superseding.get(row.superseded_by or "")
        if above is not None:
            return f"not sent: {above} tells a higher threshold"
        if row.acked_at is not None:
            return f"withdrawn {self._by_whom(row)}"
        return "not sent: a later alert says more"

    def _stale(self, row: DeliveryRow) -> str:
        if row.digest_only and row.ended_at is None:
            if row.channel not in self._report.served:
                return "waits for the next digest; no channel of that name is configured here"
            return "waits for the next digest"
        return "not sent: out of date"

    def _unheard_of(self, row: DeliveryRow) -> str:
        return row.state

    def _by_whom(self, row: DeliveryRow) -> str:
        note = f" ({for_terminal(row.ack_note)})" if row.ack_note else ""
        return f"{self.short(row.acked_at)} by {for_terminal(row.acked_by or 'somebody')}{note}"


def recipient_words(channel: str, recipient: str | None) -> str:
    """Where it goes: the channel, and the address where the channel serves many."""
    return for_terminal(f"{channel} {recipient}" if recipient else channel)


def told_dimensions(facts: str) -> list[dict[str, Any]]:
    """The dimensions that the message tells; none for facts of another shape."""
    try:
        found = json.loads(facts, parse_float=Decimal).get("dimensions") or []
        return [one for one in found if one.get("crossed") and "dimension" in one]
    except (ValueError, AttributeError, TypeError):
        return []


def missing_words(facts: str) -> str:
    """``340 of 2,150 requests without usage, in 4 groups``; nothing for facts of another kind."""
    try:
        found = json.loads(facts)
        groups = found["group_count"]
        return (
            f"{found['missing']:,} of {found['requests']:,} requests without usage, "
            f"in {groups:,} group{'' if groups == 1 else 's'}"
        )
    except (ValueError, LookupError, TypeError):
        return ""


def burn_words(facts: str) -> str:
    """``tokens, day 41.0%, 7.2 times the even pace``; nothing for facts of another shape."""
    try:
        found = json.loads(facts, parse_float=Decimal)["dimensions"]
        return for_terminal(
            "; ".join(
                f"{str(one['dimension']).replace('_', ' ')}, {one['period_kind']} "
                f"{Decimal(one['pct']):.1f}%, {one['times_even']} times the even pace"
                for one in found
            )
        )
    except (ValueError, ArithmeticError, LookupError, TypeError):
        return ""


def runaway_words(facts: str) -> str:
    """``2 apps or keys run away, 1,240 requests in the last hour``; nothing for other facts."""
    try:
        found = json.loads(facts)
        count = found["finding_count"]
        what = "1 app or key runs" if count == 1 else f"{count:,} apps or keys run"
        return f"{what} away, {found['requests']:,} requests in the last hour"
    except (ValueError, LookupError, TypeError):
        return ""


def report_words(facts: str) -> str:
    """``2026-10, revision 2``: which report it is; nothing for facts of another shape."""
    try:
        found = json.loads(facts)
        return for_terminal(f"{found['month']}, revision {found['revision']}")
    except (ValueError, LookupError, TypeError):
        return ""


def crossed_words(one: Mapping[str, Any], *, available: bool = False) -> str:
    """``completions, day 82.0% (past 80%)``; of a notice that something is available again, why."""
    name = f"{str(one['dimension']).replace('_', ' ')}, {one.get('period_kind')}"
    why = f"past {one.get('threshold')}%"
    if available:
        why = "was exhausted"
    elif one.get("refused_at") and Decimal(one.get("used") or 0) < Decimal(one.get("cap") or 0):
        why = "a request did not fit"
    return for_terminal(f"{name} {Decimal(one.get('pct') or 0):.1f}% ({why})")
