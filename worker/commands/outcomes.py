"""`quota-worker outcomes ...`: what departments achieved, by month and metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.answers import say, say_json, say_script, tell
from worker.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from datetime import date

    from worker.bootstrap import Deps
    from worker.outcomes.reading import OutcomeReader
    from worker.outcomes.shape import Import
    from worker.postgres.outcomes import Draft, Frame, Group, PostgresOutcomes

DEFAULT_TOP: Final = 50
MAX_TOP: Final = 2_147_483_647
SHOWN_GROUPS: Final = 24
MAX_GROUPS: Final = 1_000
SHOWN_REMOVED: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    taken = actions.add_parser("import", help="take a file's values, or refuse it whole")
    add = taken.add_argument
    add("file", metavar="FILE", type=Path, help="CSV or XLSX: month, department_id, metric, value")
    add("--dry-run", action="store_true", help="check and tell, but write nothing")
    add(
        "--keep-others",
        action="store_true",
        help="keep values of departments that the file doesn't name",
    )
    add("--sheet", metavar="NAME", help="of a workbook (default: its first)")
    add("--json", action="store_true", help="for programs")
    add("--decimal", choices=(".", ","), help="the decimal mark, where it is in doubt")
    listed = actions.add_parser("list", help="the values in force, or the imports")
    add = listed.add_argument
    add("--month", metavar="M", help="only this one, such as 2026-10")
    add("--department", metavar="D", help="only this one")
    add("--history", action="store_true", help="also what was changed or removed")
    add("--imports", action="store_true", help="the imports: who, when, which file")
    add(
        "--top",
        metavar="N",
        type=int,
        help=f"how many rows (default {DEFAULT_TOP}; 0, and with --json: all)",
    )
    add("--json", action="store_true", help="for programs")
    blank = actions.add_parser("template", help="a CSV to fill in: a row per department and metric")
    blank.add_argument("file", metavar="FILE", type=Path, nargs="?", help="default: stdout")
    blank.add_argument("--month", metavar="M", help="default: the last one that is over")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Exit 2 where a file is refused: nothing was written then."""
    actions = {"import": _import, "list": _list, "template": _template}
    if args.action not in actions:
        raise UsageError("say which: quota-worker outcomes import, list or template")
    return await actions[args.action](args, deps)


async def _outcomes(deps: Deps) -> PostgresOutcomes:
    from worker.postgres.outcomes import TIMEOUT_SECONDS, PostgresOutcomes
    from worker.postgres.queries import load_queries

    return PostgresOutcomes(
        await deps.connection(TIMEOUT_SECONDS), load_queries(deps.assets, "outcomes")
    )


async def _import(args: argparse.Namespace, deps: Deps) -> int:
    from worker.outcomes.reading import open_outcomes
    from worker.outcomes.shape import shown
    from worker.outcomes.showing import groups_table, import_line, import_report
    from worker.untrusted import visible

    outcomes = await _outcomes(deps)
    frame, known = await outcomes.frame(), await outcomes.metrics()
    departments = await outcomes.departments()
    with open_outcomes(args.file, departments, sheet=args.sheet, decimal=args.decimal) as reader:
        for remark in reader.remarks:
            tell(f"{shown(args.file.name)}: {remark}")
        async with outcomes.drafting(dry_run=args.dry_run) as draft:
            await draft.add(reader.rows())
            await _refuse_faults(reader, draft)
            groups = await draft.groups(MAX_GROUPS)
            done = await draft.apply(
                visible(args.file.name), reader.look.sha256, keep_others=args.keep_others
            )
            removed = await draft.removed(done.import_id, SHOWN_REMOVED)
            await draft.finish()
    _remark(groups, known, frame)
    if args.json:
        say_json(import_report(done, groups, dry_run=args.dry_run))
    else:
        more = groups[0].groups - SHOWN_GROUPS
        left = f"\nand {more:,} more months and metrics" if more > 0 else ""
        say(groups_table(groups[:SHOWN_GROUPS]) + left)
        say(import_line(done, args.file.name))
    _tell_removed(done, removed)
    if args.dry_run:
        tell("nothing was written: --dry-run")
    return 0


async def _refuse_faults(reader: OutcomeReader, draft: Draft) -> None:
    """Raises RefusedOutcomesError where a row is wrong: it names the first of them."""
    from worker.outcomes.shape import MAX_SHOWN_FAULTS, RefusedOutcomesError, shown

    twice = await draft.twice(MAX_SHOWN_FAULTS)
    name, how = shown(reader.path.name), reader.grid.how
    faults = list(reader.faults)
    place = reader.grid.place
    for one in twice:
        same = "with the same value" if one.value == one.first_value else "with another value"
        what = f"{one.month:%Y-%m}, {shown(one.department_id)}, {one.metric}"
        first = place(one.first_line, None)
        fault = f"{what} stands in {first} already, {same}: keep one of them"
        faults.append((one.line, f"{place(one.line, None)}: {fault}"))
    broken = reader.broken + (twice[0].rows if twice else 0)
    if broken:
        told = [text for _, text in sorted(faults, key=lambda fault: fault[0])][:MAX_SHOWN_FAULTS]
        rows = "row is" if broken == 1 else "rows are"
        lines = [f"{name} ({how}): {broken:,} {rows} wrong, nothing was imported", *told]
        if broken > MAX_SHOWN_FAULTS or len(faults) > len(told):
            lines.append("… and more")
        raise RefusedOutcomesError("\n".join(lines))
    if not reader.taken:
        raise UsageError(f"{name} ({how}): no rows in it, only a header")


