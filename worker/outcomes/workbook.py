"""A sheet of an .xlsx workbook as a Grid: values alone, row by row, nothing is computed."""

from __future__ import annotations

import codecs
import re
import warnings
import zlib
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile

from worker import __version__
from worker.errors import UsageError
from worker.outcomes.shape import Cell, CellFault, Grid, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_UNPACKED_BYTES: Final = 2 * 2**30
MAX_STRINGS_BYTES: Final = 256 * 2**20
MAX_ROW_BYTES: Final = 16 * 2**20  # of one row, which is held in memory, and of what is no row
MAX_SHEET_ROWS: Final = 2**20  # Excel's own bounds
MAX_CELL_LETTERS: Final = 32_767
_CHUNK_BYTES: Final = 2**20
_OVERLAP_BYTES: Final = 64
_EXCEL_DIGITS: Final = 15
_FORMULA: Final = re.compile(rb"<(?:\w{1,40}:)?f[ />]")
_BEFORE_XML: Final = codecs.BOM_UTF8 + b" \t\r\n"
_ROW: Final = re.compile(rb"<(?:\w{1,40}:)?row[ />]")
_TOO_MANY_ROWS: Final = (
    f"the sheet has rows beyond {MAX_SHEET_ROWS:,}, which is the most: save it in Excel again, or"
    " as CSV UTF-8"
)
PACKAGE_CURE: Final = (
    f"install the wheel with its extra, 'quota_worker-{__version__}-py3-none-any.whl[report]' (in a"
    " clone: .venv/bin/pip install -e '.[report]'), or save the sheet as CSV UTF-8"
)
# What the reader stumbles over in a file that is no proper workbook.
_BROKEN: Final = (
    BadZipFile, ParseError, zlib.error, EOFError, NotImplementedError, KeyError, ValueError,
    TypeError, AttributeError, IndexError,
)  # fmt: skip


