"""Sample facts of the messages of the watch, as quota_watch's functions make them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# App, key, requests, tokens, what they cost; the costliest first.
_CALLERS: Final = (
    ("seo-audit", "k-03", 412, 309_000, 412_000_000),
    ("support-bot", "k-17", 96, 58_140, 77_500_000),
    ("", "k-22", 12, 2_860, 3_640_000),
)
# One of each rule, and one that has no history; the costliest first.
_FINDINGS: Final[tuple[dict[str, Any], ...]] = (
    {
        "app": "seo-audit",
        "api_key": "k-03",
        "rule": "tight_loop",
        "figure": "requests",
        "present": 1_260,
        "usual": 30,
        "requests": 1_260,
        "minutes": 14,
        "tokens": 1_056_000,
        "cost_nanos": 1_408_000_000,
        "recent": 840,
        "same": 773,
        "same_in_tokens": 812,
        "usual_minutes": 310.5,
    },
    {
        "app": "digest",
        "api_key": "",
        "rule": "every_minute",
        "figure": "requests",
        "present": 44,
        "usual": 2,
        "requests": 44,
        "minutes": 41,
        "tokens": 61_000,
        "cost_nanos": 81_300_000,
        "recent": 9,
        "same": 2,
        "same_in_tokens": 1_402,
        "usual_minutes": 1.0,
    },
    {
        "app": "support-bot",
        "api_key": "k-17",
        "rule": "times_usual",
        "figure": "cost",
        "present": 77_500_000,
        "usual": 5_200_000,
        "requests": 130,
        "minutes": 52,
        "tokens": 58_140,
        "cost_nanos": 77_500_000,
        "recent": 22,
        "same": 3,
        "same_in_tokens": 640,
        "usual_minutes": 120.0,
    },
    {
        "app": "",
        "api_key": "k-22",
        "rule": "tight_loop",
        "figure": "requests",
        "present": 150,
        "usual": None,
        "requests": 150,
        "minutes": 6,
        "tokens": 30_000,
        "cost_nanos": 3_640_000,
        "recent": 150,
        "same": 150,
        "same_in_tokens": 180,
        "usual_minutes": None,
    },
)
MOST_CALLERS, MOST_LISTED = 5, 10


def _about(names: Sequence[str]) -> dict[str, Any]:
    return {
        "subject_kind": "tenant",
        "subject": names[0] if names else "tenant-free",
        "environment": "production",
        "department_id": "marketing",
        "department_name": names[0] if names else "Marketing",
        "severity": "warning",
        "decided_at": "2026-11-30T10:00:00+00:00",
        "zone": "Asia/Shanghai",
        "currency": "CNY",
        "top_apps": None,
    }


def burn_facts(names: Sequence[str] = (), *, many: bool = False) -> dict[str, Any]:
    """Two caps and their callers, five with ``many``; ``names`` take the place of all names."""
    made = (_CALLERS * 2)[:MOST_CALLERS] if many else _CALLERS
    total = sum(tokens for _, _, _, tokens, _ in made)
    day = {"period_kind": "day", "period_start": "2026-11-30", "threshold": None, "crossed": False}
    ends = {"resets_at": "2026-11-30T16:00:00+00:00", "refused_at": None}
    return _about(names) | {
        "owner_emails": [],
        "finance_emails": [names[0]] if names else [],
        "dimensions": [
            {"dimension": "tokens", "used": 820_000, "held": 4_000, "cap": 2_000_000, "pct": 41.0}
            | {"expected_at": "2026-11-30T13:11:00+00:00", "pace": 370_000, "short_pace": 402_000}
            | {"times_even": 4.4}
            | day
            | ends,
            {"dimension": "cost", "used": 1_025_000_000, "held": None, "cap": 2_700_000_000}
            | {"pct": 37.9, "expected_at": "2026-11-30T13:23:00+00:00", "pace": 493_140_000}
            | {"short_pace": 530_000_000, "times_even": 4.3}
            | day
            | ends,
        ],
        "callers": [
            {
                "app": names[place % len(names)] if names else app,
                "api_key": names[(place + 1) % len(names)] if names else key,
                "requests": requests,
                "tokens": tokens,
                "cost_nanos": cost_nanos,
                "share_pct": round(tokens * 100 / total, 1),
            }
            for place, (app, key, requests, tokens, cost_nanos) in enumerate(made)
        ],
    }


def runaway_facts(names: Sequence[str] = (), *, many: bool = False) -> dict[str, Any]:
    """One finding of each rule, or ten of 1,000 with ``many``; ``names`` as in ``burn_facts``."""
    made = (_FINDINGS * 3)[:MOST_LISTED] if many else _FINDINGS
    findings = [
        one
        | {"end_users": place % 3, "models": [names[place % len(names)]] if names else ["large"]}
        | (
            {"app": names[place % len(names)], "api_key": names[(place + 1) % len(names)]}
            if names
            else {}
        )
        for place, one in enumerate(made)
    ]
    return _about(names) | {
        "dimensions": [],
        "finding_count": 1_000 if many else len(findings),
        "requests": sum(one["requests"] for one in findings),
        "tokens": sum(one["tokens"] for one in findings),
        "cost_nanos": sum(one["cost_nanos"] for one in findings),
        "findings": findings,
    }
