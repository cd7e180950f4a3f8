"""Follows a reference to a secret: { env = "NAME" } or { file = "/run/secrets/name" }.

What is told of a fault names the variable or says what the system said, never the value.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final

from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECRET_MAX_BYTES: Final = 65_536
_FORMS: Final = '{ env = "NAME" } or { file = "/run/secrets/name" }'


class UnreadableFileError(Exception):
    """Why a file could not be read, in words that follow its name."""


class BrokenReferenceError(Exception):
    """Why a reference leads to no value, in words that follow its key."""


def resolved(reference: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> str:
    """The value without white space at its ends. Raises BrokenReferenceError."""
    way, target = next(iter(reference.items()), ("", ""))
    good = len(reference) == 1 and way in {"env", "file"} and isinstance(target, str)
    if not good or not target.strip():
        raise BrokenReferenceError(f"is no reference: write {_FORMS}")
    if way == "env":
        named, cure = f"names the variable {visible(target)}", "set it where the worker runs"
        if target not in environ:
            raise BrokenReferenceError(f"{named}, which is not set: {cure}")
        value = environ[target].strip()
    else:
        named, cure = f"names the file {visible(target)}", "put the value into it, on one line"
        try:
            value = read_bounded(folder / target, SECRET_MAX_BYTES).strip()
        except UnreadableFileError as error:
            raise BrokenReferenceError(f"{named}, which {error}") from None
    if not value:
        raise BrokenReferenceError(f"{named}, which is empty: {cure}")
    if not value.isprintable():
        raise BrokenReferenceError(
            f"{named}, which holds a line break or a control character: {cure}"
        )
    return value


def read_bounded(path: Path, max_bytes: int) -> str:
    """A regular file's text. Raises UnreadableFileError."""
    data = bytes_of(path, max_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableFileError(f"is not UTF-8, in line {line}") from None


def bytes_of(path: Path, max_bytes: int) -> bytes:
    """A regular file's content. Raises UnreadableFileError."""
    try:
        # a pipe that nobody writes to would hold every tick up
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableFileError("is no plain file")
            data = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is unusable"
        raise UnreadableFileError(f"can't be read: {why}") from None
    if len(data) > max_bytes:
        raise UnreadableFileError(f"is larger than {max_bytes:,} bytes")
    return data
