"""Sample facts of a message about a month's report, as quota_report_store makes them. Pure."""

from __future__ import annotations

from typing import Any


def report_facts(name: str | None = None, *, corrected: bool = False) -> dict[str, Any]:
    """Of one department; ``name`` takes the place of its id and name."""
    changes = [
        {"figure": "orders", "old": "no_outcomes", "new": "1234"},
        {"figure": "orders.cost_per_one", "old": "no_outcomes", "new": "12345678901/2"},
    ]
    return {
        "severity": "available",
        "dimensions": [],
        "top_apps": None,
        "zone": "Asia/Shanghai",
        "currency": "CNY",
        "month": "2026-10",
        "department_id": "rnd" if name is None else name,
        "department_name": "R&D" if name is None else name,
        "revision": 2 if corrected else 1,
        "changes": changes if corrected else [],
        "completions": 820_000,
        "tokens": 2_624_000_000,
        "cost_nanos": 157_713_333_308_460,
        "total_cost_nanos": 157_714_333_308_460,
        "decided_at": "2026-11-30T10:00:00+00:00",
    }
