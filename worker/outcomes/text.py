"""Looks at a file's bytes before it is read: what it is, in which encoding, and its SHA-256."""

from __future__ import annotations

import codecs
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.status_text import clipped
from worker.untrusted import visible

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 500 * 2**20
_CHUNK_BYTES: Final = 2**20
_SNIFFED_BYTES: Final = 4
WORKBOOK: Final = "xlsx"
_ZIP: Final = b"PK\x03\x04"
_OLE: Final = b"\xd0\xcf\x11\xe0"  # an old workbook, or one with a password
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
NAMES: Final = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "gb18030": "GB18030",
}


@dataclass(frozen=True, slots=True)
class Look:
    """``encoding``: Python's name of it, or WORKBOOK. ``state``: changes where the file does."""

    encoding: str
    sha256: str
    state: tuple[int, int]


def look_at(path: Path) -> Look:
    """One pass over the bytes, two where they aren't UTF-8: then they may be GB18030.

    Raises UsageError for what is no file, empty, too big, or neither text nor a workbook.
    """
    name = clipped(visible(str(path)))
    try:
        if not path.is_file():
            raise UsageError(f"{name} is no file" if path.exists() else f"there is no file {name}")
        state = state_of(path)
        if state[0] > MAX_BYTES:
            raise UsageError(
                f"{name} has {state[0]:,} bytes, more than {MAX_BYTES:,}: split it by month"
            )
        with path.open("rb") as file:
            start = file.read(_SNIFFED_BYTES)
        if not start:
            raise UsageError(f"{name} is empty: its first line must name the columns")
        if start == _OLE:
            raise UsageError(
                f"{name} is an old workbook (.xls) or a protected one: save it as .xlsx, without"
                " protection"
            )
        guess = WORKBOOK if start == _ZIP else _guess(start)
        sha256, wrong = _decoded(path, guess)
        if wrong is None:
            return Look(guess, sha256, state)
        if guess == "utf-8" and _decoded(path, "gb18030")[1] is None:
            return Look("gb18030", sha256, state)
    except OSError as error:
        raise UsageError(f"{name} can't be read: {error.strerror or error}") from None
    tried = "neither UTF-8 nor GB18030" if guess == "utf-8" else f"no {NAMES[guess]}"
    raise UsageError(f"{name}: line {wrong} is {tried}: save the file as CSV UTF-8")


def state_of(path: Path) -> tuple[int, int]:
    """Size and time of the last change."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _guess(start: bytes) -> str:
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    if len(start) == _SNIFFED_BYTES and start[1] == start[3] == 0:
        return "utf-16-le"
    if len(start) == _SNIFFED_BYTES and start[0] == start[2] == 0:
        return "utf-16-be"
    return "utf-8"


def _decoded(path: Path, encoding: str) -> tuple[str, int | None]:
    """The whole file's SHA-256, and the line on which it stops to be of the encoding."""
    digest = hashlib.sha256()
    decoder = None if encoding == WORKBOOK else codecs.getincrementaldecoder(encoding)()
    line, wrong = 1, None
    with path.open("rb") as file:
        while True:
            chunk = file.read(_CHUNK_BYTES)
            digest.update(chunk)
            if decoder is not None and wrong is None:
                try:
                    line += decoder.decode(chunk, final=not chunk).count("\n")
                except UnicodeDecodeError as error:
                    wrong = line + error.object[: error.start].count(b"\n")
            if not chunk:
                return digest.hexdigest(), wrong
