"""Sample messages: an outbox row's values, with facts as quota_warn_facts makes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from worker.models import OutboxMessage
from worker.samples import HOSTILE_NAMES, department_facts, dimension, tenant_facts

__all__ = ["AT", "HOSTILE_NAMES", "department_facts", "dimension", "message", "tenant_facts"]

AT = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


def message(facts: dict[str, Any] | None = None, **changes: Any) -> OutboxMessage:
    facts = facts or tenant_facts()
    values: dict[str, Any] = {
        "message_id": 1,
        "kind": f"{facts['subject_kind']}-warn",
        "channel": "console",
        "severity": facts["severity"],
        "locale": "en",
        "facts": json.dumps(facts),
        "attempt": 1,
        "dedupe_key": "qw-0123456789abcdef",
        "created_at": AT,
    }
    return OutboxMessage(**values | changes)
