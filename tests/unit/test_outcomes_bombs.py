"""Workbooks that are small as files, and without end when they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from openpyxl import Workbook

from worker.errors import UsageError
from worker.outcomes import workbook
from worker.outcomes.reading import open_outcomes

if TYPE_CHECKING:
    from pathlib import Path

NAMESPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
HEADER = "".join(
    f'<c r="{letter}1" t="inlineStr"><is><t>{name}</t></is></c>'
    for letter, name in zip("ABCD", ("month", "department_id", "metric", "value"), strict=True)
)


def bomb(folder: Path, *pieces: str) -> Path:
    """A workbook whose sheet's rows are these pieces, behind a header."""
    Workbook().save(folder / "plain.xlsx")
    path = folder / "bomb.xlsx"
    with ZipFile(folder / "plain.xlsx") as old, ZipFile(path, "w", ZIP_DEFLATED) as new:
        for name in old.namelist():
            if not name.endswith("sheet1.xml"):
                new.writestr(name, old.read(name))
        with new.open("xl/worksheets/sheet1.xml", "w") as sheet:
            sheet.write(f'<worksheet xmlns="{NAMESPACE}"><sheetData>'.encode())
            for piece in (f'<row r="1">{HEADER}</row>', *pieces):
                sheet.write(piece.encode())
            sheet.write(b"</sheetData></worksheet>")
    assert path.stat().st_size < 100_000
    return path


def refusal(path: Path) -> str:
    try:
        with open_outcomes(path, {"cs": None}) as reader:
            assert list(reader.rows()) == []
            return "; ".join(text for _, text in reader.faults)
    except UsageError as error:
        return str(error)


def test_rows_without_end_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    path = bomb(tmp_path, *["<row/>" * 10_000] * 105)
    assert "rows beyond 1,048,576, which is the most" in refusal(path)


@pytest.mark.parametrize("piece", ["<c/>" * 2_000, "<c><v>" + "1" * 8_000 + "</v></c>"])
def test_a_row_or_a_cell_without_end_is_refused_before_it_is_parsed(
    tmp_path: Path, piece: str
) -> None:
    assert "of more than 16,777,216 bytes" in refusal(bomb(tmp_path, "<row>", *[piece] * 2_200))


def test_a_gap_between_two_rows_is_gone_through_to_the_last_row_that_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "MAX_SHEET_ROWS", 1_000)
    far = bomb(tmp_path, '<row r="999999999"><c r="A999999999"><v>1</v></c></row>')
    assert "rows beyond 1,048,576" in refusal(far)


def test_a_cell_has_as_many_letters_as_a_spreadsheet_gives_it(tmp_path: Path) -> None:
    text = "x" * 32_768
    path = bomb(tmp_path, f'<row r="2"><c r="A2" t="inlineStr"><is><t>{text}</t></is></c></row>')
    assert "A2: a text of 32,768 letters, and a cell has 32,767 at most: shorten it" in (
        refusal(path)
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [("2026-10,cs,x,1\0", "line 3 has zero bytes in it"), ("x" * 100_001, "line 3 has 100,000 letters")],
)  # fmt: skip
def test_a_line_that_ends_the_reading_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"month,department_id,metric,value\n2026-10,cs,orders,1\n{line}\n")
    with open_outcomes(path, {"cs": None}) as reader:
        assert len(list(reader.rows())) == 1  # and nothing of it is imported
        assert why in reader.faults[0][1]
        assert reader.broken == 1
