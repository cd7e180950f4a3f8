"""Formulas of suggestions: what is shown is what was computed.

Names, whole numbers, + - * / and brackets, read by Python's own grammar and nothing else of it.
"""

from __future__ import annotations

import ast
import operator
from fractions import Fraction
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OPERATORS: Final[dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def evaluate(formula: str, numbers: Mapping[str, Fraction]) -> Fraction:
    """The formula's exact value; raises ValueError for anything but the grammar above.

    A divisor must be a whole number above 0 that the formula itself names.
    """

    def value(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() as number) if type(number) is int:  # True is none
                return Fraction(number)
            case ast.Name(id=name) if name in numbers:
                return numbers[name]
            case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=int() as by)) if by:
                return value(left) / by
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
        raise ValueError(f"{formula!r} is no formula of {', '.join(sorted(numbers))}")

    try:
        return value(ast.parse(formula, mode="eval").body)
    except SyntaxError:
        raise ValueError(f"{formula!r} can't be read as a formula") from None
