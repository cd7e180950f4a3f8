"""Days that begin at another hour: told exactly where the zone was said, else guessed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from unit.invoice_sides import UNIT, Cells, cost, explained, make_invoice, make_ledger, traffic
from unit.invoice_world import MONTH
from worker.invoice.reading import DAYS, LOCAL, MOMENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.invoice.explaining import Explanation


def zoned(billing: str, invoice_zone: str, said: str, kind: str = DAYS) -> dict[str, Explanation]:
    """A ledger by one zone's days, an invoice by another's, and what was said of it."""
    times, theirs = traffic(invoice_zone)
    other = kind == DAYS and said != billing
    _, ours = traffic(said if other else billing)
    ledger = make_ledger(
        {(day, "a"): cost(nanos) for day, nanos in ours.items()},
        zone=billing,
        times=times,
        days_zone=said if other else None,
    )
    invoice = make_invoice({(day, "a"): cost(nanos) for day, nanos in theirs.items()}, kind=kind)
    return explained(ledger, invoice, said)


def test_days_of_another_zone_are_explained_to_the_last_nano() -> None:
    found = zoned("Asia/Shanghai", "UTC", "UTC")
    _, ours = traffic("Asia/Shanghai")
    _, theirs = traffic("UTC")
    apart = sum(abs(ours[day] - theirs[day]) for day in ours)
    # by the same days nothing differs, and that it would have is told
    assert [*found] == ["zone"]
    assert found["zone"].cost_nanos == apart
    assert "the invoice's days are of UTC, the ledger's of Asia/Shanghai" in found["zone"].text


@pytest.mark.parametrize(
    ("billing", "invoice_zone", "said", "kind", "hint"),
    [
        ("UTC", "Asia/Shanghai", "UTC", DAYS, "8 hours earlier than those of UTC, in a zone of UTC+08:00"),
        ("UTC", "America/Bogota", "UTC", LOCAL, "5 hours later than those of UTC, in a zone of UTC-05:00"),
        ("Asia/Shanghai", "Asia/Kolkata", "UTC", DAYS, "5.5 hours earlier than those of UTC, in a zone of UTC+05:30"),
        ("UTC", "UTC", "Asia/Shanghai", DAYS, "8 hours later than those of Asia/Shanghai, in a zone of UTC+00:00"),
        ("UTC", "Asia/Shanghai", "UTC", MOMENTS, None),
        ("UTC", "UTC", "UTC", DAYS, None),
        # times are on the ledger's days already
        ("Asia/Shanghai", "Asia/Shanghai", "UTC", LOCAL, None),
    ],
)  # fmt: skip
def test_a_zone_that_was_not_said_is_guessed(
    billing: str, invoice_zone: str, said: str, kind: str, hint: str | None
) -> None:
    found = zoned(billing, invoice_zone, said, kind)
    if hint is None:
        assert not any(kind.startswith("zone") for kind in found)
    else:
        assert hint in found["zone_hint"].text


def at_noon(theirs: Mapping[date, int]) -> dict[str, Explanation]:
    """A ledger of ten units at noon of each day, and an invoice by days, both of UTC."""
    days = [MONTH + timedelta(days=number) for number in range(31)]
    noons = [datetime(one.year, one.month, one.day, 12, tzinfo=UTC) for one in days]
    ledger = make_ledger(
        {(day, "a"): cost(10 * UNIT) for day in days},
        times=tuple((noon, cost(10 * UNIT)) for noon in noons),
    )
    return explained(ledger, make_invoice({(day, "a"): cost(n) for day, n in theirs.items()}))


def test_of_zones_that_fit_alike_the_nearest_is_told() -> None:
    later = {MONTH + timedelta(days=n): 10 * UNIT * (n % 7 > 2) for n in range(1, 31)}
    assert "zone_hint" not in at_noon(later)  # half of the usage is missing, whatever the zone
    later = {MONTH + timedelta(days=n): 10 * UNIT for n in range(1, 31)}
    assert "zone_hint" not in at_noon(later)  # a day is missing, and no day makes up for it
    found = traffic_at_noon_moved()
    assert "12 hours earlier than those of UTC, in a zone of UTC+12:00" in found["zone_hint"].text


def traffic_at_noon_moved() -> dict[str, Explanation]:
    """Uneven traffic at noon, which an invoice has on the next day each."""
    amounts = [UNIT * (3 + 5 * (n % 3)) for n in range(33)]
    days = [MONTH + timedelta(days=n - 1) for n in range(33)]
    noons = [datetime(one.year, one.month, one.day, 12, tzinfo=UTC) for one in days]
    ledger = make_ledger(
        {(day, "a"): cost(n) for day, n in zip(days[1:-1], amounts[1:-1], strict=True)},
        times=tuple((noon, cost(n)) for noon, n in zip(noons, amounts, strict=True)),
    )
    theirs: Cells = {(day, "a"): cost(n) for day, n in zip(days[1:-1], amounts[:-2], strict=True)}
    return explained(ledger, make_invoice(theirs))


def test_days_that_are_the_ledgers_own_are_told_though_nothing_cancels() -> None:
    """All that moves lies at the month's end: no day makes up for it."""
    noons = [datetime(2026, 10, day, 12, tzinfo=UTC) for day in range(1, 32)]
    flat: Cells = {(noon.date(), "a"): cost(UNIT) for noon in noons}
    eve = datetime(2026, 9, 30, 20, tzinfo=UTC)  # the first of October in Shanghai

    def told(first: int) -> dict[str, Explanation]:
        ledger = make_ledger(
            flat,
            zone="Asia/Shanghai",
            days_zone="UTC",
            times=tuple((at, cost(UNIT * (50 if at == eve else 1))) for at in (eve, *noons)),
        )
        return explained(ledger, make_invoice({**flat, (MONTH, "a"): cost(first * UNIT)}))

    hint = told(51)["zone_hint"]
    assert hint.text.startswith("the days fit as if the invoice's were of Asia/Shanghai, as the")
    assert hint.cost_nanos == 50 * UNIT
    assert "zone_hint" not in told(34)  # 33 apart as said, 17 by the ledger's days
    assert "zone_hint" in told(35)
    assert "zone_hint" not in told(1)


def test_one_wrong_day_is_no_zone() -> None:
    theirs = {MONTH + timedelta(days=n): 10 * UNIT for n in range(31)}
    theirs[MONTH + timedelta(days=30)] = UNIT
    assert "zone_hint" not in at_noon(theirs)
