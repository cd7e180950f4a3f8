"""The report as a mail's HTML, and as a page that needs nothing beside it."""

from __future__ import annotations

import base64
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from unicodedata import east_asian_width

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
    from worker.report.corrections import Correction
    from worker.roi.summary import Summary

MAX_BYTES: Final = 80_000  # Gmail hides what is beyond some 100,000
ADDRESSES_BYTES: Final = 2_000  # of all charts, where they are parts of the mail
# Letters of 12 pixels that a phone of 320 holds side by side.
LINE_LETTERS: Final = 36
LABEL_LETTERS: Final = 16  # a label may break, but not into pieces shorter than this
WORD_LETTERS: Final = 12  # a word of so many is never broken by the sentence beside it
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
    correction: Correction | None = None,
) -> str:
    """The mail's HTML, of at most 80,000 bytes with short addresses of images.

    ``images``: an address for each chart by name, such as ``cid:...``; a chart without one is
    left out, its numbers are in the table. Names are shortened further where they must be.
    """
    root = Assets().path("templates")
    addresses = sum(len(address) for address in images.values())
    text = ""
    for detail in DETAILS:
        document = make_document(summary, locale, detail, correction)
        text = _rendered(root, document, locale, summary, images)
        if len(text.encode()) - addresses <= MAX_BYTES - ADDRESSES_BYTES:
            break
    return text


def html_page(
    summary: Summary,
    locale: str | None,
    charts: Mapping[str, bytes],
    correction: Correction | None = None,
) -> str:
    """The same with the charts inside: one file to open in a browser."""
    images = {
        name: f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
        for name, png in charts.items()
    }
    return html_report(summary, locale, images, correction)


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
        beside = reader.beside(*one.beside)
    return {
        "label": one.label,
        "value": reader.show(one.value),
        "is_number": not isinstance(one.value, Missing),
        "beside": beside,
    }


def _table(table: Table, reader: Reader, images: Mapping[str, str]) -> dict[str, Any]:
    first_total = len(table.rows) - table.totals
    rows: list[dict[str, Any]] = []
    for place, (label, *cells) in enumerate(table.rows):
        number = f"{place + 1}. " if table.numbered and place < first_total else ""
        rows.append(
            {
                "label": f"{number}{reader.show(label)}",
                "cells": [(reader.show(one), not isinstance(one, str | Missing)) for one in cells],
                # a sentence is read from the left
                "sentences": [isinstance(one, str) and width(one) > LINE_LETTERS for one in cells],
                "is_total": place >= first_total,
                "is_word": _is_word(f"{number}{reader.show(label)}"),
            }
        )
    places = range(len(table.columns) - 1)
    numbers = sum(
        max((width(row["cells"][place][0]) for row in rows if row["cells"][place][1]), default=4)
        for place in places
    )
    texts = max(
        (width(text) for row in rows for text, is_number in row["cells"] if not is_number),
        default=0,
    )
    labels = max((width(row["label"]) for row in rows), default=0)
    return {
        "title": table.title,
        "columns": [(name, _is_word(name)) for name in table.columns],
        "rows": rows,
        "notes": table.notes,
        # a label has a line of its own where it would squeeze the numbers, or they it
        "is_stacked": numbers + min(labels, LABEL_LETTERS) > LINE_LETTERS or texts > LINE_LETTERS,
        "sentences": [any(row["sentences"][place] for row in rows) for place in places],
        "may_break": numbers > LINE_LETTERS,
        "images": [images[name] for name in table.charts if name in images],
        "alt": reader.say("chart_alt", title=table.title),
    }


def _is_word(text: str) -> bool:
    return " " not in text and width(text) <= WORD_LETTERS


def width(text: str) -> int:
    """How many columns of letters the text takes; a Chinese letter takes two."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


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
