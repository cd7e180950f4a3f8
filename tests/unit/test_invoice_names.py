"""Names that mean one model, and how they are mapped and chosen."""

from __future__ import annotations

import pytest

from unit.invoice_sides import ONE_PCT, cost, make_invoice, make_ledger
from unit.invoice_world import FIRST
from worker.errors import UsageError
from worker.invoice.comparing import compare
from worker.invoice.names import Names, fits, normalised


@pytest.mark.parametrize(
    "names",
    [
        ("gpt-4o", "openai/gpt-4o-2024-08-06", "GPT-4o", "azure/eu/gpt-4o", "gpt-4o:batch"),
        ("gpt-4-1-mini", "gpt-4.1-mini-2025-04-14", "gpt-4_1-mini"),
        (
            "claude-sonnet-3-5",
            "claude-3-5-sonnet-20241022",
            "Claude Sonnet 3.5",
            "anthropic/claude-3.5-sonnet",
            "us.anthropic.claude-3-5-sonnet-20241022-v2:0",
            "claude-3-5-sonnet@20241022",
            "claude-3-5-sonnet-latest",
        ),
        ("deepseek-v3", "deepseek/DeepSeek-V3"),
        ("mistral-large-2407",),
        ("gpt-4-0613",),
        ("x-2024-1030",),
        ("x-1024",),
    ],
)
def test_the_names_of_one_model(names: tuple[str, ...]) -> None:
    assert {normalised(name) for name in names} == {names[0]}


def test_different_models_stay_apart() -> None:
    different = [
        *("gpt-4o", "gpt-4o-mini", "gpt-4", "gpt-4.1", "gpt-4-turbo", "o1", "o3", "claude-opus-4"),
        *("claude-opus-4-1", "claude-sonnet-4", "deepseek-v3", "deepseek-v2", "bge-m3"),
        *("text-embedding-3-small", "text-embedding-3-large", "x-1024", "x-1030", "x"),
    ]
    assert len({normalised(name) for name in different}) == len(different)


@pytest.mark.parametrize(
    ("invoice", "ledger", "same"),
    [
        ("gpt-4-0613", "gpt-4", True),
        ("openai/gpt-4", "gpt-4-0613", True),
        ("gpt-3.5-turbo-0125", "gpt-3.5-turbo", True),
        ("deepseek-v3-0324", "DeepSeek V3", True),
        ("gpt-4-0613", "gpt-4-0314", False),  # two issues, and no name for both
        ("gpt-4-0613", "gpt-4-turbo", False),
        ("x-1030", "x", False),  # who knows what that is a number of
        ("gptx-1030", "gptx", False),
        ("gpt-4-1340", "gpt-4", False),
    ],
)
def test_a_month_and_a_day_go_where_the_other_side_has_the_name_without(
    invoice: str, ledger: str, *, same: bool
) -> None:
    found = Names().match([invoice], [ledger])
    assert (found.of_invoice(invoice) == found.of_ledger(ledger)) is same


def test_names_are_mapped_as_told() -> None:
    names = Names(["gpt 4o 0806 *=gpt-4o", "My Model=chat", "gpt-4o:batch=slow"])
    found = names.match(
        ["gpt 4o 0806 Inp glbl", "vendor/my-model-2026-01-02", "other", "", "GPT-4o:batch"], []
    )
    assert found.invoice == {
        "gpt 4o 0806 Inp glbl": "gpt-4o",
        "vendor/my-model-2026-01-02": "chat",
        "other": "other",
        "": "",
        "GPT-4o:batch": "slow",
    }
    # as it is written comes before what it means
    names = Names(["gpt-4o=fast", "gpt-4o:batch=slow"])
    assert names.match(["gpt-4o:batch", "gpt-4o"], []).invoice == {
        "gpt-4o:batch": "slow",
        "gpt-4o": "fast",
    }
    for pairs, only in ((["a"], []), (["=b"], []), (["a= "], []), ([], [" "])):
        with pytest.raises(UsageError, match="--model|--only"):
            Names(pairs, only)


