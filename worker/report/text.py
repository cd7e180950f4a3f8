"""The report as plain text: complete by itself, a line for each row, for any width and letter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.report.detail import BRIEF
from worker.report.document import make_document
from worker.report.reader import Reader, language_of
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.report.cells import Cell, Table
    from worker.report.corrections import Correction
    from worker.roi.summary import Summary


def text_report(summary: Summary, locale: str | None, correction: Correction | None = None) -> str:
    """The mail's text part, and what a terminal shows; ends with a newline."""
    document = make_document(summary, locale, BRIEF, correction)
    reader = Reader(language_of(locale), summary.currency)
    lines = [visible(document.title), *(f"! {visible(mark)}" for mark in document.marks), ""]
    for one in document.headlines:
        line = f"{one.label}: {reader.show(one.value)}"
        if one.beside is not None:
            line += f" ({reader.beside(*one.beside)})"
        lines.append(visible(line))
    for table in document.tables:
        lines += ["", f"== {visible(table.title)} ==", *map(visible, _rows(table, reader))]
    return "\n".join([*lines, "", *map(visible, document.foot)]) + "\n"


def _rows(table: Table, reader: Reader) -> Iterator[str]:
    """Each row as its label, then its columns by name."""
    for number, (label, *cells) in enumerate(table.rows, 1):
        is_total = number > len(table.rows) - table.totals
        start = "=" if is_total else f"{number}." if table.numbered else "-"
        told = "; ".join(
            _told(name, cell, reader)
            for name, cell in zip(table.columns[1:], cells, strict=True)
            if cell is not None
        )
        yield f"{start} {reader.show(label)}: {told}"
    yield from table.notes


def _told(name: str, cell: Cell, reader: Reader) -> str:
    return f"{name} {reader.show(cell)}"
