"""What the database tells doctor, as it tells it. Times are the database's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime


class ServerFacts(NamedTuple):
    """The server and our session on it; `schema_name` None: there is no ledger.

    `pooled`: another process answers than the one that was reached.
    """

    at: datetime
    version_number: int
    version: str
    database: str
    user_name: str
    standby: bool
    schema_name: str | None
    connections: int
    connections_max: int
    settings: Mapping[str, str]
    careless_users: tuple[str, ...]
    pooled: bool


class SchemaFacts(NamedTuple):
    """What migrate left: migrations by name; of functions the name, and the MD5 of its body."""

    migrations: tuple[str, ...]
    functions: frozenset[tuple[str, str]]


class RightsFacts(NamedTuple):
    """What this user and quota_worker lack of what that role is given."""

    lacks: tuple[str, ...]
    role_lacks: tuple[str, ...]
    missing_roles: tuple[str, ...]
    is_member: bool


class ZoneFacts(NamedTuple):
    """The billing zone of the settings, and that of the functions."""

    billing_zone: str
    functions_zone: str


class TickFacts(NamedTuple):
    """When a tick was last at work; None: never."""

    at: datetime
    last_at: datetime | None
    running: bool


class JobFacts(NamedTuple):
    """A job's latest run that ended, when it was done last, and its first run at all."""

    job: str
    outcome: str | None
    error: str | None
    done_at: datetime | None
    first_at: datetime | None


class OutboxFacts(NamedTuple):
    """A channel's messages: `overdue` waits for over an hour outside of the quiet hours."""

    channel: str
    waiting: int
    waiting_since: datetime | None
    overdue: int
    dead: int
    dead_since: datetime | None


class ChannelFacts(NamedTuple):
    """What became of a channel's messages of the last 24 hours."""

    channel: str
    sent_at: datetime | None
    failed_at: datetime | None
    cause: str | None


class TenantFacts(NamedTuple):
    """How many tenants; `without_budget`: of a department that has none."""

    enforcing: int
    tenants: int
    without_budget: int
    one_without_budget: str | None


class OddFacts(NamedTuple):
    """The first odd rows, `(name, environment or '', fault)`, and how many there are."""

    rows: tuple[tuple[str, str, str], ...]
    found: int


class SubjectGroup(NamedTuple):
    """Subjects that no route tells apart; `tenant` and `department` None: not named by any."""

    kind: str
    tenant: str | None
    department: str | None
    environment: str
    subjects: int
    one: str


class RequestFacts(NamedTuple):
    """Of the last 24 hours."""

    requests: int
    unreserved: int
    usage_missing: int


class BacklogFacts(NamedTuple):
    """What waits, and since when."""

    at: datetime
    overdue: int
    overdue_since: datetime | None
    inbox: int
    inbox_since: datetime | None
    unpriced: int
    unpriced_since: datetime | None
    crossed_at: datetime | None
    unclosed: date | None
    closed_early: date | None = None


class SourceFacts(NamedTuple):
    """What was set aside of a source's answers in the last 24 hours."""

    source: str
    requests: int
    reasons: int
    one_reason: str


class DriftFacts(NamedTuple):
    """A cheap look at the counters."""

    holds_agree: bool
    below_zero: int


class ServerReads(Protocol):
    """Of the server and the ledger's frame; the first needs no ledger."""

    async def server(self) -> ServerFacts:
        """The server and our session on it."""

    async def schema(self) -> SchemaFacts | None:
        """What migrate left; None: it never ran here."""

    async def rights(self) -> RightsFacts:
        """What this user and quota_worker lack."""

    async def zone(self) -> ZoneFacts:
        """The billing zone."""

    async def offsets(self, zone: str, instants: Sequence[datetime]) -> tuple[int, ...]:
        """The zone's offset in seconds at each instant."""


class WorkReads(Protocol):
    """Of ticks, jobs and what they should have worked off."""

    async def ticks(self) -> TickFacts:
        """When a tick was last at work."""

    async def jobs(self, names: Sequence[str]) -> tuple[JobFacts, ...]:
        """How each job went last."""

    async def backlog(self, wait_seconds: float) -> BacklogFacts:
        """What waits; overdue is what is so for ``wait_seconds``."""

    async def requests(self) -> RequestFacts:
        """The requests of the last 24 hours."""

    async def sources(self) -> tuple[SourceFacts, ...]:
        """What was set aside of the sources' answers."""

    async def drift(self) -> DriftFacts:
        """A cheap look at the counters."""


class DeliveryReads(Protocol):
    """Of messages, limits, and who is told."""

    async def outbox(self, quiet: str | None) -> tuple[OutboxFacts, ...]:
        """What waits and what was given up, by channel."""

    async def channels(self) -> tuple[ChannelFacts, ...]:
        """What became of each channel's latest messages."""

    async def tenants(self) -> TenantFacts:
        """How many tenants there are."""

    async def odd(self, query: str) -> OddFacts:
        """Of `doctor_odd_tenants`, `doctor_odd_budgets`, or `doctor_tiers`."""

    async def ownerless(self) -> tuple[tuple[str, str], ...]:
        """Departments with a budget and no address, with the budget's environment."""

    async def subjects(
        self, tenants: Sequence[str], departments: Sequence[str]
    ) -> tuple[SubjectGroup, ...]:
        """The subjects by what routes tell them apart by."""


class DoctorReads(ServerReads, WorkReads, DeliveryReads, Protocol):
    """One read each, in a transaction of its own, bounded in time; changes nothing.

    Each raises what reads raise, see `worker.postgres.errors.translated`.
    """
