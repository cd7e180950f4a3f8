"""[report]: where the monthly reports go."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.configuration_world import BOTH, faults_of, read
from worker.settings import ReportSettings


def test_what_is_left_out_has_its_usual_value(tmp_path: Path) -> None:
    assert read(tmp_path, BOTH).report is None
    assert read(tmp_path, BOTH + '[report]\nchannel = "mail"').report == ReportSettings("mail")
    full = BOTH + '[report]\nchannel = "mail"\nto = ["a@example.com"]\nday = 5'
    assert read(tmp_path, full).report == ReportSettings("mail", ("a@example.com",), 5)
    assert read(tmp_path, BOTH + "[report]\noff = true").report is None


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("day = 5", "report.channel is missing: the name of an e-mail channel"),
        ('channel = "ops"', "report.channel is 'ops', which is no e-mail channel"),
        ('channel = "mial"', "report.channel names 'mial', a channel that isn't defined: did you mean mail?"),
        ('channel = "mail"\nto = ["nobody"]', "report.to[1] is no e-mail address"),
        ('channel = "mail"\nday = 31', "report.day is out of bounds: 1 to 28"),
        ('channel = "mail"\ndays = 3', "report.days is not known here: did you mean day?"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, lines: str, words: str) -> None:
    (fault,) = faults_of(tmp_path, f"{BOTH}[report]\n{lines}\n")
    assert words in fault
