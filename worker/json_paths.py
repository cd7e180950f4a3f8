"""Paths into a JSON document, such as ``data.usage.prompt_tokens`` or ``choices[0].usage``. Pure.

A step is a name, ``[n]`` (an element of a list, from 0), or ``["a name"]`` with letters that
a plain one can't have. A path is kept as a tuple of names and numbers.
"""

from __future__ import annotations

import re
from typing import Final

Path = tuple[str | int, ...]

STEPS_MAX: Final = 20
_STEP: Final = re.compile(r'(?:^|\.)([^.\[\]"\s]+)|\[([0-9]{1,6})\]|\["([^"\\]+)"\]')


_NOTHING: Final = object()


class BrokenPathError(Exception):
    """What is wrong with a path, in words that follow its key."""


class NotThereError(Exception):
    """Where a path ends before its end, in words."""


def parse_path(text: str) -> Path:
    """The steps of a path. Raises BrokenPathError."""
    steps: list[str | int] = []
    place = 0
    while place < len(text):  # bounded by the text: each step takes a letter or more
        found = _STEP.match(text, place)
        if found is None or len(steps) == STEPS_MAX:
            raise BrokenPathError(
                f"is no path of at most {STEPS_MAX} steps, such as data.usage.prompt_tokens or "
                "choices[0].usage"
            )
        name, number, quoted = found.groups()
        steps.append(int(number) if number is not None else name or quoted)
        place = found.end()
    return tuple(steps)


def value_at(document: object, path: Path) -> object:
    """The value at the path's end; None where it, or something on the way, is null.

    Raises NotThereError where a step leads nowhere.
    """
    value = document
    for number, step in enumerate(path):
        if value is None:
            return None
        found = _step(value, step)
        if found is _NOTHING:
            raise NotThereError(f"{shown_path(path[: number + 1])} is not in the answer")
        value = found
    return value


def _step(value: object, step: str | int) -> object:
    if isinstance(step, str):
        return value.get(step, _NOTHING) if isinstance(value, dict) else _NOTHING
    return value[step] if isinstance(value, list) and step < len(value) else _NOTHING


def shown_path(path: Path) -> str:
    """The path as it is written."""
    text = "".join(
        f"[{step}]"
        if isinstance(step, int)
        else f".{step}"
        if _STEP.fullmatch(step)
        else f'["{step}"]'
        for step in path
    )
    return text.removeprefix(".")
