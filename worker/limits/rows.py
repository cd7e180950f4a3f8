"""Limits, blocks and changes as the database has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from worker.limits.shape import Key, Row


@dataclass(frozen=True, slots=True)
class Block:
    """A person's stop that is in force."""

    key: Key
    blocked_at: datetime
    blocked_until: datetime
    blocked_by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Limits:
    """A row as it is, and the block that holds for it."""

    key: Key
    row: Row
    block: Block | None


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change as it was recorded; `before` and `after` are whole rows."""

    change_id: int
    changed_at: datetime
    changed_by: str
    database_user: str
    action: str
    key: Key
    before: Row | None
    after: Row | None
    reason: str | None
    file_name: str | None
    file_sha256: str | None


@dataclass(frozen=True, slots=True)
class Topup:
    """An allowance to give. `tokens` or `cost_cents` may be None, not both."""

    department: str
    environment: str
    tokens: int | None
    cost_cents: int | None
    key: str
    approved_by: str
    reason: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Clock:
    """The database's time, and in which zone and currency people read."""

    at: datetime
    billing_zone: str
    currency: str
