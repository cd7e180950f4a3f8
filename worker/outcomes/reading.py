"""Reads a file of outcomes row by row; every fault is kept with its place, and nothing guessed."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.outcomes.lines import open_lines
from worker.outcomes.months import parse_month
from worker.outcomes.names import Departments
from worker.outcomes.shape import (
    COLUMNS,
    MAX_ROWS,
    MAX_SHOWN_FAULTS,
    CellFault,
    Outcome,
    plain,
    shown,
)
from worker.outcomes.text import WORKBOOK, look_at, state_of
from worker.outcomes.values import Numbers, checked, parse_metric
from worker.outcomes.workbook import open_sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from worker.outcomes.shape import Cell, Grid
    from worker.outcomes.text import Look

MAX_SHOWN_COLUMNS: Final = 10
_KEPT: Final = 4_096
_parse_month = lru_cache(maxsize=_KEPT)(parse_month)
_parse_metric = lru_cache(maxsize=_KEPT)(parse_metric)


@dataclass(slots=True)
class OutcomeReader:
    """One open file. `rows` is gone through once; ``faults`` and ``broken`` are full then.

    ``places``: where each of COLUMNS stands. ``broken``: how many rows have faults.
    ``faults``: (row, what is wrong), of the first rows that have some.
    """

    path: Path
    look: Look
    grid: Grid
    numbers: Numbers
    departments: Departments
    places: tuple[int, ...]
    remarks: tuple[str, ...]
    faults: list[tuple[int, str]] = field(default_factory=list)
    broken: int = 0
    taken: int = 0

    def rows(self) -> Iterator[Outcome]:
        """The good rows, one at a time. Raises UsageError where the file changes meanwhile."""
        line = 0
        try:
            for line, cells in self.grid.rows:
                if self.taken + self.broken == MAX_ROWS:
                    raise UsageError(f"more than {MAX_ROWS:,} rows: split the file by month")  # noqa: TRY301  told with the rows' faults
                if (outcome := self._outcome(line, cells)) is not None:
                    self.taken += 1
                    yield outcome
        except UnicodeDecodeError:
            raise UsageError(_changed(self.path)) from None
        except UsageError as error:  # where it can't be read on
            self.broken += 1
            self.faults.append((line + 1, str(error)))
        if state_of(self.path) != self.look.state:
            raise UsageError(_changed(self.path))

    def _outcome(self, line: int, cells: list[Cell]) -> Outcome | None:
        last = max(self.places)
        width = len(self.grid.header)
        if len(cells) > width and any(str(one).strip() for one in cells[width:]):
            self._refuse(
                line, [(None, f"{len(cells)} cells instead of {width}: a comma without quotes?")]
            )
            return None
        if len(cells) <= last:
            if self.look.encoding != WORKBOOK:
                self._refuse(line, [(None, f"{len(cells)} cells instead of {width}")])
                return None
            cells = cells + [""] * (last + 1 - len(cells))  # a workbook has no empty cells
        faults: list[tuple[int | None, str]] = []
        found = [
            self._read(parse, cells[place], place, faults)
            for place, parse in zip(self.places, self._parsers(), strict=True)
        ]
        month, department, metric, value = found
        if (
            isinstance(month, date)
            and isinstance(department, str)
            and isinstance(metric, str)
            and isinstance(value, Decimal)
        ):
            return Outcome(line, month, department, metric, value)
        self._refuse(line, faults)
        return None

    def _parsers(self) -> tuple[Callable[[Cell], object], ...]:
        return (_month, self._department, _metric, self._value)

    def _read(
        self,
        parse: Callable[[Cell], object],
        cell: Cell,
        place: int,
        faults: list[tuple[int | None, str]],
    ) -> object:
        """What the cell holds; None: nothing that can be used, which is noted."""
        try:
            if isinstance(cell, CellFault):
                raise ValueError(cell.text)  # noqa: TRY301, TRY004  noted as the others are
            return parse(cell)
        except ValueError as error:
            faults.append((place, str(error)))
            return None

    def _refuse(self, line: int, faults: list[tuple[int | None, str]]) -> None:
        self.broken += 1
        if len(self.faults) < MAX_SHOWN_FAULTS:
            self.faults += [
                (line, f"{self.grid.place(line, place)}: {fault}") for place, fault in faults
            ]

    def _department(self, cell: Cell) -> str:
        return self.departments.find(_text(cell), advise=len(self.faults) < MAX_SHOWN_FAULTS)

    def _value(self, cell: Cell) -> Decimal:
        if isinstance(cell, Decimal):
            return checked(cell, format(cell, "f"))
        if isinstance(cell, date):
            raise ValueError(f"{shown(str(cell))} is a date and no number")  # noqa: TRY004
        return self.numbers.parse(_text(cell))


def _month(cell: Cell) -> date:
    return _parse_month(_text(cell))


def _metric(cell: Cell) -> str:
    return _parse_metric(_text(cell))


def _text(cell: Cell) -> str:
    return format(cell, "f") if isinstance(cell, Decimal) else str(cell)


def _changed(path: Path) -> str:
    return f"{path.name} changed while it was read: try again when it is finished"


@contextmanager
def open_outcomes(
    path: Path,
    departments: Mapping[str, str | None],
    *,
    sheet: str | None = None,
    decimal: str | None = None,
) -> Iterator[OutcomeReader]:
    """Yields the file's reader. ``departments``: names by id. ``decimal``: the mark, None: see.

    Raises UsageError for what is no table, and for a header without the columns.
    """
    look = look_at(path)
    with ExitStack() as stack:
        try:
            if look.encoding == WORKBOOK:
                grid = stack.enter_context(open_sheet(path, sheet))
                places, remarks = find_columns(grid.header)
                numbers = Numbers(decimal, commas=False)
            else:
                if sheet is not None:
                    raise UsageError("--sheet is for workbooks, and this is text")  # noqa: TRY301
                grid, delimiter = stack.enter_context(open_lines(path, look.encoding))
                places, remarks = find_columns(grid.header)
                numbers = Numbers(decimal, commas=delimiter == ",")
                _note(path, look.encoding, numbers, places[-1])
        except UsageError as error:
            raise UsageError(f"{shown(path.name)}: {error}") from error
        except UnicodeDecodeError:
            raise UsageError(_changed(path)) from None
        yield OutcomeReader(
            path, look, grid, numbers, Departments(departments), places, (*grid.remarks, *remarks)
        )


def _note(path: Path, encoding: str, numbers: Numbers, place: int) -> None:
    """One pass over the values, for what is sure of some and decides about others."""
    with suppress(UsageError), open_lines(path, encoding) as (grid, _):  # told when it is read
        for _line, cells in grid.rows:
            if len(cells) == len(grid.header):
                numbers.note(_text(cells[place]))


def find_columns(header: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Where each of COLUMNS stands, and remarks. Raises UsageError."""
    names = [_column(one) for one in header]
    if missing := [name for name in COLUMNS if name not in names]:
        has = (
            ", ".join(shown(one) for one in header[:MAX_SHOWN_COLUMNS] if one.strip()) or "nothing"
        )
        advice = ""
        if "department" in names and "department_id" in missing:
            advice = "; name the column of departments' ids department_id"
        elif {"month", "department_id"} <= set(names):
            advice = "; a metric is a row of its own, not a column"
        raise UsageError(
            f"no column {' and no column '.join(missing)}: the first line must be"
            f" {','.join(COLUMNS)}, and it has {has}{advice}"
        )
    if twice := [name for name in COLUMNS if names.count(name) > 1]:
        raise UsageError(f"the column {twice[0]} stands twice: take one away")
    others = [shown(one) for one in header if one.strip() and _column(one) not in COLUMNS]
    more = f" and {len(others) - MAX_SHOWN_COLUMNS} more" if len(others) > MAX_SHOWN_COLUMNS else ""
    remark = f"not read: the columns {', '.join(others[:MAX_SHOWN_COLUMNS])}{more}"
    return tuple(map(names.index, COLUMNS)), ((remark,) if others else ())


def _column(name: str) -> str:
    return plain(name).casefold().replace(" ", "_").replace("-", "_")
