"""The report's forms: complete, alike in both languages, and safe whatever the names are."""

from __future__ import annotations

import csv
import re
import string
import sys
from datetime import datetime
from fractions import Fraction
from html.parser import HTMLParser
from io import BytesIO, StringIO

import pytest
from hypothesis import given, settings
from openpyxl import load_workbook

from unit.report_world import APPS, a_month, hostile_name
from unit.roi_world import OCTOBER, ONE, amounts, facts, months, part
from worker.errors import UsageError
from worker.report import charts as charting
from worker.report.cells import Count, DayOf, Money, MonthOf
from worker.report.charts import draw_charts
from worker.report.corrections import Changed, Correction
from worker.report.csv_file import csv_report
from worker.report.detail import WHOLE
from worker.report.document import make_document
from worker.report.forms import FORMS, mail_form
from worker.report.html import html_report
from worker.report.reader import Reader
from worker.report.safe_cells import number_of, sheet_number
from worker.report.text import text_report
from worker.report.words_en import WORDS as ENGLISH
from worker.report.words_zh import WORDS as CHINESE
from worker.report.workbook import workbook_report
from worker.roi.facts import Facts
from worker.roi.figures import Reason
from worker.roi.report import summarize
from worker.roi.revisions import told_figures
from worker.roi.summary import Summary

LANGUAGES = ("en", "zh-CN")
VOID = {"meta", "br", "hr", "img"}
PNG_MAX = 40_000


