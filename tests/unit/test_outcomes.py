"""How files of outcomes are read: months, names, numbers, encodings, workbooks, and what is refused."""

from __future__ import annotations

import codecs
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl import Workbook

from worker.errors import UsageError
from worker.outcomes import reading, workbook
from worker.outcomes.months import parse_month
from worker.outcomes.names import Departments, like_metric
from worker.outcomes.reading import open_outcomes
from worker.outcomes.showing import import_document, imports_table, template
from worker.outcomes.values import Numbers, parse_metric
from worker.postgres.outcomes import ImportRow

KNOWN = {"sales": "Sales", "cs": "客服", "007": None, "=ops": None}
OCTOBER = date(2026, 10, 1)
HEAD = "month,department_id,metric,value\n"


def read(path: Path, **options: str | None) -> tuple[list[tuple[object, ...]], list[str]]:
    """The good rows without their lines, and the faults."""
    with open_outcomes(path, KNOWN, **options) as reader:
        rows = [(r.month, r.department_id, r.metric, r.value) for r in reader.rows()]
        return rows, [fault for _, fault in reader.faults]


def written(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "outcomes.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    "text",
    ["2026-10", "2026/10", "2026.10", "202610", "10/2026", "10-2026", "Oct 2026", "OCTOBER, 2026", "2026 oct", "Oct-26",
     "2026年10月", "2026年10月份", "2026-10-01", "2026/10/1", "2026-10-01 00:00:00", "20261001", " 2026-10 ", "\uff12\uff10\uff12\uff16\uff0d\uff11\uff10"],
)  # fmt: skip
def test_a_month_that_is_sure_is_taken(text: str) -> None:
    assert parse_month(text) == OCTOBER


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "is empty"), ("2026-13", "is no month"), ("2026-00", "is no month"), ("1926-10", "is no month"),
     ("2026-10-15", "is a day"), ("20261015", "is a day"), ("1/10/2026", "may begin with the day"),
     ("10.01.2026", "may begin with the day"), ("26-Oct", "has no year"), ("October", "has no year"),
     ("46296", "looks like Excel's number of a day"), ("2026.1", "may be the first month or the tenth"),
     ("2026", "is no month"), ("x" * 500, "is no month"), ("2026-10\n2026-11", "is no month")],
)  # fmt: skip
def test_a_month_in_doubt_is_refused_with_what_would_be_right(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_month(text)
    assert "write it like 2026-" in str(caught.value)


@given(st.dates(date(2000, 1, 1), date(2199, 12, 31)))
@settings(max_examples=30, deadline=None)
def test_every_form_of_a_month_means_that_month(day: date) -> None:
    first = day.replace(day=1)
    for form in ("%Y-%m", "%Y/%m", "%Y%m", "%m/%Y", "%b %Y", "%B %Y", "%Y年%m月", "%Y-%m-01"):
        assert parse_month(day.strftime(form)) == first


def test_names_of_metrics() -> None:
    assert [parse_metric(text) for text in ("orders", " GMV ", "订单", "a_b-2", "\uff2frders")] == [
        "orders", "gmv", "订单", "a_b-2", "orders",
    ]  # fmt: skip
    for text, why in (
        ("Orders total", "write orders_total"),
        ("=1+1", "write 1_1"),
        ("-", "such as"),
        ("", "empty"),
        ("x" * 61, "longer"),
    ):
        with pytest.raises(ValueError, match=why):
            parse_metric(text)
    assert like_metric("order", []) == "orders"
    assert like_metric("calls", ["orders"]) is None


def test_departments_are_taken_exactly_and_others_get_advice() -> None:
    departments = Departments(KNOWN)
    assert [departments.find(one) for one in ("sales", " cs ", "'=ops")] == ["sales", "cs", "=ops"]
    for text, why in (
        ("客服", "that is the name of 'cs'"), ("CS", "did you mean 'cs'?"), ("sale", "did you mean 'sales'?"),
        ("7", "did you mean '007'?"), ("zzz", "outcomes template shows all"), ("  ", "is empty"),
    ):  # fmt: skip
        with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is looked at
            departments.find(text)
        assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "commas", "semicolons"),
    [("1234", "1234", "1234"), ("1234.5", "1234.5", "1234.5"), ("1,234.50", "1234.50", "1234.50"),
     ("1.234,50", "1234.50", "1234.50"), ("1,234,567", "1234567", "1234567"), ("1.234.567", "1234567", "1234567"),
     ("12,34,567.5", "1234567.5", "1234567.5"), ("1,234", "1234", "may be 1234 or 1.234: say --decimal"),
     ("1.234", "1.234", "may be 1234 or 1.234: say --decimal"), ("12,5", "has a decimal comma", "12.5"),
     ("0,123", "has a decimal comma", "0.123"), ("1 234", "1234", "1234"), ("1\u00a0234,5", "has a decimal comma", "1234.5"),
     ("1'234.5", "1234.5", "1234.5"), ("\uff11\uff12\uff13", "123", "123"), ("+5", "5", "5"), ("0", "0", "0"), (".5", "0.5", "0.5"),
     ("-5", "is negative", "is negative"), ("(5)", "is negative", "is negative"), ("\u22125", "is negative", "is negative"),
     ("1.2E+05", "is shortened", "is shortened"), ("¥5", "has a currency", "has a currency"),
     ("5 USD", "has a currency", "has a currency"), ("", "is empty: write a number, 0 too", "is empty"), ("n/a", "is no number", "is no number"),
     ("1,23,4", "is no number", "is no number"), ("5%", "is no number", "is no number"), ("5²", "is no number", "is no number"), ("NaN", "is no number", "is no number"),
     ("9" * 19, "more than 18 digits", "more than 18 digits"), ("0." + "1" * 13, "more than 12 decimals", "more than 12 decimals"),
     ("1" * 100, "is no number", "is no number")],
)  # fmt: skip
def test_numbers_where_they_are_sure(text: str, commas: str, semicolons: str) -> None:
    for is_commas, wanted in ((True, commas), (False, semicolons)):
        numbers = Numbers(None, commas=is_commas)
        if wanted[0].isdigit():
            assert numbers.parse(text) == Decimal(wanted)
        else:
            with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is looked at
                numbers.parse(text)
            assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("evidence", "said", "wanted"),
    [("7.654,3", None, "1.234"), ("12,5", None, "1.234"), ("7,654.3", None, "1234"), ("12.5", None, "1234"),
     (None, ",", "1.234"), (None, ".", "1234")],
)  # fmt: skip
def test_what_is_sure_of_one_number_decides_another(
    evidence: str | None, said: str | None, wanted: str
) -> None:
    numbers = Numbers(said, commas=False)
    if evidence is not None:
        numbers.note(evidence)
    assert numbers.parse("1,234") == Decimal(wanted)
    numbers.note("1,5")
    numbers.note("1.5")
    if said is None:
        with pytest.raises(ValueError, match="may be 1234 or 1.234"):
            numbers.parse("1,234")  # both kinds are in the file: neither decides
    else:
        with pytest.raises(ValueError, match="as its decimal mark, and not"):
            numbers.parse("7.654,3" if said == "." else "7,654.3")


