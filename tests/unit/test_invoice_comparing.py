"""The ledger beside an invoice: names that mean one model, what differs, and what explains it."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from unit.invoice_world import FIRST, MONTH, SECOND
from worker.errors import UsageError
from worker.invoice.comparing import ALL_MODELS, LEGACY, Comparison, compare
from worker.invoice.explaining import Explanation, explain
from worker.invoice.figures import Figures, LedgerCell, LedgerMonth, Part
from worker.invoice.names import Names, normalised
from worker.invoice.reading import DAYS, LOCAL, MOMENTS, Conversion, Invoice, Tally
from worker.invoice.showing import Check, as_document, render_text
from worker.invoice.zones import fit_zone
from worker.periods import day_of, load_zone

if TYPE_CHECKING:
    from collections.abc import Mapping

ONE_PCT = Decimal(1)
UNIT = 10**9
Cells = dict[tuple[date, str], Figures]


@pytest.mark.parametrize(
    "names",
    [
        ("gpt-4o", "openai/gpt-4o-2024-08-06", "GPT-4o", "azure/eu/gpt-4o", "gpt-4o:batch"),
        ("gpt-4-1-mini", "gpt-4.1-mini-2025-04-14", "gpt-4_1-mini"),
        ("gpt-4", "gpt-4-0613"),
        (
            "claude-sonnet-3-5",
            "claude-3-5-sonnet-20241022",
            "Claude Sonnet 3.5",
            "anthropic/claude-3.5-sonnet",
            "us.anthropic.claude-3-5-sonnet-20241022-v2:0",
            "claude-3-5-sonnet@20241022",
            "claude-3-5-sonnet-latest",
        ),
        ("deepseek-v3", "deepseek-v3-0324", "deepseek/DeepSeek-V3"),
        ("mistral-large-2407",),
    ],
)
def test_the_names_of_one_model(names: tuple[str, ...]) -> None:
    assert {normalised(name) for name in names} == {names[0]}


def test_different_models_stay_apart() -> None:
    different = [
        *("gpt-4o", "gpt-4o-mini", "gpt-4", "gpt-4.1", "gpt-4-turbo", "o1", "o3", "claude-opus-4"),
        *("claude-opus-4-1", "claude-sonnet-4", "deepseek-v3", "deepseek-v2", "bge-m3"),
        *("text-embedding-3-small", "text-embedding-3-large"),
    ]
    assert len({normalised(name) for name in different}) == len(different)


def test_names_are_mapped_and_chosen_as_told() -> None:
    names = Names(["gpt 4o 0806 *=gpt-4o", "My Model=chat"], ["gpt-*", "CHAT"])
    assert names.of_invoice("gpt 4o 0806 Inp glbl Tokens") == "gpt-4o"
    assert names.of_invoice("vendor/my-model-2026-01-02") == "chat"
    assert names.of_invoice("other") == "other"
    assert [one for one in ("gpt-4o", "chat", "other", "my-gpt-4") if names.wanted(one)] == [
        "gpt-4o",
        "chat",
    ]
    for pairs, only in ((["a"], []), (["=b"], []), (["a= "], []), ([], [" "])):
        with pytest.raises(UsageError, match="--model|--only"):
            Names(pairs, only)


def cost(nanos: int) -> Figures:
    return Figures(cost_nanos=nanos)


def make_invoice(cells: Cells, *measures: str, **more: Any) -> Invoice:
    found = Tally("x", more.pop("kind", DAYS), frozenset(measures or ("cost",)), 9, 0, 0, 0, {})
    return Invoice(found, cells, **more)


def make_ledger(cells: Cells, **more: Any) -> LedgerMonth:
    made = tuple(LedgerCell(day, name, Part(1, one)) for (day, name), one in cells.items())
    given = {"month": MONTH, "zone": "UTC", "currency": "USD", "cells": made}
    return LedgerMonth(**{**given, **more})


def compared(ledger: Cells, invoice: Cells, *measures: str, **more: Any) -> Comparison:
    return compare(make_invoice(invoice, *measures), make_ledger(ledger, **more), Names(), ONE_PCT)


def test_models_and_days_are_ranked_by_what_differs_most() -> None:
    found = compared(
        {
            (FIRST, "gpt-4o-2024-08-06"): cost(100),
            (SECOND, "gpt-4o"): cost(50),
            (SECOND, "o3"): cost(7),
        },
        {(FIRST, "openai/gpt-4o"): cost(100), (SECOND, "gpt-4o"): cost(90), (FIRST, "x"): cost(9)},
    )
    assert [
        (one.name, one.ledger.cost_nanos, one.invoice.cost_nanos, one.within)
        for one in found.models
    ] == [("gpt-4o", 150, 190, False), ("x", 0, 9, False), ("o3", 7, 0, False)]
    assert found.models[0].names == ("gpt-4o", "gpt-4o-2024-08-06", "openai/gpt-4o")
    assert [(one.name, one.difference.cost_nanos) for one in found.days] == [
        ("2026-10-02", -33),
        ("2026-10-01", -9),
    ]
    assert (found.spread, found.allowed, found.within) == (56, 1, False)


@pytest.mark.parametrize(
    ("ledger", "invoice", "spread"),
    [
        ({"a": 100, "b": 100}, {"a": 100, "b": 100}, 0),
        ({"a": 110, "b": 90}, {"a": 100, "b": 100}, 20),  # none makes up for another
        ({"a": 60, LEGACY: 40}, {"a": 100}, 0),  # nobody knows whose those are
        ({"a": 60, LEGACY: 50}, {"a": 100}, 10),
        ({"a": 60, LEGACY: 10}, {"a": 100}, 30),
        ({"a": 110, LEGACY: 10}, {"a": 100}, 20),
        ({"a": 60}, {"a": 50, "": 10}, 0),
        ({"a": 60}, {"a": 50, "": 30}, 20),
    ],
)
def test_what_the_verdict_adds_up(
    ledger: dict[str, int], invoice: dict[str, int], spread: int
) -> None:
    legacy = {FIRST: cost(ledger[LEGACY])} if LEGACY in ledger else {}
    found = compared(
        {(FIRST, name): cost(nanos) for name, nanos in ledger.items() if name != LEGACY},
        {(FIRST, name): cost(nanos) for name, nanos in invoice.items()},
        legacy=legacy,
    )
    assert found.spread == spread
    assert found.within == (spread <= sum(invoice.values()) // 100)


def test_the_tolerance_is_a_part_of_the_invoice() -> None:
    for nanos, within in ((1010, True), (1011, False), (990, True), (989, False)):
        found = compared({(FIRST, "a"): cost(nanos)}, {(FIRST, "a"): cost(1000)})
        assert found.within is within, nanos
    # an invoice of tokens alone is judged by its tokens
    found = compared(
        {(FIRST, "a"): Figures(1000, 0, 100, 5)},
        {(FIRST, "a"): Figures(900, 0, 200, 0)},
        "input",
        "output",
    )
    assert (found.measure, found.spread, found.within) == ("tokens", 0, True)


def test_an_invoice_without_models_is_compared_as_a_whole() -> None:
    found = compared(
        {(FIRST, "a"): cost(70), (FIRST, "b"): cost(30)},
        {(FIRST, ""): cost(101)},
        legacy={FIRST: cost(1)},
    )
    assert [(one.name, one.ledger.cost_nanos) for one in found.models] == [(ALL_MODELS, 101)]
    assert found.within
    with pytest.raises(UsageError, match="the invoice names no models"):
        compare(make_invoice({(FIRST, ""): cost(1)}), make_ledger({}), Names([], ["a"]), ONE_PCT)
    with pytest.raises(UsageError, match="--only leaves nothing of the invoice"):
        compare(make_invoice({(FIRST, "b"): cost(1)}), make_ledger({}), Names([], ["a"]), ONE_PCT)


def explained(
    ledger: LedgerMonth, invoice: Invoice, zone: str = "UTC", names: Names | None = None
) -> dict[str, Explanation]:
    return {one.kind: one for one in checked(ledger, invoice, zone, names).explanations}


def checked(
    ledger: LedgerMonth, invoice: Invoice, zone: str = "UTC", names: Names | None = None
) -> Check:
    names = names or Names()
    found = compare(invoice, ledger, names, ONE_PCT)
    days = {date.fromisoformat(one.name): one.invoice.of(found.measure) for one in found.days}
    fit = fit_zone(invoice.tally.kind, load_zone(zone), ledger, days, found.measure)
    explanations = explain(found, invoice, ledger, names, fit, load_zone(zone))
    return Check(invoice, ledger, found, fit, explanations, zone)


def test_the_ledgers_own_parts_are_told_with_their_amounts() -> None:
    parts = {
        "stale": Part(2, Figures(30, 0, 12, 150)),
        "dropped": Part(1, Figures(11, 0, 6, 71)),
        "held": Part(3, Figures(1, 0, 2, 3)),
        "unreserved": Part(4, Figures(5, 0, 6, 7)),
        "unpriced": Part(5, Figures(6, 0, 7, 8)),
    }
    charged = Part(9, Figures(100, 0, 50, 900))
    ledger = LedgerMonth(
        MONTH,
        "UTC",
        "USD",
        (
            LedgerCell(FIRST, "a", charged, **parts),
            LedgerCell(SECOND, "a", charged, **parts),
            LedgerCell(SECOND, "other", charged, **parts),
        ),
        legacy={FIRST: Figures(1, 0, 1, 40)},
        unlisted={FIRST: Figures(2, 0, 2, 50)},
    )
    found = explained(ledger, make_invoice({(FIRST, "a"): cost(1500)}), names=Names([], ["a"]))
    for kind, part in parts.items():
        one = found.pop(kind)
        assert (one.requests, one.cost_nanos) == (part.requests * 2, part.figures.cost_nanos * 2)
        assert one.tokens == part.figures.of("tokens") * 2
    assert (found["legacy"].cost_nanos, found["unlisted"].tokens) == (40, 4)
    assert set(found) == {"legacy", "unlisted"}


def test_models_that_one_side_lacks_are_named_with_what_they_come_to() -> None:
    ledger = make_ledger({(FIRST, f"model-{n}"): cost(n) for n in range(1, 8)})
    invoice = make_invoice({(FIRST, "model-1"): cost(1), (FIRST, "evil\x1b[2J"): cost(9)})
    found = explained(ledger, invoice)
    assert found["ledger_only"].cost_nanos == 27
    assert "lacks model-7, model-6, model-5, model-4, model-3 and 1 more:" in (
        found["ledger_only"].text
    )
    assert "the ledger lacks evil␛[2j:" in found["invoice_only"].text
    assert (found["invoice_only"].cost_nanos, found["invoice_only"].tokens) == (9, None)


@pytest.mark.parametrize(
    ("ours", "theirs", "measures", "amount", "who"),
    [
        # the invoice leaves out what was cached: as it says itself, or as the ledger knows
        (Figures(1000, 600, 1, 0), Figures(395, 605, 1, 0), ("input", "cached"), 605, "invoice"),
        (Figures(1000, 600, 1, 0), Figures(400, 0, 1, 0), ("input",), 600, "invoice"),
        (Figures(400, 0, 1, 0), Figures(1000, 600, 1, 0), ("input", "cached"), 600, "ledger"),
        # cached tokens explain less than half of it
        (Figures(1000, 200, 1, 0), Figures(400, 0, 1, 0), ("input",), None, ""),
        (Figures(1000, 600, 1, 0), Figures(1000, 600, 1, 0), ("input", "cached"), None, ""),
    ],
)
def test_cached_tokens_that_one_side_leaves_out(
    ours: Figures, theirs: Figures, measures: tuple[str, ...], amount: int | None, who: str
) -> None:
    found = explained(
        make_ledger({(FIRST, "a"): ours}),
        make_invoice({(FIRST, "a"): theirs}, "output", *measures),
    ).get("cached")
    assert (found.tokens if found else None) == amount
    assert found is None or found.text.startswith(f"the {who}'s input seems to leave out")


def test_cached_tokens_at_the_full_price() -> None:
    found = explained(
        make_ledger({(FIRST, "a"): Figures(1000, 600, 1, 900)}),
        make_invoice({(FIRST, "a"): Figures(1000, 600, 1, 500)}, "input", "cached", "cost"),
    )
    assert (found["cached_price"].tokens, found["cached_price"].cost_nanos) == (600, 400)


def test_converted_amounts_are_told() -> None:
    conversions = (Conversion("CNY", Decimal("1234.50"), 172 * UNIT),)
    found = explained(
        make_ledger({}), make_invoice({(FIRST, "a"): cost(172 * UNIT)}, conversions=conversions)
    )
    assert found["currency"].text.startswith("1,234.5 CNY of the invoice were converted")
    assert found["currency"].cost_nanos == 172 * UNIT


def traffic(zone: str) -> tuple[tuple[tuple[datetime, Figures], ...], Mapping[date, int]]:
    """Half hours of uneven traffic, and what they come to by the days of a zone."""
    generator = random.Random(5)  # noqa: S311  traffic is no secret
    start = datetime(2026, 9, 29, tzinfo=UTC)
    times = []
    days: dict[date, int] = {}
    for number in range(2 * 24 * 35):
        moment = start + timedelta(minutes=30 * number)
        nanos = generator.randrange(UNIT)
        times.append((moment, cost(nanos)))
        day = day_of(moment, load_zone(zone))
        if day.month == MONTH.month:
            days[day] = days.get(day, 0) + nanos
    return tuple(times), days


def zoned(billing: str, invoice_zone: str, said: str, kind: str = DAYS) -> dict[str, Explanation]:
    """A ledger by one zone's days, an invoice by another's, and what was said of it."""
    times, theirs = traffic(invoice_zone)
    _, ours = traffic(billing)
    ledger = make_ledger(
        {(day, "a"): cost(nanos) for day, nanos in ours.items()}, zone=billing, times=times
    )
    invoice = make_invoice({(day, "a"): cost(nanos) for day, nanos in theirs.items()}, kind=kind)
    return explained(ledger, invoice, said)


def test_days_of_another_zone_are_explained_to_the_last_nano() -> None:
    found = zoned("Asia/Shanghai", "UTC", "UTC")
    _, ours = traffic("Asia/Shanghai")
    _, theirs = traffic("UTC")
    apart = sum(abs(ours[day] - theirs[day]) for day in ours)
    assert found["zone"].cost_nanos == apart
    assert "the invoice's days are of UTC, the ledger's of Asia/Shanghai" in found["zone"].text
    moved = sum(theirs.values()) - sum(ours.values())
    assert found["zone_month"].cost_nanos == abs(moved)
    assert f"ledger's month has {'more' if moved > 0 else 'less'}" in found["zone_month"].text
    assert "zone_hint" not in found


@pytest.mark.parametrize(
    ("billing", "invoice_zone", "said", "kind", "hint"),
    [
        ("UTC", "Asia/Shanghai", "UTC", DAYS, "8 hours earlier than those of UTC, in a zone of UTC+08:00"),
        ("UTC", "America/Bogota", "UTC", LOCAL, "5 hours later than those of UTC, in a zone of UTC-05:00"),
        ("Asia/Shanghai", "Asia/Kolkata", "UTC", DAYS, "5.5 hours earlier than those of UTC, in a zone of UTC+05:30"),
        ("UTC", "UTC", "Asia/Shanghai", DAYS, "8 hours later than those of Asia/Shanghai, in a zone of UTC+00:00"),
        ("UTC", "Asia/Shanghai", "UTC", MOMENTS, None),
        ("UTC", "UTC", "UTC", DAYS, None),
    ],
)  # fmt: skip
def test_a_zone_that_was_not_said_is_guessed(
    billing: str, invoice_zone: str, said: str, kind: str, hint: str | None
) -> None:
    found = zoned(billing, invoice_zone, said, kind)
    if hint is None:
        assert "zone_hint" not in found
    else:
        assert hint in found["zone_hint"].text


def test_text_and_document() -> None:
    times, days = traffic("UTC")
    cells = {(day, "gpt-4o"): cost(nanos) for day, nanos in days.items()}
    ledger = make_ledger({**cells, (FIRST, "a\x1b[2J\nb"): cost(UNIT)}, times=times)
    theirs = {(day, "openai/gpt-4o"): one + Figures(5, 0, 5, 0) for (day, _), one in cells.items()}
    check = checked(ledger, make_invoice(theirs, "input", "output", "cost"))
    text = render_text(check, 1)
    assert all(line.isprintable() for line in text.splitlines())
    lines = text.splitlines()
    assert lines[0] == "invoice  x, days of UTC: 9 rows"
    assert lines[1] == "ledger   2026-10, billing days of UTC, USD"
    assert [line.split()[0] for line in lines if line.startswith(("total", "cost", "input", "out"))]
    assert "… and 1 more: --top 2" in lines
    assert "… and 30 more: --top 31" in lines
    row = next(line for line in lines if line.startswith("a␛[2j-b"))
    assert row.split()[1:] == ["1.0000", "0.0000", "+1.0000", "-", "beyond"]
    assert lines[-1].startswith("within tolerance: the models' differences add up to 1.0000 USD")
    document = json.loads(json.dumps(as_document(check)))
    assert document["within_tolerance"] is True
    assert document["total"]["difference"] == {
        "cost_nanos": UNIT,
        "input_tokens": -155,
        "cached_input_tokens": None,
        "output_tokens": -155,
    }
    assert [one["model"] for one in document["models"]] == ["a\x1b[2j-b", "gpt-4o"]
    assert document["models"][1]["names"] == ["gpt-4o", "openai/gpt-4o"]
    assert len(document["days"]) == 31
    assert {one["kind"] for one in document["explanations"]} == {"ledger_only"}
