"""Reads a traffic trace: a CSV of requests with their time and token counts.

The whole file is checked before anything is sent: a broken line refuses it, naming line
and column and what would be right. Columns go by header, in any order and case; a BOM,
CRLF, and fractions of a second with more than six digits (cut off) are fine.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

from worker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAX_REQUESTS = 5_000_000
MAX_TOKENS = 10**12  # what the ledger accepts in one call
MAX_ID_CHARACTERS = 200
MAX_SHOWN_CHARACTERS = 40
# What lies outside is a wrong column or unit, and no billing day.
FIRST_TIME = datetime(2000, 1, 1, tzinfo=UTC)
END_OF_TIME = datetime(2200, 1, 1, tzinfo=UTC)

TIME, INPUT, OUTPUT, TENANT, MODEL, APP = "timestamp", "input", "output", "tenant", "model", "app"
REQUIRED = (TIME, INPUT, OUTPUT)
_ALIASES = {
    "timestamp": TIME,
    "time": TIME,
    "contexttokens": INPUT,
    "inputtokens": INPUT,
    "intokens": INPUT,
    "prompttokens": INPUT,
    "generatedtokens": OUTPUT,
    "outputtokens": OUTPUT,
    "outtokens": OUTPUT,
    "completiontokens": OUTPUT,
    "tenant": TENANT,
    "tenantid": TENANT,
    "model": MODEL,
    "app": APP,
}
_WANTED = {
    TIME: "timestamp or TIMESTAMP",
    INPUT: "input_tokens or ContextTokens",
    OUTPUT: "output_tokens or GeneratedTokens",
}
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,12}))?(Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_COUNT = re.compile(r"\d{1,13}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request; ``at`` is aware (UTC unless the file said otherwise)."""

    at: datetime
    in_tokens: int
    out_tokens: int
    tenant_id: str | None
    model: str | None
    app: str | None


def read_trace(path: Path) -> list[TraceRequest]:
    """All requests of the file, by time (the file's order where times are equal).

    Raises ``UsageError`` with the line and column of the first fault.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror or error}") from error
    return parse_trace(data, path.name)


def parse_trace(data: bytes, name: str) -> list[TraceRequest]:
    """As ``read_trace``, from the file's bytes; ``name`` stands in messages."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name} line {line}: not UTF-8: save the file as UTF-8") from error
    lines = _rows(text, name)
    if not lines:
        raise UsageError(
            f"{name} is empty: a header line is needed, such as "
            "timestamp,input_tokens,output_tokens"
        )
    header_line, header = lines[0]
    columns = _columns(header, f"{name} line {header_line}")
    if len(lines) - 1 > MAX_REQUESTS:
        raise UsageError(f"{name} has more than {MAX_REQUESTS:,} requests: split it")
    if len(lines) == 1:
        raise UsageError(f"{name} has a header but no request: add lines below it")
    requests = []
    for line, row in lines[1:]:
        place = f"{name} line {line}"
        if not row:
            raise UsageError(f"{place}: empty line: remove it")
        if len(row) != len(header):
            raise UsageError(f"{place}: {len(row)} columns, the header has {len(header)}")
        requests.append(_request(row, columns, header, place))
    requests.sort(key=lambda request: request.at)
    return requests


def _rows(text: str, name: str) -> list[tuple[int, list[str]]]:
    """Every row with its line number (from 1), without empty lines at the end."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows = []
    while True:  # bounded by the text
        line = reader.line_num + 1
        try:
            rows.append((line, next(reader)))
        except StopIteration:
            break
        except csv.Error as error:
            raise UsageError(f"{name} line {line}: {error}: no valid CSV") from error
    while rows and not rows[-1][1]:
        rows.pop()
    return rows


def _columns(header: Sequence[str], place: str) -> dict[str, int]:
    """Where each known column stands; others are left alone."""
    columns: dict[str, int] = {}
    for position, title in enumerate(header):
        role = _ALIASES.get(re.sub(r"[\s_-]", "", title).lower())
        if role is None:
            continue
        if role in columns:
            raise UsageError(
                f"{place}: {_shown(title)} and {_shown(header[columns[role]])} "
                "name the same column: keep one"
            )
        columns[role] = position
    for role in REQUIRED:
        if role not in columns:
            raise UsageError(f"{place}: no column {_WANTED[role]} in the header")
    return columns


def _request(
    row: Sequence[str], columns: dict[str, int], header: Sequence[str], place: str
) -> TraceRequest:
    def cell(role: str) -> tuple[str, str]:
        position = columns[role]
        title = _shown(header[position])
        return row[position].strip(), f"{place}, column {position + 1} ({title})"

    def optional(role: str) -> str | None:
        if role not in columns:
            return None
        text, where = cell(role)
        if _CONTROL.search(text) or len(text) > MAX_ID_CHARACTERS:
            raise UsageError(
                f"{where}: at most {MAX_ID_CHARACTERS} characters, no control characters"
            )
        if not text and role == TENANT:
            raise UsageError(f"{where}: empty: a tenant's name is needed")
        return text or None

    return TraceRequest(
        _time(*cell(TIME)),
        _count(*cell(INPUT)),
        _count(*cell(OUTPUT)),
        optional(TENANT),
        optional(MODEL),
        optional(APP),
    )


def _count(text: str, where: str) -> int:
    if _COUNT.fullmatch(text) is None or int(text) > MAX_TOKENS:
        raise UsageError(
            f"{where}: {_shown(text)} is no token count: "
            f"a whole number from 0 to {MAX_TOKENS} is needed"
        )
    return int(text)


def _time(text: str, where: str) -> datetime:
    try:
        at = parse_time(text)
    except ValueError as error:
        raise UsageError(
            f"{where}: {_shown(text)} is no time: one such as 2026-11-30 18:15:46.680 is needed"
        ) from error
    if not FIRST_TIME <= at < END_OF_TIME:
        raise UsageError(f"{where}: {_shown(text)} lies outside the years 2000 to 2199")
    return at


def parse_time(text: str) -> datetime:
    """An aware time; without an offset it is UTC; digits past microseconds are cut.

    Raises ``ValueError``.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    *numbers, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (int(number) for number in numbers)
    microsecond = int((fraction or "0")[:6].ljust(6, "0"))
    offset = UTC if zone in (None, "Z") else _offset(zone)
    return datetime(year, month, day, hour, minute, second, microsecond, tzinfo=offset)


def _offset(zone: str) -> timezone:
    sign = -1 if zone[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])))


def _shown(text: str) -> str:
    """The text as a message may carry it: quoted, escaped, cut."""
    cut = text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"
    return ascii(cut) if _CONTROL.search(cut) else repr(cut) if cut else "nothing"
