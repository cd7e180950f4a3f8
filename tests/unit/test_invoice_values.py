"""Days, times and amounts as exports write them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from unit import invoice_world as world
from unit.invoice_world import FIRST, SECOND, invoice, tally
from worker.errors import UsageError
from worker.invoice.columns import parse_columns
from worker.invoice.reading import DAYS

if TYPE_CHECKING:
    from pathlib import Path

HAND = parse_columns(["date=Day,model=Model,cost=Cost"])


def costs(folder: Path, *rows: str, **more: object) -> dict[date, int]:
    """Nanos by day of rows of a day and a cost."""
    content = "Day,Model,Cost\n" + "".join(f"{row}\n" for row in rows)
    cells = invoice(folder, content, columns=HAND, **more).cells
    return {day: figures.cost_nanos for (day, _), figures in cells.items()}


@pytest.mark.parametrize(
    ("written", "nanos"),
    [
        ("1", 10**9),
        ("0.000000001", 1),
        ("0.0000000005", 1),  # half a nano, rounded up
        ("0.00000000049999", 0),
        ('"1,234,567.5"', 1_234_567_500_000_000),
        ("1 234.5", 1_234_500_000_000),
        ("1\u202f234.5", 1_234_500_000_000),
        ("1'234.5", 1_234_500_000_000),
        ("$1.5", 1_500_000_000),
        ("US$ 1.5", 1_500_000_000),
        ("-$1.5", -1_500_000_000),
        ("$-1.5", -1_500_000_000),
        ("1.5 $", 1_500_000_000),
        ("-0.25", -250_000_000),
        ("2.5E-7", 250),
    ],
)
def test_amounts(tmp_path: Path, written: str, nanos: int) -> None:
    assert costs(tmp_path, f"2026-10-01,m,{written}") == {FIRST: nanos}


@pytest.mark.parametrize(
    ("written", "currency"),
    [
        ("¥7", "CNY"),
        ("￥7", "CNY"),
        ("-CN¥7.00", "CNY"),
        ("7元", "CNY"),
        ("¥ 7", "JPY"),
        ("7 €", "EUR"),
        ("£7", "GBP"),
        ("$7", "AUD"),
        ("HK$7", "HKD"),
    ],
)
def test_a_sign_agrees_with_the_currency(tmp_path: Path, written: str, currency: str) -> None:
    found = tally(
        tmp_path, f"Day,Model,Cost\n2026-10-01,m,{written}\n", columns=HAND, currency=currency
    )
    ((key, one),) = found.sums.items()
    assert (key[2], abs(one.cost), one.cost < 0) == (currency, 7, written.startswith("-"))


@pytest.mark.parametrize(
    ("written", "currency", "said"),
    [
        ("$7", "CNY", "'$7' is in a dollar such as USD, and the row counts as CNY: say --currency USD"),
        ("US$7", "AUD", "'US$7' is in USD, and the row counts as AUD: say --currency USD"),
        ("¥7", "USD", "'¥7' is in CNY or JPY, and the row counts as USD: say --currency CNY"),
        ("7 €", "GBP", "'7 €' is in EUR, and the row counts as GBP"),
        ("£7", "EUR", "'£7' is in GBP, and the row counts as EUR"),
        ("₹7", "USD", "'₹7' has the sign ₹, which is not known here"),
        ("R$7", "USD", "'R$7' has the sign $, which is not known here"),
        ("$", "USD", "'$' has the sign $, which is not known here"),
    ],
)  # fmt: skip
def test_a_sign_of_another_currency_is_refused_by_name(
    tmp_path: Path, written: str, currency: str, said: str
) -> None:
    content = f"Day,Model,Cost\n2026-10-01,m,{written}\n"
    # said by the command line, by the billing currency, by the row
    for rules in ({"currency": currency}, {"billing_currency": currency}):
        with pytest.raises(UsageError) as refused:
            tally(tmp_path, content, columns=HAND, **rules)
        assert f"line 2: {said}" in str(refused.value)
    columns = parse_columns(["date=Day,cost=Cost,currency=Model"])
    with pytest.raises(UsageError) as refused:
        tally(tmp_path, content.replace(",m,", f",{currency},"), columns=columns)
    assert f"line 2: {said}" in str(refused.value)


def test_a_point_beside_decimal_commas_is_not_guessed(tmp_path: Path) -> None:
    content = "Day;Model;Cost\n2026-10-01;m;1.5\n"
    with pytest.raises(UsageError, match="line 2: '1.5' is no number: with a decimal point say"):
        tally(tmp_path, content, columns=HAND, decimal=",")


def test_large_and_tiny_amounts_add_up_exactly(tmp_path: Path) -> None:
    rows = ["2026-10-01,m,123456789012.123456789", "2026-10-01,m,0.0000000010000000001"]
    assert costs(tmp_path, *rows) == {FIRST: 123_456_789_012_123_456_790}


def test_a_million_tiny_amounts_are_exact(tmp_path: Path) -> None:
    """Provider's amounts have more decimals than nanos: they are added before they are rounded."""
    rows = ["2026-10-01,m,0.0000000004"] * 5
    assert costs(tmp_path, *rows) == {FIRST: 2}