def _remark(groups: Sequence[Group], known: Sequence[str], frame: Frame) -> None:
    """What may be a typing error, though it can be taken."""
    from worker.outcomes.names import like_metric

    if early := [one.month for one in groups if one.month > frame.month]:
        tell(f"{early[0]:%Y-%m} has not begun yet: is that meant?")
    for metric in sorted({one.metric for one in groups} - set(known)):
        if (like := like_metric(metric, known)) is not None:
            tell(f"the metric {metric} is new, and much like {like}: is that meant?")


def _tell_removed(done: Import, removed: Sequence[tuple[date, str, str]]) -> None:
    from worker.outcomes.shape import shown

    if not removed:
        return
    told = ", ".join(f"{month:%Y-%m} {metric} of {shown(one)}" for month, metric, one in removed)
    more = f" and {done.removed - len(removed):,} more" if done.removed > len(removed) else ""
    tell(f"removed, as the file has them no more (--keep-others keeps them): {told}{more}")


async def _list(args: argparse.Namespace, deps: Deps) -> int:
    from worker.outcomes.showing import (
        import_document,
        imports_table,
        outcome_document,
        outcomes_table,
    )
    from worker.postgres.outcomes import MAX_LISTED

    top = _top(args)
    month = None if args.month is None else _month(args.month)
    outcomes = await _outcomes(deps)
    limit = MAX_LISTED if top is None else min(top + 1, MAX_LISTED)
    if args.imports:
        if args.month or args.department or args.history:
            raise UsageError("--imports lists files, which have no one month or department")
        imports = await outcomes.imports(limit)
        if args.json:
            say_json({"imports": [import_document(one) for one in imports[:top]]})
        elif imports:
            say(imports_table(imports[:top]) + _left(imports, top))
        else:
            tell("no imports yet: quota-worker outcomes import FILE.csv")
        return 0
    rows = await outcomes.rows(month, args.department, history=args.history, limit=limit)
    if not rows and args.department is not None:
        await _check_department(outcomes, args.department)
    if args.json:
        say_json({"outcomes": [outcome_document(one) for one in rows[:top]]})
    elif rows:
        say(outcomes_table(rows[:top], history=args.history) + _left(rows, top))
    else:
        what = "no outcomes" if month is None else f"no outcomes of {month:%Y-%m}"
        tell(f"{what}: quota-worker outcomes import FILE.csv, see docs/outcomes.md")
    return 0


async def _check_department(outcomes: PostgresOutcomes, department: str) -> None:
    from worker.outcomes.names import Departments

    try:
        Departments(await outcomes.departments()).find(department)
    except ValueError as error:
        raise UnknownNameError(f"--department: {error}") from None


async def _template(args: argparse.Namespace, deps: Deps) -> int:
    from worker.outcomes.showing import template

    if args.file is not None and args.file.suffix.lower().startswith(".xls"):
        raise UsageError("the template is a CSV, which spreadsheets open: name it .csv")
    outcomes = await _outcomes(deps)
    month = (await outcomes.frame()).last_month if args.month is None else _month(args.month)
    departments = await outcomes.departments()
    if not departments:
        raise UsageError("there are no departments yet: see README, Limits, zone, currency")
    text = template(month, departments, await outcomes.metrics(), await outcomes.values_of(month))
    if args.file is None:
        say_script(text.removesuffix("\r\n"))
        return 0
    try:
        # with a mark, as spreadsheets want it
        with args.file.open("x", encoding="utf-8-sig", newline="") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{args.file} exists: choose another name") from None
    except OSError as error:
        raise UsageError(f"{args.file} can't be written: {error.strerror or error}") from None
    tell(f"{args.file}: fill in the values, then quota-worker outcomes import {args.file}")
    return 0


def _month(text: str) -> date:
    from worker.periods import parse_month

    try:
        return parse_month(text)
    except ValueError as error:
        raise UsageError(f"--month: {error}") from None


def _top(args: argparse.Namespace) -> int | None:
    """How many rows are shown; None: all. Raises UsageError."""
    if args.top is None:
        return None if args.json else DEFAULT_TOP
    if not 0 <= args.top <= MAX_TOP:
        raise UsageError("--top needs a number of rows, or 0 for all")
    return args.top or None


def _left(rows: Sequence[object], top: int | None) -> str:
    """The last line of a table that was cut, empty where it wasn't."""
    return "\nand more: --top 0 shows all" if top is not None and len(rows) > top else ""
