"""Whatever a source tells: a usage that the ledger can take, or a named reason, and nothing else."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.sources_world import NOW, SECRET
from worker.clock import monotonic_seconds
from worker.postgres.sources import _element
from worker.sources.base import Gathered
from worker.sources.reading import (
    EXCERPT_LETTERS,
    LOOKED_AT_LETTERS,
    Reader,
    UnusableAnswerError,
)
from worker.sources.rows import gather_rows
from worker.usage import FaultReason, OverdueRequest

REQUEST = OverdueRequest("a", "r", NOW)
READER = Reader("log", "EUR", [SECRET])
WORDS = (
    "in_tokens",
    "out_tokens",
    "cached_in_tokens",
    "cost",
    "cost_nanos",
    "currency",
    "usage_id",
    "model",
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.integers(0, 100)
    | st.floats()
    | st.decimals()
    | st.sampled_from(
        [Decimal("1e999999"), Decimal("-0"), Decimal("sNaN"), "1e99", "0.10", "", SECRET]
        + [Decimal(text) for text in ("0e-16400", "0e-900000000", "0e900000000", "1e-900000000")]
    )
    | st.text(st.characters(), max_size=300)
    | st.binary(max_size=5)
    | st.lists(st.integers(), max_size=2)
)


@given(told=st.fixed_dictionaries({}, optional=dict.fromkeys(WORDS, SCALARS)))
@settings(max_examples=150, deadline=None, database=None)
def test_any_values_are_read_or_refused(told: dict[str, Any]) -> None:
    gathered = Gathered()
    row = {"request_id": "r", "tenant_id": "a", **told}
    gather_rows([row, row], [REQUEST], READER, gathered)
    answer = gathered.answer()
    assert answer.set_aside == len(answer.faults)
    for fault in answer.faults:
        assert fault.reason in FaultReason
        assert fault.excerpt.isprintable()
        assert len(fault.excerpt) <= EXCERPT_LETTERS
        assert SECRET not in fault.excerpt
    for usage in answer.usages:
        assert 0 <= usage.in_tokens <= 10**12
        assert 0 <= usage.out_tokens <= 10**12
        assert usage.cached_in_tokens is None or 0 <= usage.cached_in_tokens <= usage.in_tokens
        assert usage.cost is None or 0 <= usage.cost <= 10**12
        for name in (usage.usage_id, usage.model or "x"):
            assert 1 <= len(name) <= 200
            assert name.encode()
            assert "\0" not in name
        element = json.loads(json.dumps(_element(usage)))
        assert len(element["cost"] or "") <= 40
        assert element["cost"] is None or Decimal(element["cost"]) == usage.cost
    # nothing told is no usage yet, and never a fault
    if told.get("in_tokens") is None and told.get("out_tokens") is None:
        assert (answer.usages, answer.faults) == ((), ())


@pytest.mark.parametrize(
    ("word", "value", "cost"),
    [
        ("cost", 0.1, "0.1"),  # the decimal that the float means, not the float's own digits
        ("cost", 1.2345678901234567e-05, "0.000012345678901"),
        ("cost", "1.5E-7", "0.00000015"),
        ("cost", Decimal("999999999999.999999999999999"), "999999999999.999999999999999"),
        ("cost_nanos", 1, "0.000000001"),
        ("cost_nanos", Decimal(123456789012345678), "123456789.012345678"),
    ],
)
def test_costs_are_exact(word: str, value: object, cost: str) -> None:
    reading = READER.read(REQUEST, {"in_tokens": 1, "out_tokens": 1, word: value})
    assert reading is not None
    assert reading.usage.cost == Decimal(cost)
    assert reading.usage.currency == "EUR"


@pytest.mark.parametrize("word", ["cost_nanos", "cost", "in_tokens"])
@pytest.mark.parametrize("text", ["0e-16400", "0e-900000000", "0e900000000", "1." + "0" * 500])
def test_figures_without_an_end_are_wrong_numbers(word: str, text: str) -> None:
    with pytest.raises(UnusableAnswerError, match="needed") as error:
        READER.read(REQUEST, {"in_tokens": 1, "out_tokens": 1, word: Decimal(text)})
    assert error.value.reason is FaultReason.WRONG_NUMBER


def test_an_excerpt_of_a_long_text_is_short_and_holds_no_piece_of_a_secret() -> None:
    # wherever the text is cut before it is looked at
    for spaces in range(LOOKED_AT_LETTERS - 60, LOOKED_AT_LETTERS):
        for secret in (SECRET, f'token="{SECRET}"', f"postgres://u:{SECRET}@h/d"):
            excerpt = READER.excerpt(" " * spaces + f"seen {secret} again" + "x" * 5000)
            assert len(excerpt) <= EXCERPT_LETTERS
            assert SECRET[:3] not in excerpt, (spaces, secret)
    started = monotonic_seconds()
    rows = [{"request_id": "a-" * 20_000, "tenant_id": "token=" * 9_000}] * 1_000
    gathered = Gathered()
    gather_rows(rows, [REQUEST], READER, gathered)
    assert monotonic_seconds() - started < 2
    answer = gathered.answer()
    assert (answer.set_aside, answer.faults[0].reason) == (1_000, FaultReason.NOT_ASKED)
    assert len(answer.faults[0].request_id) <= EXCERPT_LETTERS


@pytest.mark.parametrize("value", ["1,5", "1.5 USD", "1_000", "٣", "0x1", 10**13, "-1", True, [1]])
def test_what_is_no_cost(value: object) -> None:
    with pytest.raises(UnusableAnswerError, match="cost is .*: an amount from 0"):
        READER.read(REQUEST, {"in_tokens": 1, "out_tokens": 1, "cost": value})


def test_an_id_of_ones_own_is_the_same_each_time_and_nobody_elses() -> None:
    figures = {"in_tokens": 1, "out_tokens": 1}

    def own(source: str, *names: str) -> str:
        reading = Reader(source, None, ()).read(OverdueRequest(*names, NOW), figures)
        assert reading is not None
        return reading.usage.usage_id

    ids = [own("log", "a", "r"), own("api", "a", "r"), own("log", "b", "r"), own("log", "a", "s")]
    assert len(set(ids)) == 4
    assert own("log", "a", "r") == ids[0]
