"""Numbers that may be read in two ways: what in the file settles it, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from unit.invoice_world import tally
from worker.errors import UsageError
from worker.invoice.columns import parse_columns

if TYPE_CHECKING:
    from pathlib import Path

HAND = parse_columns(["date=Day,input=In,cost=Cost"])
DOUBT = "may be a decimal or a thousand, and no number of the file shows which: say --decimal , or"


def written(mark: str, *rows: tuple[str, str]) -> str:
    """A file of that delimiter, of rows with input and cost."""
    lines = [("Day", "In", "Cost"), *(("2026-10-01", *row) for row in rows)]
    quoted = [[f'"{one}"' if mark in one else one for one in line] for line in lines]
    return "".join(mark.join(line) + "\n" for line in quoted)


def read(
    folder: Path, mark: str, *rows: tuple[str, str], decimal: str | None = None
) -> tuple[int, Decimal]:
    found = tally(folder, written(mark, *rows), columns=HAND, decimal=decimal)
    ((_, one),) = found.sums.items()
    return one.in_tokens, one.cost


def refused(
    folder: Path, mark: str, *rows: tuple[str, str], decimal: str | None = None
) -> list[str]:
    with pytest.raises(UsageError) as error:
        read(folder, mark, *rows, decimal=decimal)
    return str(error.value).splitlines()


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("amount", ["1,234", "-1,234", "$1,234", "12,000"])
def test_one_comma_is_not_guessed_in_any_file(tmp_path: Path, mark: str, amount: str) -> None:
    rows = [("5", "7"), ("5", amount), ("5", "200")]
    bare = amount.lstrip("$")
    assert refused(tmp_path, mark, *rows) == [
        "export.csv: 1 row is in doubt, nothing was compared",
        f"line 3: '{bare}' {DOUBT} --decimal .",
    ]
    for decimal, other in ((",", "."), (".", "")):
        cost = Decimal(bare.replace(",", other)) + 207
        assert read(tmp_path, mark, *rows, decimal=decimal) == (15, cost)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize(
    "settling",
    [("5", "1,234.56"), ("5", "0.5"), ("5", ".25"), ("5", "0.012"), ("5", "1,234,567"),
     ("5", "12.5"), ("5", "1.2345"), ("5", "1234.567"), ("5", "1.234e-05"), ("1200.0", "2"),
     ("1,234", "2"), ("1,234,000", "2"), ("5", "$0.10")],
)  # fmt: skip
def test_another_number_shows_which_it_is(
    tmp_path: Path, mark: str, settling: tuple[str, str]
) -> None:
    """Wherever it stands: counts that end in other digits than 000 are thousands, too."""
    alone_in, alone = read(tmp_path, mark, settling)
    for rows in ((("5", "1,234"), settling), (settling, ("5", "1,234"))):
        assert read(tmp_path, mark, *rows) == (5 + alone_in, 1234 + alone)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("5", "0,012"), "'0,012' is no number: with a decimal comma say --decimal ,"),
        (("5", "01,234"), "'01,234' is no number: with a decimal comma say --decimal ,"),
        (("5", "0,012,345"), "'0,012,345' is no number: with a decimal comma say --decimal ,"),
        (("0,012", "5"), "'0,012' is no number: with a decimal comma say --decimal ,"),
        (("5", "0 012"), "'0 012' is no number"),
        (("5", "12,5"), "'12,5' is no number: with a decimal comma say --decimal ,"),
        (("5", "1.234.567"), "'1.234.567' is no number: with a decimal comma say --decimal ,"),
        (("1.234", "5"), "'1.234' is no count of tokens: with a decimal comma say --decimal ,"),
    ],
)
def test_what_is_no_group_of_thousands(tmp_path: Path, row: tuple[str, str], said: str) -> None:
    for mark in (",", ";", "\t"):
        assert refused(tmp_path, mark, row)[1] == f"line 2: {said}"
    # what can't be settled stands beside what is broken, by its line
    assert refused(tmp_path, ",", ("5", "1,234"), row, ("5", "2,345")) == [
        "export.csv: 3 rows are broken, nothing was compared",
        f"line 2: '1,234' {DOUBT} --decimal .",
        f"line 3: {said}",
        f"line 4: '2,345' {DOUBT} --decimal .",
    ]


def test_a_leading_nought_is_no_group_by_the_other_mark_either(tmp_path: Path) -> None:
    assert refused(tmp_path, ";", ("5", "0.012"), decimal=",")[1] == (
        "line 2: '0.012' is no number: with a decimal point say --decimal ."
    )
    assert read(tmp_path, ";", ("1.234", "0,012"), decimal=",") == (1234, Decimal("0.012"))


def test_one_point_is_not_guessed_where_decimal_commas_are_usual(tmp_path: Path) -> None:
    for mark in (";", "\t"):
        assert refused(tmp_path, mark, ("5", "1.234"))[1] == f"line 2: '1.234' {DOUBT} --decimal ."
        assert read(tmp_path, mark, ("5", "1.234"), ("5", "0.5")) == (10, Decimal("1.734"))
        assert read(tmp_path, mark, ("5", "1.234"), decimal=",") == (5, Decimal(1234))
    assert read(tmp_path, ",", ("5", "1.234")) == (5, Decimal("1.234"))
    # a count of one token, or of a thousand
    for mark in (",", ";"):
        for count in ("1.000", "1,000"):
            assert refused(tmp_path, mark, (count, "5"))[1].startswith(f"line 2: '{count}' {DOUBT}")
    assert read(tmp_path, ",", ("1.000", "5"), ("2.0", "5")) == (3, Decimal(10))
    assert read(tmp_path, ",", ("1,000", "5"), ("2", "0.5")) == (1002, Decimal("5.5"))


def test_of_many_rows_in_doubt_twenty_are_named(tmp_path: Path) -> None:
    said = refused(tmp_path, "\t", *[("5", "1,234")] * 30)
    assert (said[0], len(said), said[-1]) == (
        "export.csv: 30 rows are in doubt, nothing was compared",
        22,
        "… and 10 more",
    )