@given(
    st.decimals(0, 10**12, places=4),
    st.sampled_from([".", ","]),
    st.sampled_from(["", " ", "'", "other"]),
)
@settings(max_examples=60, deadline=None)
def test_a_number_that_is_taken_is_the_number_that_was_written(
    value: Decimal, mark: str, group: str
) -> None:
    other = "," if mark == "." else "."
    text = (
        f"{value:,.4f}".replace(",", "_")
        .replace(".", mark)
        .replace("_", other if group == "other" else group)
    )
    assert Numbers(mark, commas=False).parse(text) == value
    assert Numbers(None, commas=False).parse(text) == value  # four decimals leave no doubt


ROWS = "2026-10,cs,orders,12\n2026-10,cs,订单,7\n"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "gb18030"]
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_encodings_and_delimiters(tmp_path: Path, encoding: str, delimiter: str) -> None:
    text = ("sep=;\n" if delimiter == ";" else "") + HEAD + "\n , \n" + ROWS
    path = written(tmp_path, text.replace(",", delimiter).replace("\n", "\r\n"), encoding)
    assert read(path) == (
        [(OCTOBER, "cs", "orders", Decimal(12)), (OCTOBER, "cs", "订单", Decimal(7))],
        [],
    )
    with open_outcomes(path, KNOWN) as reader:
        assert ("GB18030" in reader.grid.how) is (encoding == "gb18030")
        assert len(reader.remarks) == (encoding == "gb18030")


