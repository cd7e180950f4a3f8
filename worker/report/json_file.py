"""The summary as JSON and back: exact, so that what was stored is what is shown later.

Every number is a string: whole ones as they are, decimals plainly. A fraction is
``{"exact": "370/21", "decimal": "17.619047619048"}``, of which the decimal is for readers alone.
A figure without a value is ``{"reason": "no_outcomes"}``; nothing is null but what has no limit,
no place or no month.
"""

from __future__ import annotations

import io
import json
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, Final

from worker.roi import summary as shapes
from worker.roi.facts import Amounts, Department
from worker.roi.figures import PLACES_MAX, Figure, Known, Reason, Unknown, rounded

FORMAT: Final = "quota-worker report"
VERSION: Final = 1
WRITTEN_LEVELS: Final = 4  # down to a split's lines, and to departments' places
_NAMES: Final[dict[str, Any]] = {
    "Amounts": Amounts,
    "Decimal": Decimal,
    "Department": Department,
    "Figure": Figure,
    "Fraction": Fraction,
    "Mapping": Mapping,
    "date": date,
}


def dump_summary(summary: shapes.Summary, *, indent: int | None = 2) -> str:
    """The summary as JSON text, the same one for the same summary; ends with a newline."""
    if indent is not None or summary.department is not None:
        value = {"format": FORMAT, "version": VERSION, **_plain(summary)}
        return json.dumps(value, ensure_ascii=False, indent=indent) + "\n"
    # of all: a line for each tenant and department, which as values take ten times the text
    text = io.StringIO()
    text.write(json.dumps({"format": FORMAT, "version": VERSION})[:-1] + ", ")
    _write(text, summary, WRITTEN_LEVELS, begin="")
    text.write("\n")
    return text.getvalue()


def load_summary(text: str) -> shapes.Summary:
    """The summary that ``dump_summary`` wrote, also with its keys in another order.

    Raises ValueError for text that it didn't write, or another version did.
    """
    try:
        value = json.loads(text)
        told = (value["format"], value["version"])
        if told != (FORMAT, VERSION):
            raise ValueError(f"a summary of {told[0]!r}, version {told[1]}, can't be read")
        result = _typed({key: value[key] for key in _hints(shapes.Summary)}, shapes.Summary)
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"this is no summary of a report: {error!r}") from None
    assert isinstance(result, shapes.Summary)  # noqa: S101  for the types: it was asked for
    return result


def _write(text: io.StringIO, value: Any, levels: int, begin: str = "{") -> None:  # noqa: ANN401
    """As ``json.dumps(_plain(value))`` writes it, a line of a list at a time."""
    if not levels or not (isinstance(value, tuple) or is_dataclass(value)):
        text.write(json.dumps(_plain(value), ensure_ascii=False))
    elif isinstance(value, tuple):
        text.write("[")
        for number, one in enumerate(value):
            text.write(", " if number else "")
            _write(text, one, levels - 1)
        text.write("]")
    elif isinstance(value, Known | Unknown):
        _write(text, value, 0)
    else:
        text.write(begin)
        for number, one in enumerate(fields(value)):
            text.write(f'{", " if number else ""}"{one.name}": ')
            _write(text, getattr(value, one.name), levels - 1)
        text.write("}")


def _plain(value: Any) -> Any:  # noqa: ANN401, PLR0911  any field's, one line for each shape
    if value is None or isinstance(value, bool):
        return value
    match value:
        case str() | int():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case date():
            return value.isoformat()
        case Known(value=exact):
            return _plain(exact)
        case Fraction():
            return {"exact": str(value), "decimal": f"{rounded(value, PLACES_MAX):f}"}
        case tuple():
            return [_plain(one) for one in value]
        case Mapping():
            return {key: _plain(one) for key, one in value.items()}
    # an Unknown is its reason, as are all other dataclasses their fields
    names = ["reason"] if isinstance(value, Unknown) else [one.name for one in fields(value)]
    return {name: _plain(getattr(value, name)) for name in names}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, localns={**vars(shapes), **_NAMES})


def _typed(value: Any, kind: Any) -> Any:  # noqa: ANN401, PLR0911  one line for each shape
    if kind == Figure:
        return (
            Unknown(Reason(value["reason"]))
            if "reason" in value
            else Known(Fraction(value["exact"]))
        )
    if kind in {bool, str}:
        return _checked(value, kind)
    if kind is Fraction:
        return Fraction(value["exact"])
    if kind is date:
        return date.fromisoformat(value)
    if is_dataclass(kind):
        assert isinstance(kind, type)  # noqa: S101  for the types: hints hold no instances
        # a summary that was stored by an earlier version lacks what has a default
        hints = [(name, hint) for name, hint in _hints(kind).items() if name in value]
        return kind(**{name: _typed(value[name], hint) for name, hint in hints})
    if inner := typing.get_args(kind):
        return _nested(value, typing.get_origin(kind), inner)
    return kind(_checked(value, str))  # int, Decimal or an enum


def _nested(value: Any, origin: Any, inner: tuple[Any, ...]) -> Any:  # noqa: ANN401  as above
    if origin is tuple:
        return tuple(_typed(one, inner[0]) for one in _checked(value, list))
    if origin in {Mapping, dict}:
        return {key: _typed(one, inner[1]) for key, one in value.items()}
    return None if value is None else _typed(value, inner[0])  # X | None


def _checked(value: Any, kind: type) -> Any:  # noqa: ANN401  json's
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} should be {kind.__name__}")
    return value
