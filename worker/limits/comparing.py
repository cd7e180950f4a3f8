"""What a file of limits changes in the database, and what of it can't be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from worker.configuration.table import meant, shown
from worker.limits.reading import odd
from worker.limits.shape import (
    BUDGET,
    BUDGET_DEFAULTS,
    COLUMNS,
    DEPARTMENT,
    TENANT,
    Key,
    Row,
    Wanted,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

PCTS = ("warn_pct", "downgrade_pct", "protect_pct")


@dataclass(frozen=True, slots=True)
class Found:
    """A row as it is, None where there is none, and as it was recorded last, if ever."""

    row: Row | None
    recorded: Row | None
    recorded_at: datetime | None


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one row. `columns`: (old, new) by name; old is None of a new row."""

    key: Key
    is_new: bool
    is_removed: bool
    columns: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """For the database, as quota_limits_put takes it."""
        about: dict[str, Any] = {
            "kind": self.key.kind,
            "subject": self.key.subject,
            "environment": self.key.environment,
        }
        if self.is_removed:
            return about | {"remove": True}
        identity = "tenant_id" if self.key.kind == TENANT else "department_id"
        # a new row may have nothing but its name
        new = {identity: self.key.subject} if self.is_new else {}
        return about | {"set": new | {name: value for name, (_, value) in self.columns.items()}}


@dataclass(frozen=True, slots=True)
class Drift:
    """What was changed in the database since it was recorded: (recorded, found) by column.

    `is_gone`: the whole row.
    """

    key: Key
    recorded_at: datetime
    columns: dict[str, tuple[Any, Any]]
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found out; where there are faults nothing is to be changed."""

    faults: tuple[str, ...]
    notes: tuple[str, ...]
    changes: tuple[Change, ...]
    drifts: tuple[Drift, ...]
    unchanged: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else has to be known. `tenants`: of departments that go, tenant by department."""

    departments: Collection[str]
    some_departments: Sequence[str]
    tenants: Sequence[tuple[str, str]]


def judge(wanted: Sequence[Wanted], found: Mapping[Key, Found], around: Surroundings) -> Verdict:
    """Compare what a file wants with what there is."""
    judging = _Judging({one.key: one for one in wanted}, found, around)
    changes = [change for one in wanted if (change := judging.change(one)) is not None]
    judging.departments_stay()
    drifts = [drift for one in wanted if (drift := _drift(one.key, found[one.key])) is not None]
    return Verdict(
        tuple(judging.faults),
        tuple(judging.notes),
        tuple(sorted(changes, key=lambda one: one.key.order)),
        tuple(sorted(drifts, key=lambda one: one.key.order)),
        len(wanted) - len(changes),
    )


