"""An invoice check as text and as a document for JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from worker.invoice.comparing import ALL_MODELS
from worker.invoice.figures import CACHED, COST, INPUT, MEASURES, OUTPUT, TOKENS
from worker.invoice.reading import DAYS, LOCAL
from worker.money import nanos_to_decimal
from worker.status_text import clipped, table
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.invoice.comparing import Comparison, Line
    from worker.invoice.converting import Invoice
    from worker.invoice.explaining import Explanation
    from worker.invoice.figures import Figures, LedgerMonth
    from worker.invoice.zones import ZoneFit

HEADER: Final = ("ledger", "invoice", "difference", "%", "")
RIGHT: Final = frozenset({1, 2, 3, 4})
NONE: Final = "-"
BEYOND: Final = "beyond"
CAUSES_TITLE: Final = "what may explain it, with how much there is of each"
NOTES_TITLE: Final = "to know"
_WORDS: Final = {
    COST: "cost",
    INPUT: "input tokens",
    CACHED: "cached input",
    OUTPUT: "output tokens",
    TOKENS: "tokens",
}
_KINDS: Final = {INPUT: "in", OUTPUT: "out"}
_COST_PLACES: Final = Decimal("0.0001")
_PCT_PLACES: Final = Decimal("0.1")


@dataclass(frozen=True, slots=True)
class Check:
    """All that is shown of one check; ``zone``: the export's, by its name."""

    invoice: Invoice
    ledger: LedgerMonth
    comparison: Comparison
    fit: ZoneFit | None
    explanations: tuple[Explanation, ...]
    zone: str


def render_text(check: Check, top: int | None) -> str:
    """The whole answer for a terminal; ``top``: how many lines of a kind, None: all."""
    comparison = check.comparison
    currency = check.ledger.currency
    lines = [*_head(check), "", _totals(check)]
    tables = [("model", comparison.models), ("day", comparison.days)]
    if [one.model for one in comparison.models] == [ALL_MODELS]:
        tables.pop(0)
    elif len(comparison.models) > 1:
        tables.append(("day and model", comparison.cells))
    for title, every in tables:
        found = [one for one in every if one.differs(*comparison.judged)]
        rows = found[:top]
        lines.append("")
        if rows:
            lines.append(
                _lines(title, _unit(comparison.measure, currency), rows, comparison.judged)
            )
        if len(found) > len(rows):
            lines.append(f"… and {len(found) - len(rows)} more: --top {len(found)}")
        if len(every) > len(found):
            lines.append(_agreeing(title, len(every), len(every) - len(found)))
    causes = [one for one in check.explanations if comparison.differs and one.kind != "zone"]
    notes = [one for one in check.explanations if one not in causes]
    for title, told in ((CAUSES_TITLE, causes), (NOTES_TITLE, notes)):
        if told:
            lines.extend(("", title, *(f"- {_explained(one, currency)}" for one in told)))
    lines.extend(("", _verdict(comparison, currency)))
    return "\n".join(lines)


def as_document(check: Check, top: int | None) -> dict[str, object]:
    """For JSON: costs in nanos of the billing currency, differences as ledger minus invoice.

    All models and days, and ``top`` days of models, None: all.
    """
    tally, comparison = check.invoice.tally, check.comparison
    return {
        "month": f"{check.ledger.month:%Y-%m}",
        "billing_zone": check.ledger.zone,
        "currency": check.ledger.currency,
        "export": tally.export,
        "export_zone": check.zone,
        "export_times": tally.kind,
        "compared_zone": check.ledger.days_zone or check.ledger.zone,
        "own_month": None if check.ledger.own is None else _document(check.ledger.own, MEASURES),
        "rows": tally.rows,
        "rows_outside_month": tally.outside,
        "rows_without_amounts": tally.blank,
        "rows_left_out": tally.unlike,
        "measure": comparison.measure,
        "tolerance_pct": float(comparison.tolerance_pct),
        "within_tolerance": comparison.within,
        "spread": comparison.spread,
        "allowed": comparison.allowed,
        "judged": [
            {
                "measure": one.measure,
                "spread": one.spread,
                "allowed": one.allowed,
                "within_tolerance": one.within,
            }
            for one in comparison.verdicts
        ],
        "total": _sides(comparison.ledger, comparison.invoice, comparison.measures),
        "models": [_line(one, comparison) for one in comparison.models],
        "days": [_line(one, comparison) for one in comparison.days],
        "days_of_models": [_line(one, comparison) for one in comparison.cells[:top]],
        "explanations": [
            {
                "kind": one.kind,
                "text": one.text,
                "requests": one.requests,
                "tokens": one.tokens,
                "cost_nanos": one.cost_nanos,
            }
            for one in check.explanations
        ],
    }


def _head(check: Check) -> list[str]:
    tally = check.invoice.tally
    times = {DAYS: f"days of {check.zone}", LOCAL: f"times of {check.zone}"}
    kind = times.get(tally.kind, "times with their offsets")
    ledger = check.ledger
    days = f"billing days of {ledger.zone}"
    if ledger.days_zone is not None:
        days = f"by the invoice's days, of {ledger.days_zone}"
    lines = [
        f"invoice  {tally.export}, {kind}: {_counted(tally.rows, 'row')}",
        f"ledger   {ledger.month:%Y-%m}, {days}, {ledger.currency}",
        *_own_month(check),
    ]
    left = [
        f"{count:,} {what}"
        for count, what in (
            (tally.outside, "of other months"),
            (tally.blank, "without amounts"),
            (tally.unlike, "by --where"),
        )
        if count
    ]
    if left:
        lines.append(f"left out {', '.join(left)}")
    return lines


