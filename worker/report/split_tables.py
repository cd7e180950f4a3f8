"""Tables that split the month's own usage: by app, model, environment, tenant and department."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.report.cells import Table
from worker.report.detail import BRIEF, share
from worker.report.month_tables import AMOUNT_COLUMNS, amount_cells
from worker.roi.figures import Reason, ratio
from worker.roi.gathering import total
from worker.roi.summary import LineKind, SplitLine

if TYPE_CHECKING:
    from worker.report.cells import Cell
    from worker.report.detail import Build
    from worker.roi.summary import Split

CHARTED: Final = ("apps", "models")


def split_tables(build: Build) -> tuple[Table, ...]:
    """One for each label; departments in the report of all."""
    splits = build.summary.splits
    each: list[tuple[str, Split | None]] = [
        ("apps", splits.apps),
        ("models", splits.models),
        ("environments", splits.environments),
        ("tenants", splits.tenants),
        ("departments", splits.departments),
    ]
    return tuple(_table(build, key, one) for key, one in each if one is not None)


def shown_lines(split: Split, most: int) -> tuple[SplitLine, ...]:
    """The split's lines with at most so many by name; the rest is summed, so the sum stays."""
    named = [one for one in split.lines if one.kind is LineKind.NAMED]
    if len(named) <= most + 1:
        return split.lines
    rest = [one for one in split.every if one.kind is LineKind.NAMED][most:]
    amounts = total(one.amounts for one in rest)
    others = SplitLine(
        kind=LineKind.OTHERS,
        key="",
        name="",
        members=len(rest),
        amounts=amounts,
        cost_share=ratio(amounts.cost_nanos, split.total.cost_nanos, Reason.NO_COST),
        token_share=ratio(amounts.tokens, split.total.tokens, Reason.NO_USAGE),
    )
    unnamed = [one for one in split.lines if one.kind is LineKind.UNNAMED]
    return (*named[:most], *unnamed, others)


def line_name(build: Build, key: str, line: SplitLine) -> str:
    """What the line is called."""
    if line.kind is LineKind.OTHERS:
        return build.say("others", count=line.members)
    if line.kind is LineKind.UNNAMED:
        return build.say(f"unnamed_{key}")
    if key == "environments":
        return build.name(build.reader.environment(line.name))
    return build.name(line.name)


def _table(build: Build, key: str, split: Split) -> Table:
    whole = build.detail.whole
    # a chart's lines are always those of the table beneath
    most = BRIEF.lines if key in CHARTED else build.detail.lines
    lines = split.every if whole else shown_lines(split, most)
    keys: tuple[str, ...] = ("cost", "share_cost", "tokens", "share_tokens", *AMOUNT_COLUMNS[2:])
    keys = keys if whole else keys[:3]
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        cost, tokens, *rest = amount_cells(line.amounts)
        cells = (cost, share(line.cost_share), tokens, share(line.token_share), *rest)
        rows.append((line_name(build, key, line), *cells[: len(keys)]))
    if rows:
        cost, tokens, *rest = amount_cells(split.total)
        cells = (cost, None, tokens, None, *rest)
        rows.append((build.say("total"), *cells[: len(keys)]))
    return Table(
        key=key,
        title=build.say(key),
        columns=(build.say(key), *build.columns(*keys)),
        rows=tuple(rows),
        totals=1 if rows else 0,
        numbered=key in CHARTED,
        notes=() if rows else (build.say("no_usage"),),
        charts=(key,) if key in CHARTED and rows else (),
    )
