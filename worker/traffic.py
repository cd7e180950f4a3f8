"""What a caller asks of the ledger and what it answers: frozen values of replayed traffic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for admission: who, under which id, and its estimate."""

    tenant_id: str
    request_id: str
    in_tokens: int
    out_tokens: int
    cost_nanos: int
    model: str | None = None
    app: str | None = None
    priority: str = "normal"


@dataclass(frozen=True, slots=True)
class Decision:
    """What ``quota_reserve`` answered, as far as replayed traffic needs it."""

    allowed: bool
    reason: str
    observed_reason: str | None
    replayed: bool
    tier: str
    model: str | None
