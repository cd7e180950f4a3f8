"""What of a report makes a new revision: the month's own figures, by name and exact."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.roi.figures import Figure
    from worker.roi.summary import Summary

METRIC: Final = "metric:"  # before an outcome's name where a figure has that name; none has a colon


def told_figures(summary: Summary) -> dict[str, str]:
    """The month's own figures by name, exact, or why there is none ("no_outcomes").

    What a revision is judged by: comparisons with peers and other months, names and
    suggestions are left out, as others change those.
    """
    own, ledger = summary.ledger.own, summary.ledger
    found: dict[str, str] = {
        "completions": str(own.completions),
        "input_tokens": str(own.input_tokens),
        "output_tokens": str(own.output_tokens),
        "cost_nanos": str(own.cost_nanos),
        "stale_cost_nanos": str(own.stale_cost_nanos),
        "adjusted_tokens": str(ledger.adjustments.tokens),
        "adjusted_cost_nanos": str(ledger.adjustments.cost_nanos),
        "total_cost_nanos": str(ledger.total.cost_nanos),
        "cost_per_million_tokens": _told(summary.cost_per_million_tokens),
    }
    for use in summary.budgets:
        found[f"{use.environment}.budget_tokens_used"] = _told(use.tokens_share)
        found[f"{use.environment}.budget_cost_used"] = _told(use.cost_share)
    for metric in summary.metrics:
        # other departments' metrics come and go: only what was imported here is told
        if metric.metric in summary.outcomes:
            # an outcome may be called as a figure of ours is: completions, say
            name = f"{METRIC}{metric.metric}" if metric.metric in found else metric.metric
            found[name] = _told(metric.now.value)
            found[f"{name}.cost_per_one"] = _told(metric.now.cost_per_one)
            found[f"{name}.per_million_tokens"] = _told(metric.now.per_million_tokens)
            found[f"{name}.per_cost_unit"] = _told(metric.now.per_cost_unit)
    return found


def fingerprint(told: Mapping[str, str]) -> str:
    """The same for the same figures."""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _told(figure: Figure) -> str:
    return figure.reason.value if figure.value is None else str(figure.value)