def test_faults_are_named_by_line_and_none_hides_another(tmp_path: Path) -> None:
    text = (
        HEAD
        + '2026-10,"cs\n",orders,1\n\n2026-10,cs,orders,"1,234"\n2026-13,sale,a b,-1\n2026-10,cs,gmv,1,234\n'
        "2026-10,cs,gmv\n2026-10,cs,tickets,5,,\n" + '2026-10,cs,"leads,5\n'
    )
    rows, faults = read(written(tmp_path, text))
    assert [row[2:] for row in rows] == [
        ("orders", Decimal(1)), ("orders", Decimal(1234)), ("tickets", Decimal(5)),
    ]  # fmt: skip
    assert [fault.partition(": ")[0] for fault in faults[:-1]] == ["line 6"] * 4 + [
        "line 7",
        "line 8",
    ]
    assert "5 cells instead of 4" in faults[4]
    assert (
        "line 10 can't be taken apart: unexpected end of data; is a quote not closed?" in faults[-1]
    )


def test_the_first_faults_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "2026-10,nobody,orders,1\n" * 500)
    with open_outcomes(path, KNOWN) as reader:
        assert list(reader.rows()) == []
        assert (reader.broken, len(reader.faults)) == (500, 20)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "is empty: its first line"), (b"\xd0\xcf\x11\xe0\xa1", "an old workbook"), (b"PK\x03\x04junk", "no proper workbook"),
     (HEAD.encode() + b"2026-10,cs,x,1\n\xff\xff\xff\n", "line 3 is neither UTF-8 nor GB18030"),
     (codecs.BOM_UTF16_LE + b"m\x00o", "is no UTF-16"), (b"month,department_id,orders\n", "a row of its own"),
     (b"month,department,metric,value\n", "name the column of departments' ids department_id"), (b"2026-10,cs,orders,1\n", "the first line must be"),
     (b"month,month,department_id,metric,value\n", "month stands twice"), (b"\n\n", "and it has nothing"),
     (b"month,\x00\n", "is this a CSV?"), (b"m" * 100_001, "is this a CSV?")],
)  # fmt: skip
def test_what_is_no_table_of_outcomes_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read(path)
    assert why in str(caught.value)


def test_what_is_no_file_and_what_changes_meanwhile(tmp_path: Path) -> None:
    for path, why in ((tmp_path, "is no file"), (tmp_path / "none.csv", "there is no file")):
        with pytest.raises(UsageError, match=why):
            read(path)
    path = written(tmp_path, HEAD + ROWS)
    with open_outcomes(path, KNOWN) as reader:
        path.write_text(HEAD)
        with pytest.raises(UsageError, match="changed while"):
            list(reader.rows())
    with pytest.raises(UsageError, match="--sheet is for workbooks"):
        read(written(tmp_path, HEAD), sheet="x")


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, HEAD + ROWS)
    monkeypatch.setattr(reading, "MAX_ROWS", 1)
    assert "more than 1 rows: split the file" in read(path)[1][0]
    monkeypatch.setattr("worker.outcomes.text.MAX_BYTES", 10)
    with pytest.raises(UsageError, match="more than 10: split it by month"):
        read(path)


def book(folder: Path, *rows: list[object]) -> Path:
    made = Workbook()
    for row in (["Month", "Department ID", "metric", "value"], *rows):
        made.active.append(row)
    made.active.title = "Oct"
    extra = made.create_sheet("Nov")
    extra.append(HEAD.strip().split(","))
    extra.append(["2026-11", "cs", "orders", 3])
    path = folder / "outcomes.xlsx"
    made.save(path)
    return path


