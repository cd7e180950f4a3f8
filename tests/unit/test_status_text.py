"""Tables that stay aligned, and names that can't act on a terminal."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest

from worker.metrics_text import Exposition
from worker.status_text import (
    Palette,
    cells,
    clipped,
    sparkline,
    table,
    visible,
    wants_colour,
)


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


def test_a_sparkline_has_a_block_for_each_hour_as_high_as_its_share() -> None:
    assert sparkline([]) == ""
    assert sparkline([Decimal(0)] * 3) == "···"
    assert sparkline([Decimal(0), Decimal(1), Decimal(4), Decimal(8)]) == "·▂▅█"
    assert sparkline([Decimal("0.001"), Decimal(10**18)]) == "▁█"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_that_want_them() -> None:
    assert wants_colour(Screen(), {})
    assert wants_colour(Screen(), {"NO_COLOR": "", "TERM": "xterm"})
    assert not wants_colour(Screen(), {"NO_COLOR": "1"})
    assert not wants_colour(Screen(), {"TERM": "dumb"})
    assert not wants_colour(io.StringIO(), {})
    assert not wants_colour(None, {})
    assert Palette(coloured=False).paint("x", "alarm") == "x"
    assert Palette(coloured=True).paint("x", "alarm") == "\x1b[31mx\x1b[0m"


def test_the_text_format_escapes_leaves_out_what_is_unknown_and_refuses_doubles() -> None:
    out = Exposition()
    family = out.family("a_total", "counter", "one\\two\nthree")
    family.add(None, name="unknown")
    assert out.text() == ""
    family.add(2**53 + 1, name='q"b\\n\n')
    family.add(Decimal("0.25"), name="")
    assert out.text() == (
        "# HELP a_total one\\\\two\\nthree\n# TYPE a_total counter\n"
        'a_total{name="q\\"b\\\\n\\n"} 9007199254740993\n'
        'a_total{name=""} 0.25\n'
    )
    with pytest.raises(ValueError, match="already"):
        family.add(1, name="")
    with pytest.raises(ValueError, match="already"):
        out.family("a_total", "counter", "again")
