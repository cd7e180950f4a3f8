"""Each form of the report by name, and all of them as one mail. Deterministic; sends nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.report.charts import draw_charts
from worker.report.csv_file import csv_report
from worker.report.document import report_title
from worker.report.html import html_page, html_report
from worker.report.json_file import dump_summary
from worker.report.text import text_report
from worker.report.workbook import workbook_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.report.corrections import Correction
    from worker.roi.summary import Summary

XLSX: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


@dataclass(frozen=True, slots=True)
class Form:
    """``make``: of a summary and a locale. ``is_text``: fit for a screen."""

    make: Callable[[Summary, str | None], str | bytes]
    suffix: str
    is_text: bool


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of a mail; its name is ASCII."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class MailForm:
    """``title`` is text yet to be made safe for a header; ``images``: PNGs by their Content-ID."""

    title: str
    text: str
    html: str
    images: dict[str, bytes]
    attachments: tuple[Attachment, ...]


def mail_form(
    summary: Summary, locale: str | None, correction: Correction | None = None
) -> MailForm:
    """Text, HTML with its charts, CSV and workbook; what lacks a package is left out.

    ``correction``: what changed since the revision before, where this isn't the first.
    """
    charts = _charts(summary)
    ids = {name: f"{name}.{summary.month:%Y-%m}@report.quota-worker" for name in charts}
    addresses = {name: f"cid:{one}" for name, one in ids.items()}
    stem = f"report-{summary.month:%Y-%m}"
    files = [Attachment(f"{stem}.csv", "text/csv", csv_report(summary, locale, correction))]
    with suppress(UsageError):  # the CSV has the same tables
        book = workbook_report(summary, locale, correction)
        files.insert(0, Attachment(f"{stem}.xlsx", XLSX, book))
    return MailForm(
        title=report_title(summary, locale),
        text=text_report(summary, locale, correction),
        html=html_report(summary, locale, addresses, correction),
        images={ids[name]: png for name, png in charts.items()},
        attachments=tuple(files),
    )


def _charts(summary: Summary) -> dict[str, bytes]:
    try:
        return draw_charts(summary)
    except UsageError:
        return {}  # the tables have the same numbers


def _html_file(summary: Summary, locale: str | None) -> str:
    return html_page(summary, locale, _charts(summary))


def _json_file(summary: Summary, locale: str | None) -> str:  # noqa: ARG001  it has no language
    return dump_summary(summary)


FORMS: Final[dict[str, Form]] = {
    "text": Form(text_report, "txt", is_text=True),
    "json": Form(_json_file, "json", is_text=True),
    "html": Form(_html_file, "html", is_text=False),
    "csv": Form(csv_report, "csv", is_text=False),
    "xlsx": Form(workbook_report, "xlsx", is_text=False),
}
