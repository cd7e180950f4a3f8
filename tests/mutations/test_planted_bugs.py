"""Each planted bug must turn its test red, and that test must be green without it.

`make mutants` (QUOTA_WORKER_MUTANTS=1) plants them all; by default a few, the
dearest of every kind, so that an ordinary run notices when the list rots.
"""

from __future__ import annotations

import os

import pytest

from mutations import (
    planted_alerts,
    planted_audit,
    planted_crossings,
    planted_diagnosis,
    planted_endings,
    planted_limits,
    planted_months,
    planted_pools,
    planted_prices,
    planted_races,
    planted_reports,
    planted_requests,
    planted_sources,
    planted_upkeep,
    planted_watch,
)
from mutations.planting import Planted, is_red, mutated

BUGS = [
    *planted_requests.BUGS,
    *planted_endings.BUGS,
    *planted_limits.BUGS,
    *planted_pools.BUGS,
    *planted_months.BUGS,
    *planted_alerts.BUGS,
    *planted_audit.BUGS,
    *planted_crossings.BUGS,
    *planted_diagnosis.BUGS,
    *planted_prices.BUGS,
    *planted_races.BUGS,
    *planted_reports.BUGS,
    *planted_sources.BUGS,
    *planted_upkeep.BUGS,
    *planted_watch.BUGS,
]
QUICK = {
    "charge before lock: the first requests race",
    "reset by the session's time zone",
    "late usage added instead of replacing",
    "double release",
    "early expiry",
    "refusal takes a token",
    "sub-cent cost dropped",
    "hold not released on settle",
    "a monthly cap sees today only",
    "what no longer fits is admitted",
    "a batch passes the cap together",
    "each slot gets the whole room",
    "anybody finishes",
    "a warning threshold is passed, not reached",
}
CHOSEN = [one for one in BUGS if os.environ.get("QUOTA_WORKER_MUTANTS") == "1" or one.name in QUICK]


@pytest.mark.parametrize("planted", CHOSEN, ids=[one.name.replace(" ", "-") for one in CHOSEN])
async def test_a_planted_bug_turns_a_test_red(dsn: str, planted: Planted) -> None:
    assert await is_red(dsn, planted), f"{planted.killer} did not notice: {planted.name}"


def test_every_bug_has_a_name_of_its_own() -> None:
    names = [one.name for one in BUGS]
    assert len(names) == len(set(names))
    assert set(names) >= QUICK


@pytest.mark.parametrize("planted", BUGS, ids=[one.name.replace(" ", "-") for one in BUGS])
def test_every_search_text_occurs_exactly_once(planted: Planted) -> None:
    assert mutated(planted)
