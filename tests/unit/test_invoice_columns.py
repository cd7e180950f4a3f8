"""Which columns are read: sums of tokens, one of input and output, names that stand twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit import invoice_world as world
from unit.invoice_world import FIRST, invoice, tally
from worker.errors import UsageError
from worker.invoice.columns import parse_columns
from worker.invoice.figures import Figures

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("header", "row", "measures", "figures"),
    [
        ("date,tokens", "12", {"tokens"}, Figures(12)),
        ("Day,Total Tokens", "12", {"tokens"}, Figures(12)),
        ("date,input_tokens", "12", {"input"}, Figures(12)),
        ("date,output_tokens", "12", {"output"}, Figures(0, 0, 12)),
        ("date,output_tokens,total_tokens", "2,12", {"input", "output"}, Figures(10, 0, 2)),
        ("date,tokens,input_tokens", "12,2", {"input", "output"}, Figures(2, 0, 10)),
        # where all are told the sum is no news, right or not
        ("date,in_tokens,out_tokens,tokens", "1,2,9", {"input", "output"}, Figures(1, 0, 2)),
        ("date,tokens,cost", "12,0.5", {"tokens", "cost"}, Figures(12, 0, 0, 5 * 10**8)),
    ],
)
def test_tokens_without_a_split(
    tmp_path: Path, header: str, row: str, measures: set[str], figures: Figures
) -> None:
    found = invoice(tmp_path, f"{header}\n2026-10-01,{row}\n")
    assert (found.tally.measures, found.cells) == (measures, {(FIRST, ""): figures})


def test_tokens_by_hand_and_a_sum_that_is_too_small(tmp_path: Path) -> None:
    columns = parse_columns(["date=Day,tokens=A+B"])
    found = invoice(tmp_path, "Day,A,B\n2026-10-01,3,4\n2026-10-01,,\n", columns=columns)
    assert (found.cells, found.tally.blank) == ({(FIRST, ""): Figures(7)}, 1)
    with pytest.raises(UsageError, match="line 2: the tokens are fewer than their input or output"):
        tally(tmp_path, "date,tokens,input_tokens\n2026-10-01,3,4\n")


def test_a_name_that_stands_twice_is_refused_or_taken_by_its_place(tmp_path: Path) -> None:
    content = "date,model,cost,Cost \n2026-10-01,gpt-4o,1,2\n"
    advice = "say all of them with --columns, this one by its place, such as cost=#4"
    with pytest.raises(UsageError) as refused:
        tally(tmp_path, content)
    assert str(refused.value) == f"the columns 3 and 4 are both called cost: {advice}"
    with pytest.raises(UsageError) as refused:
        tally(tmp_path, content, columns=parse_columns(["date=date,cost=Cost"]))
    assert str(refused.value) == (
        "--columns: the columns 3 and 4 are both called Cost: say which by its place, such as #4"
    )
    for place, nanos in ((3, 10**9), (4, 2 * 10**9)):
        columns = parse_columns([f"date=date,cost=#{place}"])
        assert invoice(tmp_path, content, columns=columns).cells == {
            (FIRST, ""): Figures(cost_nanos=nanos)
        }
    for place in ("#0", "#5", "#x", "#99999999"):
        with pytest.raises(UsageError, match=f"--columns: there is no column {place}: the file"):
            tally(tmp_path, content, columns=parse_columns([f"date=date,cost={place}"]))
    # names that are plainly the same, and a known export's
    with pytest.raises(UsageError, match="the columns 2 and 3 are both called Total Cost: say all"):
        tally(tmp_path, "date,Total Cost,total_cost\n2026-10-01,1,2\n")
    twice = world.LITELLM.replace("call_type", "spend")
    with pytest.raises(UsageError, match="the columns 2 and 4 are both called spend: say all of"):
        tally(tmp_path, twice)
    # those that nobody reads may be called anything
    found = invoice(tmp_path, "date,cost,x,x\n2026-10-01,1,2,3\n")
    assert found.cells == {(FIRST, ""): Figures(cost_nanos=10**9)}


def test_where_is_refused_where_it_fits_nothing(tmp_path: Path) -> None:
    where = [("metercategory", "cognitive*"), ("MeterCategory", "cognative*"), ("#2", "1")]
    with pytest.raises(UsageError) as refused:
        tally(tmp_path, world.AZURE, where=[*where, ("metername", "gpt 4o?*")])
    assert str(refused.value).splitlines() == [
        "--where MeterCategory=cognative* fits no row of the file: nothing was compared",
        "--where metername=gpt 4o?* fits no row of the file",
    ]
    assert tally(tmp_path, world.AZURE, where=[where[0], where[2]]).rows == 1
    # each fits some row, and no row fits both
    where = [("metercategory", "cognitive*"), ("metername", "hot*")]
    with pytest.raises(UsageError, match="no row with an amount, 2 that --where leaves out"):
        tally(tmp_path, world.AZURE, where=where)
    with pytest.raises(UsageError, match="--where: the columns 1 and 2 are both called x: say"):
        tally(tmp_path, "x,X,date,cost\n1,1,2026-10-01,1\n", where=[("x", "1")])