@contextmanager
def open_sheet(path: Path, sheet: str | None) -> Iterator[Grid]:
    """Yields the sheet of this name as a Grid, None: the first one that isn't hidden.

    Raises UsageError, also while it is read, and where openpyxl isn't installed.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise UsageError(f"a workbook needs openpyxl: {PACKAGE_CURE}") from None
    books: list[Any] = []

    def book(*, values: bool) -> Any:  # noqa: ANN401  openpyxl has no types
        opened = load_workbook(path, read_only=True, data_only=values, keep_links=False)
        books.append(opened)
        return opened

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and the like, which aren't read
        try:
            with _readable():
                formulas = _has_formulas(path)
                chosen, remarks = _sheet(book(values=True), sheet)
                twin = book(values=False)[chosen.title] if formulas else None
            rows = _rows(chosen, twin)
            with _readable():
                header = next(rows, (0, []))[1]
            yield Grid(
                header=tuple("" if isinstance(one, CellFault) else str(one) for one in header),
                rows=rows,
                how=f"sheet {shown(chosen.title)}",
                place=_place,
                remarks=remarks,
            )
        finally:
            for opened in books:
                opened.close()


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise UsageError(
            f"this is no proper workbook ({type(error).__name__}): open it in Excel and save it as"
            " .xlsx, or as CSV UTF-8"
        ) from error


def _has_formulas(path: Path) -> bool:
    """Whether some sheet has one. Raises UsageError for what unpacks to too much.

    Every part is gone through before it is parsed: a small file may unpack to a row, or a cell,
    that fills the memory.
    """
    with ZipFile(path) as archive:
        parts = archive.infolist()
        if sum(part.file_size for part in parts) > MAX_UNPACKED_BYTES:
            raise UsageError(
                f"the workbook unpacks to more than {MAX_UNPACKED_BYTES:,} bytes: split it"
            )
        texts = [part for part in parts if part.filename.lower().endswith("sharedstrings.xml")]
        if any(part.file_size > MAX_STRINGS_BYTES for part in texts):
            raise UsageError(
                f"the workbook has more than {MAX_STRINGS_BYTES:,} bytes of text: save it as CSV"
            )
        # a sheet's part may have any name; a formula found elsewhere only costs time
        others = [part for part in parts if part not in texts]
        found = [_holds_formula(archive, part.filename) for part in others]  # all are checked
        return any(found)


def _holds_formula(archive: ZipFile, name: str) -> bool:
    """Raises UsageError for too many rows, and for more than MAX_ROW_BYTES between two of them."""
    found, since, rows = False, 0, 0
    with archive.open(name) as file:
        before = b""
        while chunk := file.read(_CHUNK_BYTES):
            seen = before + chunk
            if not before and not seen.lstrip(_BEFORE_XML).startswith(b"<"):
                return False  # a picture or the like, which isn't read
            found = found or _FORMULA.search(seen) is not None
            ends = [row.end() for row in _ROW.finditer(seen) if row.end() > len(before)]
            rows += len(ends)
            if rows > MAX_SHEET_ROWS:
                raise UsageError(_TOO_MANY_ROWS)
            since = len(seen) - ends[-1] if ends else since + len(chunk)
            if since > MAX_ROW_BYTES:
                raise UsageError(
                    f"the workbook has a row, or something else, of more than {MAX_ROW_BYTES:,}"
                    " bytes: save the sheet as CSV UTF-8"
                )
            before = seen[-_OVERLAP_BYTES:]
    return found


def _sheet(book: Any, wanted: str | None) -> tuple[Any, tuple[str, ...]]:  # noqa: ANN401  openpyxl's
    sheets = book.worksheets
    names = ", ".join(shown(one.title) for one in sheets)
    if wanted is not None:
        for one in sheets:
            if one.title.strip().casefold() == wanted.strip().casefold():
                return one, ()
        raise UsageError(f"--sheet: there is no sheet {shown(wanted)}, but {names}")
    seen = [one for one in sheets if one.sheet_state == "visible"] or sheets
    if not seen:
        raise UsageError("the workbook has no sheet with cells")
    first = seen[0]
    if len(sheets) == 1:
        return first, ()
    return first, (f"of the sheets {names} only {shown(first.title)} is read: --sheet says which",)


def _rows(sheet: Any, twin: Any) -> Iterator[tuple[int, list[Cell]]]:  # noqa: ANN401  openpyxl's
    """Rows with their numbers; ``twin``: the same sheet with formulas for values, if it has any.

    A formula whose value wasn't kept is an empty cell here, and a formula there.
    """
    with _readable():
        sheet.reset_dimensions()  # what the file says of them may be wrong
        values = sheet.iter_rows(values_only=True)
        if twin is not None:
            twin.reset_dimensions()
        formulas = repeat(()) if twin is None else twin.iter_rows(values_only=True)
        for number, (row, others) in enumerate(zip(values, formulas, strict=False), 1):
            if number > MAX_SHEET_ROWS:
                raise UsageError(_TOO_MANY_ROWS)  # a row's number may be any
            cells = [_cell(one) for one in row]
            for place, other in enumerate(others):
                if other is not None and place < len(row) and row[place] is None:
                    cells[place] = CellFault(
                        "a formula whose value isn't kept in the file: open it in Excel and save"
                        " it, or put the value in its place"
                    )
            if any(isinstance(one, CellFault) or str(one).strip() for one in cells):
                yield number, cells


def _cell(value: object) -> Cell:
    """As text, but for numbers and days: a number with the 15 digits that Excel keeps."""
    if isinstance(value, float):
        return Decimal(f"{value:.{_EXCEL_DIGITS}g}")
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, datetime):
        return value.date() if value.time() == time() else f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, date):
        return value
    if isinstance(value, str) and len(value) > MAX_CELL_LETTERS:
        return CellFault(
            f"a text of {len(value):,} letters, and a cell has {MAX_CELL_LETTERS:,} at most:"
            " shorten it"
        )
    return "" if value is None else str(value).upper() if isinstance(value, bool) else str(value)


def _place(row: int, column: int | None) -> str:
    """Such as D3, or row 3."""
    if column is None:
        return f"row {row}"
    letters, rest = "", column + 1
    while rest:
        rest, letter = divmod(rest - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return f"{letters}{row}"
