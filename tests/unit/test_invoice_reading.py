"""Providers' exports: by their header or by hand, in the usual encodings; what is refused."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit import invoice_world as world
from unit.invoice_world import FIRST, SECOND, invoice, rules, tally
from worker.errors import UsageError
from worker.invoice.columns import parse_columns
from worker.invoice.converting import convert
from worker.invoice.figures import Figures
from worker.invoice.reading import DAYS, LOCAL, MOMENTS

ROOT = Path(__file__).resolve().parents[2]
GPT = "gpt-4o-2024-08-06"
CENT = 10_000_000


@pytest.mark.parametrize(
    ("content", "export", "kind", "cells"),
    [
        (
            world.OPENAI_USAGE,
            "openai-usage",
            DAYS,
            {(FIRST, GPT): Figures(1200, 200, 300, 0), (SECOND, "o3-mini"): Figures(7, 0, 8, 0)},
        ),
        (
            world.OPENAI_COST,
            "openai-cost",
            DAYS,
            {(FIRST, GPT): Figures(cost_nanos=120_000_000)},  # rounded once: 0.120000000004
        ),
        (
            world.ANTHROPIC_USAGE,
            "anthropic-usage",
            DAYS,
            {
                (FIRST, "claude-sonnet-4-5-20250929"): Figures(4123, 4000, 50, 0),
                (SECOND, "claude-sonnet-4-5-20250929"): Figures(1, 0, 2, 0),
            },
        ),
        (
            world.ANTHROPIC_COST,
            "anthropic-cost",
            DAYS,
            {(FIRST, "Claude Sonnet 4.5"): Figures(cost_nanos=22 * CENT)},
        ),
        (
            world.OPENROUTER_GENERATIONS,
            "openrouter-generations",
            LOCAL,
            {
                (FIRST, f"openai/{GPT}"): Figures(10389, 9000, 137, 12_300_000),
                (SECOND, f"openai/{GPT}"): Figures(1, 0, 2, -100_000),
            },
        ),
        (
            world.OPENROUTER_ACTIVITY,
            "openrouter-activity",
            DAYS,
            {
                (FIRST, "anthropic/claude-sonnet-4.5"): Figures(
                    70_965_665, 0, 3_009_973, 4_070_000_000
                )
            },
        ),
        (
            world.LITELLM,
            "litellm-spend-logs",
            LOCAL,
            {
                (FIRST, "gpt-4o"): Figures(20, 0, 10, 15_000),
                (SECOND, "gpt-4o"): Figures(200, 0, 100, 250_000_000),
            },
        ),
    ],
)
def test_known_exports(
    tmp_path: Path, content: str, export: str, kind: str, cells: dict[object, Figures]
) -> None:
    found = invoice(tmp_path, content)
    assert (found.tally.export, found.tally.kind, found.cells) == (export, kind, cells)
    # the same with another delimiter, as UTF-16 and with a BOM
    parts = content.replace('"', "").replace(", input", "").replace(", output", "")
    tabs = parts.replace(",", "\t")
    for other in (tabs.encode("utf-16"), tabs.encode("utf-16-le"), b"\xef\xbb\xbf" + tabs.encode()):
        assert convert(tally(tmp_path, other), "USD", {}).cells == cells
    excel = f"sep=;\n{parts.replace(',', ';')}".replace("\n", "\r\n").encode("utf-16-be")
    assert convert(tally(tmp_path, excel, decimal="."), "USD", {}).cells == cells


def test_cloud_bills_have_more_than_models_and_currencies_of_their_own(tmp_path: Path) -> None:
    azure = tally(tmp_path, world.AZURE, where=[("metercategory", "cognitive*")])
    assert (azure.export, azure.rows, azure.unlike) == ("azure-cost-details", 1, 1)
    ((key, one),) = azure.sums.items()
    assert key == (FIRST, "gpt 4o 0806 Inp glbl Tokens", "EUR")
    assert one.cost == Decimal("3.125")
    aws = tally(tmp_path, world.AWS_CUR, where=[("line_item_product_code", "amazonbedrock")])
    assert (aws.export, aws.kind, aws.rows, aws.unlike) == ("aws-cur", MOMENTS, 2, 1)
    with pytest.raises(UsageError, match="--where: there is no column Service"):
        tally(tmp_path, world.AWS_CUR, where=[("Service", "x")])


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("date,model,input_tokens,output_tokens,cost", "2026-10-01,m,7,8,0.05"),
        ("Day,Model Name,Prompt Tokens,Completion Tokens,Cost USD", "2026-10-01,m,7,8,0.05"),
        ("cost,currency,completion_tokens,prompt_tokens,model,date", "0.05,USD,8,7,m,2026-10-01"),
    ],
)
def test_columns_that_are_called_what_they_are(tmp_path: Path, header: str, cells: str) -> None:
    read = invoice(tmp_path, f"{header}\n{cells}\n")
    assert read.tally.export == "plain"
    assert read.cells == {(FIRST, "m"): Figures(7, 0, 8, 5 * CENT)}


def test_columns_by_hand(tmp_path: Path) -> None:
    columns = parse_columns(["date=Day,model=Model name,input=In+Cache", "cost=Total, net"])
    assert columns == {
        "date": ("Day",),
        "model": ("Model name",),
        "input": ("In", "Cache"),
        "cost": ("Total, net",),
    }
    content = (
        'Day;Model name;In;Cache;"Total, net"\n'
        "05.10.2026;x;1;2;3\n"
        '05/10/2026;"gpt\n4o ";1.234.567;  2 ;1.234,50\n'
    )
    with pytest.raises(UsageError) as refused:
        tally(tmp_path, content, columns=columns, decimal=",")
    assert str(refused.value).splitlines() == [
        "export.csv: 2 rows are broken, nothing was compared",
        "line 2: '05.10.2026' is no date like 2026-10-05 or 2026-10-05T12:00:00Z",
        "line 3: '05/10/2026' may begin with the day or the month: say --dates dmy or mdy",
    ]
    good = "".join(content.splitlines(keepends=True)[:1] + content.splitlines(keepends=True)[2:])
    found = convert(tally(tmp_path, good, columns=columns, decimal=",", slashed="dmy"), "USD", {})
    assert found.cells == {
        (date(2026, 10, 5), "gpt\n4o"): Figures(1_234_569, 0, 0, 1_234_500_000_000)
    }
    assert found.tally.measures == {"input", "cost"}
    with pytest.raises(UsageError, match="there is no column Model name: the file has Day, Total"):
        tally(tmp_path, "Day,Total\n2026-10-01,1\n", columns=columns)


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        (["when=Day"], "--columns when=Day is not like date=NAME,cost=NAME"),
        (["date=Day"], "at least one of input=…, output=…, tokens=…, cost=…"),
        (["model=M,cost=C"], "--columns needs date=…"),
        (["date=A,date=B,cost=C"], "--columns: date stands twice"),
        (["date=,cost=C"], "--columns: date names no column"),
    ],
)
def test_columns_that_can_not_be(texts: list[str], fault: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_columns(texts)
    assert fault in str(refused.value)


def test_every_broken_row_is_named_up_to_twenty(tmp_path: Path) -> None:
    header = "Day,Model,In,Cost,Currency\n"
    columns = parse_columns(["date=Day,model=Model,input=In,cost=Cost,currency=Currency"])
    broken = [
        "yesterday,m,1,1,USD",
        "2026-02-30,m,1,1,USD",
        "1999-10-01,m,1,1,USD",
        ",m,1,1,USD",
        "2026-10-01,m,-1,1,USD",
        "2026-10-01,m,1.5,1,USD",
        "2026-10-01,m,1,NaN,USD",
        "2026-10-01,m,1,1e999,USD",
        '2026-10-01,m,1,"0,25",USD',
        "2026-10-01,m,1,,USD",
        "2026-10-01,m,1,1,dollars",
        "2026-10-01,m,1,1",
        '"2026-10-01","m\n","1","x\x1b[2J","USD"',
        f"2026-10-01,{'m' * 201},1,1,USD",
    ]
    rows = ["2026-10-01,m,1,1,USD", "", *broken, *["x,m,1,1,USD"] * 30]
    with pytest.raises(UsageError) as refused:
        tally(tmp_path, header + "\n".join(rows), columns=columns)
    said = str(refused.value).splitlines()
    assert said[0] == "export.csv: 44 rows are broken, nothing was compared"
    assert said[-1] == "… and 24 more"
    assert len(said) == 22
    assert said[1:15] == [
        "line 4: 'yesterday' is no date like 2026-10-05 or 2026-10-05T12:00:00Z",
        "line 5: '2026-02-30' is no date like 2026-10-05 or 2026-10-05T12:00:00Z",
        "line 6: '1999-10-01' is no date like 2026-10-05 or 2026-10-05T12:00:00Z",
        "line 7: the date is empty",
        "line 8: '-1' is no count of tokens",
        "line 9: '1.5' is no count of tokens",
        "line 10: 'NaN' is no number",
        "line 11: '1e999' is more than an invoice can have",
        "line 12: '0,25' is no number: with a decimal comma say --decimal ,",
        "line 13: the cost is empty",
        "line 14: 'dollars' is no currency like USD",
        "line 15: 4 cells instead of 5",
        "line 16: 'x␛[2J' is no number",
        "line 18: a model's name has more than 200 letters",
    ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty: its first line must name the columns"),
        (b"\n\n", "is empty: its first line must name the columns"),
        (b"PK\x03\x04\x00\x00", "is no CSV"),
        (b"a,b\n1,2\n", "no known export (openai-usage, openai-cost, anthropic-usage,"),
        (b"a,b\n1,2\n", "date=…,model=…,cost=… which columns hold what; the file has a, b"),
        (world.LITELLM.encode() + b"\xff\xfe", "is no UTF-8 text"),
        (world.LITELLM.encode("utf-16")[:-1], "is no UTF-16 text"),
        (world.LITELLM.encode() + b'"x', "line 4 can't be taken apart: "),
        (world.LITELLM.encode() + b'"' + b"x\n" * 100_000, "line 4 can't be taken apart: "),
        (world.LITELLM.encode() + b"x" * 1_000_000, "a line has 1,000,000 letters or more"),
        (world.LITELLM.replace("2026-10", "2026-08").encode(),
         "no row of the file lies in 2026-10: its days go from 2026-08-01 to 2026-08-02"),
        (world.LITELLM.splitlines()[0].encode(), "the file has no row with an amount"),
    ],
)  # fmt: skip
def test_what_is_no_export_is_refused_by_name(tmp_path: Path, content: bytes, fault: str) -> None:
    with pytest.raises(UsageError) as refused:
        tally(tmp_path, content)
    assert fault in str(refused.value)


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    from worker.invoice.reading import read_export

    with pytest.raises(UsageError, match="there is no file "):
        read_export(tmp_path / "lost.csv", rules())
    with pytest.raises(UsageError, match=" is no file$"):
        read_export(tmp_path, rules())
    big = tmp_path / "big.csv"
    with big.open("wb") as file:
        file.truncate(500 * 2**20 + 1)
    with pytest.raises(UsageError, match="has 524,288,001 bytes, more than 524,288,000: split"):
        read_export(big, rules())


HAND = parse_columns(["date=Day,model=Model,cost=Cost"])


def test_other_months_are_left_out_and_counted(tmp_path: Path) -> None:
    content = "Day,Model,Cost\n2026-09-30,m,1\n2026-10-31,m,2\n2026-11-01,m,4\n2026-10-03,m,\n"
    found = tally(tmp_path, content, columns=HAND)
    assert (found.rows, found.outside, found.blank) == (3, 2, 1)
    assert [one.cost for one in found.sums.values()] == [Decimal(2)]


def test_currencies_are_converted_by_the_days_rate_or_refused_by_name(tmp_path: Path) -> None:
    columns = parse_columns(["date=Day,cost=Cost,currency=Cur"])
    content = (
        "Day,Cost,Cur\n2026-10-01,10,cny\n2026-10-02,10,CNY\n2026-10-02,1,USD\n2026-10-02,3,EUR\n"
        "2026-10-03,5,\n2026-10-03,0,JPY\n"
    )
    read = tally(tmp_path, content, columns=columns)
    rates = {
        "CNY": [(date(2026, 9, 1), Decimal("0.14")), (SECOND, Decimal("0.15"))],
        "EUR": [(SECOND, Decimal("1.1"))],
    }
    found = convert(read, "USD", rates)
    assert {day.day: one.cost_nanos for (day, _), one in found.cells.items()} == {
        1: 1_400_000_000,
        2: 1_500_000_000 + 1_000_000_000 + 3_300_000_000,
        3: 5_000_000_000,
    }
    assert [(one.currency, one.amount, one.cost_nanos) for one in found.conversions] == [
        ("CNY", Decimal(20), 2_900_000_000),
        ("EUR", Decimal(3), 3_300_000_000),
    ]
    with pytest.raises(UsageError, match="amounts in EUR, and there is no rate of EUR to USD for"):
        convert(read, "USD", {"CNY": rates["CNY"], "EUR": [(date(2026, 10, 3), Decimal(1))]})


def test_a_currency_that_was_said_is_that_of_rows_that_name_none(tmp_path: Path) -> None:
    def found(content: str, **more: object) -> set[str]:
        return {currency for _, _, currency in tally(tmp_path, content, **more).sums}

    assert found(world.LITELLM) == {"USD"}
    assert found(world.LITELLM, billing_currency="CNY") == {"USD"}
    assert found(world.LITELLM, currency="EUR") == {"EUR"}
    assert found(world.AZURE, currency="USD") == {"EUR"}
    assert found(
        "Day,Cost\n2026-10-01,1\n",
        columns=parse_columns(["date=Day,cost=Cost"]),
        billing_currency="CNY",
    ) == {"CNY"}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.lists(
        st.lists(
            st.one_of(
                st.sampled_from(
                    [
                        "2026-10-01",
                        "2026-10-02T10:00:00+99:99",
                        "9" * 13,
                        "1e5",
                        "-0",
                        '"',
                        "1,5",
                        "0x1",
                        "\u0663",
                        "\uff12",
                        "1" * 70,
                        "inf",
                        "\x00",
                        "\r",
                    ]
                ),
                st.text(max_size=6),
            ),
            max_size=6,
        ),
        max_size=4,
    )
)
def test_whatever_a_file_holds_it_is_read_or_refused(
    rows: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = "Day,Model,Cost\n" + "\n".join(",".join(row) for row in rows)
    folder = tmp_path_factory.mktemp("any")
    try:
        found = tally(folder, content.encode("utf-8", "surrogatepass"), columns=HAND)
    except UsageError:
        return
    assert found.rows > 0


MEASURED = """
import resource, sys
from pathlib import Path
from unit.invoice_world import rules
from worker.invoice.reading import read_export
for name in sys.argv[1:]:
    found = read_export(Path(name), rules())
    print(found.rows, len(found.sums), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    rows = "".join(
        f"request-{number},acompletion,hash,0.00{number % 97},30,{number},10,"
        f"2026-10-{number % 28 + 1:02} 10:{number // 60 % 60:02}:{number % 60:02},"
        f"2026-10-02 10:00:01,model-{number % 9},chat\n"
        for number in range(10_000)
    )
    header = world.LITELLM.splitlines()[0] + "\n"
    (tmp_path / "small.csv").write_text(header + rows, encoding="utf-8")
    (tmp_path / "big.csv").write_text(header + rows * 20, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "small.csv", "big.csv"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    small, big = (list(map(int, line.split())) for line in done.stdout.splitlines())
    assert (small[:2], big[:2]) == ([10_000, 28 * 9], [200_000, 28 * 9])
    assert big[2] - small[2] < 2_048  # KiB, of a file of 20 MB


def test_too_many_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.invoice.reading.MAX_CELLS", 2)
    rows = [f"2026-10-01,{name},1" for name in ("a", "b", "a", "c")]
    with pytest.raises(UsageError, match="more than 2 days and models: is the column of models"):
        tally(tmp_path, "Day,Model,Cost\n" + "\n".join(rows), columns=HAND)
