"""Limits as people and programs read them: lines, TOML, JSON; diffs and the record of changes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from worker.limits.reading import odd
from worker.limits.shape import (
    BUDGET,
    COLUMNS,
    DEPARTMENT,
    FORMAT_VERSION,
    TENANT,
    Column,
    Key,
    Row,
    text_fault,
)
from worker.status_text import clipped, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from zoneinfo import ZoneInfo

    from worker.limits.comparing import Change, Drift, Verdict
    from worker.limits.rows import Block, ChangeRow, Limits

SHA_SHOWN: Final = 12
TOML_HEADER: Final = (
    "# Limits, as quota-worker limits apply takes them. What is left out stays as it is.\n"
    f"format_version = {FORMAT_VERSION}"
)
# Columns of a row that say little where they have their usual value.
_USUAL: Final = {
    "environment": "production",
    "enforce": "on",
    "stale_policy": "estimate",
    "reservation_ttl_seconds": 600,
    "soft_warn_pct": 80,
    "warn_pct": 75,
    "downgrade_pct": 90,
    "protect_pct": 98,
}


def toml_key(text: str) -> str:
    """A key, in quotes where TOML wants them."""
    plain = text.isascii() and text.replace("-", "x").replace("_", "x").isalnum()
    return text if plain else toml_text(text)


def toml_text(text: str) -> str:
    """A basic string; every letter that is no plain one as an escape."""
    out = []
    for one in text:
        if one in '"\\':
            out.append(f"\\{one}")
        elif one.isprintable():
            out.append(one)
        else:
            code = ord(one)
            out.append(f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")  # noqa: PLR2004  the BMP
    return f'"{"".join(out)}"'


def toml_value(column: Column, value: Any) -> str:  # noqa: ANN401  a column's
    """A value as a file has it."""
    if value is None:
        return toml_text(column.null or "")
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, list):
        # an old array may hold NULL, or arrays
        told = (toml_text(one) if isinstance(one, str) else json.dumps(one) for one in value)
        return f"[{', '.join(told)}]"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def toml_table(limits: Limits) -> str:
    """A row as a table; what no file could give is a comment."""
    key = limits.key
    path = {
        TENANT: ("tenants", key.subject),
        DEPARTMENT: ("departments", key.subject),
        BUDGET: ("departments", key.subject, "budgets", key.environment),
    }[key.kind]
    if (wrong := text_fault(key.subject, may_be_empty=False)) is not None:
        wrong = wrong.partition(":")[0]
        return f"\n# {key.kind} {toml_text(key.subject)} is left out, its name {wrong}"
    lines = [f"\n[{'.'.join(map(toml_key, path))}]"]
    if limits.block is not None:
        block = limits.block
        lines.append(
            f"# blocked until {_utc(block.blocked_until)} by {visible(block.blocked_by)}: "
            f"{visible(block.reason)}"
        )
    for name, column in COLUMNS[key.kind].items():
        value = limits.row.get(name)
        if odd(column, value):
            shown = visible(json.dumps(value, ensure_ascii=False))
            lines.append(f"# {name} is {shown} in the database, which no file can say")
        else:
            lines.append(f"{name} = {toml_value(column, value)}")
    return "\n".join(lines)


def line_of(limits: Limits) -> str:
    """A row on one line, its usual values left out."""
    columns = COLUMNS[limits.key.kind]
    words = [
        f"{name}={_short(columns[name], limits.row.get(name))}"
        for name in columns
        if name in limits.row
        and limits.row[name] not in (None, [])
        and _USUAL.get(name) != limits.row[name]
    ]
    line = f"{title(limits.key)}  {' '.join(words)}".rstrip()
    if limits.block is not None:
        line += f"\n  {block_words(limits.block)}"
    return line


def title(key: Key) -> str:
    """`tenant acme`, `budget marketing (test)`."""
    where = f" ({key.environment})" if key.environment else ""
    return f"{key.kind} {clipped(visible(key.subject))}{where}"


def block_words(block: Block) -> str:
    """`BLOCKED until … by …: why`."""
    until, by, reason = _utc(block.blocked_until), visible(block.blocked_by), visible(block.reason)
    return f"BLOCKED until {until} by {by}: {reason}"


def _short(column: Column, value: Any) -> str:  # noqa: ANN401  a column's
    if isinstance(value, bool) or not isinstance(value, int | float):
        return visible(toml_value(column, value))
    return f"{value:,}" if value != int(value) else f"{int(value):,}"


def json_row(limits: Limits) -> str:
    """A row as a JSON object."""
    document: Row = {"kind": limits.key.kind, "name": limits.key.subject}
    if limits.key.environment:
        document["environment"] = limits.key.environment
    columns = {name: limits.row.get(name) for name in COLUMNS[limits.key.kind]}
    document |= {"limits": columns, "block": None}
    if limits.block is not None:
        document["block"] = block_document(limits.block)
    return json.dumps(document, ensure_ascii=True)


def block_document(block: Block) -> dict[str, str]:
    """For JSON."""
    return {
        "from": block.blocked_at.isoformat(),
        "until": block.blocked_until.isoformat(),
        "by": block.blocked_by,
        "reason": block.reason,
    }


def diff_text(verdict: Verdict) -> str:
    """What changes: - old, + new, by department, budget and tenant; then what was found changed."""
    lines: list[str] = []
    for change in verdict.changes:
        lines += _change_lines(change)
    for drift in verdict.drifts:
        lines += drift_lines(drift)
    return "\n".join(lines)


def _change_lines(change: Change) -> list[str]:
    columns = COLUMNS[change.key.kind]
    mark = "+" if change.is_new else "-" if change.is_removed else " "
    lines = [f"{mark} {title(change.key)}"]
    for name, (old, new) in sorted(change.columns.items()):
        if not change.is_new:
            lines.append(f"-   {name} = {visible(toml_value(columns[name], old))}")
        if not change.is_removed:
            lines.append(f"+   {name} = {visible(toml_value(columns[name], new))}")
    return lines


def drift_lines(drift: Drift) -> list[str]:
    """What somebody changed with other tools."""
    at = _utc(drift.recorded_at)
    if drift.is_gone:
        return [f"! {title(drift.key)} was removed in the database since {at}"]
    columns = COLUMNS[drift.key.kind]
    return [
        f"! {title(drift.key)}: {name} was {visible(toml_value(columns[name], old))} when recorded "
        f"{at}, and was changed in the database to {visible(toml_value(columns[name], new))}"
        for name, (old, new) in sorted(drift.columns.items())
    ]


def summary(verdict: Verdict, *, dry_run: bool) -> str:
    """The last line of an apply."""
    added = sum(one.is_new for one in verdict.changes)
    removed = sum(one.is_removed for one in verdict.changes)
    changed = len(verdict.changes) - added - removed
    counts = f"{added:,} added, {changed:,} changed, {removed:,} removed"
    would = "would be " if dry_run else ""
    return f"{would}{counts}, {verdict.unchanged:,} as the file has them"


def verdict_document(verdict: Verdict, sha256: str, *, dry_run: bool) -> dict[str, Any]:
    """For JSON."""
    return {
        "dry_run": dry_run,
        "file_sha256": sha256,
        "unchanged": verdict.unchanged,
        "changes": [
            _about(one.key)
            | {"new": one.is_new, "removed": one.is_removed, "columns": _pairs(one.columns)}
            for one in verdict.changes
        ],
        "drift": [
            _about(one.key)
            | {
                "recorded_at": one.recorded_at.isoformat(),
                "removed": one.is_gone,
                "columns": _pairs(one.columns),
            }
            for one in verdict.drifts
        ],
        "notes": list(verdict.notes),
    }


def _about(key: Key) -> dict[str, str]:
    about = {"kind": key.kind, "name": key.subject}
    return about | ({"environment": key.environment} if key.environment else {})


def _pairs(columns: dict[str, tuple[Any, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {"old": old, "new": new} for name, (old, new) in sorted(columns.items())}


def history_text(rows: Sequence[ChangeRow], zone: ZoneInfo) -> str:
    """The record of changes, a line each, and one below for each column."""
    return "\n".join("\n".join(_history_lines(row, zone)) for row in rows)


def _history_lines(row: ChangeRow, zone: ZoneInfo) -> Iterable[str]:
    at = row.changed_at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")
    by = clipped(visible(row.changed_by))
    if row.database_user != row.changed_by and row.action != "found":
        by += f" (as {clipped(visible(row.database_user))})"
    yield f"{at}  {row.action:<7}  {title(row.key)}  by {by}{_why(row, zone)}"
    if row.action in {"block", "unblock", "topup"}:
        return
    columns = COLUMNS[row.key.kind]
    before, after = row.before or {}, row.after or {}
    if not after:
        yield "    the row went"
        return
    for name, column in columns.items():
        old, new = before.get(name), after.get(name)
        if old != new:
            told = visible(toml_value(column, new))
            yield f"    {name}: {f'{visible(toml_value(column, old))} → ' if before else ''}{told}"


def _why(row: ChangeRow, zone: ZoneInfo) -> str:
    words = ""
    if row.action == "block" and row.after:
        until = datetime.fromisoformat(row.after["blocked_until"]).astimezone(zone)
        words = f"  until {until:%Y-%m-%d %H:%M:%S}"
    elif row.action == "topup" and row.after:
        amounts = {name: row.after.get(name) for name in ("tokens", "cost_cents")}
        words = "  " + ", ".join(f"{name} {value:,}" for name, value in amounts.items() if value)
        end = datetime.fromisoformat(row.after["expires_at"]).astimezone(zone)
        words += f" until {end:%Y-%m-%d %H:%M:%S}, key {visible(row.after['idempotency_key'])}"
        words += f", approved by {visible(row.after['approved_by'])}"
    if row.reason:
        words += f": {visible(row.reason)}"
    if row.file_name and row.file_sha256:
        words += f"  {visible(row.file_name)} {row.file_sha256[:SHA_SHOWN]}"
    return words


def history_document(row: ChangeRow) -> dict[str, Any]:
    """For JSON."""
    return {
        "id": row.change_id,
        "at": row.changed_at.isoformat(),
        "by": row.changed_by,
        "database_user": row.database_user,
        "action": row.action,
        **_about(row.key),
        "before": row.before,
        "after": row.after,
        "reason": row.reason,
        "file": row.file_name,
        "file_sha256": row.file_sha256,
    }


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
