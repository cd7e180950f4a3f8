"""A month that has a bit of everything, for the report's forms."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

from unit.roi_world import OCTOBER, ONE, SEPTEMBER, facts, part
from worker.roi.facts import Amounts, Budget, Day, Department, Month, Peer, Price
from worker.roi.report import summarize
from worker.roi.summary import Summary

APPS = 40
HOSTILE = "=<b>'\"&;@cmd|\t\r\n\u202e"


def usual_name(number: int, what: str) -> str:
    return f"{what}-{number}"


def hostile_name(number: int, what: str) -> str:
    """200 letters, that differ at their end alone."""
    return f"{HOSTILE}{'客服智能助手' * 40}"[: 200 - len(str(number))] + str(number)


def _peer_amounts(number: int) -> Amounts:
    return Amounts(100, 10**8, 0, 0, ONE * (30 - number) ** 2 * 10)


def a_month(
    *,
    of_all: bool = False,
    name=usual_name,
    provisional: bool = True,
    currency: str = "CNY",
    orders: bool = True,
) -> Summary:
    """October of department d with 40 apps, 31 days, peers, history, prices; or of 30 departments.

    ``orders`` False: the department has no outcomes, though others do.
    """
    ids = [f"d{number}" for number in range(30)] if of_all else ["d"]
    parts = [
        part(
            Amounts(
                completions=1_000,
                input_tokens=3_000_000 + number,
                cached_in_tokens=1_500_000 if number == 3 else 0,
                output_tokens=100_000,
                cost_nanos=(APPS - number) * 7_123_456_789,
                stale_count=90,
                stale_cost_nanos=(APPS - number) * 2 * ONE,
                released_count=5,
                unpriced_count=2,
            ),
            app=name(number, "chat-test" if number == 2 else "app"),
            model=name(number % 12, "model"),
            tenant_id=name(number, "tenant"),
            environment="test" if number % 2 else "production",
            department_id=ids[number % len(ids)],
        )
        for number in range(APPS)
    ]
    if of_all:
        parts.append(part(Amounts(3, 5, 0, 7, ONE), department_id=""))
    parts.append(part(Amounts(10, 100, 0, 10, ONE), belongs_to=SEPTEMBER, department_id=ids[0]))
    own = sum((one.amounts for one in parts if one.belongs_to == OCTOBER), Amounts())
    peers = tuple(
        Peer(
            department_id="d" if not number and not of_all else f"d{number}",
            name=name(number, "Department"),
            now=own if not number and not of_all else _peer_amounts(number),
            before=Amounts(100, 10**8, 0, 0, ONE * 600),
            outcomes_now={"orders": Decimal(1234 if not number else 300 + number)}
            if orders or number
            else {},
            outcomes_before={"orders": Decimal(250)} if orders or number else {},
        )
        for number in range(30)
    )
    return summarize(
        facts(
            *parts,
            department=None if of_all else Department("d", name(0, "Department"), "zh-CN"),
            provisional=provisional,
            currency=currency,
            days=tuple(
                Day(where, OCTOBER + timedelta(days=day), Amounts(10, 1_000, 0, 10, day * ONE))
                for where in ("production", "test")
                for day in range(31)
            ),
            budgets=tuple(Budget(one, "production", 10**10, 6_000 * ONE, 0, ONE) for one in ids),
            outcomes={"orders": Decimal(1234), "tickets": Decimal("77.5")} if orders else {},
            history=tuple(
                Month(
                    date(2026, month, 1),
                    Amounts(5_000, 10**9, 0, 10**8, 900 * ONE * month),
                    outcomes={"orders": Decimal(100 * month)} if orders else {},
                )
                for month in (5, 6, 8, 9)
            ),
            peers=peers,
            prices=tuple(
                Price(name(number, "model"), Decimal(number + 1), Decimal(4), Decimal("0.1"))
                for number in range(12)
            ),
            names={one: name(number, "Department") for number, one in enumerate(ids)},
        )
    )
