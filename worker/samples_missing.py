"""Sample facts of a message about requests without usage, as quota_diagnose makes them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# Model, app, key, requests, how many without usage, what those are charged; the costliest first.
_GROUPS: Final = (
    ("large", "support-bot", "k-17", 4_120, 1_288, 9_274_310, 18_548_620_000),
    ("large", "seo-audit", "k-03", 2_310, 402, 3_120_044, 6_240_088_000),
    ("small", "nightly-translation", "", 9_600, 655, 1_310_000, 262_000_000),
    ("small", "", "k-22", 140, 9, 18_200, 3_640_000),
)
_ONLY: Final = 1


def missing_facts(names: Sequence[str] = (), *, many: bool = False) -> dict[str, Any]:
    """Four groups, or ten of 1,000 with ``many``; ``names`` take the place of all labels."""
    made = _GROUPS * 3 if many else _GROUPS
    groups = [
        {
            "model": names[place % len(names)] if names else model,
            "app": names[(place + 1) % len(names)] if names else app,
            "api_key": names[(place + 2) % len(names)] if names else key,
            "requests": requests,
            "missing": missing,
            "share_pct": round(missing * 100 / requests, 1),
            "tokens": tokens,
            "cost_nanos": cost_nanos,
            "department_id": "rnd" if place == _ONLY else None,
            "department_name": (names[0] if names else "R&D") if place == _ONLY else None,
        }
        for place, (model, app, key, requests, missing, tokens, cost_nanos) in enumerate(made[:10])
    ]
    return {
        "severity": "warning",
        "decided_at": "2026-11-30T10:00:00+00:00",
        "zone": "Asia/Shanghai",
        "currency": "CNY",
        "dimensions": [],
        "top_apps": None,
        "hours": 24,
        "missing_pct": 5,
        "group_count": 1_000 if many else len(groups),
        "requests": sum(one["requests"] for one in groups),
        "missing": sum(one["missing"] for one in groups),
        "uncharged": 9,
        "tokens": sum(one["tokens"] for one in groups),
        "cost_nanos": sum(one["cost_nanos"] for one in groups),
        "groups": groups,
    }
