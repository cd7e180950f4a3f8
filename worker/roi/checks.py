"""Facts that contradict themselves are refused: a wrong report is worse than none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.periods import month_of
from worker.roi.facts import AMOUNT_NAMES, values

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping
    from decimal import Decimal

    from worker.roi.facts import Amounts, Facts, Peer

OUTCOME_EXPONENT_MAX: Final = 40  # as a fraction a number has about as many digits as its exponent


def check_facts(facts: Facts) -> None:
    """All but peers, and parts and days, which are checked as they are read; raises ValueError."""
    if facts.month != month_of(facts.month):
        raise ValueError(f"a report's month is its first day, not {facts.month}")
    if facts.through is not None and month_of(facts.through) != facts.month:
        raise ValueError(f"{facts.through} lies outside of {facts.month:%Y-%m}")
    for month in facts.history:
        if month.month != month_of(month.month) or month.month >= facts.month:
            raise ValueError(f"history before {facts.month:%Y-%m} can't have {month.month}")
        check_outcomes(month.outcomes)
        check_whole(month.own)
        check_whole(month.adjustments)
    _once((month.month for month in facts.history), "history")
    _once(((one.department_id, one.environment) for one in facts.budgets), "budgets")
    _once((price.model for price in facts.prices), "prices")
    check_outcomes(facts.outcomes)
    for price in facts.prices:
        check_outcomes({"input": price.input, "output": price.output})
        if price.cached_input is not None:
            check_outcomes({"cached_input": price.cached_input})
    for budget in facts.budgets:
        check_department(facts, budget.department_id)


def check_peers(peers: Iterable[Peer]) -> None:
    """Once for all reports of a month; raises ValueError."""
    known = list(peers)
    _once((peer.department_id for peer in known), "peers")
    for peer in known:
        check_whole(peer.now)
        check_outcomes(peer.outcomes_now)
        check_outcomes(peer.outcomes_before)
        if peer.before is not None:
            check_whole(peer.before)


def check_department(facts: Facts, department_id: str) -> None:
    """Raises ValueError where a department's report would get another's figures."""
    if facts.department is not None and department_id != facts.department.department_id:
        mine = facts.department.department_id
        raise ValueError(f"the report of {mine!r} can't have figures of {department_id!r}")


def check_outcomes(outcomes: Mapping[str, Decimal]) -> None:
    """Finite, not negative, and of an exponent that a fraction can carry; raises ValueError."""
    for name, value in outcomes.items():
        if not value.is_finite() or value < 0:
            raise ValueError(f"{name} must be a finite number of at least 0, not {value}")
        if value and abs(value.adjusted()) > OUTCOME_EXPONENT_MAX:
            raise ValueError(f"{name} must be within 1e±{OUTCOME_EXPONENT_MAX}, not {value}")
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and abs(exponent) > OUTCOME_EXPONENT_MAX:
            raise ValueError(f"{name} has more than {OUTCOME_EXPONENT_MAX} decimals")


def check_whole(amounts: Amounts) -> None:
    """Raises ValueError for an amount that is no int: a sum of one is none, either."""
    for name, value in zip(AMOUNT_NAMES, values(amounts), strict=True):
        if type(value) is not int:
            raise ValueError(f"{name} must be a whole number, not {value!r}")


def _once(keys: Iterable[Hashable], what: str) -> None:
    seen: set[Hashable] = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"{what} have {key!r} twice")
        seen.add(key)