class _Judging:
    def __init__(
        self, wanted: Mapping[Key, Wanted], found: Mapping[Key, Found], around: Surroundings
    ) -> None:
        self._wanted = wanted
        self._found = found
        self._around = around
        self.faults: list[str] = []
        self.notes: list[str] = []

    def change(self, one: Wanted) -> Change | None:
        """None where the row is as wanted."""
        row = self._found[one.key].row
        if one.is_removed:
            if row is None:
                self.notes.append(f"{one.place} is not there: nothing to remove")
                return None
            columns = COLUMNS[one.key.kind]
            gone = {name: (row.get(name), None) for name in columns if row.get(name) is not None}
            return Change(one.key, is_new=False, is_removed=True, columns=gone)
        changed = {
            name: (None if row is None else row.get(name), value)
            for name, value in one.columns.items()
            if row is None or row.get(name) != value
        }
        merged = (row or {}) | one.columns
        self._check(one, merged, row)
        if row is not None and not changed:
            return None
        return Change(one.key, is_new=row is None, is_removed=False, columns=changed)

    def _check(self, one: Wanted, merged: Row, row: Row | None) -> None:
        if one.key.kind == TENANT:
            self._check_department(one, row)
        elif one.key.kind == BUDGET:
            self._check_budget(one, merged)
        if row is None or all(row.get(name) == value for name, value in one.columns.items()):
            return
        # the database's own checks refuse any change of such a row
        for name, column in COLUMNS[one.key.kind].items():
            if name in row and name not in one.columns and column.sort in {"whole", "real"}:
                value = row[name]
                if odd(column, value):
                    cure = f"{column.low} to {column.high:,}"
                    self.faults.append(
                        f"{one.place}.{name} is {value} in the database, which no change of the "
                        f"row may keep: give it a value here, {cure}"
                    )

    def _check_department(self, one: Wanted, row: Row | None) -> None:
        name = one.columns.get("department_id")
        if not isinstance(name, str):
            return
        told = self._wanted.get(Key(DEPARTMENT, name))
        if told is not None and told.is_removed:
            self.faults.append(f"{one.place}.department_id is {shown(name)}, which goes: keep one")
        elif told is None and name not in self._around.departments:
            if row is not None and row.get("department_id") == name:
                self.notes.append(
                    f"{one.place}.department_id is {shown(name)}, which is no department, as before"
                )
                return
            known = [key.subject for key in self._wanted if key.kind == DEPARTMENT]
            known += self._around.some_departments
            cure = meant(name, dict.fromkeys(known)) if known else "add [departments.NAME] first"
            self.faults.append(
                f"{one.place}.department_id is {shown(name)}, which is no department: {cure}"
            )

    def _check_budget(self, one: Wanted, merged: Row) -> None:
        warn, downgrade, protect = (merged.get(name, BUDGET_DEFAULTS[name]) for name in PCTS)
        if not warn <= downgrade <= protect:
            told = ", ".join(
                f"{name} {value}{'' if name in one.columns else ' (not in the file)'}"
                for name, value in zip(PCTS, (warn, downgrade, protect), strict=True)
            )
            self.faults.append(
                f"{one.place} has its percents out of order: {told}; "
                "warn_pct, downgrade_pct and protect_pct must rise"
            )
        elif downgrade in {warn, protect}:
            self.notes.append(f"{one.place}: two percents are equal, the lower tier never shows")
        if (
            merged.get("downgrade_model") is not None
            and merged.get("monthly_tokens") is not None
            and merged.get("monthly_cost_cents") is None
        ):
            self.notes.append(
                f"{one.place}: a downgrade saves money, not tokens, and this budget is of tokens "
                "alone"
            )
        if merged.get("downgrade_from") and merged.get("downgrade_model") is None:
            self.notes.append(f"{one.place}: downgrade_from does nothing without downgrade_model")

    def departments_stay(self) -> None:
        """A department that a tenant still names can't go."""
        staying: dict[str, list[str]] = {}
        for department, tenant in self._around.tenants:
            told = self._wanted.get(Key(TENANT, tenant))
            moved = told is not None and (told.is_removed or "department_id" in told.columns)
            if not moved:
                staying.setdefault(department, []).append(tenant)
        for department, tenants in sorted(staying.items()):
            place = self._wanted[Key(DEPARTMENT, department)].place
            more = len(tenants) - 1
            who = f"{shown(tenants[0])} and {more:,} more tenants belong" if more else ""
            who = who or f"the tenant {shown(tenants[0])} belongs"
            self.faults.append(
                f"{place} can't go: {who} to it: move or remove them in this file, too"
            )


def _drift(key: Key, found: Found) -> Drift | None:
    if found.recorded is None or found.recorded_at is None:
        return None
    if found.row is None:
        return Drift(key, found.recorded_at, {}, is_gone=True)
    columns = {
        name: (old, found.row[name])
        for name, old in found.recorded.items()
        if name in COLUMNS[key.kind] and name in found.row and found.row[name] != old
    }
    return Drift(key, found.recorded_at, columns, is_gone=False) if columns else None


def with_budgets(wanted: Sequence[Wanted], budgets: Iterable[tuple[str, str]]) -> list[Wanted]:
    """A department that goes takes its budgets with it."""
    going = {
        one.key.subject: one for one in wanted if one.is_removed and one.key.kind == DEPARTMENT
    }
    more = [
        Wanted(
            Key(BUDGET, department, environment),
            {},
            True,
            path=(*going[department].path, "budgets"),
        )
        for department, environment in budgets
    ]
    return [*wanted, *more]
