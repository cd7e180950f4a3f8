"""What the model remembers: limits, budgets, reservations, and the answers it expects."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction

NANOS_PER_CENT = 10_000_000
BIGINT_MAX = 2**63 - 1
TOKENS_MAX = 10**12
NANOS_MAX = 10**15
PROGRESS_CEILING_SECONDS = 3600
DAILY = ("completions", "input_tokens", "output_tokens", "tokens", "cost")
MONTHLY = ("completions", "tokens", "cost")


class Refused(Exception):  # noqa: N818 - the word of the contract
    """The call raises this SQLSTATE and changes nothing."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@dataclass(frozen=True)
class Usage:
    """Amounts: tokens in and out, cost in nanos, completions."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost: int = 0
    completions: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.cost + other.cost,
            self.completions + other.completions,
        )

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    @property
    def figures(self) -> tuple[int, int, int]:
        return (self.tokens_in, self.tokens_out, self.cost)


NOTHING = Usage()


@dataclass
class Limits:
    """One tenant's row; caps in tokens and cents, NULL is None."""

    daily_completions: int | None = 1000
    daily_input_tokens: int | None = 2_000_000
    daily_output_tokens: int | None = 500_000
    daily_tokens: int | None = None
    daily_cost_cents: int | None = 5000
    monthly_completions: int | None = None
    monthly_tokens: int | None = None
    monthly_cost_cents: int | None = 50_000
    bucket_capacity: Fraction = Fraction(10)
    bucket_refill_per_sec: Fraction = Fraction(1)
    enforce: str = "on"
    department_id: str | None = None
    environment: str = "production"
    stale_policy: str = "estimate"
    reservation_ttl_seconds: int = 600
    locale: str | None = None

    def caps(self) -> list[tuple[str, str, int | None]]:
        """(reason, dimension, cap in the dimension's own unit) in the order of the contract."""
        return [
            ("daily_cap_reached", "completions", self.daily_completions),
            ("daily_input_tokens_reached", "input_tokens", self.daily_input_tokens),
            ("daily_output_tokens_reached", "output_tokens", self.daily_output_tokens),
            ("daily_tokens_reached", "tokens", self.daily_tokens),
            ("daily_cost_reached", "cost", _nanos(self.daily_cost_cents)),
            ("monthly_completions_reached", "completions", self.monthly_completions),
            ("monthly_tokens_reached", "tokens", self.monthly_tokens),
            ("monthly_cost_reached", "cost", _nanos(self.monthly_cost_cents)),
        ]


def _nanos(cents: int | None) -> int | None:
    return None if cents is None else cents * NANOS_PER_CENT


@dataclass
class Budget:
    """A department's month in one environment."""

    monthly_tokens: int | None = None
    monthly_cost_cents: int | None = None
    warn_pct: int = 75
    downgrade_pct: int = 90
    protect_pct: int = 98
    downgrade_from: list[str] | None = None
    downgrade_model: str | None = None
    allowed_models: list[str] | None = None


@dataclass(frozen=True)
class TopUp:
    """An extra allowance, live while valid_from <= now < expires_at."""

    department: str
    environment: str
    tokens: int
    cost_cents: int
    valid_from: datetime
    expires_at: datetime
    key: str
    approved_by: str
    reason: str


@dataclass
class Reservation:
    """A request from admission to its end and every later correction."""

    tenant: str
    request_id: str
    estimate: Usage
    requested_model: str | None
    period: date
    admitted_at: datetime
    ttl_seconds: int
    expires_at: datetime
    department: str | None
    environment: str
    answer: Answer | None = None
    state: str = "open"
    charged: Usage = NOTHING
    progress: int = 0
    unreserved: bool = False
    usage_missing: bool = False
    usage_ids: dict[str, tuple[int | None, int | None, int | None]] = field(default_factory=dict)
    token_taken: bool = True
    corrected: bool = False
    released: tuple[int | None, int | None, int | None] | None = None

    @property
    def used(self) -> Usage:
        """What it holds while open, what it was charged afterwards."""
        return self.estimate if self.state == "open" else self.charged


@dataclass(frozen=True)
class Answer:
    """A decision of reserve; None in limit fields means the contract names none."""

    allowed: bool
    reason: str
    observed_reason: str | None = None
    replayed: bool = False
    tier: str = "normal"
    model: str | None = None
    notice: bool = False
    limit_value: int | None = None
    limit_used: int | None = None
    resets_at: datetime | None = None
    retry_after: Fraction | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcomes that the contract's words allow, and the charge that then stands."""

    accepts: frozenset[str]
    charge: Usage


@dataclass(frozen=True)
class Ended:
    """What expiry did to one reservation."""

    tenant: str
    request_id: str
    policy: str
    charge: Usage
