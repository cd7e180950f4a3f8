"""Reports to look at, from received mails: usual, of all, long names, a single day, no orders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pictures.received import mails_of, page_of
from unit.report_world import a_month, hostile_name
from unit.roi_world import OCTOBER, ONE, amounts, facts, part, peer
from worker.report.corrections import Changed
from worker.roi.facts import Day
from worker.roi.report import summarize

if TYPE_CHECKING:
    from pathlib import Path

    from worker.roi.summary import Summary

CORRECTED = "corrected"
CHANGES = (
    Changed("orders", "no_outcomes", "1234"),
    Changed("orders.cost_per_one", "no_outcomes", f"{4 * ONE}"),
)


def summaries() -> dict[str, Summary]:
    """By what there is to see."""
    used = amounts(cost=12 * ONE, tokens=345_678, n=90)
    day = Day("production", OCTOBER, used)
    usual = a_month()
    return {
        "usual": usual,
        "of-all": a_month(of_all=True, provisional=False, currency="USD"),
        "long-names": a_month(name=hostile_name),
        "of-all-long-names": a_month(name=hostile_name, of_all=True),
        "single-day": summarize(
            facts(
                part(used),
                days=[day],
                through=OCTOBER,
                provisional=True,
                peers=(peer("d", used), peer("e", amounts(9 * ONE, 345_678))),
            )
        ),
        "no-orders": a_month(orders=False, provisional=False),
        "nothing": summarize(facts()),
        CORRECTED: replace(usual, provisional=False),
    }


def write_reports(folder: Path) -> None:
    """Each as it was received, in both languages, and one that is a correction."""
    for name, mail in mails_of(summaries(), {CORRECTED: CHANGES}):
        (folder / f"report.{name}.html").write_text(page_of(mail), encoding="utf-8")
