"""Answers on stdout, remarks on stderr: how commands speak.

A closed or full stdout is an error of ours, a reader that went away is none.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from worker.errors import OutputError, ReaderGoneError
from worker.telemetry import is_utf8, remark

if TYPE_CHECKING:
    from collections.abc import Iterator


def say(text: str) -> None:
    """One answer for stdout. Raises OutputError where that is closed or full."""
    with _writing() as stream:
        stream.write(text + "\n")


def say_json(document: object) -> None:
    """One answer for programs: valid JSON whatever stdout's encoding is."""
    import json

    with _writing() as stream:
        plain = not is_utf8(stream)
        stream.write(json.dumps(document, ensure_ascii=plain) + "\n")


def say_script(text: str) -> None:
    """A file's text, in UTF-8 whatever stdout's encoding is: no letter of it may change."""
    with _writing() as stream:
        stream.flush()
        stream.buffer.write(text.encode() + b"\n")


def flush_answers() -> None:
    """Send off what was said. Raises OutputError; nothing was said to a closed stdout."""
    if sys.stdout is not None:
        with _writing() as stream:
            stream.flush()


@contextmanager
def _writing() -> Iterator[TextIO]:
    # Python has no stream where the process was started without one (>&-).
    if sys.stdout is None:
        raise OutputError("stdout could not be written: it is closed")
    try:
        yield sys.stdout
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except OSError as error:
        raise OutputError(f"stdout could not be written: {error.strerror or error}") from error


def tell(text: str) -> None:
    """One remark for stderr."""
    remark(text)
