"""A report's JSON is exact and can be read back: what is stored is what is shown later."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from unit.roi_world import amounts, facts, months, part
from worker.report.json_file import dump_summary, load_summary
from worker.roi.facts import Facts
from worker.roi.report import summarize


@settings(max_examples=15, deadline=None)
@given(months())
def test_a_summary_comes_back_exactly(month: Facts) -> None:
    summary = summarize(month)
    text = dump_summary(summary)
    assert load_summary(text) == summary
    # a jsonb column keeps no order of keys
    assert load_summary(json.dumps(json.loads(text), sort_keys=True)) == summary
    # as it is stored: piece by piece, the same
    of_all = dump_summary(summarize(replace(month, department=None)), indent=None)
    assert of_all == json.dumps(json.loads(of_all), ensure_ascii=False) + "\n"
    assert load_summary(of_all) == summarize(replace(month, department=None))


def test_no_number_is_left_to_a_reader_s_floats() -> None:
    text = dump_summary(summarize(facts(part(amounts(cost=10**16 + 1, tokens=3)))))
    value = json.loads(
        text, parse_float=_refuse, parse_int=lambda n: None if n == "1" else _refuse(n)
    )
    assert value["ledger"]["total"]["cost_nanos"] == "10000000000000001"
    assert value["cost_per_million_tokens"]["exact"] == "10000000000000001000000/3"
    assert value["cost_per_million_tokens"]["decimal"] == "3333333333333333666666.666666666667"
    assert value["metrics"][0]["now"]["value"] == {"reason": "no_outcomes"}


def _refuse(number: str) -> Any:
    raise AssertionError(f"{number} is a bare number")


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", '{"format": "quota-worker report", "version": 1}']
)
def test_what_is_no_summary_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no summary"):
        load_summary(text)


def test_another_version_is_refused() -> None:
    value = json.loads(dump_summary(summarize(facts())))
    with pytest.raises(ValueError, match="version 2"):
        load_summary(json.dumps(value | {"version": 2}))


def test_a_summary_of_an_earlier_version_is_read() -> None:
    value = json.loads(dump_summary(summarize(facts())))
    for figure in ("unpriced_cost_nanos", "unpriced_at_most"):
        del value["ledger"][figure]
    del value["shares"]["downgraded_saving"]
    for one in value["incentives"]:
        del one["too_few"]
    assert load_summary(json.dumps(value)) == summarize(facts())
    del value["ledger"]["unpriced_count"]
    with pytest.raises(ValueError, match="no summary"):
        load_summary(json.dumps(value))
