"""doctor's checks: facts in, findings out; docs/doctor.md has each of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from unit.doctor_cases import CASES, NOW
from worker.doctor.finding import FAULT, NOTE, OK, WARNING, Finding, named, span
from worker.doctor.showing import as_document, render_text
from worker.status_text import Palette

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("found", "check", "severity", "words"), CASES)
def test_a_check(found: list[Finding], check: str, severity: str, words: str) -> None:
    (finding, *_) = [one for one in found if one.check == check]
    assert finding.severity == severity
    assert words in f"{finding.what} | {finding.cure}"
    assert (finding.cure == "") == (severity == OK)
    assert len(f"{finding.what}{finding.cure}".splitlines()) == 1


def test_each_finding_stands_in_the_docs_with_its_cure() -> None:
    text = (ROOT / "docs/doctor.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (fault|warning|note) \| .+ \| .+ \|$", text, re.MULTILINE
    )
    assert len(rows) >= len(set(rows)) > 40
    made = {(check, severity) for _, check, severity, _ in CASES if severity != OK}
    # what needs a database is found in tests/acceptance
    made |= {("database", FAULT), ("unread", WARNING)}
    assert set(rows) == made


def test_no_check_of_the_code_is_missing_here() -> None:
    named_in_code = set()
    paths = [*(ROOT / "worker/doctor").glob("*.py"), ROOT / "worker/commands/doctor.py"]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in {"Finding", "ok"}
                and isinstance(node.args[0], ast.Constant)
            ):
                named_in_code.add(node.args[0].value)
    assert named_in_code == {check for _, check, _, _ in CASES} | {"database", "unread"}


def test_the_worst_comes_first_and_the_sum_last() -> None:
    findings = [
        Finding("database", OK, "quota at postgresql://h/quota"),
        Finding("a", OK, "well"),
        Finding("b", NOTE, "odd", "cure b"),
        Finding("c", FAULT, "broken", "cure c"),
    ]
    assert render_text(findings, Palette(coloured=False)).splitlines() == [
        "fault    c         broken",
        "                   do: cure c",
        "note     b         odd",
        "                   do: cure b",
        "ok       database  quota at postgresql://h/quota",
        "ok       a",
        "",
        "1 fault, 1 note; 2 ok",
    ]
    document = as_document(findings, NOW, None)
    assert set(document) == {"version", "at", "severity", "findings", "roles_sql"}
    assert (document["severity"], document["at"]) == (FAULT, "2026-11-30T12:00:00+00:00")
    assert document["findings"][0] == {
        "check": "c",
        "severity": FAULT,
        "what": "broken",
        "cure": "cure c",
    }
    assert render_text([Finding("a", OK, "x")], Palette(coloured=False)).endswith(
        "\nnothing is off; 1 ok"
    )


def test_names_are_harmless_and_few() -> None:
    assert named(["a\x1b[2J", "b", "c", "d", "e"]) == "a\\x1b[2J, b, c and 2 more"
    assert [span(s) for s in (-1, 119, 120, 7_200, 86_400, 400_000)] == [
        "0 s",
        "119 s",
        "2 min",
        "2 h",
        "24 h",
        "5 days",
    ]
