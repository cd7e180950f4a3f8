"""Where in a TOML file a key stands: the parser doesn't tell. Looked for only where needed."""

from __future__ import annotations

import tomllib
from typing import Any

from worker.configuration.table import bare

Path = tuple[str, ...]


class Lines:
    """The lines of a file's tables and keys, by path."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: dict[Path, int] | None = None

    def place(self, path: Path) -> str:
        """`line 12` of the key, else of the nearest table around it; empty: not known."""
        if self._lines is None:
            self._lines = _read(self._text)
        for length in range(len(path), 0, -1):
            if (line := self._lines.get(path[:length])) is not None:
                return f"line {line}"
        return ""


def place_of(lines: Lines | None, path: Path) -> str:
    """`line 12, tenants.acme.locale`."""
    place = "" if lines is None else lines.place(path)
    name = ".".join(map(bare, path))
    return f"{place}, {name}" if place else name


def _read(text: str) -> dict[Path, int]:
    lines: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        begun = line.strip()
        if begun.startswith("["):
            path = _path(begun)
            if path:
                table = path
                # of a table that only its inner ones name, the first of them
                for length in range(1, len(path) + 1):
                    lines.setdefault(path[:length], number)
        elif "=" in begun and not begun.startswith("#"):
            path = _path(begun.partition("=")[0] + "= 0")
            if path:
                lines.setdefault(table + path, number)
    return lines


def _path(line: str) -> Path:
    """The keys that a line leads through; empty where it is part of a value."""
    try:
        inner: Any = tomllib.loads(line)
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()
    path: list[str] = []
    while isinstance(inner, dict) and len(inner) == 1:
        key, inner = next(iter(inner.items()))
        path.append(key)
        if isinstance(inner, list):
            break
    return tuple(path)
