"""What makes the ledger and an invoice differ, each with its amount, out of the data. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.invoice.comparing import ALL_MODELS, NO_MODEL, UNKNOWN, match_names
from worker.invoice.figures import CACHED, COST, INPUT, NOTHING, TOKENS, Part, total
from worker.status_text import clipped
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from zoneinfo import ZoneInfo

    from worker.invoice.comparing import Comparison, Line
    from worker.invoice.converting import Invoice
    from worker.invoice.figures import Figures, LedgerMonth
    from worker.invoice.names import Matching, Names
    from worker.invoice.zones import ZoneFit

MAX_NAMED_MODELS: Final = 5
# Not causes of a difference, but of what would have been one.
NOTES: Final = frozenset({"zone", "currency"})
# A cause that takes away at least this part of a difference explains it.
_HALF: Final = 2

# What is said of LedgerCell's parts.
_PARTS: Final = {
    "stale": "requests without usage are charged by estimate, the invoice has what they used",
    "dropped": "requests without usage were charged nothing (stale_policy release), estimated",
    "held": "requests are still open and not charged yet, they hold",
    "unreserved": "requests were never reserved, and stand on the day on which they were posted",
    "unpriced": "requests have no known price, only a guess of it (quota-worker price unpriced)",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One cause. ``requests``, ``tokens``, ``cost_nanos``: how much of it; None: not told.

    Amounts are of what the text names, not yet of the difference: a cause may explain less.
    """

    kind: str
    text: str
    requests: int | None = None
    tokens: int | None = None
    cost_nanos: int | None = None


def explain(
    comparison: Comparison,
    invoice: Invoice,
    ledger: LedgerMonth,
    names: Names,
    fit: ZoneFit | None,
    zone: ZoneInfo,
) -> tuple[Explanation, ...]:
    """All causes that the data shows, whether the difference is within the tolerance or not.

    Where nothing differs, only how both sides were made comparable: NOTES.
    """
    notes = (*_zone(comparison, ledger, fit, zone), *_currency(invoice, ledger))
    if not comparison.differs:
        return tuple(one for one in notes if one.kind in NOTES)
    matching = match_names(invoice, ledger, names)
    models = {one.model for one in comparison.models}
    return (
        *_parts(_differing_parts(comparison, ledger, matching, models), comparison),
        *_uncounted(ledger, comparison),
        *_one_sided(comparison),
        *_cached(comparison, ledger, matching),
        *notes,
    )


def _differing_parts(
    comparison: Comparison, ledger: LedgerMonth, matching: Matching, models: set[str]
) -> dict[str, Part]:
    """The ledger's parts of those models' days that differ: what agrees needs no cause."""
    places = {
        (one.day, one.model)
        for one in comparison.cells
        if one.model in models and one.differs(*comparison.measures)
    }
    parts = dict.fromkeys(_PARTS, Part())
    for cell in ledger.cells:
        name, day = matching.of_ledger(cell.model), str(cell.day)
        if name is None:
            continue
        if not places.isdisjoint({(day, name or NO_MODEL), (day, ALL_MODELS)}):
            for kind in parts:
                parts[kind] += getattr(cell, kind)
    return parts


def _parts(parts: dict[str, Part], comparison: Comparison) -> Iterator[Explanation]:
    for kind, part in parts.items():
        if part.requests:
            yield _of_figures(kind, _PARTS[kind], comparison, part.figures, part.requests)


def _uncounted(ledger: LedgerMonth, comparison: Comparison) -> Iterator[Explanation]:
    legacy, unlisted = total(ledger.legacy.values()), total(ledger.unlisted.values())
    if ledger.legacy:
        text = "charges without a request (quota_check_and_charge, direct writes) have no model"
        yield _of_figures("legacy", text, comparison, legacy)
    if ledger.unlisted:
        text = (
            "the days' counters have more than the requests that are remembered: those that ended"
            " long ago are forgotten; of younger months ask quota-worker audit"
        )
        yield _of_figures("unlisted", text, comparison, unlisted)


def _one_sided(comparison: Comparison) -> Iterator[Explanation]:
    known = [one for one in comparison.models if one.model not in UNKNOWN | {ALL_MODELS}]
    only_ours = [one for one in known if one.invoice == NOTHING and one.ledger != NOTHING]
    only_theirs = [one for one in known if one.ledger == NOTHING and one.invoice != NOTHING]
    if only_ours:
        text = (
            f"the invoice lacks {_named(only_ours)}: another provider's are left out with --only,"
            " other names are told with --model"
        )
        figures = total(one.ledger for one in only_ours)
        yield _of_figures("ledger_only", text, comparison, figures)
    if only_theirs:
        text = (
            f"the ledger lacks {_named(only_theirs)}: calls past the gateway, or other names, which"
            " are told with --model"
        )
        figures = total(one.invoice for one in only_theirs)
        tokens = figures.of(TOKENS) if comparison.measures != (COST,) else None
        cost = figures.cost_nanos if COST in comparison.measures else None
        yield Explanation("invoice_only", text, None, tokens, cost)