@pytest.mark.parametrize(
    ("written", "zone", "billing", "day"),
    [
        ("2026-10-01", "UTC", "Asia/Shanghai", FIRST),  # a day stays a day
        ("2026-10-01T17:00:00Z", "UTC", "Asia/Shanghai", SECOND),
        ("2026-10-01 17:00", "UTC", "Asia/Shanghai", SECOND),
        ("2026-10-02 00:30", "Asia/Shanghai", "UTC", FIRST),
        ("2026-10-02 00:30:00+08", "America/New_York", "UTC", FIRST),
        ("2026-10-02 00:30:00.5+0800", "UTC", "UTC", FIRST),
        ("2026-10-02 00:30:00 UTC", "Asia/Shanghai", "UTC", SECOND),
        ("1790899199", "UTC", "UTC", FIRST),
        ("1790899199000", "UTC", "Asia/Shanghai", SECOND),
        ("20261002", "UTC", "UTC", SECOND),
        ("2026-10-01 22:00:00-05:00", "UTC", "UTC", SECOND),
        ("2026-09-30T20:00:00Z", "UTC", "Asia/Shanghai", FIRST),  # of the month there alone
        ("2026/10/02", "UTC", "UTC", SECOND),
    ],
)
def test_days_and_times(tmp_path: Path, written: str, zone: str, billing: str, day: date) -> None:
    assert costs(tmp_path, f"{written},m,1", zone=zone, billing=billing) == {day: 10**9}


def test_an_export_all_of_whose_times_are_midnight_has_days(tmp_path: Path) -> None:
    """OpenAI's buckets begin at 00:00 UTC: in New York that is the evening before."""
    found = tally(tmp_path, world.OPENAI_USAGE, billing="America/New_York")
    assert (found.kind, {day for day, _, _ in found.sums}) == (DAYS, {FIRST, SECOND})
    one = "2026-10-01T00:00:00Z,m,1"
    two = "2026-10-05T12:00:00Z,m,1"
    assert costs(tmp_path, one, billing="America/New_York") == {FIRST: 10**9}
    # one row with a time: all are times. There the first is of the month before, so that the file
    # is UTC's month, and has its days
    assert costs(tmp_path, one, two, billing="America/New_York") == {
        FIRST: 10**9,
        date(2026, 10, 5): 10**9,
    }
    # a row that only the billing zone has in the month: it is no month of UTC
    late = "2026-11-01T01:00:00Z,m,1"
    assert costs(tmp_path, one, two, late, billing="America/New_York") == {
        date(2026, 10, 5): 10**9,
        date(2026, 10, 31): 10**9,
    }


def test_a_file_all_of_whose_rows_are_of_another_billing_day(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no row of the file lies in 2026-10: its days go from"):
        costs(
            tmp_path,
            "2026-10-31T18:00:00Z,m,1",
            "2026-11-01T00:00:00Z,m,1",
            billing="Asia/Shanghai",
        )
