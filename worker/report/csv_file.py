"""The report's tables as one CSV: for Excel, and for whoever reads it by a program.

Every line begins with its table's key, so that a filter finds a table; a table begins with the
line of its columns. Numbers have a point and no separators: money in units of the currency, shares
and changes as parts of 1. They are exact, but what never ends has 12 decimals.
"""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING, Final

from worker.report.cells import DayOf, MonthOf
from worker.report.detail import WHOLE
from worker.report.document import make_document
from worker.report.reader import Reader, language_of
from worker.report.safe_cells import number_of, plain_number, safe_text

if TYPE_CHECKING:
    from worker.report.cells import Cell, Table
    from worker.report.corrections import Correction
    from worker.roi.summary import Summary

BYTE_ORDER_MARK: Final = "\ufeff"  # without it Excel takes UTF-8 for something else
HEAD: Final = "report"


def csv_report(summary: Summary, locale: str | None, correction: Correction | None = None) -> bytes:
    """UTF-8 with a byte order mark; all lines of all tables; no cell is a formula."""
    document = make_document(summary, locale, WHOLE, correction)
    reader = Reader(language_of(locale), summary.currency)
    held = StringIO()
    # a name's quotes, commas and such are quoted; line breaks became visible before
    writer = csv.writer(held, lineterminator="\r\n")
    for line in (document.title, *document.marks, *document.foot):
        writer.writerow([HEAD, safe_text(line)])
    for table in document.tables:
        writer.writerow([])
        writer.writerows(_lines(table, reader))
    return (BYTE_ORDER_MARK + held.getvalue()).encode()


def _lines(table: Table, reader: Reader) -> list[list[str]]:
    result = [[table.key, *map(safe_text, table.columns)]] if table.rows else []
    result += [[table.key, *(_text(cell, reader) for cell in row)] for row in table.rows]
    return result + [[table.key, safe_text(note)] for note in table.notes]


def _text(cell: Cell, reader: Reader) -> str:
    number = number_of(cell)
    if number is not None:
        return plain_number(number)
    match cell:
        case None:
            return ""
        case MonthOf(first=first):
            return f"{first:%Y-%m}"
        case DayOf(day=day):
            return day.isoformat()
    return safe_text(reader.show(cell))