class Page(HTMLParser):
    """A page's tags, checked for order, its text and its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def usual() -> Summary:
    return a_month()


@pytest.fixture(scope="module")
def hostile() -> list[Summary]:
    return [a_month(name=hostile_name), a_month(name=hostile_name, of_all=True)]


def test_both_languages_have_the_same_sentences_of_the_same_parts() -> None:
    def parts(words: dict[str, str]) -> dict[str, set[str | None]]:
        return {
            key: {one[1] for one in string.Formatter().parse(text)} - {None}
            for key, text in words.items()
        }

    assert parts(ENGLISH) == parts(CHINESE)
    assert not re.search(r"[\u4e00-\u9fff]", "".join(ENGLISH.values()))


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_told_in_words(reason: Reason) -> None:
    assert ENGLISH[reason] != CHINESE[reason]
    assert "_" not in ENGLISH[reason]


@pytest.mark.parametrize(
    ("nanos", "english", "chinese"),
    [
        (1_234_567_890_000_000, "CN¥1,234,567.89", "¥1,234,567.89"),
        (-5_000_000_000, "-CN¥5.00", "-¥5.00"),
        (0, "CN¥0.00", "¥0.00"),
        (12_345_678, "CN¥0.0123", "¥0.0123"),
        (1, "CN¥0.000000001", "¥0.000000001"),
        (Fraction(1, 10**9), "<CN¥0.000000000001", "<¥0.000000000001"),
        (5_000_000, "CN¥0.005", "¥0.005"),
        (2_345_000_000, "CN¥2.34", "¥2.34"),  # a half goes to the even neighbour
    ],
)
def test_money_is_shown_as_readers_know_it(nanos: int, english: str, chinese: str) -> None:
    assert Reader("en", "CNY").money(nanos) == english
    assert Reader("zh-CN", "CNY").money(nanos) == chinese


def test_dates_currencies_and_shares_follow_the_reader() -> None:
    english, chinese = Reader("en", "XTS"), Reader("zh-CN", "USD")
    assert english.money(ONE) == "1.00 XTS"
    assert chinese.money(ONE) == "US$1.00"
    assert (english.month(OCTOBER), chinese.month(OCTOBER)) == ("Oct 2026", "2026年10月")
    assert (english.day(OCTOBER), chinese.day(OCTOBER)) == ("1 Oct", "10月1日")
    assert english.show(Count(1_234_567)) == "1,234,567"
    # a metric's name may be a key of ours, or hold braces
    assert english.cost_of_one("other") == "Cost for one of other"
    assert english.cost_of_one("{x}") == "Cost for one of {x}"


def test_the_text_is_complete_by_itself(usual: Summary) -> None:
    text = text_report(usual, "en")
    for line in (
        "Token report of Department-0, Oct 2026",
        "! Provisional: Oct 2026 is not closed yet, every figure here may still change.",
        "Cost: CN¥5,841.23 (-27.9% against the month before)",
        "Budget used: 49.9% (Production, cost)",
        "Place: Cost per order: 13 of 30 (-29.1% against the median)",
        "- Orders: This month 1,234; Month before 900; Change +37.1%",
        "- Cost per order: This month CN¥4.73; Month before CN¥9.00; Change -47.4%",
        "- GMV: This month no GMV imported for the month",
        "- tickets: This month 77.5; Month before no tickets imported for the month",
        "- Production, cost: Used CN¥2,991.85; Budget and top-ups CN¥6,001.00; Used, share 49.9%",
        "- 31 Oct: Cost CN¥30.00; Cost so far CN¥465.00",
        "- Jul 2026: Cost not recorded; Tokens not recorded; Cost per order not recorded",
        "1. app-0: Cost CN¥284.94; Share of cost 4.9%; Tokens 3,100,000",
        "11. 30 others: Cost CN¥3,312.41; Share of cost 56.7%; Tokens 93,000,735",
        "= Total: Cost CN¥5,842.23; Tokens 124,000,890; Completions 40,010",
        "80 requests (0.2% of the completions) have no known price; their cost is a guess: at most CN¥5,841.23.",
        "- Unpriced, of the cost at most: Amount CN¥5,841.23; Share 100.0%",
        "- What they saved in money: Amount not known: totals keep the model that answered, not the one asked for",
    ):
        assert f"\n{line}\n" in f"\n{text}", line
    chinese = text_report(usual, "zh_Hans_CN")
    assert "2026年10月尚未关账" in chinese
    assert "每笔订单费用" in chinese
    assert "GMV: 本月 本月未导入GMV" in chinese
    of_all = text_report(a_month(provisional=False, of_all=True), "en")
    assert "rovisional" not in of_all
    # a tenant without a department spends without a budget, too
    assert "for a day: not every department with usage has one." in of_all
    assert "for a day: no budget is set." in of_all


@pytest.mark.parametrize("language", LANGUAGES)
def test_html_fits_a_mail_whatever_the_names_are(hostile: list[Summary], language: str) -> None:
    for summary in hostile:
        names = ("daily-1", "daily-2", "trend", "apps", "models", "peers")
        images = {name: f"cid:{name}" for name in names}
        html = html_report(summary, language, images)
        assert len(html.encode()) <= 80_000
        page = Page(html)
        assert page.tags <= {
            *("html", "head", "meta", "title", "body", "table", "tr", "td", "th", "h1", "h2"),
            *("p", "b", "br", "div", "img"),
        }
        assert "flex" not in html
        assert "\u202e" not in html
        assert all(image["alt"] and image["src"] for image in page.images)
        assert {image["src"] for image in page.images} == set(images.values())
        # a short name stays whole, a long one is known by both its ends
        assert any(text.endswith("8") and "…" in text for text in page.texts)


def test_names_of_any_size_fit_by_being_shortened_further() -> None:
    wild = "\U000e0041" * 200  # ten letters each, once they are visible
    summary = a_month(of_all=True, name=lambda number, _: f"'{wild}{number}")
    assert len(html_report(summary, "zh-CN", {}).encode()) <= 80_000


def test_the_charts_numbers_stand_in_the_tables(usual: Summary) -> None:
    pictures = draw_charts(usual)
    tables = {name: table for table in make_document(usual, "en").tables for name in table.charts}
    assert (
        set(pictures) == set(tables) == {"daily-1", "daily-2", "trend", "apps", "models", "peers"}
    )
    assert len(tables["apps"].rows) == 10 + 1 + 1
    for png in [*pictures.values(), *draw_charts(a_month(of_all=True)).values()]:
        assert png.startswith(b"\x89PNG")
        assert len(png) < PNG_MAX


@settings(max_examples=5, deadline=None)
@given(months())
def test_every_month_has_every_form(month: Facts) -> None:
    summary = summarize(month)
    for language in LANGUAGES:
        assert len(html_report(summary, language, {}).encode()) <= 80_000
        text_report(summary, language)
        _check_csv(csv_report(summary, language))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (999.4, "999"), (999.6, "1k"), (999_700, "1M"), (1_234_567, "1.23M"), (-20_000, "-20k"),
     (0.0456, "0.0456"), (5e15, "5,000T")],
)  # fmt: skip
def test_an_axis_has_short_numbers(value: float, shown: str) -> None:
    assert charting.short_number(value) == shown


def test_a_chart_is_drawn_of_any_numbers() -> None:
    bars = [charting.Bar("1", None), charting.Bar("2", -3.0), charting.Bar("3", 1e30)]
    for some in ([], bars[:1], bars[1:2], bars):
        for line in (None, 1e20):
            assert charting._columns(some, line, every=1).startswith(b"\x89PNG")
            assert charting._rows(some, line).startswith(b"\x89PNG")


def _check_csv(content: bytes) -> list[list[str]]:
    assert content.startswith(b"\xef\xbb\xbf")
    lines = list(csv.reader(StringIO(content.decode("utf-8-sig"), newline="")))
    for cell in (cell for line in lines for cell in line):
        is_number = re.fullmatch(r"-?\d+(\.\d+)?", cell)
        assert is_number or not re.match(r"\s*[=+\-@＝＋－＠]", cell), cell  # noqa: RUF001
        assert not re.search(r"[\t\r\n]|[;,|]\s*[=+\-@]", cell), cell
    return lines


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_cell_of_a_csv_is_a_formula(hostile: list[Summary], language: str) -> None:
    for summary in hostile:
        lines = _check_csv(csv_report(summary, language))
        names = [line[1] for line in lines if line and line[0] == "apps"]
        # the head, the total, and in the report of all one app more
        assert len(names) == APPS + (2 if summary.department else 3)
        assert names[1].startswith("'=<b>")
        assert len({*names}) == len(names)


def test_a_csv_has_all_lines_exactly(usual: Summary) -> None:
    lines = _check_csv(csv_report(usual, "en"))
    (head, *rows), total = [line[1:] for line in lines if line[:1] == ["apps"]], usual.ledger.own
    assert head[:3] == ["By app", "Cost", "Share of cost"]
    costs = [Fraction(row[1]) for row in rows]
    assert sum(costs[:-1]) == costs[-1] == Fraction(total.cost_nanos, ONE)
    assert ["report", ENGLISH["provisional"].format(month="Oct 2026")] in lines
    assert next(line[:2] for line in lines if line[1:2] == ["2026-10"]) == ["trend", "2026-10"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_workbook_opens_elsewhere_with_the_same_cells(usual: Summary, language: str) -> None:
    hostile = a_month(name=hostile_name, of_all=True)
    for summary in (usual, hostile):
        document = make_document(summary, language, WHOLE)
        reader = Reader(language, summary.currency)
        book = load_workbook(BytesIO(workbook_report(summary, language)))
        first, *sheets = book.worksheets
        told = [first.cell(row, 1).value for row in range(1, first.max_row + 1)]
        assert document.marks[0] in told
        assert len(sheets) == len(document.tables)
        for sheet, table in zip(sheets, document.tables, strict=True):
            assert all(cell.data_type != "f" for row in sheet.iter_rows() for cell in row)
            assert [cell.value for cell in sheet[1]][: len(table.columns)] == list(
                table.columns
            ) or not table.rows
            for number, row in enumerate(table.rows, 2):
                found = [cell.value for cell in sheet[number]]
                for cell, value in zip(row, found, strict=False):
                    exact = number_of(cell)
                    if exact is not None:
                        assert Fraction(f"{value:.15g}") == Fraction(sheet_number(exact))
                    elif isinstance(cell, DayOf | MonthOf):
                        assert isinstance(value, datetime)
                    else:
                        assert value == (None if cell is None else reader.show(cell))


def test_what_a_spreadsheet_would_cut_stands_beside_it_as_text() -> None:
    cost = 12_345_678_123_456_789  # 17 digits
    summary = summarize(facts(part(amounts(cost=cost, tokens=7))))
    book = load_workbook(BytesIO(workbook_report(summary, "en")))
    head, row, *_ = book["By app"].iter_rows(values_only=True)
    assert head[:3] == ("By app", "Cost", "Cost, exact")
    assert row[:3] == ("a", 12345678.1234568, "12345678.123456789")


def test_unknown_figures_say_why_in_every_form() -> None:
    summary = summarize(facts())
    why = "no orders imported for the month"
    for name, form in FORMS.items():
        made = form.make(summary, "en")
        if name == "xlsx":
            assert isinstance(made, bytes)
            cells = [
                c
                for s in load_workbook(BytesIO(made)).worksheets
                for r in s.iter_rows(values_only=True)
                for c in r
            ]
            assert why in cells
        else:
            text = made if isinstance(made, str) else made.decode()
            assert ("no_outcomes" if name == "json" else why) in text


def test_a_mail_has_all_forms_and_every_image_that_it_shows(usual: Summary) -> None:
    mail = mail_form(usual, "en")
    assert mail == mail_form(usual, "en")  # a second try is the same mail to the byte
    assert mail.title == "Token report of Department-0, Oct 2026"
    assert [one.name for one in mail.attachments] == ["report-2026-10.xlsx", "report-2026-10.csv"]
    assert {image["src"] for image in Page(mail.html).images} == {
        f"cid:{one}" for one in mail.images
    }


def test_without_its_packages_the_report_does_without_charts_and_workbook(
    usual: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("PIL", "PIL.Image", "xlsxwriter"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"charts need Pillow: install the wheel .*\[report\]"):
        draw_charts(usual)
    with pytest.raises(UsageError, match=r"needs XlsxWriter: install the wheel .*\[report\]"):
        workbook_report(usual, "en")
    mail = mail_form(usual, "en")
    assert mail.images == {}
    assert Page(mail.html).images == []
    assert [one.name for one in mail.attachments] == ["report-2026-10.csv"]


def test_suggestions_can_be_computed_again_from_the_workbook(usual: Summary) -> None:
    document = make_document(usual, "en", WHOLE)
    tables = {table.key: table for table in document.tables}
    kinds = {one.kind for one in usual.suggestions}
    assert len(kinds) >= 3
    for number, row in enumerate(tables["suggestions"].rows, 1):
        names = {
            str(one[1]): number_of(one[3])
            for one in tables["numbers"].rows
            if one[0] == str(number)
        }
        saving = eval(str(row[3]), {"__builtins__": {}}, names)  # noqa: S307  as a spreadsheet would
        assert saving == number_of(row[1])
        assert isinstance(row[1], Money)


def test_a_corrected_report_says_what_changed(usual: Summary) -> None:
    changes = (
        Changed("cost_nanos", "5000000000", "6000000000"),
        Changed("orders", "no_outcomes", "1234"),
        Changed("orders.cost_per_one", "no_outcomes", "10000000000/3"),
        Changed("orders.per_million_tokens", "1/2", None),
        Changed("production.budget_cost_used", "1/4", "no_budget"),
        Changed("completions", "1000", "1001"),
    )
    mail = mail_form(usual, "en", Correction(2, changes))
    for line in (
        "! Corrected: revision 2 of this report; figures that changed: 6.",
        "- Cost: Before CN¥5.00; Now CN¥6.00",
        "- Orders: Before no orders imported for the month; Now 1,234",
        "- Cost per order: Before no orders imported for the month; Now CN¥3.33",
        "- Orders per million tokens: Before 0.5",
        "- Used, share: Production, cost: Before 25.0%; Now no budget is set",
        "- Completions: Before 1,000; Now 1,001",
    ):
        assert f"\n{line}\n" in mail.text, line
    assert "Corrected: revision 2" in mail.html
    assert all(
        "changed" in one.content.decode() for one in mail.attachments if one.name.endswith("csv")
    )
    # every figure that a revision is judged by has words
    every = tuple(Changed(figure, "1", "2") for figure in told_figures(usual))
    table = make_document(usual, "en", WHOLE, Correction(2, every)).tables[0]
    assert len(table.rows) == len(every)
    assert not [row[0] for row in table.rows if re.search(r"_|\.", str(row[0]))]
