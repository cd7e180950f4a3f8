"""A CSV of outcomes as a Grid: one pass, bounded memory."""

from __future__ import annotations

import csv
import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.outcomes.shape import Cell, Grid
from worker.outcomes.text import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE_LETTERS: Final = 100_000
DELIMITERS: Final = (",", ";", "\t")
PARTED: Final = {",": "commas", ";": "semicolons", "\t": "tabs"}


@contextmanager
def open_lines(path: Path, encoding: str) -> Iterator[tuple[Grid, str]]:
    """Yields the file's Grid and its delimiter. Raises UsageError, also while it is read."""
    with path.open("rb") as file, io.TextIOWrapper(file, encoding=encoding, newline="") as text:
        yield _grid(text, encoding)


def _grid(text: io.TextIOWrapper, encoding: str) -> tuple[Grid, str]:
    lines = _lines(text)
    first, number = next(lines, ""), 1
    while first and (not first.strip(" \t\r\n;,") or first.startswith("sep=")):  # Excel's own
        first, number = next(lines, ""), number + 1
    delimiter = max(DELIMITERS, key=first.count)
    rows = _rows(first, lines, delimiter, number)
    _, header = next(rows, (0, []))
    remarks: tuple[str, ...] = ()
    if encoding == "gb18030":
        remarks = ("no UTF-8, and so read as GB18030, as Excel writes in China",)
    grid = Grid(
        header=tuple(str(one) for one in header),
        rows=rows,
        how=f"{NAMES[encoding]} parted by {PARTED[delimiter]}",
        place=lambda line, _column: f"line {line}",
        remarks=remarks,
    )
    return grid, delimiter


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    number = 0
    while line := text.readline(MAX_LINE_LETTERS):
        number += 1
        if len(line) == MAX_LINE_LETTERS:
            raise UsageError(
                f"line {number} has {MAX_LINE_LETTERS:,} letters or more: is this a CSV?"
            )
        if "\0" in line:
            raise UsageError(
                f"line {number} has zero bytes in it: is this a CSV? Save it as CSV UTF-8"
            )
        yield line


def _rows(
    first: str, lines: Iterator[str], delimiter: str, number: int
) -> Iterator[tuple[int, list[Cell]]]:
    def all_lines() -> Iterator[str]:
        yield first
        yield from lines

    reader = csv.reader(all_lines(), delimiter=delimiter, strict=True)
    start = number
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UsageError(
                f"line {start} can't be taken apart: {error}; is a quote not closed?"
            ) from None
        if any(map(str.strip, row)):
            yield start, list(row)
        start = number + reader.line_num
