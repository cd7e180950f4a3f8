"""The figures behind ``quota-worker metrics``: values as the database tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

    from worker.status_report import StatusRow, TickState


class PoolFacts(NamedTuple):
    """A department's month; a budget of None: no limit."""

    department_id: str
    environment: str
    tier: str
    tokens_used: Decimal
    tokens_held: Decimal
    cost_used_nanos: Decimal
    cost_held_nanos: Decimal
    budget_tokens: Decimal | None
    budget_cost_nanos: Decimal | None


class UsedFacts(NamedTuple):
    """What all tenants used today; None: nobody has a row of the day."""

    completions: Decimal | None
    input_tokens: Decimal | None
    output_tokens: Decimal | None
    cost_nanos: Decimal | None


class OpenFacts(NamedTuple):
    """What open reservations hold; amounts None: there is none."""

    reservations: int
    input_tokens: Decimal | None
    output_tokens: Decimal | None
    cost_nanos: Decimal | None
    overdue: int
    overdue_since: datetime | None


class RequestFacts(NamedTuple):
    """The last 24 hours' requests of one ``value`` of ``label``.

    ``label`` is outcome, model, app, or observed, the reason of a would-be refusal. ``used_*``
    and ``estimated_*``: of those with usage; None: there is none.
    """

    label: str
    value: str
    requests: int
    input_tokens: Decimal
    output_tokens: Decimal
    cost_nanos: Decimal
    used_in: Decimal | None
    estimated_in: Decimal | None
    used_out: Decimal | None
    estimated_out: Decimal | None


class AlertFacts(NamedTuple):
    """Messages of the last 24 hours."""

    severity: str
    state: str
    last_failure: str | None
    messages: int


class ChannelFacts(NamedTuple):
    """A channel's messages that wait, and those given up and not acknowledged."""

    channel: str
    waiting: int
    waiting_since: datetime | None
    dead: int


class JobFacts(NamedTuple):
    """A job's latest run that ended, and when it was done last; None: never."""

    job: str
    outcome: str | None
    seconds: float | None
    done_at: datetime | None


class BacklogFacts(NamedTuple):
    """What waits to be booked or priced."""

    inbox: int
    inbox_since: datetime | None
    unpriced: int


class MetricFacts(NamedTuple):
    """One look at a deployment. ``tenants`` are by mode; ``worst`` the top ones by their caps.

    ``used`` and ``worst`` None: not asked for. ``pools`` are the worst of ``pools_known``.
    """

    at: datetime
    currency: str
    tick: TickState
    pools: tuple[PoolFacts, ...]
    pools_known: int
    tenants: tuple[tuple[str, int], ...]
    worst: tuple[StatusRow, ...] | None
    used: UsedFacts | None
    open: OpenFacts
    requests: tuple[RequestFacts, ...]
    refusals: tuple[tuple[str, int], ...]
    alerts: tuple[AlertFacts, ...]
    channels: tuple[ChannelFacts, ...]
    jobs: tuple[JobFacts, ...]
    backlog: BacklogFacts
