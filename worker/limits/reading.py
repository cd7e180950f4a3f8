"""Reads a file of limits. A wrong one is refused whole, with every fault named."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from worker.configuration.references import UnreadableFileError, bytes_of
from worker.configuration.syntax import BrokenSyntaxError, parse
from worker.configuration.table import meant, nearest, shown, type_of
from worker.errors import UsageError
from worker.limits.lines import Lines, place_of
from worker.limits.shape import (
    BUDGET,
    COLUMNS,
    DEPARTMENT,
    ENVIRONMENTS,
    FORMAT_VERSION,
    LIST_MAX,
    TENANT,
    Column,
    Key,
    RefusedLimitsError,
    Value,
    Wanted,
    text_fault,
)
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FILE_MAX_BYTES: Final = 16_777_216
ROWS_MAX: Final = 50_000
MAX_SHOWN_FAULTS: Final = 50
LONGEST_SHOWN: Final = 25
TOP_KEYS: Final = ("format_version", "departments", "tenants")
# What people write for a column of another name, or for what stands elsewhere.
_ELSEWHERE: Final = {
    "department": "the column is department_id",
    "budget": "a budget is a table of its own: [departments.NAME.budgets.production]",
    "zone": "the billing zone is a setting: quota-worker settings set zone NAME",
    "currency": "the currency is a setting: quota-worker settings set currency CODE",
    "blocked_until": "a block is a command: quota-worker limits block NAME --for 2h --reason R",
    "blocked": "a block is a command: quota-worker limits block NAME --for 2h --reason R",
}
_ELSEWHERE_TOP: Final = {
    "budgets": "a budget stands with its department: [departments.NAME.budgets.production]",
    "settings": "settings are a command: quota-worker settings set KEY VALUE",
    "version": "the key is format_version",
}


class WrongValueError(Exception):
    """What is wrong with a value, in words that follow its key."""


@dataclass(frozen=True, slots=True)
class LimitsFile:
    """What a file wants, in its order."""

    name: str
    sha256: str
    wanted: tuple[Wanted, ...]
    lines: Lines

    def refusal(self, faults: list[str]) -> RefusedLimitsError:
        """Of all that is wrong with it."""
        return refusal(self.name, faults)


def refusal(name: str, faults: list[str]) -> RefusedLimitsError:
    """One line where there is one fault, else one for each."""
    if len(faults) == 1:
        return RefusedLimitsError(f"{visible(name)}: {faults[0]}; nothing was changed")
    lines = [f"{visible(name)} has {len(faults):,} faults, nothing was changed:"]
    lines += [f"  {fault}" for fault in faults[:MAX_SHOWN_FAULTS]]
    if len(faults) > MAX_SHOWN_FAULTS:
        lines.append("  … and more")
    return RefusedLimitsError("\n".join(lines))


def read_limits(path: Path) -> LimitsFile:
    """The file's rows. Raises UsageError or RefusedLimitsError."""
    try:
        data = bytes_of(path, FILE_MAX_BYTES)
    except UnreadableFileError as error:
        raise UsageError(f"{visible(str(path))} {error}{_cure(error)}") from None
    return parse_limits(data, path.name)


def _cure(error: UnreadableFileError) -> str:
    if "larger" in str(error):
        return ": split it, each part changes only what it names"
    return ": name a TOML file, such as quota-worker limits show --toml writes"


def parse_limits(data: bytes, name: str) -> LimitsFile:
    """As `read_limits`, of a file's content."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refusal(name, [f"line {line} is not UTF-8: save the file as UTF-8"]) from None
    try:
        raw = parse(text)
    except BrokenSyntaxError as error:
        raise refusal(name, [str(error)]) from None
    reader = _Reader(Lines(text))
    wanted = tuple(reader.document(raw))
    if reader.faults:
        raise refusal(name, reader.faults)
    if len(wanted) > ROWS_MAX:
        cure = "split it, each part changes only what it names"
        raise refusal(name, [f"it has {len(wanted):,} rows, more than {ROWS_MAX:,}: {cure}"])
    return LimitsFile(name, hashlib.sha256(data).hexdigest(), wanted, reader.lines)


class _Reader:
    """Collects faults on its way through the tables."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.faults: list[str] = []

    def fault(self, path: tuple[str, ...], statement: str) -> None:
        self.faults.append(f"{place_of(self.lines, path)} {statement}")

    def document(self, raw: Mapping[str, Any]) -> Iterator[Wanted]:
        version = raw.get("format_version")
        if version is None:
            self.faults.append(
                f"format_version is missing: write format_version = {FORMAT_VERSION}"
            )
        elif version != FORMAT_VERSION or isinstance(version, bool | float):
            known = f"this quota-worker reads {FORMAT_VERSION}"
            newer = isinstance(version, int) and not isinstance(version, bool) and version > 1
            cure = f"{known}, install a newer one" if newer else f"{known}: write that number"
            self.fault(("format_version",), f"is {shown(str(version))}: {cure}")
        for key in raw:
            if key not in TOP_KEYS:
                self.fault((key,), _unknown(key, TOP_KEYS, _ELSEWHERE_TOP))
        for name, table, path in self._tables(raw.get("departments", {}), ("departments",)):
            yield from self._department(name, table, path)
        for name, table, path in self._tables(raw.get("tenants", {}), ("tenants",)):
            yield self._row(Key(TENANT, name), table, path)

    def _tables(
        self, raw: object, path: tuple[str, ...]
    ) -> Iterator[tuple[str, Mapping[str, Any], tuple[str, ...]]]:
        if not isinstance(raw, dict):
            self.fault(path, f"is {type_of(raw)}: write a table for each, [{'.'.join(path)}.NAME]")
            return
        for name, table in raw.items():
            inner = (*path, name)
            if (wrong := text_fault(name, may_be_empty=False)) is not None:
                self.fault(inner, f"is no name, it {wrong}")
            elif not isinstance(table, dict):
                self.fault(inner, f"is {type_of(table)}: write a table, [{'.'.join(path)}.NAME]")
            else:
                yield name, table, inner

    def _department(
        self, name: str, table: Mapping[str, Any], path: tuple[str, ...]
    ) -> Iterator[Wanted]:
        own = {key: value for key, value in table.items() if key != "budgets"}
        row = self._row(Key(DEPARTMENT, name), own, path, also=("budgets",))
        yield row
        for environment, budget, inner in self._tables(
            table.get("budgets", {}), (*path, "budgets")
        ):
            if environment not in ENVIRONMENTS:
                self.fault(inner, f"is no environment: {meant(environment, ENVIRONMENTS)}")
            elif row.is_removed:
                self.fault(inner, "has a department that goes: its budgets go with it")
            else:
                yield self._row(Key(BUDGET, name, environment), budget, inner)

    def _row(
        self,
        key: Key,
        table: Mapping[str, Any],
        path: tuple[str, ...],
        also: tuple[str, ...] = (),
    ) -> Wanted:
        columns = COLUMNS[key.kind]
        values: dict[str, Value] = {}
        is_removed = False
        for name, raw in table.items():
            inner = (*path, name)
            if name == "remove":
                is_removed = raw is True
                if raw is not True:
                    self.fault(inner, "takes true alone: leave the key out to keep the row")
                elif len(table) > 1:
                    self.fault(inner, "stands alone: what goes has no limits")
            elif name in columns:
                try:
                    values[name] = value_of(columns[name], raw)
                except WrongValueError as error:
                    self.fault(inner, str(error))
            else:
                self.fault(inner, _unknown(name, (*columns, *also, "remove"), _ELSEWHERE))
        return Wanted(key, values, is_removed, path, self.lines)


