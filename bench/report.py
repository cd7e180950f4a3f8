"""The table for people, and the same as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.results import Row

_HEADS = ("measure", "what", "ours", "baseline", "value", "min - max", "target", "aim", "")


def table(rows: Sequence[Row], facts: Mapping[str, str]) -> str:
    """Everything measured, in columns, the details below."""
    lines = [_HEADS, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADS))]
    text = [", ".join(f"{name} {value}" for name, value in facts.items()), ""]
    text += [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    details = [f"{row.measure}: {row.detail}" for row in rows if row.detail]
    judged = [row for row in rows if row.target is not None]
    missed = [row for row in judged if row.verdict == "MISSED"]
    text += ["", *details] if details else []
    text += ["", f"{len(judged) - len(missed)} of {len(judged)} targets reached"]
    return "\n".join(text)


def document(rows: Sequence[Row], facts: Mapping[str, str]) -> str:
    """JSON: the facts, and each row with its rounds (ours, baseline)."""
    return json.dumps(
        {
            "facts": dict(facts),
            "rows": [
                {
                    "measure": row.measure,
                    "what": row.what,
                    "value": row.value,
                    "spread": row.spread,
                    "target": row.target,
                    "aim": row.aim,
                    "at_most": row.at_most,
                    "verdict": row.verdict,
                    "ours": row.ours,
                    "baseline": row.baseline,
                    "detail": row.detail,
                    "rounds": row.rounds,
                }
                for row in rows
            ],
        },
        indent=2,
    )


def _cells(row: Row) -> tuple[str, ...]:
    sign = "<= " if row.at_most else ">= "
    return (
        row.measure,
        row.what,
        row.ours,
        row.baseline,
        _figure(row.value),
        f"{_figure(row.spread[0])} - {_figure(row.spread[1])}" if row.spread else "",
        sign + _figure(row.target) if row.target is not None else "",
        sign + _figure(row.aim) if row.aim is not None else "",
        row.verdict,
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.2f}"