def _cached(
    comparison: Comparison, ledger: LedgerMonth, matching: Matching
) -> Iterator[Explanation]:
    """Does leaving out or adding cached tokens explain the input, or their price the cost?"""
    if INPUT not in comparison.measures:
        return
    both = [one for one in comparison.models if NOTHING not in {one.ledger, one.invoice}]
    ours, theirs = total(one.ledger for one in both), total(one.invoice for one in both)
    apart = ours.in_tokens - theirs.in_tokens
    small = int(theirs.in_tokens * comparison.tolerance_pct / 100)
    if abs(apart) > small:
        cached = {ours.cached_in_tokens}
        if CACHED in comparison.measures:
            cached.add(theirs.cached_in_tokens)
        tried = [
            (abs(apart - sign * amount), sign, amount)
            for sign in (1, -1)
            for amount in sorted(cached - {0})
        ]
        if tried and (best := min(tried))[0] * _HALF <= abs(apart):
            left, sign, amount = best
            who = "invoice" if sign > 0 else "ledger"
            text = (
                f"the {who}'s input seems to leave out cached tokens: with them the input differs"
                f" by {left:,} tokens instead of {abs(apart):,}; cached are"
            )
            yield Explanation("cached", text, tokens=amount)
        return
    if COST not in comparison.measures:
        return
    parts = _differing_parts(comparison, ledger, matching, {one.model for one in both})
    guessed = parts["stale"].figures.cost_nanos + parts["unpriced"].figures.cost_nanos
    dearer = ours.cost_nanos - theirs.cost_nanos - guessed
    allowed = int(theirs.cost_nanos * comparison.tolerance_pct / 100)
    cached_in = max(ours.cached_in_tokens, theirs.cached_in_tokens)
    if dearer > allowed and cached_in:
        text = (
            "the input agrees and the ledger's cost is higher than estimates make it: cached tokens"
            " may be charged at the full price of input, the rest of the difference and the cached"
            " tokens are"
        )
        yield Explanation("cached_price", text, tokens=cached_in, cost_nanos=dearer)


def _zone(
    comparison: Comparison, ledger: LedgerMonth, fit: ZoneFit | None, zone: ZoneInfo
) -> Iterator[Explanation]:
    if fit is None:
        return
    apart = fit.apart
    if fit.billed_apart is not None and apart < fit.billed_apart:
        text = (
            f"the invoice's days are of {zone.key}, the ledger's of {ledger.zone}: the requests"
            " were put on the invoice's days, by billing days the daily differences are larger by"
        )
        yield _of_measure("zone", text, comparison, fit.billed_apart - apart)
    shifted = fit.cancelling * _HALF >= apart > comparison.allowed
    if shifted and fit.shift and fit.best_apart * _HALF <= apart:
        hours = abs(fit.shift.total_seconds()) / 3600
        way = "later" if fit.shift.total_seconds() > 0 else "earlier"
        text = (
            f"the days fit as if the invoice's began {hours:g} hours {way} than those of"
            f" {zone.key}, in a zone of {fit.offset_name} (say it with --zone), which makes of the"
            " daily differences"
        )
        yield _of_measure("zone_hint", text, comparison, apart - fit.best_apart)
    elif fit.billed_apart is not None and apart > max(comparison.allowed, fit.billed_apart * _HALF):
        text = (
            f"the days fit as if the invoice's were of {ledger.zone}, as the ledger's, and not of"
            f" {zone.key} (say it with --zone), which makes of the daily differences"
        )
        yield _of_measure("zone_hint", text, comparison, apart - fit.billed_apart)


def _currency(invoice: Invoice, ledger: LedgerMonth) -> Iterator[Explanation]:
    for one in invoice.conversions:
        text = (
            f"{one.amount.normalize():,f} {one.currency} of the invoice were converted by the"
            f" day's rate to {ledger.currency}, other rates give other amounts:"
        )
        yield Explanation("currency", text, cost_nanos=one.cost_nanos)


def _of_figures(
    kind: str, text: str, comparison: Comparison, figures: Figures, requests: int | None = None
) -> Explanation:
    tokens = figures.of(TOKENS if comparison.measure == COST else comparison.measure)
    return Explanation(kind, text, requests, tokens, figures.cost_nanos)


def _of_measure(kind: str, text: str, comparison: Comparison, amount: int) -> Explanation:
    if comparison.measure == COST:
        return Explanation(kind, text, cost_nanos=amount)
    return Explanation(kind, text, tokens=amount)


def _named(lines: Sequence[Line]) -> str:
    shown = ", ".join(clipped(visible(one.model)) for one in lines[:MAX_NAMED_MODELS])
    more = len(lines) - MAX_NAMED_MODELS
    return f"{shown} and {more} more" if more > 0 else shown
