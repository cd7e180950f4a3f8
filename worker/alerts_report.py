"""The figures behind ``quota-worker alerts``: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import date, datetime
    from decimal import Decimal

# As in quota_outbox_claim: what waits for a channel that no worker serves is told elsewhere.
UNSERVED_AFTER: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A message on one channel, to one recipient: a row of quota_outbox.

    ``facts`` is JSON text; ``fallback_of`` the message whose failure this one tells.
    """

    outbox_id: int
    message_key: str
    decided_at: datetime
    kind: str
    severity: str
    subject_kind: str | None
    subject: str | None
    environment: str | None
    locale: str
    channel: str
    recipient: str | None
    state: str
    attempts: int
    digest_only: bool
    urgency: int
    next_attempt_at: datetime
    lease_until: datetime | None
    first_attempt_at: datetime | None
    sent_at: datetime | None
    ended_at: datetime | None
    last_failure: str | None
    last_detail: str | None
    failed_at: datetime | None
    fallback_of: int | None
    superseded_by: str | None
    acked_at: datetime | None
    acked_by: str | None
    ack_note: str | None
    dedupe_key: str
    request_key: str | None
    created_at: datetime
    facts: str

    @property
    def digest_key(self) -> str | None:
        """The id of the digest that it went or goes out in; None: by itself."""
        return None if self.request_key == self.dedupe_key else self.request_key


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A message that was given up and that nobody has acknowledged.

    ``told_elsewhere``: a fallback channel has told it.
    """

    outbox_id: int
    channel: str
    recipient: str | None
    severity: str
    subject: str | None
    ended_at: datetime | None
    last_failure: str | None
    told_elsewhere: bool


@dataclass(frozen=True, slots=True)
class CrossingRow:
    """A threshold that an alert tells, as it was when it was found; costs in nanos."""

    dimension: str
    period_kind: str
    period_start: date
    threshold: int
    generation: int
    state: str
    severity: str
    used: Decimal | None
    held: Decimal | None
    cap: Decimal | None
    refused_at: datetime | None
    logged_at: datetime | None
    rearmed_at: datetime | None
    rearmed_by: str | None


@dataclass(frozen=True, slots=True)
class AlertsReport:
    """What was told: ``deliveries`` of one alert stand together, the newest alert first.

    ``more``: further ones fit; ``unacknowledged`` counts all there are, whatever is listed.
    ``quiet_until``: when the quiet hours end, in which only what is at 100 % is sent, None
    outside of them; ``quiet_zone`` is theirs. ``served``: the configured channels' names,
    and the console's. ``digest_sizes``: messages by the digest's
    key, where one alert is looked at closely; ``superseding``: a message's id by the key of
    its alert.
    """

    at: datetime
    billing_zone: str
    currency: str
    quiet_until: datetime | None
    quiet_zone: str
    served: Collection[str]
    more: bool
    deliveries: tuple[DeliveryRow, ...]
    unacknowledged: int
    given_up: tuple[GivenUp, ...]
    digest_sizes: Mapping[str, int]
    superseding: Mapping[str, int]
    crossings: tuple[CrossingRow, ...] = ()

    def held_until(self, row: DeliveryRow) -> datetime | None:
        """The end of the quiet hours, where the message waits for it."""
        return self.quiet_until if row.urgency > 0 else None

    def fallback_from(self, row: DeliveryRow) -> datetime | None:
        """From when on a tick tells it on the fallback, as nobody here serves its channel."""
        if row.channel in self.served:
            return None
        moments = [row.created_at + UNSERVED_AFTER, row.next_attempt_at, self.held_until(row)]
        return max(moment for moment in moments if moment is not None)