def _own_month(check: Check) -> list[str]:
    """What the ledger's billing month comes to, where other days are compared."""
    comparison, ledger = check.comparison, check.ledger
    if ledger.own is None:
        return []
    measure = comparison.measure
    own, unit = ledger.own.of(measure), _unit(measure, ledger.currency)
    more = own - comparison.ledger.of(measure)
    apart = f"{_amount(abs(more), measure)} {'more' if more > 0 else 'less'}" if more else "as much"
    days = f"its own month, billing days of {ledger.zone}"
    lines = [f"         {days}, comes to {_amount(own, measure)} {unit}, {apart}"]
    if ledger.legacy or ledger.unlisted:
        lines.append("         charges without a remembered request stay on their billing days")
    return lines


def _agreeing(title: str, every: int, agree: int) -> str:
    """Such as "all 31 days agree"."""
    one, many = {
        "model": ("model", "models"),
        "day": ("day", "days"),
        "day and model": ("day of a model", "days of models"),
    }[title]
    what = f"{agree:,} {one if agree == 1 else many} agree{'s' if agree == 1 else ''}"
    if agree < every:
        return f"the other {what}"
    return f"all {what}" if agree > 1 else f"the {one} agrees"


def _unit(measure: str, currency: str) -> str:
    return currency if measure == COST else _WORDS[measure]


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _totals(check: Check) -> str:
    comparison = check.comparison
    rows = []
    for measure in comparison.measures:
        ours, theirs = comparison.ledger.of(measure), comparison.invoice.of(measure)
        unit = f" ({check.ledger.currency})" if measure == COST else ""
        rows.append((f"{_WORDS[measure]}{unit}", *_amounts(ours, theirs, measure), ""))
    return table(("total", *HEADER), rows, RIGHT)


def _lines(title: str, unit: str, lines: Sequence[Line], judged: Sequence[str]) -> str:
    """A row each; where input and output are judged apart, one for each that differs."""
    rows = []
    for one, measure in ((one, measure) for one in lines for measure in judged):
        if not one.differs(measure):
            continue
        kind = _KINDS[measure] if len(judged) > 1 else ""
        amounts = _amounts(one.ledger.of(measure), one.invoice.of(measure), measure)
        name = "  ".join(filter(None, (one.day, clipped(visible(one.model)), kind)))
        rows.append((name, *amounts, BEYOND if measure in one.beyond else ""))
    return table((f"{title} ({unit})", *HEADER), rows, RIGHT)


def _amounts(ours: int, theirs: int, measure: str) -> tuple[str, str, str, str]:
    difference = ours - theirs
    return (
        _amount(ours, measure),
        _amount(theirs, measure),
        ("+" if difference > 0 else "") + _amount(difference, measure),
        _pct(difference, theirs),
    )


def _amount(value: int, measure: str) -> str:
    if measure != COST:
        return f"{value:,}"
    return f"{nanos_to_decimal(value).quantize(_COST_PLACES, ROUND_HALF_UP):,}"


def _pct(difference: int, of: int) -> str:
    if not of:
        return NONE
    pct = (Decimal(difference) * 100 / Decimal(of)).quantize(_PCT_PLACES, ROUND_HALF_UP)
    return f"{pct:+,}" if pct else "0.0"


def _explained(one: Explanation, currency: str) -> str:
    amounts = []
    if one.requests is not None:
        amounts.append(_counted(one.requests, "request"))
    if one.cost_nanos is not None:
        amounts.append(f"{_amount(one.cost_nanos, COST)} {currency}")
    if one.tokens is not None:
        amounts.append(f"{one.tokens:,} tokens")
    return f"{one.text.removesuffix(':')}: {', '.join(amounts)}"


def _verdict(comparison: Comparison, currency: str) -> str:
    told = []
    for one in comparison.verdicts:
        base = comparison.invoice.of(one.measure) or comparison.ledger.of(one.measure)
        pct = _pct(one.spread, abs(base)).lstrip("+")
        amount = f"{_amount(one.spread, one.measure)} {_unit(one.measure, currency)}"
        told.append(f"{amount}, {pct} % of the invoice")
    word = "within" if comparison.within else "beyond"
    return (
        f"{word} tolerance: the models' differences add up to {', and to '.join(told)};"
        f" {comparison.tolerance_pct.normalize():f} % is allowed"
        f"{', of each' if len(told) > 1 else ''}"
    )


def _line(one: Line, comparison: Comparison) -> dict[str, object]:
    day = {"day": one.day} if one.day else {}
    model = {"model": one.model, "names": list(one.names)} if one.model else {}
    sides = _sides(one.ledger, one.invoice, comparison.measures)
    return {**day, **model, **sides, "within_tolerance": one.within}


def _sides(ours: Figures, theirs: Figures, measures: Sequence[str]) -> dict[str, object]:
    return {
        "ledger": _document(ours, MEASURES),
        "invoice": _document(theirs, measures),
        "difference": _document(ours - theirs, measures),
    }


def _document(figures: Figures, measures: Sequence[str]) -> dict[str, int | None]:
    keys = {
        COST: "cost_nanos",
        INPUT: "input_tokens",
        CACHED: "cached_input_tokens",
        OUTPUT: "output_tokens",
        TOKENS: "tokens",
    }
    told = {*measures, TOKENS} if {INPUT, OUTPUT} <= {*measures} else {*measures}
    return {key: figures.of(one) if one in told else None for one, key in keys.items()}