def test_a_workbook_is_read_by_values_and_refused_by_cell(tmp_path: Path) -> None:
    path = book(
        tmp_path,
        [datetime(2026, 10, 1), "sales", "orders", 1234],  # noqa: DTZ001  as Excel has them
        ["2026-10", "cs", "orders", 0.1 + 0.2],
        [202610, "cs", "gmv", "1,234.50"],
        [],
    )
    rows, faults = read(path)
    assert faults == []
    assert [row[3] for row in rows] == [Decimal(1234), Decimal("0.3"), Decimal("1234.50")]
    assert {row[0] for row in rows} == {OCTOBER}
    assert [row[0] for row in read(path, sheet="nov")[0]] == [date(2026, 11, 1)]
    with open_outcomes(path, KNOWN) as reader:
        assert (
            reader.remarks[0] == "of the sheets 'Oct', 'Nov' only 'Oct' is read: --sheet says which"
        )
    with pytest.raises(UsageError, match="there is no sheet 'Dec', but 'Oct', 'Nov'"):
        read(path, sheet="Dec")

    path = book(
        tmp_path,
        ["2026-10", "cs", "orders", "=1+1"],
        [46296, 7, "gmv", True],
        [datetime(2026, 10, 15), "cs", "x", datetime(2026, 10, 15)],  # noqa: DTZ001
        ["=A1", "=B1", "=C1", "=D1"],
        ["2026-10", "cs", "gmv"],
        ["2026-10", "cs", "gmv", "1,234"],
    )
    assert [fault.partition(":")[0] for fault in read(path)[1]] == [
        "D2", "A3", "B3", "D3", "A4", "D4", "A5", "B5", "C5", "D5", "D6", "D7",
    ]  # fmt: skip


def test_a_formula_counts_by_the_value_that_the_file_keeps(tmp_path: Path) -> None:
    path = book(tmp_path, ["2026-10", "cs", "orders", "=1+1"], ["2026-10", "sales", "orders", 5])
    kept = tmp_path / "kept.xlsx"
    with ZipFile(path) as old, ZipFile(kept, "w", ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("sheet1.xml"):
                assert b"<f>1+1</f>" in data
                data = (
                    data.replace(b"<v></v>", b"<v>2</v>")
                    .replace(b"<v />", b"<v>2</v>")
                    .replace(b"<v/>", b"<v>2</v>")
                )
            new.writestr(name, data)
    rows, faults = read(kept)
    assert ([row[3] for row in rows], faults) == ([Decimal(2), Decimal(5)], [])


def test_a_workbook_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = book(tmp_path, ["2026-10", "cs", "orders", 1])
    with ZipFile(path, "a") as archive:
        archive.writestr("xl/sharedStrings.xml", "<sst>many</sst>")
    monkeypatch.setattr(workbook, "MAX_STRINGS_BYTES", 10)
    with pytest.raises(UsageError, match="bytes of text: save it as CSV"):
        read(path)
    monkeypatch.setattr(workbook, "MAX_UNPACKED_BYTES", 100)
    with pytest.raises(UsageError, match="unpacks to more than 100 bytes"):
        read(path)


def test_the_template_holds_no_formula_and_can_be_imported_when_filled_in(tmp_path: Path) -> None:
    text = template(OCTOBER, ["=ops", "cs"], ["orders"], {("cs", "orders"): Decimal("7.50")})
    assert (
        text
        == "month,department_id,metric,value\r\n2026-10,'=ops,orders,\r\n2026-10,cs,orders,7.50\r\n"
    )
    path = written(tmp_path, text.replace("orders,\r", "orders,3\r"), "utf-8-sig")
    rows, faults = read(path)
    assert (rows[0], faults) == ((OCTOBER, "=ops", "orders", Decimal(3)), [])
    assert ",gmv," in template(OCTOBER, ["cs"], [], {})  # where no metric was seen yet


def test_a_workbook_without_openpyxl_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = book(tmp_path)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UsageError, match=r"needs openpyxl: install the wheel .*\[report\]"):
        read(path)
    assert read(written(tmp_path, HEAD + ROWS))[1] == []


def test_imports_are_shown_with_who_and_what_and_nothing_hidden() -> None:
    at = datetime(2026, 11, 1, 8, 30, tzinfo=UTC)
    row = ImportRow(7, at, "finance_1", "okt\x1b[2J.csv", "ab" * 32, 1234, 1, 2, 1231, 4)
    head, line = imports_table([row]).splitlines()
    assert head.split() == [
        "import", "at", "by", "file", "sha256", "rows", "added", "changed", "unchanged", "removed",
    ]  # fmt: skip
    assert "finance_1  okt\\x1b[2J.csv  abababababab  1,234" in line
    assert import_document(row)["file_sha256"] == "ab" * 32
