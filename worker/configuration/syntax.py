"""Parses TOML, and says what to do about a syntax error. No value shows: it may be a secret."""

from __future__ import annotations

import re
from typing import Any, Final

from worker.untrusted import visible

# What to do about a syntax error, by the beginning of the parser's words.
_CURES: Final = {
    "Cannot declare": "each table stands once: give one another name, or put the two together",
    "Cannot overwrite": "each key stands once",
    "Duplicate inline table key": "each key stands once",
    "Cannot mutate immutable": "a value in { } is whole: add nothing to it further down",
    "Invalid value": 'a text stands in quotes, such as kind = "email"',
    "Unclosed array": "a comma stands between any two, and ] at the end",
    "Unclosed": "close what was opened, in the same line",
    "Unterminated string": "close the quotes",
    'Expected "\'"': "close the quotes",
    "Expected '='": 'a key, = and a value are needed, such as kind = "email"',
    "Expected newline": "one key and its value to a line",
    "Illegal character": "close the quotes, and write one plain line, its letters in UTF-8",
    "Unescaped": "write a backslash twice, or the text in single quotes",
    "Invalid statement": "a line is [table], key = value, or begins with #",
}
# Words of the parser that a value without quotes may lead to.
_VALUE_WORDS: Final = ("Invalid value", "Expected newline")
# What Python makes no number of; TOML lets _ stand between digits.
_LONG_NUMBER: Final = re.compile(r"[=\[,]\s*[+-]?[0-9][0-9_]{4299,}")
_DECLARED: Final = re.compile(r"Cannot declare \((.*)\) twice")
_SHOWN_KEYS: Final = re.compile(r"[\w, '-]{1,150}")
_ROUTES: Final = frozenset({"[routes]", "[[routes]]"})
_STARTS: Final = "\"'{"  # of values that are no bare words
_CURLY: Final = "\u201c\u201d\u201e\u2018\u2019\u300c\u300d\uff02"  # typographic, Chinese, wide


class BrokenSyntaxError(Exception):
    """Where the text is no TOML, and what to do about it: one line."""


def parse(text: str) -> dict[str, Any]:
    """The tables of the text. Raises BrokenSyntaxError."""
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        words, _, place = str(error).rpartition(" (at ")
        place = place.removesuffix(")").replace("end of document", "the last line")
        fault = f"{place} {_fault(words, _line(text, place))}"
    except ValueError:
        long = _LONG_NUMBER.search(text)
        place = f"line {text.count(chr(10), 0, long.end()) + 1} holds" if long else "there is"
        fault = f"{place} a number of more digits than any needs: shorten it"
    except RecursionError:
        fault = "the brackets are too deep: no value here needs more than two"
    raise BrokenSyntaxError(fault)


def _line(text: str, place: str) -> str:
    """The line of a place such as `line 3, column 9`."""
    number = place.partition(",")[0].removeprefix("line ")
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[int(number) - 1] if number.isdecimal() else lines[-1]


def _fault(words: str, line: str) -> str:
    """What is wrong in the line, in our words where we know better than the parser."""
    header = line.partition("#")[0].replace(" ", "").strip()
    if header in _ROUTES and words.startswith("Cannot"):
        return "holds a second table of routes: write each route as [[routes]]"
    fault = _value_fault(line) if words.startswith(_VALUE_WORDS) else None
    if fault is not None:
        return fault
    declared = _DECLARED.fullmatch(words)
    if declared is not None and _SHOWN_KEYS.fullmatch(declared[1]) is None:
        # it may be a secret on the wrong side of a =
        words = "Cannot declare a table twice"
    cure = next((cure for begin, cure in _CURES.items() if words.startswith(begin)), None)
    return f"{visible(words)}{f': {cure}' if cure else ''}"


def _value_fault(line: str) -> str | None:
    """Of a line `key = value`: what its value lacks; None where it may be something else."""
    _, equals, value = line.partition("=")
    bare = value.partition("#")[0].strip().lstrip("[ ")
    if not equals or "=" in bare or (not bare and value.strip()):
        return None
    if not bare:
        return "holds no value: a key, = and a value are needed"
    if bare[0] in _CURLY:
        return "holds typographic quotes: write plain ones"
    if bare.lower() in {"true", "false"}:
        return "holds a word with capitals: write true or false"
    if bare.isdecimal() and bare.startswith("0"):
        return "holds a number that begins with 0: leave that out"
    plain = bare[0] in _STARTS or "]" in bare[:-1]
    return None if plain else 'holds a text whose quotes are missing: write it as in kind = "email"'
