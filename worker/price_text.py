"""Prices for people and programs: tables, the arithmetic of one request, JSON documents."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, datetime, time
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

from worker.money import format_nanos
from worker.status_text import clipped, table, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.postgres.prices import PriceAnswer, PriceRow, RateRow, UnpricedGroup

MIDNIGHT = time(0)
TIMES = "\u00d7"
# digits: the largest price of the largest number of tokens, exactly
_PRECISION = 60
_LONG_NAME_CELLS = 60


def price_table(rows: Sequence[PriceRow]) -> str:
    """One line per row of the price table."""
    header = ("model", "provider", "in force", "for", "input", "cached", "output", "", "origin")
    lines = [
        (
            clipped(visible(row.model), _LONG_NAME_CELLS),
            visible(row.provider) or "any",
            _since(row.valid_from, row.from_time),
            _condition(row.processing, row.input_above),
            _amount(row.input),
            _amount(row.input if row.cached_input is None else row.cached_input),
            _amount(row.output),
            f"{row.currency}/M",
            clipped(visible(row.source or row.origin)),
        )
        for row in rows
    ]
    return table(header, lines, frozenset({4, 5, 6}))


def rate_table(rows: Sequence[RateRow], billing_currency: str) -> str:
    """One line per rate."""
    lines = [
        (
            row.currency,
            f"from {row.valid_from}",
            _amount(row.rate),
            f"{billing_currency} per {row.currency}",
            f"{row.loaded_at:%Y-%m-%d %H:%M}",
        )
        for row in rows
    ]
    return table(("currency", "in force", "rate", "", "loaded"), lines, frozenset({2}))


def row_document(row: PriceRow | RateRow) -> dict[str, Any]:
    """A row for JSON: amounts as exact text."""
    return _plain(asdict(row))


def answer_document(answer: PriceAnswer, tokens: tuple[int, int, int]) -> dict[str, Any]:
    """An answer for JSON, with the tokens that it was asked for."""
    in_tokens, cached, out_tokens = tokens
    asked = {"in_tokens": in_tokens, "cached_in_tokens": cached, "out_tokens": out_tokens}
    return asked | _plain(asdict(answer))


def group_document(group: UnpricedGroup) -> dict[str, Any]:
    """A group for JSON."""
    return _plain(asdict(group))


def arithmetic(answer: PriceAnswer, tokens: tuple[int, int, int]) -> str:
    """The row that counts, a line per kind of tokens, the rate, and the sum."""
    in_tokens, cached, out_tokens = tokens
    per_input, per_output = answer.input or Decimal(0), answer.output or Decimal(0)
    per_cached = per_input if answer.cached_input is None else answer.cached_input
    currency = answer.currency or answer.billing_currency
    parts = (
        ("input", in_tokens - cached, per_input),
        ("cached input", cached, per_cached),
        ("output", out_tokens, per_output),
    )
    with localcontext(prec=_PRECISION):
        costs = [count * price / 1_000_000 for _, count, price in parts]
        total = sum(costs, Decimal(0))
    rows = [
        (name, f"{count:,}", TIMES, _amount(price), "=", _amount(cost))
        for (name, count, price), cost in zip(parts, costs, strict=True)
    ]
    name = "/".join(visible(part) for part in (answer.provider, answer.model) if part)
    since = _since(answer.valid_from, answer.from_time or MIDNIGHT)
    condition = _condition(answer.processing or "", answer.input_above or 0)
    lines = [
        f"{name}, {condition}, {since} ({visible(answer.source or answer.origin or '')})",
        f"{currency} per million tokens, admitted {answer.at:%Y-%m-%d %H:%M:%S %Z}",
        table(("", "tokens", "", "price", "", currency), rows, frozenset({1, 3, 5})),
    ]
    if answer.rate_from is not None and answer.rate is not None:
        lines.append(
            f"{_amount(total)} {currency} {TIMES} {_amount(answer.rate)} "
            f"{answer.billing_currency} per {currency} (rate of {answer.rate_from})"
        )
    if answer.cost_nanos is None:
        lines.append("cost: more than one call may cost, so it would stay unpriced")
    else:
        shown = format_nanos(answer.cost_nanos, answer.billing_currency)
        lines.append(f"cost: {shown} ({answer.cost_nanos:,} nanos)")
    return "\n".join(lines)


def unpriced_table(
    groups: Sequence[UnpricedGroup], billing_currency: str, *, has_package: bool
) -> str:
    """One line per model, with what to do about it."""
    lines = [
        (
            "(no model)"
            if group.model is None
            else clipped(visible(group.model), _LONG_NAME_CELLS),
            f"{group.requests:,}",
            "" if group.in_tokens is None else f"{group.in_tokens:,}",
            "" if group.out_tokens is None else f"{group.out_tokens:,}",
            f"{group.since:%Y-%m-%d %H:%M}",
            group.reason or "-",
            cure(group, billing_currency, has_package=has_package),
        )
        for group in groups
    ]
    header = ("model", "requests", "input", "output", "since", "reason", "cure")
    return table(header, lines, frozenset({1, 2, 3}))


def cure(group: UnpricedGroup, billing_currency: str, *, has_package: bool) -> str:
    """What makes these requests priced."""
    if group.reason is None:
        return "its price is known by now: the next reconcile takes it"
    if group.reason == "no_model":
        return "let the gateway name the model (p_model) when it reserves or settles"
    if group.reason == "no_rate":
        day = "" if group.first_admitted_at is None else f" from {group.first_admitted_at:%Y-%m-%d}"
        return (
            f"quota-worker price rates load FILE.csv: {group.currency or 'its currency'}"
            f" in {billing_currency}{day}"
        )
    if not has_package:
        return "quota-worker price update, or price load FILE"
    return "quota-worker price load FILE: name its price there"


def _since(valid_from: datetime | None, from_time: time) -> str:
    shown = "always" if valid_from is None else f"from {valid_from:%Y-%m-%d %H:%M %Z}"
    return shown if from_time == MIDNIGHT else f"{shown}, {from_time:%H:%M} UTC on"


def _condition(processing: str, above: int) -> str:
    return f"{processing}, input > {above:,}" if above else processing


def _amount(amount: Decimal | None) -> str:
    """Exactly, without an exponent or zeros at the end."""
    if amount is None:
        return "-"
    text = format(amount, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """Values that JSON knows; amounts and times as text."""
    return {key: _value(value) for key, value in document.items()}


def _value(value: Any) -> Any:  # noqa: ANN401  a field's
    if isinstance(value, Decimal):
        return _amount(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return value
