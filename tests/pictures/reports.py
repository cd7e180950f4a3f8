"""Reports to look at: usual, of all, with names of 200 letters, of a single day, with no orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit.report_world import a_month, hostile_name
from unit.roi_world import OCTOBER, ONE, amounts, facts, part
from worker.rendering import LANGUAGES
from worker.report.charts import draw_charts
from worker.report.corrections import Changed, Correction
from worker.report.html import html_page
from worker.roi.facts import Day
from worker.roi.report import summarize

if TYPE_CHECKING:
    from pathlib import Path

    from worker.roi.summary import Summary


def summaries() -> dict[str, Summary]:
    """By what there is to see."""
    used = amounts(cost=12 * ONE, tokens=345_678, n=90)
    day = Day("production", OCTOBER, used)
    return {
        "usual": a_month(),
        "of-all": a_month(of_all=True, provisional=False, currency="USD"),
        "long-names": a_month(name=hostile_name),
        "of-all-long-names": a_month(name=hostile_name, of_all=True),
        "single-day": summarize(facts(part(used), days=[day], through=OCTOBER, provisional=True)),
        "nothing": summarize(facts()),
    }


def write_reports(folder: Path) -> None:
    """Each in both languages, and one that is a correction."""
    every = summaries()
    changes = (
        Changed("orders", "no_outcomes", "1234"),
        Changed("orders.cost_per_one", "no_outcomes", f"{4 * ONE}"),
    )
    charts = {name: draw_charts(summary) for name, summary in every.items()}
    for language in LANGUAGES:
        for name, summary in every.items():
            page = html_page(summary, language, charts[name])
            (folder / f"report.{name}.{language}.html").write_text(page, encoding="utf-8")
        corrected = html_page(every["usual"], language, {}, Correction(2, changes))
        (folder / f"report.corrected.{language}.html").write_text(corrected, encoding="utf-8")
