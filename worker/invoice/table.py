"""Opens an export and yields its rows, one at a time: any of the usual encodings and delimiters."""

from __future__ import annotations

import codecs
import csv
import io
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.status_text import clipped
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_BYTES: Final = 500 * 2**20
MAX_LINE_LETTERS: Final = 1_000_000
DELIMITERS: Final = (",", ";", "\t")
_SNIFFED_BYTES: Final = 4
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """An open export; ``rows`` yields the line on which each row begins (from 1) with its cells.

    Reading on raises UsageError for text that can't be decoded or taken apart.
    """

    header: tuple[str, ...]
    delimiter: str
    rows: Iterator[tuple[int, list[str]]]


@contextmanager
def open_table(path: Path) -> Iterator[Table]:
    """Yields the one table of the file, and closes it afterwards.

    Raises UsageError for what is no file, empty, too big, or no text.
    """
    name = clipped(visible(str(path)))
    try:
        if not path.is_file():
            raise UsageError(f"{name} is no file" if path.exists() else f"there is no file {name}")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UsageError(
                f"{name} has {size:,} bytes, more than {MAX_BYTES:,}: split it by day or by model"
            )
        with path.open("rb") as file:
            encoding = _encoding(file.peek(_SNIFFED_BYTES)[:_SNIFFED_BYTES])
            with io.TextIOWrapper(file, encoding=encoding, newline="") as text:
                yield _table(text, name)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is no {'UTF-16' if 'utf-16' in str(error.encoding) else 'UTF-8'} text:"
            " export it as CSV in UTF-8"
        ) from None
    except OSError as error:
        raise UsageError(f"{name} can't be read: {error.strerror or error}") from None


def _encoding(start: bytes) -> str:
    for mark, encoding in _BOMS:
        if start.startswith(mark):
            return encoding
    if len(start) == _SNIFFED_BYTES and start[1] == start[3] == 0:
        return "utf-16-le"
    if len(start) == _SNIFFED_BYTES and start[0] == start[2] == 0:
        return "utf-16-be"
    return "utf-8"


def _table(text: io.TextIOWrapper, name: str) -> Table:
    lines = _lines(text)
    line, skipped = next(lines, ""), 0
    if line.strip().startswith("sep="):  # Excel's own first line
        line, skipped = next(lines, ""), 1
    if not line.strip():
        raise UsageError(f"{name} is empty: its first line must name the columns")
    if "\0" in line:
        raise UsageError(f"{name} is no CSV: export it as CSV in UTF-8")
    delimiter = max(DELIMITERS, key=line.count)
    rows = _rows(chain([line], lines), delimiter, skipped)
    _, header = next(rows)
    return Table(tuple(header), delimiter, rows)


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_LINE_LETTERS):
        if len(line) == MAX_LINE_LETTERS:
            raise UsageError(f"a line has {MAX_LINE_LETTERS:,} letters or more: is this a CSV?")
        yield line


def _rows(lines: Iterator[str], delimiter: str, skipped: int) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    before = 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UsageError(
                f"line {before + 1 + skipped} can't be taken apart: {error}; is a quote not closed?"
            ) from None
        if any(map(str.strip, row)):
            yield before + 1 + skipped, row
        before = reader.line_num
