"""Sample messages: an outbox row's values, with facts as quota_warn_facts makes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from worker.models import OutboxMessage

AT = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)

# Case 23, and what else a name may try.
HOSTILE_NAMES = (
    "<at id=all></at>",
    '<at user_id="all">x</at>',
    "@所有人",
    "@all",
    "[x](http://e)",
    'a"b\\',
    "**bold** _it_ ~~s~~ `c` $x$",
    ":OK: & &amp; #1 + - !",
    "{{ 7 * 7 }}{% raw %}",
    "-rf",
    "a\nnext: all is well",
    "a\r\n[quota-warn] b at 1%",
    "\x1b[2J\x07bell",
    "a\0b",
    "\u202eevil",
    "\u200b",
    "   ",
    "用户 甲",
    "👩\u200d👩\u200d👧",
)


def dimension(name: str = "completions", **changes: Any) -> dict[str, Any]:
    return {
        "dimension": name,
        "period_kind": "day",
        "period_start": "2026-11-30",
        "resets_at": "2026-12-01T00:00:00+00:00",
        "used": 41,
        "held": None,
        "cap": 50,
        "pct": 82.0,
        "threshold": 80,
        "crossed": True,
        "refused_at": None,
        "expected_at": None,
    } | changes


def tenant_facts(subject: str = "tenant-free", **changes: Any) -> dict[str, Any]:
    return {
        "subject_kind": "tenant",
        "subject": subject,
        "environment": "production",
        "department_id": None,
        "department_name": None,
        "severity": "warning",
        "threshold": 80,
        "past": False,
        "decided_at": "2026-11-30T10:00:00+00:00",
        "zone": "UTC",
        "currency": "USD",
        "dimensions": [
            dimension(),
            dimension(
                "cost",
                used=820_000_000,
                held=20_000_000,
                cap=2_000_000_000,
                pct=41.0,
                threshold=None,
                crossed=False,
            ),
        ],
        "enforce": "on",
        "tier": None,
        "downgrade_model": None,
        "downgrade_from": None,
        "owner_emails": [],
        "finance_emails": [],
        "top_apps": None,
    } | changes


def department_facts(subject: str = "rnd", **changes: Any) -> dict[str, Any]:
    return (
        tenant_facts(
            subject,
            subject_kind="department",
            department_id=subject,
            department_name="R&D",
            dimensions=[
                dimension(
                    "tokens",
                    period_kind="month",
                    period_start="2026-11-01",
                    used=9_100,
                    held=100,
                    cap=10_000,
                    pct=91.0,
                    threshold=90,
                )
            ],
            severity="downgrade",
            threshold=90,
            enforce=None,
            tier="downgrade",
            downgrade_pct=90,
            protect_pct=98,
            downgrade_model="small",
            downgrade_from=["large", "huge"],
            finance_emails=["money@example.com"],
            top_apps=[
                {
                    "app": "crawler",
                    "tokens": 8_000,
                    "cost_nanos": 12_345_678_900,
                    "share_pct": 87.9,
                    "models": ["large", "small"],
                },
                {"app": "", "tokens": 1_100, "cost_nanos": 1, "share_pct": 12.1, "models": []},
            ],
        )
        | changes
    )


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
