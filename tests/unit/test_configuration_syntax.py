"""What TOML itself refuses is told with its line, in words that help, and shows no value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unit.configuration_world import OPS, SECRET, faults_of

# Of what TOML itself refuses: the last line, and what is said of it.
BROKEN: dict[str, str] = {
    "from = 16:00": "holds a text whose quotes are missing: write it as in kind =",
    "a = ops@example.com  # who": "holds a text whose quotes are missing: write it as in kind =",
    f"a = https://h/{SECRET}": "holds a text whose quotes are missing: write it as in kind =",
    f"password = {SECRET}": "holds a text whose quotes are missing: write it as in kind =",
    "a = [ops, mail]": "holds a text whose quotes are missing: write it as in kind =",
    "a = \u201cops\u201d": "holds typographic quotes: write plain ones",
    "a = True": "holds a word with capitals: write true or false",
    "a = 0587": "holds a number that begins with 0: leave that out",
    "a = # none": "Invalid value: a text stands in quotes",
    "a =": "holds no value: a key, = and a value are needed",
    'a = 5 b = "x"': "Expected newline or end of document after a statement: one key and",
    'a = "x" "y"': "Expected newline or end of document after a statement: one key and",
    'a = ["x" "y"]': "Unclosed array: a comma stands between any two, and ] at the end",
    "a = 'x": 'Expected "\'": close the quotes',
    'a = "x': "Unterminated string: close the quotes",
    "[routes]\n[[routes]]": "holds a second table of routes: write each route as [[routes]]",
    "[[routes]]\n[routes] # two": "holds a second table of routes: write each route as [[routes]]",
    "[routes]\n[routes]": "holds a second table of routes: write each route as [[routes]]",
    "[default]\n[default]": "Cannot declare ('default',) twice: each table stands once",
}


@pytest.mark.parametrize("text", BROKEN)
def test_broken_syntax_is_told_with_its_line_and_cure(tmp_path: Path, text: str) -> None:
    (fault,) = faults_of(tmp_path, text)
    place, found = re.fullmatch(
        r"(the last line|line \d+, column \d+) (.*)", fault, re.DOTALL
    ).groups()  # type: ignore[union-attr]
    assert found.startswith(BROKEN[text])
    lines = text.count("\n") + 1
    assert place == "the last line" or place.startswith(f"line {lines}, ")
    (crlf,) = faults_of(tmp_path, OPS.replace("\n", "\r\n") + text.replace("\n", "\r\n") + "\r\n")
    assert BROKEN[text][:20] in crlf or "close the quotes" in crlf


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a = " + "[" * 100_000,
        "\0",
        "a.b.c = 1\n" * 1000,
        "= 1",
        "a = " + "9" * 5000,
        "a = 2026-13-45",
        "a = nan",
    ],
)
def test_no_file_breaks_the_reader(tmp_path: Path, text: str) -> None:
    assert faults_of(tmp_path, text)