def _unknown(name: str, known: tuple[str, ...], elsewhere: Mapping[str, str]) -> str:
    if name in elsewhere:
        return f"is not known: {elsewhere[name]}"
    near = nearest(name, known)
    return f"is not known: {meant(name, near or known)}"


def value_of(column: Column, raw: object) -> Value:
    """The column's value. Raises WrongValueError: what is wrong, in words that follow the key."""
    if column.null is not None and raw == column.null:
        return None
    if column.sort in {"whole", "real"}:
        return _number(column, raw)
    if column.sort in {"word", "text"}:
        return _text(column, raw)
    return _texts(column, raw)


def odd(column: Column, value: object) -> bool:
    """Whether a value of the database is one that no file could give."""
    if value is None:
        return column.null is None
    try:
        return value_of(column, value) != value
    except WrongValueError:
        return True


def _number(column: Column, raw: object) -> int | float:
    cure = f"{column.low} to {column.high:,}"
    if column.null is not None:
        cure = f'0 (nothing is allowed) to {column.high:,}, or "{column.null}"'
    if column.sort == "whole" and (isinstance(raw, bool) or not isinstance(raw, int)):
        if isinstance(raw, str):
            raise WrongValueError(
                f"is the text {shown(raw)}: a whole number without quotes, {cure}"
            )
        what = f"is {raw}" if isinstance(raw, float) else f"is {type_of(raw)}"
        raise WrongValueError(f"{what}: a whole number is needed, {cure}")
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise WrongValueError(f"is {type_of(raw)}: a number is needed, {cure}")
    if not column.low <= raw <= column.high:  # nan, too
        digits = str(raw) if len(str(raw)) <= LONGEST_SHOWN else "a number of too many digits"
        raise WrongValueError(f"is {digits}: {cure}")
    return raw


def _text(column: Column, raw: object) -> str:
    if not isinstance(raw, str):
        cure = f", one of {', '.join(column.words)}" if column.words else ""
        cure += ', or "" for none' if column.null == "" else ""
        raise WrongValueError(f"is {type_of(raw)}: a text in quotes is needed{cure}")
    if column.sort == "word":
        if raw not in column.words:
            raise WrongValueError(
                f"is {shown(raw)}, which there is not: {meant(raw, column.words)}"
            )
    elif (wrong := text_fault(raw)) is not None:
        raise WrongValueError(wrong)
    return raw


def _texts(column: Column, raw: object) -> list[str]:
    cure = "a list of texts is needed" + (f', or "{column.null}"' if column.null else "")
    if not isinstance(raw, list):
        raise WrongValueError(f"is {type_of(raw)}: {cure}")
    if len(raw) > LIST_MAX:
        raise WrongValueError(f"has more than {LIST_MAX:,} entries")
    for number, one in enumerate(raw, 1):
        if not isinstance(one, str):
            raise WrongValueError(f"holds {type_of(one)} as entry {number}: {cure}")
        if (wrong := text_fault(one, may_be_empty=False)) is not None:
            raise WrongValueError(f"has an entry {number} that {wrong}")
        if raw.index(one) != number - 1:
            raise WrongValueError(f"holds {shown(one)} twice: keep one of them")
        if column.sort == "texts" and ("@" not in one or one != one.strip() or " " in one):
            raise WrongValueError(f"holds {shown(one)}, which is no address like owner@example.com")
    return list(raw)
