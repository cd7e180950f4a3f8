"""The figures behind ``quota-worker alerts``: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime
    from decimal import Decimal


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
    ``quiet``: only what is at 100 % is sent now. ``digest_sizes``: messages by the digest's
    key, where one alert is looked at closely; ``superseding``: a message's id by the key of
    its alert.
    """

    at: datetime
    billing_zone: str
    currency: str
    quiet: bool
    more: bool
    deliveries: tuple[DeliveryRow, ...]
    unacknowledged: int
    given_up: tuple[GivenUp, ...]
    digest_sizes: Mapping[str, int]
    superseding: Mapping[str, int]
    crossings: tuple[CrossingRow, ...] = ()
