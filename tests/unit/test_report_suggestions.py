# ruff: noqa: RUF001  the sign
"""A suggestion in a mail: what was saved is recomputed from the very numbers that a reader sees."""

from __future__ import annotations

import ast
import operator
import re
from fractions import Fraction

import pytest

from unit.report_world import a_month
from worker.report.document import make_document
from worker.report.html import html_report
from worker.roi.summary import Summary

SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}  # fmt: skip
CENT = Fraction(1, 100)


def by_hand(shown: str) -> Fraction:
    """What a pocket calculator makes of it."""
    plain = re.sub(r"CN¥|¥| CNY|,", "", shown).replace("×", "*").replace("÷", "/")
    plain = re.sub(r"([\d.]+)%", r"(\1/100)", plain)

    def value(node: ast.expr) -> Fraction:
        if isinstance(node, ast.BinOp):
            return SIGNS[type(node.op)](value(node.left), value(node.right))
        assert isinstance(node, ast.Constant)
        return Fraction(str(node.value))

    return value(ast.parse(plain, mode="eval").body)


@pytest.mark.parametrize("locale", ["en", "zh-CN"])
@pytest.mark.parametrize("of_all", [False, True])
def test_each_saving_is_recomputed_from_what_is_shown(locale: str, *, of_all: bool) -> None:
    summary = a_month(of_all=of_all)
    (table,) = [one for one in make_document(summary, locale).tables if one.key == "suggestions"]
    assert len(table.rows) == len(summary.suggestions) >= 8
    for row, one in zip(table.rows, summary.suggestions, strict=True):
        assert isinstance(row[2], str)
        names, worked = row[2].split(": ")[1].split(" = ")
        assert all(number.name in names for number in one.numbers)
        assert abs(by_hand(worked) - one.saving_nanos / 10**9) <= CENT, row[2]


def test_the_sentence_of_a_model_that_is_too_dear(usual: Summary) -> None:
    (table,) = [one for one in make_document(usual, "en").tables if one.key == "suggestions"]
    (row,) = [one for one in table.rows if "chat-test-2 uses" in str(one[0])]
    assert row[2] == (
        "of cost: cost - ((input - cached) × other_input_price + cached × other_cached_price"
        " + output × other_output_price) ÷ 1,000,000 = CN¥270.69 - ((3,000,002 - 0) × 1.00 CNY"
        " + 0 × 0.10 CNY + 100,000 × 4.00 CNY) ÷ 1,000,000"
    )


@pytest.fixture(scope="module")
def usual() -> Summary:
    return a_month()


def test_a_sentence_has_a_line_of_its_own_and_breaks_no_word_beside_it(usual: Summary) -> None:
    page = html_report(usual, "en", {})
    (table,) = re.findall(r"What would have cost less</h2>.*?</table>", page, re.DOTALL)
    assert '<th nowrap align="right">Saving</th><th align="left">Formula' in table
    assert '<td colspan="2">1. Tests took more than 20.0% of the cost.</td></tr>' in table
    assert '<td align="right" nowrap>CN¥1,681.14</td><td align="left">of cost: ' in table
    assert '<th nowrap align="right">Change</th>' in page
