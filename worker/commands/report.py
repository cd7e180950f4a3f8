"""`quota-worker report --month 2026-10 [--department D] [--format F] [--out DIR]`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.answers import say_script, tell
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from datetime import date

    from worker.bootstrap import Deps
    from worker.postgres.roi import MonthReading
    from worker.report.forms import Form
    from worker.roi.summary import Summary

FORMATS: Final = ("text", "json", "html", "csv", "xlsx")  # worker/report/forms.py has them
DEFAULT_FORMAT: Final = "text"
ENCODING: Final = "utf-8"
NAME_LETTERS: Final = 60  # of a department's id in a file's name
_NOT_IN_A_NAME: Final = re.compile(r"[^\w.-]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    add = parser.add_argument
    add("--month", metavar="M", required=True, help="such as 2026-10")
    add("--department", metavar="D", help="one department's report; without: of all, for finance")
    add("--format", metavar="F", default=DEFAULT_FORMAT, help=f"one of {', '.join(FORMATS)}")
    add("--lang", metavar="L", help="en or zh-CN; without: the department's, the deployment's")
    add("--out", metavar="DIR", type=Path, help="write a file into this folder")
    add("--send", action="store_true", help="queue its mails, to whom the month's job sends them")
    add("--preview", action="store_true", help="write its page and open it; nothing is sent")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Show a month's report, or write it. Raises UsageError for options that can't be."""
    from worker.postgres.roi import OF_ALL
    from worker.rendering import LANGUAGES

    month = _month(args.month)
    if args.send and args.preview:
        raise UsageError("--send and --preview exclude each other: leave out one")
    form = _format("html" if args.preview else args.format)
    if args.lang is not None and args.lang not in LANGUAGES:
        raise UsageError(f"--lang is one of {', '.join(LANGUAGES)}")
    if args.department == "":
        # a script's empty variable must not show one department's reader the figures of all
        raise UsageError("--department is empty: name one, or leave it out for the report of all")
    folder = args.out or (None if form.is_text else Path())
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--out {folder} is no folder: make it first")
    department = args.department or OF_ALL
    async with (await deps.roi()).reading(month) as reading:
        summary = await reading.summary(department)
        locale = args.lang or reading.locale(department)
        if args.send:
            await _send(deps, reading, summary)
            return 0
    if summary.provisional:
        tell(f"{args.month} is not closed yet: these figures may change")
    made = form.make(summary, locale)
    if folder is None:
        assert isinstance(made, str)  # noqa: S101  for the types: what is shown is text
        say_script(made.removesuffix("\n"))
        return 0
    path = folder / f"{_file_name(month, args.department)}.{form.suffix}"
    write_new(path, made if isinstance(made, bytes) else made.encode(ENCODING))
    tell(f"{path}: written")
    if args.preview:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            tell("no browser can be started here: open it yourself")
    return 0


async def _send(deps: Deps, reading: MonthReading, summary: Summary) -> None:
    """Store it, and queue its mails: none twice. Raises UsageError where it can't be sent."""
    reports = await deps.roi_reports()
    if reports is None or reports.channel is None:
        raise UsageError(
            "--send needs [report] with an e-mail channel in the configuration: docs/report.md"
        )
    if summary.provisional:
        raise UsageError(
            f"{summary.month:%Y-%m} is not closed yet, its figures may change: "
            "quota-worker months says when it closes"
        )
    department = "" if summary.department is None else summary.department.department_id
    stored = await reports.store(reading, department, summary, None)
    news = "new" if stored.made else "as it was"
    mails = "1 mail" if stored.messages == 1 else f"{stored.messages} mails"
    queued = f"{mails} queued, which the next tick sends"
    if not stored.messages:
        queued = "no mail queued: everybody has it, or nobody is named"
    tell(f"revision {stored.revision}, {news}: {queued}")


def _format(name: str) -> Form:
    from worker.report.forms import FORMS

    try:
        return FORMS[name]
    except KeyError:
        raise UsageError(f"--format is one of {', '.join(FORMATS)}") from None


def _month(text: str) -> date:
    from worker.periods import parse_month

    try:
        return parse_month(text)
    except ValueError as error:
        raise UsageError(f"--month: {error}") from None


def _file_name(month: date, department: str | None) -> str:
    """As plain as any file system takes it; the id's hash where letters were lost."""
    if department is None:
        return f"roi-{month:%Y-%m}"
    plain = _NOT_IN_A_NAME.sub("-", department)[:NAME_LETTERS]
    if plain != department:
        import hashlib

        plain = f"{plain}-{hashlib.sha256(department.encode()).hexdigest()[:8]}"
    return f"roi-{month:%Y-%m}-{plain}"


def write_new(path: Path, content: bytes) -> None:
    """A new file, whole or not at all. Raises UsageError."""
    made = False
    try:
        with path.open("xb") as file:
            made = True
            file.write(content)
    except FileExistsError:
        raise UsageError(f"{path} exists: move it away, or choose another --out") from None
    except OSError as error:
        if made:
            path.unlink(missing_ok=True)
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from None
