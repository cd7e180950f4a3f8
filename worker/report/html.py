"""The report as a mail's HTML, and as a page that needs nothing beside it."""

from __future__ import annotations

import base64
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from worker.assets import Assets
from worker.report.cells import Missing
from worker.report.detail import BRIEF, Detail
from worker.report.document import make_document
from worker.report.reader import Reader, language_of
from worker.untrusted import for_html

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jinja2 import Template

    from worker.report.cells import Document, Headline, Table
    from worker.roi.summary import Summary

MAX_BYTES: Final = 80_000  # Gmail hides what is beyond some 100,000
# From the usual form to what fits whatever the names are.
DETAILS: Final = (
    BRIEF,
    Detail(whole=False, lines=10, measures=3, letters=30),
    Detail(whole=False, lines=10, measures=2, letters=16),
    Detail(whole=False, lines=5, measures=1, letters=12),
)


def html_report(
    summary: Summary,
    locale: str | None,
    images: Mapping[str, str],
    assets: Assets | None = None,
) -> str:
    """The mail's HTML, of at most 80,000 bytes but for the images' addresses.

    ``images``: an address for each chart by name, such as ``cid:...``; a chart without one is
    left out, its numbers are in the table. Names are shortened further where they must be.
    """
    root = (assets or Assets()).path("templates")
    text = ""
    for detail in DETAILS:
        text = _rendered(root, make_document(summary, locale, detail), locale, summary, images)
        extra = sum(len(address.encode()) for address in images.values())
        if len(text.encode()) <= MAX_BYTES + (extra if extra > MAX_BYTES else 0):
            break
    return text


def html_page(summary: Summary, locale: str | None, charts: Mapping[str, bytes]) -> str:
    """The same with the charts inside: one file to open in a browser."""
    images = {
        name: f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
        for name, png in charts.items()
    }
    return html_report(summary, locale, images)


def _rendered(
    root: Path, document: Document, locale: str | None, summary: Summary, images: Mapping[str, str]
) -> str:
    language = language_of(locale)
    reader = Reader(language, summary.currency)
    return _template(root).render(
        language=language,
        document=document,
        headlines=[_headline(one, reader) for one in document.headlines],
        tables=[_table(one, reader, images) for one in document.tables],
    )


def _headline(one: Headline, reader: Reader) -> dict[str, Any]:
    beside = None
    if one.beside is not None:
        label, cell = one.beside
        beside = f"{label} {reader.show(cell)}".rstrip()
    return {
        "label": one.label,
        "value": reader.show(one.value),
        "is_number": not isinstance(one.value, Missing),
        "beside": beside,
    }


def _table(table: Table, reader: Reader, images: Mapping[str, str]) -> dict[str, Any]:
    first_total = len(table.rows) - table.totals
    rows = []
    for place, row in enumerate(table.rows):
        cells = [reader.show(cell) for cell in row]
        if table.numbered and place < first_total:
            cells[0] = f"{place + 1}. {cells[0]}"
        rows.append({"cells": cells, "is_total": place >= first_total})
    return {
        "title": table.title,
        "columns": table.columns,
        "rows": rows,
        "notes": table.notes,
        "images": [images[name] for name in table.charts if name in images],
        "alt": reader.say("chart_alt", title=table.title),
    }


@cache
def _template(root: Path) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def shown(value: object) -> object:
        return for_html(value) if isinstance(value, str) else value

    environment = Environment(
        loader=FileSystemLoader(root),
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701  finalize escapes every value that is shown
    )
    return environment.get_template("mail_report.j2")
