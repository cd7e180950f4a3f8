"""Tables of departments side by side: who stands where, who improved, who pays more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.report.cells import Change, Count, Money, Table
from worker.report.detail import change, money, quantity
from worker.report.month_tables import AMOUNT_COLUMNS, amount_cells
from worker.roi.ranking import RANKED_COMPLETIONS_MIN, RANKED_OUTCOME_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from worker.report.cells import Cell
    from worker.report.detail import Build
    from worker.roi.summary import Improvement, Incentives, Places, Standing, Summary

PEERS_CHART: Final = "peers"
PLACES_SHOWN: Final = 20  # of the report of all, in a chart and its table


def standings_table(build: Build) -> Table:
    """A department's place in each measure; in short those that anybody has."""
    standings = shown_standings(build.summary, whole=build.detail.whole)
    keys = ("measure", "own_value", "median", "to_median")
    extra = ("place", "place_of") if build.detail.whole else ()
    return Table(
        key="standings",
        title=build.say("standings"),
        columns=build.columns(*keys, *extra),
        rows=tuple(_standing_row(build, one) for one in standings),
        numbered=True,
        notes=(build.say("standings_note"),),
        charts=(PEERS_CHART,) if standing_bars(build.summary) else (),
    )


def shown_standings(summary: Summary, *, whole: bool) -> tuple[Standing, ...]:
    """All, or those in which any department has a figure, and the first."""
    every = summary.standings
    return tuple(one for one in every if whole or one.of or not one.measure)


def standing_bars(summary: Summary) -> list[tuple[int, Fraction]]:
    """Row number and (own - median) / median, for the chart: where there is that."""
    return [
        (number, one.to_median.value)
        for number, one in enumerate(shown_standings(summary, whole=False), 1)
        if one.to_median.value is not None
    ]


def _standing_row(build: Build, one: Standing) -> tuple[Cell, ...]:
    label = build.measure(one.measure)
    own = money(one.own, one.measure)
    to_median = change(one.to_median, one.measure)
    median = money(one.median)
    if build.detail.whole:
        place: Cell = build.say("not_placed") if one.rank is None else Count(one.rank)
        return (label, own, median, to_median, place, Count(one.of))
    if one.rank is not None:
        label = f"{label}: {build.say('place_value', place=one.rank, of=one.of)}"
    return (label, own, median, to_median)


def places_tables(build: Build) -> tuple[Table, ...]:
    """Every department in each measure; in short the first of one measure."""
    if build.detail.whole:
        return tuple(_places_table(build, one, len(one.places), number)
                     for number, one in enumerate(build.summary.places, 1))  # fmt: skip
    one = main_places(build.summary)
    return () if one is None else (_places_table(build, one, PLACES_SHOWN, 1),)


def main_places(summary: Summary) -> Places | None:
    """Of the first metric that any department has, else of tokens."""
    with_rank = [one for one in summary.places if one.places and one.places[0].rank is not None]
    return next((one for one in with_rank if one.measure), with_rank[0] if with_rank else None)


def _places_table(build: Build, one: Places, most: int, number: int) -> Table:
    whole = build.detail.whole
    rows: list[tuple[Cell, ...]] = []
    for place in one.places[:most]:
        rank: Cell = build.say("not_placed") if place.rank is None else Count(place.rank)
        own = money(place.own, one.measure)
        cost = Money(place.amounts.cost_nanos)
        name = build.name(place.name)
        if whole:
            outcome: Cell = quantity(place.outcome, one.measure) if one.measure else None
            more = amount_cells(place.amounts)[1:]
            rows.append((name, place.department_id, rank, own, outcome, cost, *more))
        else:
            rows.append((name, rank, own, cost))
    median = next((s.median for s in build.summary.standings if s.measure == one.measure), None)
    notes = build.short(len(one.places) - len(rows))
    if median is not None and median.value is not None:
        notes = (f"{build.say('median_row')}: {build.reader.money(median.value)}", *notes)
    keys: tuple[str, ...] = ("department", "place")
    if whole:
        keys = ("department", "department_id", "place")
    columns = (*build.columns(*keys), build.measure(one.measure))
    more_keys = ("outcome", *AMOUNT_COLUMNS) if whole else ("cost",)
    return Table(
        key=f"places_{number}",
        title=build.say("places", measure=build.measure(one.measure)),
        columns=(*columns, *build.columns(*more_keys)),
        rows=tuple(rows),
        numbered=True,
        notes=notes,
        charts=() if whole else (PEERS_CHART,),
    )


def incentives_tables(build: Build) -> tuple[Table, ...]:
    """Who improved a measure most; in short only where somebody has both months."""
    every = build.summary.incentives
    if not build.detail.whole:
        told = [one for one in every if one.lines]
        every = tuple(told[: build.detail.measures] or every[:1])
    return tuple(_incentives_table(build, one, number) for number, one in enumerate(every, 1))


def _incentives_table(build: Build, one: Incentives, number: int) -> Table:
    whole = build.detail.whole
    lines: Sequence[Improvement] = one.every if whole and one.every else one.lines
    if not whole:
        lines = lines[: build.detail.lines]
    own = one.own
    if own is not None and own not in lines:
        lines = [*lines, own]
    mine = None if build.summary.department is None else build.summary.department.department_id
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        name = build.name(line.name)
        if line.department_id == mine:
            name = build.say("own_line", name=name)
        figures = (Money(line.before), Money(line.now), Change(line.improvement))
        if whole:
            rows.append((name, line.department_id, Count(line.rank), *figures))
        else:
            rows.append((f"{line.rank}. {name}", *figures))
    extra = ("department_id", "place") if whole else ()
    note = build.say("incentives_note", of=one.of) if rows else build.say("incentives_none")
    least = "incentives_least" if one.measure else "incentives_least_tokens"
    limits = build.say(
        least,
        completions=RANKED_COMPLETIONS_MIN,
        outcome=RANKED_OUTCOME_MIN,
        metric=build.name(build.reader.metric_inside(one.measure)),
        count=one.too_few,
    )
    return Table(
        key=f"incentives_{number}",
        title=build.say("incentives", measure=build.measure(one.measure)),
        columns=build.columns("department", *extra, "before", "now", "improvement"),
        rows=tuple(rows),
        notes=(note, limits),
    )


def above_table(build: Build) -> Table:
    """Who pays more than a quarter beyond the median, and how much that was."""
    every = build.summary.above_peers
    whole, of_all = build.detail.whole, build.summary.department is None
    shown = every if whole else every[: build.detail.lines]
    rows: list[tuple[Cell, ...]] = []
    for one in shown:
        measure = build.measure(one.measure)
        figures = (Money(one.own), Change(one.to_median), Money(one.excess_nanos))
        name = build.name(one.name)
        if whole:
            rows.append((measure, name, one.department_id, Money(one.median), *figures))
        else:
            rows.append((f"{name}: {measure}" if of_all else measure, *figures))
    keys: tuple[str, ...] = ("measure", "own_value", "to_median", "excess")
    if whole:
        keys = ("measure", "department", "department_id", "median", *keys[1:])
    notes = build.short(len(every) - len(shown))
    if not rows:
        notes = (build.say("above_none" if of_all else "above_none_own"),)
    return Table("above", build.say("above"), build.columns(*keys), tuple(rows), notes=notes)
