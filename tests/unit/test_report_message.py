"""The message that tells of a report where there is no mail: every channel, checked facts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from worker import cli
from worker.facts_shape import facts_faults, kind_of
from worker.samples import SAMPLES, sample_facts


@pytest.mark.parametrize("samples", SAMPLES)
def test_the_samples_are_facts_of_a_report(samples: str) -> None:
    (facts,) = sample_facts("roi-report", samples)
    assert facts_faults(facts) == []
    assert kind_of(facts) == "roi-report"


def test_facts_of_ones_own_are_shown_or_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (facts,) = sample_facts("roi-report", "usual")
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts | {"department_id": ""}))
    assert cli.run(["preview", "roi-report", "--facts", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "[quota-report] all departments, 2026-10: 157,713.33330846 CNY, 2,624,000,000 tokens\n"
    )
    assert out.endswith("\nnext: quota-worker report --month 2026-10\n")
    path.write_text(json.dumps(facts | {"month": "October", "revision": "2"}))
    assert cli.run(["preview", "roi-report", "--facts", str(path)]) == 2
    err = capsys.readouterr().err
    assert "month: a month like 2026-10 is wanted; revision: a whole number is wanted" in err
