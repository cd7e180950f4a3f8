"""The pages to look at are written, and each mail's tags close in order."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from pictures.__main__ import main
from pictures.reports import summaries
from worker.samples import SAMPLES

VOID = {"meta", "br", "hr", "img"}


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002  its signature
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_page_is_written_and_well_formed(tmp_path: Path) -> None:
    main(tmp_path)
    pages = sorted(tmp_path.glob("*.html"))
    reports = len(summaries())
    assert len(pages) == 2 * 3 * 2 * len(SAMPLES) + 2 * reports
    for page in pages:
        assert Tags(page.read_text(encoding="utf-8")).open == [], page.name
        if page.name.startswith("mail."):
            assert page.stat().st_size < 80_000
