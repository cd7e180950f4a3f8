"""How far estimates lie from usage, and what to do about it, as text or JSON. Pure.

The fitted factor is the sum of usage ÷ the sum of estimates: with estimates times this
factor, their sum is the usage's. `quota_estimates` says what it leaves out.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Final

from worker.estimates_report import FEWEST
from worker.status_text import clipped, table, visible

if TYPE_CHECKING:
    from worker.estimates_report import EstimateRow, EstimatesReport

NONE: Final = "-"
NAMELESS: Final = {"model": "(no model)", "app": "(no app)", "key": "(no key)"}
CURE: Final = (
    'send stream_options: {"include_usage": true}, read to the final chunk, '
    "settle in a finally block"
)
# Estimates within a tenth of usage are as good as they get.
FITS: Final = (Decimal("0.9"), Decimal("1.1"))
# From here on a count of characters is the likely cause.
FAR: Final = Decimal(2)
CHARACTERS: Final = "characters / 4 is several times too low for Chinese"
# Median and sum further apart than this: one factor doesn't suit all requests.
MIXED: Final = Decimal("1.25")
# As the diagnosis warns by default.
MISSING_PCT: Final = 5
# What 95 % stay within is reserved too much where the mean estimate is above it by so much.
CEILING: Final = Decimal("1.25")


def estimates_text(report: EstimatesReport) -> str:
    """For a terminal: a table, then a line of advice for each row."""
    days = "24 hours" if report.asked.days == 1 else f"{report.asked.days} days"
    if not report.rows:
        of = "" if report.asked.model is None else f" to the model {_shown(report.asked.model)}"
        return f"no requests{of} have ended in the last {days}"
    by = report.asked.by
    header = ["model", *([] if by == "model" else [by]), *_HEADER]
    first = len(header) - len(_HEADER)
    rows = [[*_names(row, by), *_figures(row)] for row in report.rows]
    right = frozenset(range(first, len(header)))
    lines = [
        f"estimates and usage of the last {days}, the worst first; factors are usage ÷ estimate",
        "",
        table(header, rows, right),
    ]
    if report.groups > len(rows):
        lines.append(f"… and {report.groups - len(rows):,} more: --top {2 * len(rows)}, or 0: all")
    lines.append("")
    lines.extend(f"{' / '.join(_names(row, by))}: {advice(row, by)}" for row in report.rows)
    return "\n".join(lines)


def estimates_document(report: EstimatesReport) -> dict[str, object]:
    """For JSON: factors as numbers to four digits, null where there is too little to say."""
    by = report.asked.by
    return {
        "days": report.asked.days,
        "by": by,
        "fit": "ratio_of_sums",
        "fewest_requests": FEWEST,
        "groups": report.groups,
        "rows": [_row_document(row, by) for row in report.rows],
    }


def _row_document(row: EstimateRow, by: str) -> dict[str, object]:
    names: dict[str, object] = {"model": row.model}
    if by != "model":
        names[by] = row.label
    return names | {
        "requests": row.requests,
        "with_usage": row.with_usage,
        "missing": row.missing,
        "missing_pct": _pct(row.missing, row.requests),
        "over_estimate": row.over_estimate,
        "over_estimate_pct": _pct(row.over_estimate, row.with_usage),
        "factor_in": _number(row.factor_in),
        "median_in": _number(row.median_in),
        "outliers_in": row.outliers_in,
        "factor_out": _number(row.factor_out),
        "median_out": _number(row.median_out),
        "outliers_out": row.outliers_out,
        "p95_out_tokens": row.p95_out_tokens,
        "mean_out_estimate": row.mean_out_estimate,
        "advice": advice(row, by),
    }


def advice(row: EstimateRow, by: str = "model") -> str:
    """What to do, in one line."""
    said = [
        *_missing_advice(row),
        *_input_advice(row),
        *_output_advice(row),
        *_mixed_advice(row, by),
    ]
    if row.with_usage < FEWEST:
        said.append(
            f"too little to fit: {row.with_usage} of {row.requests:,} requests have usage, "
            f"{FEWEST} are needed"
        )
    return "; ".join(said) or "estimates fit"


def _missing_advice(row: EstimateRow) -> list[str]:
    if row.requests < FEWEST or row.missing * 100 <= MISSING_PCT * row.requests:
        return []
    return [f"usage is missing for {_pct(row.missing, row.requests)}%: {CURE}"]


def _input_advice(row: EstimateRow) -> list[str]:
    factor = row.factor_in
    if factor is None or FITS[0] <= factor <= FITS[1]:
        return []
    if factor > 1:
        # a count of characters is what most gateways estimate by
        why = f" ({CHARACTERS})" if factor >= FAR else ""
        return [f"input estimates are {_times(factor)}x too low: multiply by {_up(factor, 1)}{why}"]
    if factor == 0:
        return ["no input was used at all, though some was estimated: is usage reported whole?"]
    return [f"input estimates are {_times(1 / factor)}x too high: multiply by {_up(factor, 2)}"]


def _output_advice(row: EstimateRow) -> list[str]:
    p95, mean = row.p95_out_tokens, row.mean_out_estimate
    if p95 is None:
        return []
    if row.factor_out is not None and row.factor_out > FITS[1]:
        low = f"output estimates are {_times(row.factor_out)}x too low"
    elif mean == 0 and p95 > 0:
        low = "no output was estimated"
    elif mean is not None and mean > p95 * CEILING:
        return [f"reserve {p95:,} output tokens, which 95% stay within, instead of {mean:,}"]
    else:
        return []
    return [f"{low}: reserve {p95:,} tokens, which 95% stay within"]


def _mixed_advice(row: EstimateRow, by: str) -> list[str]:
    if row.factor_in is None or not row.median_in or row.factor_in == 0:
        return []
    apart = max(row.factor_in / row.median_in, row.median_in / row.factor_in)
    if apart <= MIXED:
        return []
    finer = {"model": ": look at --by app", "app": ": look at --by key"}.get(by, "")
    return [f"requests differ, half of them need {_times(row.median_in)}x or less{finer}"]


_HEADER: Final = (
    "requests",
    "no usage",
    "in: factor",
    "median",
    "out: factor",
    "median",
    "95% within",
    "reserved",
    "over estimate",
)


def _figures(row: EstimateRow) -> list[str]:
    return [
        f"{row.requests:,}",
        NONE if row.requests < FEWEST else f"{_pct(row.missing, row.requests)}%",
        _factor(row.factor_in),
        _factor(row.median_in),
        _factor(row.factor_out),
        _factor(row.median_out),
        NONE if row.p95_out_tokens is None else f"{row.p95_out_tokens:,}",
        NONE if row.mean_out_estimate is None else f"{row.mean_out_estimate:,}",
        NONE if row.with_usage < FEWEST else f"{_pct(row.over_estimate, row.with_usage)}%",
    ]


def _names(row: EstimateRow, by: str) -> list[str]:
    names = [_shown(row.model) if row.model else NAMELESS["model"]]
    if by != "model":
        names.append(_shown(row.label) if row.label else NAMELESS[by])
    return names


def _shown(name: str) -> str:
    return clipped(visible(name))


def _factor(value: Decimal | None) -> str:
    return NONE if value is None else f"{value:,.2f}x"


def _times(value: Decimal) -> str:
    return f"{value:,.1f}"


def _up(value: Decimal, decimals: int) -> str:
    """Rounded up: an estimate a little too high does less harm than one too low."""
    return f"{value.quantize(Decimal(1).scaleb(-decimals), ROUND_CEILING):,}"


def _pct(part: int, whole: int) -> float | None:
    return None if whole == 0 else round(part * 100 / whole, 1)


def _number(value: Decimal | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
