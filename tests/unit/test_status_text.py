"""Tables that stay aligned, and names that can't act on a terminal."""

from __future__ import annotations

import pytest

from worker.status_text import cells, clipped, table, visible


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("tenant-free", "tenant-free"),
        ("市场部", "市场部"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\nok 100.0", "a\\nok 100.0"),
        ("a\r\tb\x00", "a\\r\\tb\\x00"),
        ("x\u202egnp.exe", "x\\u202egnp.exe"),
        ("a\u200bb\u2028c", "a\\u200bb\\u2028c"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_hides_or_acts_is_escaped(name: str, shown: str) -> None:
    assert visible(name) == shown
    assert visible(name).isprintable()


def test_wide_and_combining_characters_are_measured() -> None:
    assert cells("市场部") == 6
    assert cells("e\u0301") == 1
    assert clipped("市场部门预算", 7) == "市场部…"
    assert cells(clipped("市" * 50)) <= 40


def test_columns_stand_under_one_another_whatever_the_script() -> None:
    text = table(("who", "n"), [("市场部", "1"), ("ab", "1,000")], frozenset({1}))
    assert text.splitlines() == [
        "who         n",
        "市场部      1",
        "ab      1,000",
    ]
