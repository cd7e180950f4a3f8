"""Months to report on: shorthand for tests, and random ones for Hypothesis."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from worker.roi.facts import Amounts, Budget, Day, Department, Facts, Month, Part, Peer, Price

OCTOBER = date(2026, 10, 1)
SEPTEMBER = date(2026, 9, 1)
MILLION = 1_000_000
ONE = 10**9  # nanos of a currency unit


def amounts(cost: int = 0, tokens: int = 0, n: int = 1, **more: int) -> Amounts:
    """Cost in nanos; all tokens are input."""
    return Amounts(completions=n, input_tokens=tokens, cost_nanos=cost, **more)


def part(what: Amounts, **labels: Any) -> Part:
    """A part of department d in October, unless said otherwise."""
    usual = {
        "department_id": "d",
        "environment": "production",
        "tenant_id": "t",
        "model": "m",
        "app": "a",
        "belongs_to": OCTOBER,
    }
    return Part(amounts=what, **(usual | labels))


def facts(*parts: Part, **more: Any) -> Facts:
    """Department d's October of 2026; ``department=None``: of all."""
    usual: dict[str, Any] = {
        "month": OCTOBER,
        "zone": "Asia/Shanghai",
        "currency": "USD",
        "provisional": False,
        "department": Department("d", "Sales"),
    }
    return Facts(parts=parts, **(usual | more))


def peer(name: str, now: Amounts, before: Amounts | None = None, **more: Any) -> Peer:
    """A department whose name is its id."""
    return Peer(name, name, now, before, **more)


COUNTS = st.integers(0, 10**6)
TOKENS = st.integers(0, 10**13)
NANOS = st.integers(-(10**6), 10**16)  # corrections may leave less than nothing
LABELS = {
    "department_id": st.sampled_from(["d", "e", "f", ""]),
    "environment": st.sampled_from(["production", "test"]),
    "tenant_id": st.sampled_from([f"t{i}" for i in range(30)]),
    "model": st.sampled_from(["", *(f"m{i}" for i in range(13))]),
    "app": st.sampled_from(["", *(f"a{i}" for i in range(40))]),
    "belongs_to": st.sampled_from([OCTOBER] * 6 + [SEPTEMBER, date(2026, 7, 1)]),
}
AMOUNTS = st.one_of(
    st.just(Amounts()),
    st.builds(
        Amounts,
        COUNTS,
        TOKENS,
        TOKENS,
        TOKENS,
        NANOS,
        COUNTS,
        NANOS,
        COUNTS,
        COUNTS,
        COUNTS,
        TOKENS,
    ),
)
OUTCOME = st.decimals(0, 10**12, places=4, allow_nan=False, allow_infinity=False)
OUTCOMES = st.dictionaries(st.sampled_from(["orders", "gmv", "tickets"]), OUTCOME)
PARTS = st.lists(st.builds(Part, **LABELS, amounts=AMOUNTS), max_size=30)
DAYS = st.lists(
    st.builds(
        Day,
        environment=LABELS["environment"],
        day=st.integers(0, 30).map(lambda n: OCTOBER + timedelta(days=n)),
        amounts=AMOUNTS,
    ),
    max_size=10,
)
LIMIT = st.one_of(st.none(), st.just(0), st.integers(1, 10**17))
BUDGETS = st.lists(
    st.builds(
        Budget,
        department_id=st.sampled_from(["d", "e", "f"]),
        environment=LABELS["environment"],
        tokens=LIMIT,
        cost_nanos=LIMIT,
        topup_tokens=COUNTS,
        topup_cost_nanos=COUNTS,
    ),
    unique_by=lambda one: (one.department_id, one.environment),
).map(tuple)
HISTORY = st.lists(
    st.builds(
        Month,
        month=st.sampled_from([date(2026, n, 1) for n in range(3, 10)]),
        own=AMOUNTS,
        adjustments=AMOUNTS,
        outcomes=OUTCOMES,
    ),
    unique_by=lambda one: one.month,
).map(tuple)
PEERS = st.lists(
    st.builds(
        Peer,
        department_id=st.sampled_from(list("defghijkl")),
        name=st.just("x"),
        now=AMOUNTS,
        before=st.one_of(st.none(), AMOUNTS),
        outcomes_now=OUTCOMES,
        outcomes_before=OUTCOMES,
    ),
    unique_by=lambda one: one.department_id,
).map(tuple)
RATE = st.decimals("0.01", 100, places=3, allow_nan=False, allow_infinity=False)
PRICES = st.lists(
    st.builds(
        Price,
        model=st.sampled_from([f"m{i}" for i in range(13)]),
        input=RATE,
        output=RATE,
        cached_input=st.one_of(st.none(), RATE),
    ),
    unique_by=lambda one: one.model,
).map(tuple)


@st.composite
def months(draw: st.DrawFn) -> Facts:
    """A random October, of department d or of all."""
    of_all = draw(st.booleans())
    parts, budgets = draw(PARTS), draw(BUDGETS)
    if not of_all:
        parts = [replace(one, department_id="d") for one in parts]
        budgets = tuple(one for one in budgets if one.department_id == "d")
    return Facts(
        month=OCTOBER,
        zone="UTC",
        currency="CNY",
        provisional=draw(st.booleans()),
        department=None if of_all else Department("d", "Sales", "en"),
        parts=tuple(parts),
        days=tuple(draw(DAYS)),
        budgets=budgets,
        outcomes=draw(OUTCOMES),
        history=draw(HISTORY),
        peers=draw(PEERS),
        prices=draw(PRICES),
        names={"e": "Support"},
    )


def decimals(**outcomes: str | int) -> dict[str, Decimal]:
    """Outcomes by metric."""
    return {name: Decimal(value) for name, value in outcomes.items()}
