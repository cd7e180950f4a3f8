"""The ledger beside an invoice: what differs, and what explains it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from unit.invoice_sides import (
    ONE_PCT,
    UNIT,
    checked,
    compared,
    cost,
    explained,
    make_invoice,
    make_ledger,
    traffic,
)
from unit.invoice_world import FIRST, MONTH, SECOND
from worker.errors import UsageError
from worker.invoice.comparing import ALL_MODELS, LEGACY, compare
from worker.invoice.converting import Conversion
from worker.invoice.figures import Figures, LedgerCell, LedgerMonth, Part
from worker.invoice.names import Names
from worker.invoice.showing import as_document, render_text


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
        (one.model, one.ledger.cost_nanos, one.invoice.cost_nanos, one.within)
        for one in found.models
    ] == [("gpt-4o", 150, 190, False), ("x", 0, 9, False), ("o3", 7, 0, False)]
    assert found.models[0].names == ("gpt-4o", "gpt-4o-2024-08-06", "openai/gpt-4o")
    assert [(one.day, one.difference.cost_nanos) for one in found.days] == [
        ("2026-10-02", -33),
        ("2026-10-01", -9),
    ]
    assert [(one.day, one.model, one.difference.cost_nanos) for one in found.cells] == [
        ("2026-10-02", "gpt-4o", -40),
        ("2026-10-01", "x", -9),
        ("2026-10-02", "o3", 7),
        ("2026-10-01", "gpt-4o", 0),
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


def test_input_and_output_are_judged_apart() -> None:
    """Of two models and days none makes up for the other, nor input for output."""
    cells = {(FIRST, "a"): Figures(1000, 0, 100, 5), (SECOND, "b"): Figures(10, 0, 10, 0)}
    ledger = make_ledger(cells)
    theirs = {**cells, (FIRST, "a"): Figures(100, 0, 1000, 0)}
    check = checked(ledger, make_invoice(theirs, "input", "output"))
    found = check.comparison
    assert (found.measure, found.judged, found.within) == ("tokens", ("input", "output"), False)
    assert [(one.measure, one.spread, one.allowed) for one in found.verdicts] == [
        ("input", 900, 1),
        ("output", 900, 10),
    ]
    assert [(one.model, one.beyond) for one in found.models] == [
        ("a", {"input", "output"}),
        ("b", set()),
    ]
    lines = render_text(check, None).splitlines()
    assert "2026-10-01  in    1,000      100        +900  +900.0  beyond" in lines
    assert "2026-10-01  out     100    1,000        -900   -90.0  beyond" in lines
    assert lines[-1] == (
        "beyond tolerance: the models' differences add up to 900 input tokens, 818.2 % of the"
        " invoice, and to 900 output tokens, 89.1 % of the invoice; 1 % is allowed, of each"
    )
    document: Any = as_document(check, None)
    assert document["judged"][1] == {
        "measure": "output",
        "spread": 900,
        "allowed": 10,
        "within_tolerance": False,
    }
    # one of them alone is enough
    for figures in (Figures(1000, 0, 102, 0), Figures(1012, 0, 100, 0)):
        found = compared(cells, {**cells, (FIRST, "a"): figures}, "input", "output")
        assert [one.within for one in found.verdicts].count(False) == 1
        assert not found.within


@pytest.mark.parametrize(
    ("measure", "invoice", "said"),
    [
        ("input", Figures(1000, 0, 0, 0), "0 input tokens"),
        ("output", Figures(0, 0, 100, 0), "0 output tokens"),
        ("tokens", Figures(1100, 0, 0, 0), "0 tokens"),
    ],
)
def test_only_what_an_export_tells_is_compared(measure: str, invoice: Figures, said: str) -> None:
    stale = {"stale": Part(1, Figures(7, 0, 5, 3))}
    cells = tuple(
        LedgerCell(day, "a", Part(2, Figures(1000, 100, 100, 5)), **stale)
        for day in (FIRST, SECOND)
    )
    ledger = LedgerMonth(MONTH, "UTC", "USD", cells)
    same = checked(ledger, make_invoice({(FIRST, "a"): invoice, (SECOND, "a"): invoice}, measure))
    assert (same.comparison.within, same.comparison.differs) == (True, False)
    assert f"add up to {said}, 0.0 % of" in render_text(same, None)
    total: Any = as_document(same, None)["total"]
    key = "tokens" if measure == "tokens" else f"{measure}_tokens"
    assert {name for name, one in total["invoice"].items() if one is not None} == {key}
    assert total["ledger"][key] == total["invoice"][key]
    # half is missing: as much of that measure is told of the causes
    half = checked(ledger, make_invoice({(FIRST, "a"): invoice}, measure))
    assert half.comparison.spread == invoice.of("tokens")
    told = {one.kind: one.tokens for one in half.explanations}
    assert told == {"stale": Figures(7, 0, 5).of(measure)}


def test_an_invoice_without_models_is_compared_as_a_whole() -> None:
    found = compared(
        {(FIRST, "a"): cost(70), (FIRST, "b"): cost(30)},
        {(FIRST, ""): cost(101)},
        legacy={FIRST: cost(1)},
    )
    assert [(one.model, one.ledger.cost_nanos) for one in found.models] == [(ALL_MODELS, 101)]
    assert found.within
    with pytest.raises(UsageError, match="the invoice names no models"):
        compare(
            make_invoice({(FIRST, ""): cost(1)}),
            make_ledger({(FIRST, "a"): cost(1)}),
            Names([], ["a"]),
            ONE_PCT,
        )
    with pytest.raises(UsageError, match="--only leaves nothing of the invoice"):
        compare(
            make_invoice({(FIRST, "b"): cost(1)}),
            make_ledger({(FIRST, "a"): cost(1)}),
            Names([], ["a"]),
            ONE_PCT,
        )


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


@pytest.mark.parametrize(("guessed", "rest"), [(0, 400), (100, 300), (400, None), (500, None)])
@pytest.mark.parametrize("kind", ["stale", "unpriced"])
def test_cached_tokens_at_the_full_price(kind: str, guessed: int, rest: int | None) -> None:
    """What estimates make dearer is none of it."""
    part = {kind: Part(1, cost(guessed))}
    cell = LedgerCell(FIRST, "a", Part(2, Figures(1000, 600, 1, 900)), **part)
    found = explained(
        LedgerMonth(MONTH, "UTC", "USD", (cell,)),
        make_invoice({(FIRST, "a"): Figures(1000, 600, 1, 500)}, "input", "cost"),
    )
    told = found.get("cached_price")
    assert (told and told.cost_nanos) == rest
    assert told is None or told.tokens == 600


def test_what_agrees_needs_no_cause_and_fills_no_lines() -> None:
    """Stale estimates of days that agree explain nothing; a difference of roundings is none."""
    stale = Part(1, Figures(1, 0, 1, UNIT))

    def cells(*nanos: int) -> tuple[LedgerCell, ...]:
        return tuple(
            LedgerCell(day, "a", Part(2, cost(one)), stale=stale)
            for day, one in zip((FIRST, SECOND), nanos, strict=True)
        )

    invoice = make_invoice({(FIRST, "a"): cost(3 * UNIT), (SECOND, "a"): cost(3 * UNIT)})
    check = checked(LedgerMonth(MONTH, "UTC", "USD", cells(3 * UNIT, 3 * UNIT + 49_999)), invoice)
    text = render_text(check, None)
    assert check.explanations == ()
    assert "the model agrees\n\nall 2 days agree\n\nwithin tolerance" in text
    assert "explain" not in text

    check = checked(LedgerMonth(MONTH, "UTC", "USD", cells(3 * UNIT, 4 * UNIT)), invoice)
    text = render_text(check, None)
    assert [(one.kind, one.requests) for one in check.explanations] == [("stale", 1)]
    assert (
        "\n2026-10-02  4.0000   3.0000     +1.0000  +33.3  beyond\nthe other 1 day agrees\n" in text
    )
    assert "2026-10-01" not in text
    # far below what is shown, but beyond the tolerance: it is shown
    check = checked(make_ledger({(FIRST, "a"): cost(90)}), make_invoice({(FIRST, "a"): cost(50)}))
    assert "2026-10-01" in render_text(check, None)


def test_the_head_says_which_days_are_compared_and_what_the_own_month_is() -> None:
    def head(own: int, **more: Any) -> list[str]:
        ledger = make_ledger(
            {(FIRST, "a"): cost(5 * UNIT)},
            zone="Asia/Shanghai",
            days_zone="UTC",
            own=cost(own),
            **more,
        )
        check = checked(ledger, make_invoice({(FIRST, "a"): cost(5 * UNIT)}, rows=1))
        document = as_document(check, None)
        assert (document["billing_zone"], document["compared_zone"]) == ("Asia/Shanghai", "UTC")
        assert document["own_month"]["cost_nanos"] == own  # type: ignore[index]
        return render_text(check, None).partition("\n\n")[0].splitlines()

    assert head(4 * UNIT) == [
        "invoice  x, days of UTC: 1 row",
        "ledger   2026-10, by the invoice's days, of UTC, USD",
        "         its own month, billing days of Asia/Shanghai, comes to 4.0000 USD, 1.0000 less",
    ]
    assert head(7 * UNIT)[2].endswith("comes to 7.0000 USD, 2.0000 more")
    assert head(5 * UNIT)[2].endswith("comes to 5.0000 USD, as much")
    assert head(5 * UNIT, legacy={FIRST: cost(UNIT)})[3] == (
        "         charges without a remembered request stay on their billing days"
    )


def test_converted_amounts_are_told() -> None:
    conversions = (Conversion("CNY", Decimal("1234.50"), 172 * UNIT),)
    found = explained(
        make_ledger({}), make_invoice({(FIRST, "a"): cost(172 * UNIT)}, conversions=conversions)
    )
    assert found["currency"].text.startswith("1,234.5 CNY of the invoice were converted")
    assert found["currency"].cost_nanos == 172 * UNIT


def test_a_line_may_differ_by_a_part_of_its_larger_side() -> None:
    found = compared({(FIRST, "a"): cost(9_900)}, {(FIRST, "a"): cost(10_000)})
    assert [one.within for one in (*found.models, *found.days)] == [True, True]


def test_text_and_document() -> None:
    times, days = traffic("UTC")
    cells = {(day, "gpt-4o"): cost(nanos) for day, nanos in days.items()}
    ledger = make_ledger({**cells, (FIRST, "a\x1b[2J\nb"): cost(UNIT)}, times=times)
    theirs = {(day, "openai/gpt-4o"): one + Figures(5, 0, 5, 0) for (day, _), one in cells.items()}
    check = checked(ledger, make_invoice(theirs, "input", "output", "cost"))
    text = render_text(check, 1)
    beyond = checked(ledger, make_invoice({(FIRST, "gpt-4o"): cost(UNIT)}, "cost"))
    assert "… and 30 more: --top 31" in render_text(beyond, 1).splitlines()
    assert all(line.isprintable() for line in text.splitlines())
    lines = text.splitlines()
    assert lines[0] == "invoice  x, days of UTC: 9 rows"
    assert lines[1] == "ledger   2026-10, billing days of UTC, USD"
    assert [line.split()[0] for line in lines if line.startswith(("total", "cost", "input", "out"))]
    assert "the other 1 model agrees" in lines
    assert "the other 30 days agree" in lines
    assert "the other 31 days of models agree" in lines
    row = next(line for line in lines if line.startswith("a␛[2j-b"))
    assert row.split()[1:] == ["1.0000", "0.0000", "+1.0000", "-", "beyond"]
    assert lines[-1].startswith("within tolerance: the models' differences add up to 1.0000 USD")
    document = json.loads(json.dumps(as_document(check, 2)))
    assert document["within_tolerance"] is True
    assert document["total"]["difference"] == {
        "cost_nanos": UNIT,
        "input_tokens": -155,
        "cached_input_tokens": None,
        "output_tokens": -155,
        "tokens": -310,
    }
    assert [one["model"] for one in document["models"]] == ["a\x1b[2j-b", "gpt-4o"]
    assert document["models"][1]["names"] == ["gpt-4o", "openai/gpt-4o"]
    assert len(document["days"]) == 31
    assert [(one["day"], one["model"]) for one in document["days_of_models"]] == [
        ("2026-10-01", "a\x1b[2j-b"),
        ("2026-10-01", "gpt-4o"),
    ]
    assert {one["kind"] for one in document["explanations"]} == {"ledger_only"}
