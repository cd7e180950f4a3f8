"""Files to which processes append what they know, a line of JSON each: a killed one loses no line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Journal:
    """Appends lines; each has the time (`t`, seconds of the real clock)."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, **line: Any) -> None:
        """In one write, so that lines of several processes don't mix."""
        os.write(self._file, (json.dumps({"t": time.time()} | line) + "\n").encode())


def read_journal(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
