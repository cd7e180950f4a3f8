"""The report as an XLSX: a sheet a table, numbers as numbers, no formula anywhere.

A spreadsheet keeps 15 digits of a number. A column that has more of them, such as the nanos of a
million, is followed by one with the exact numbers as text, so that sums still find numbers.
"""

from __future__ import annotations

from datetime import datetime, time
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from worker.errors import UsageError
from worker.report.cells import Change, Count, DayOf, Money, MonthOf, Quantity, Share
from worker.report.detail import WHOLE
from worker.report.document import make_document
from worker.report.packages import PACKAGE_CURE
from worker.report.reader import Reader, language_of
from worker.report.safe_cells import is_cut, number_of, plain_number, sheet_number
from worker.untrusted import visible

if TYPE_CHECKING:
    from worker.report.cells import Cell, Document, Table
    from worker.report.corrections import Correction
    from worker.roi.summary import Summary

SHEET_NAME_MAX: Final = 31
WIDTHS: Final = (36, 18)  # of the first column, of the others
_NOT_IN_NAMES: Final = str.maketrans(dict.fromkeys("[]:*?/\\'", " "))
_FORMATS: Final[dict[type, str]] = {
    Money: "#,##0.00#######",
    Count: "#,##0",
    Quantity: "#,##0.############",
    Share: "0.0%",
    Change: "+0.0%;-0.0%;0.0%",
    MonthOf: "yyyy-mm",
    DayOf: "yyyy-mm-dd",
}


class _Writer:
    """A workbook while it is written."""

    def __init__(self, book: Any, reader: Reader) -> None:  # noqa: ANN401  XlsxWriter has no types
        self._book = book
        self._reader = reader
        self._bold = book.add_format({"bold": True})
        self._head = book.add_format({"bold": True, "bottom": 1, "text_wrap": True})
        self._formats = {
            (kind, bold): book.add_format({"num_format": shape, "bold": bold})
            for kind, shape in _FORMATS.items()
            for bold in (False, True)
        }
        self._names: set[str] = set()

    def first(self, document: Document) -> None:
        """A sheet that says what this is."""
        sheet = self._sheet(self._reader.say("sheet_about"))
        sheet.set_column(0, 1, WIDTHS[0])
        lines = (document.title, *document.marks, *document.foot, self._reader.say("sheet_digits"))
        for row, line in enumerate(lines):
            form = self._bold if row <= len(document.marks) else None
            sheet.write_string(row, 0, visible(line), form)
        for row, one in enumerate(document.headlines, len(lines) + 1):
            sheet.write_string(row, 0, visible(one.label))
            self._cell(sheet, (row, 1), one.value, is_bold=True)

    def table(self, table: Table) -> None:
        """A sheet of the table; its columns stay in sight."""
        sheet = self._sheet(table.title)
        sheet.set_column(0, 0, WIDTHS[0])
        sheet.set_column(1, 40, WIDTHS[1])
        cut = {
            place
            for row in table.rows
            for place, cell in enumerate(row)
            if (number := number_of(cell)) is not None and is_cut(number)
        }
        starts = [place + sum(one < place for one in cut) for place in range(len(table.columns))]
        for place, name in enumerate(table.columns):
            sheet.write_string(0, starts[place], visible(name), self._head)
            if place in cut:
                exact = self._reader.say("exact_column", name=name)
                sheet.write_string(0, starts[place] + 1, visible(exact), self._head)
        sheet.freeze_panes(1, 1)
        first_total = len(table.rows) - table.totals
        for row, cells in enumerate(table.rows, 1):
            for place, cell in enumerate(cells):
                is_bold = row > first_total
                self._cell(sheet, (row, starts[place]), cell, is_bold=is_bold)
                number = number_of(cell) if place in cut else None
                if number is not None:
                    sheet.write_string(row, starts[place] + 1, plain_number(number))
        for row, note in enumerate(table.notes, len(table.rows) + 2):
            sheet.write_string(row, 0, visible(note))

    def _cell(self, sheet: Any, at: tuple[int, int], cell: Cell, *, is_bold: bool) -> None:  # noqa: ANN401  as above
        if cell is None:
            return
        form = self._formats.get((type(cell), is_bold))
        number = number_of(cell)
        match cell:
            case MonthOf(first=day) | DayOf(day=day):
                sheet.write_datetime(*at, datetime.combine(day, time()), form)
            case _ if number is not None:
                sheet.write_number(*at, sheet_number(number), form)
            case _:
                shown = visible(self._reader.show(cell))
                sheet.write_string(*at, shown, self._bold if is_bold else None)

    def _sheet(self, title: str) -> Any:  # noqa: ANN401  XlsxWriter's
        """A sheet of a name that no other has."""
        name = visible(title.translate(_NOT_IN_NAMES))[:SHEET_NAME_MAX].strip() or "-"
        number = 1
        while name.casefold() in self._names:
            number += 1
            tail = f" {number}"
            name = f"{name[: SHEET_NAME_MAX - len(tail)]}{tail}"
        self._names.add(name.casefold())
        return self._book.add_worksheet(name)


def workbook_report(
    summary: Summary, locale: str | None, correction: Correction | None = None
) -> bytes:
    """The workbook's bytes, the same for the same summary.

    Raises UsageError where XlsxWriter isn't installed.
    """
    try:
        from xlsxwriter import Workbook
    except ImportError:
        raise UsageError(f"a workbook needs XlsxWriter: {PACKAGE_CURE}") from None
    document = make_document(summary, locale, WHOLE, correction)
    held = BytesIO()
    book = Workbook(
        held,
        {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False},
    )
    # the clock has no part in it
    moment = datetime.combine(summary.month, time())
    book.set_properties({"title": visible(document.title), "created": moment})
    writer = _Writer(book, Reader(language_of(locale), summary.currency))
    writer.first(document)
    for table in document.tables:
        writer.table(table)
    book.close()
    return held.getvalue()
