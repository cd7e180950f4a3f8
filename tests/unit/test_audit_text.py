"""The audit's answer for people: departments, closed months, what is cut off, what a repair left."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

from worker.audit import as_document, render_text
from worker.audit_report import AuditReport, AuditRow, Repair

ROW = AuditRow(
    severity="drift",
    kind="department",
    tenant_id=None,
    department_id="市场\x1b",
    environment="test",
    period=date(2026, 10, 1),
    dimension="cost_used_nanos",
    expected=5 * 10**27,
    found=7,
    request_id=None,
    cause="x" * 500 + "\n",
)
IMPOSSIBLE = replace(
    ROW,
    kind="impossible",
    tenant_id="acme",
    period=date(2026, 10, 9),
    dimension="request",
    expected=None,
    found=None,
    cause="it ended, at no time",
)
REPORT = AuditReport(
    at=datetime(2026, 11, 3, tzinfo=UTC),
    month=date(2026, 10, 1),
    state="closed",
    billing_zone="Asia/Shanghai",
    currency="CNY",
    drifts=1200,
    remarks=1,
    rows=(ROW, IMPOSSIBLE),
)


def test_places_amounts_and_what_is_cut_off() -> None:
    lines = render_text(REPORT, None, 50).splitlines()
    assert all(line.isprintable() for line in lines)
    assert " ".join(lines[1].split()) == (
        "▪ 市场\\x1b (test) 2026-10 department cost used 5000000000000000000.00 CNY"
        " 0.000000007 CNY -4999999999999999999.999999993 CNY"
    )
    assert lines[2].endswith("…")
    assert " ".join(lines[3].split()) == "acme (test) 2026-10-09 impossible row request - - -"
    assert lines[5] == "… and 1199 more: --top 1201"
    assert lines[-1] == "2026-10 (closed, Asia/Shanghai): 1,200 drifts, 1 remark"
    assert "--month 2026-10 --repair" in lines[-3]


def test_what_a_repair_left_is_said() -> None:
    mends = tuple(replace(IMPOSSIBLE, mended=None, request_id=f"r{n}") for n in range(60))
    text = render_text(REPORT, Repair("the-run", mends), 50)
    assert text.startswith("mended (run the-run in quota_repairs):")
    assert "… and 10 more" in text
    assert text.splitlines()[-1] == (
        "2026-10 (closed, Asia/Shanghai): 60 mends; now 1,200 drifts, 1 remark;"
        " run it again for what is left"
    )
    document = as_document(REPORT, Repair("the-run", mends))
    assert (document["repair_run"], document["closed"]) == ("the-run", True)
    assert isinstance(document["mended"], list)
    assert len(document["mended"]) == 60