@pytest.mark.parametrize(
    ("pattern", "invoice", "ledger"),
    [
        ("gpt-3.5*", "gpt-3.5-turbo", "openai/gpt-3.5-turbo-0125"),
        ("gpt-3.5*", "gpt-3-5-turbo", "gpt-3-5-turbo"),
        ("GPT 3.5*", "gpt-3.5-turbo", "gpt-3.5-turbo"),
        ("gpt-3-5*", "gpt-3.5-turbo", "gpt-3.5-turbo"),
        ("gpt-3.5-turbo", "gpt-3.5-turbo", "gpt-3.5-turbo"),
        ("claude-3-5*", "claude-3-5-sonnet-20241022", "Claude Sonnet 3.5"),
        ("claude-3-5*", "Claude Sonnet 3.5", "claude-3-5-sonnet-20241022"),
        ("claude-3.5-*", "anthropic/claude-3.5-sonnet", "claude-3-5-sonnet"),
        ("claude-3.5-sonnet-2024*", "anthropic/claude-3-5-sonnet-20241022", "claude-sonnet-3-5"),
        ("openai/*", "gpt-4o", "openai/gpt-4o-2024-08-06"),
        ("*-2024-08-06", "gpt-4o", "openai/gpt-4o-2024-08-06"),
        ("*.claude-*", "us.anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"),
        ("azure/gpt-4o", "gpt-4o", "gpt-4o"),
    ],
)
def test_a_model_is_chosen_by_any_of_its_names(pattern: str, invoice: str, ledger: str) -> None:
    """Both sides of it, however each writes it; nothing else."""
    names = Names([], [pattern, "o3"])
    found = names.match([invoice, "o3", "", "my-gpt-4"], [ledger, "o3", "", "mistral-large"])
    assert found.of_invoice(invoice) is not None
    assert found.of_invoice(invoice) == found.of_ledger(ledger)
    assert found.chosen_ledger() == sorted([ledger, "o3"])
    assert [found.of_invoice(one) for one in ("o3", "", "my-gpt-4")] == ["o3", None, None]


def test_a_chosen_model_that_differs_is_not_dropped() -> None:
    sides = {(FIRST, "gpt-3.5-turbo"): cost(10), (FIRST, "gpt-4o"): cost(50), (FIRST, "x"): cost(9)}
    theirs = {**sides, (FIRST, "gpt-3.5-turbo"): cost(20)}
    names = Names([], ["gpt-3.5*", "gpt-4o"])
    found = compare(make_invoice(theirs), make_ledger(sides), names, ONE_PCT)
    assert [(one.model, one.difference.cost_nanos) for one in found.models] == [
        ("gpt-3-5-turbo", -10),
        ("gpt-4o", 0),
    ]
    assert not found.within


def test_patterns_that_mean_no_model_are_refused_all_of_them_by_name() -> None:
    names = Names(["gpt-5*=a", "gpt-4o=b"], ["gpt-4o*", "b", "gemini*", "-", "o[13]"])
    with pytest.raises(UsageError) as refused:
        names.match(["gpt-4o", "o1"], ["gpt-4o-mini", ""])
    assert str(refused.value).splitlines() == [
        "--model 'gpt-5*' is no model of the invoice: nothing was compared",
        "--only 'gemini*' is no model, neither of the invoice nor of the ledger",
        "--only '-' is no model, neither of the invoice nor of the ledger",
        "--only 'o[13]' is no model, neither of the invoice nor of the ledger",
    ]
    # a model that the ledger alone has is one
    assert Names([], ["a", "b"]).match(["a"], ["b"]).chosen == {"a", "b"}


def test_nothing_but_a_star_stands_for_anything() -> None:
    assert fits("a[1]?b", "a[1]?*")
    assert not fits("a1xb", "a[1]?b")
