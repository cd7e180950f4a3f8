"""Tables of the month itself: figures, outcomes, budgets, days, trend, shares, the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.report.cells import Count, DayOf, Missing, Money, MonthOf, Table
from worker.report.detail import change, missing, money, quantity, share
from worker.roi.facts import NOTHING
from worker.roi.figures import Reason, ratio
from worker.roi.summary import LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.report.cells import Cell
    from worker.report.detail import Build
    from worker.roi.facts import Amounts
    from worker.roi.summary import BudgetUse, Curve, MetricFigures, TrendPoint

DAILY_CHART: Final = "daily-{}"
TREND_CHART: Final = "trend"
AMOUNT_COLUMNS: Final = (
    "cost", "tokens", "completions", "input", "cached", "output", "stale_count", "stale_cost",
    "released_count", "unpriced_count", "downgraded_count", "downgraded_tokens",
)  # fmt: skip


def amount_cells(amounts: Amounts) -> tuple[Cell, ...]:
    """All amounts, in the order of AMOUNT_COLUMNS."""
    return (
        Money(amounts.cost_nanos),
        Count(amounts.tokens),
        Count(amounts.completions),
        Count(amounts.input_tokens),
        Count(amounts.cached_in_tokens),
        Count(amounts.output_tokens),
        Count(amounts.stale_count),
        Money(amounts.stale_cost_nanos),
        Count(amounts.released_count),
        Count(amounts.unpriced_count),
        Count(amounts.downgraded_count),
        Count(amounts.downgraded_tokens),
    )


def figures_table(build: Build) -> Table:
    """The month's own usage against the month before."""
    summary = build.summary
    own, changes = summary.ledger.own, summary.changes
    before = changes.before
    rows: list[tuple[Cell, ...]] = [
        (
            build.say("cost"),
            Money(own.cost_nanos),
            Missing(Reason.NO_MONTH_BEFORE) if before is None else Money(before.cost_nanos),
            change(changes.cost),
        ),
        (
            build.say("tokens"),
            Count(own.tokens),
            Missing(Reason.NO_MONTH_BEFORE) if before is None else Count(before.tokens),
            change(changes.tokens),
        ),
        (
            build.say("completions"),
            Count(own.completions),
            Missing(Reason.NO_MONTH_BEFORE) if before is None else Count(before.completions),
            change(changes.completions),
        ),
        (build.say("input"), Count(own.input_tokens), None, None),
        (build.say("cached"), Count(own.cached_in_tokens), None, None),
        (build.say("output"), Count(own.output_tokens), None, None),
        (build.say("cost_per_million"), money(summary.cost_per_million_tokens), None, None),
    ]
    columns = build.columns("figure", "this_month", "month_before", "change")
    return Table("figures", build.say("figures"), columns, tuple(rows))


def outcomes_table(build: Build) -> Table:
    """Each metric's figures; in short, why there is none stands there once."""
    rows: list[tuple[Cell, ...]] = []
    for one in build.summary.metrics:
        rows += _metric_rows(build, one)
    columns = build.columns("figure", "this_month", "month_before", "change")
    return Table("outcomes", build.say("outcomes"), columns, tuple(rows))


def _metric_rows(build: Build, one: MetricFigures) -> list[tuple[Cell, ...]]:
    now, before, changes, name = one.now, one.before, one.change, one.metric
    label = build.metric(name)
    per_unit = build.say("unit", metric=label, currency=build.summary.currency)
    shapes = (
        (label, quantity, now.value, before.value, changes.value),
        (
            build.measure(name),
            money,
            now.cost_per_one,
            before.cost_per_one,
            changes.cost_per_one,
        ),
        (
            build.say("million", metric=label),
            quantity,
            now.per_million_tokens,
            before.per_million_tokens,
            changes.per_million_tokens,
        ),
        (per_unit, quantity, now.per_cost_unit, before.per_cost_unit, changes.per_cost_unit),
    )
    rows: list[tuple[Cell, ...]] = [
        (title, cell(this, name), cell(that, name), change(moved, name))
        for title, cell, this, that, moved in shapes
    ]
    if build.detail.whole:
        return rows
    if now.value.value is None:
        return [(*rows[0][:2], None, None)]
    if before.value.value is None:
        return [(*rows[0][:3], None), *((*row[:2], None, None) for row in rows[1:])]
    return rows


def budgets_table(build: Build) -> Table:
    """Each environment's tokens and cost against its budget."""
    extra = ("topups", "departments_with") if build.detail.whole else ()
    columns = build.columns("budget", "used", "allowed", "used_share", *extra)
    rows = tuple(row for use in build.summary.budgets for row in _budget_rows(build, use))
    of_all = build.summary.department is None
    notes = (build.say("budget_sums"),) if of_all and rows else ()
    return Table(
        "budgets",
        build.say("budgets"),
        columns,
        rows,
        notes=notes or (() if rows else (build.reader.why(Missing(Reason.NO_BUDGET)),)),
    )


def _budget_rows(build: Build, use: BudgetUse) -> Iterator[tuple[Cell, ...]]:
    name = build.name(build.reader.environment(use.environment))
    nowhere = build.say("no_limit")
    tokens: tuple[Cell, ...] = (
        build.say("budget_tokens", environment=name),
        Count(use.tokens_used),
        nowhere if use.tokens_allowed is None else Count(use.tokens_allowed),
        share(use.tokens_share),
        Count(use.topup_tokens),
        Count(use.departments_with_tokens),
    )
    cost: tuple[Cell, ...] = (
        build.say("budget_cost", environment=name),
        Money(use.cost_used_nanos),
        nowhere if use.cost_allowed_nanos is None else Money(use.cost_allowed_nanos),
        share(use.cost_share),
        Money(use.topup_cost_nanos),
        Count(use.departments_with_cost),
    )
    for row in (cost, tokens):
        yield row if build.detail.whole else row[:4]


def daily_tables(build: Build) -> tuple[Table, ...]:
    """A table of days for each environment that has any."""
    return tuple(
        _daily_table(build, number, curve) for number, curve in enumerate(build.summary.curves, 1)
    )


def _daily_table(build: Build, number: int, curve: Curve) -> Table:
    keys = ("day", "cost", "so_far", "tokens", "tokens_so_far")
    width = len(keys) if build.detail.whole else 3
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            DayOf(point.day),
            Money(point.cost_nanos),
            Money(point.cost_nanos_so_far),
            Count(point.tokens),
            Count(point.tokens_so_far),
        )[:width]
        for point in curve.points
    )
    even = curve.even_cost_nanos
    if even.value is None:
        some = any(
            use.cost_allowed_nanos is not None
            for use in build.summary.budgets
            if use.environment == curve.environment
        )
        why = build.say("budget_not_of_all") if some else build.reader.why(missing(even))
        notes = [build.say("even_none", why=why)]
    else:
        notes = [build.say("even_day", amount=build.reader.money(even.value))]
    if curve.rest != NOTHING:
        amount = build.reader.money(curve.rest.cost_nanos)
        notes.append(build.say("rest", amount=amount, tokens=f"{curve.rest.tokens:,}"))
    name = build.name(build.reader.environment(curve.environment))
    return Table(
        key=f"daily_{number}",
        title=build.say("daily", environment=name),
        columns=build.columns(*keys[:width]),
        rows=rows,
        notes=tuple(notes),
        charts=(DAILY_CHART.format(number),),
    )


def trend_table(build: Build) -> Table:
    """Six months; in short with the first metric's unit cost that any of them has."""
    trend = build.summary.trend
    metrics = [one.metric for one in build.summary.metrics]
    if not build.detail.whole:
        with_value = [
            name
            for name in metrics
            if any(point.units[name].cost_per_one.value is not None for point in trend)
        ]
        metrics = with_value[:1]
    keys = ("month", "cost", "tokens")
    extra = ("completions", "adjustments") if build.detail.whole else ()
    return Table(
        key="trend",
        title=build.say("trend"),
        columns=(*build.columns(*keys, *extra), *map(build.measure, metrics)),
        rows=tuple(_trend_row(build, point, metrics) for point in trend),
        charts=(TREND_CHART,),
    )


def _trend_row(build: Build, point: TrendPoint, metrics: list[str]) -> tuple[Cell, ...]:
    units = (money(point.units[name].cost_per_one, name) for name in metrics)
    if point.own is None:
        away = Missing(Reason.NOT_RECORDED)
        blank = (away,) * (4 if build.detail.whole else 2)
        return (MonthOf(point.month), *blank, *units)
    amounts: tuple[Cell, ...] = (Money(point.own.cost_nanos), Count(point.own.tokens))
    if build.detail.whole:
        adjusted = 0 if point.adjustments is None else point.adjustments.cost_nanos
        amounts = (*amounts, Count(point.own.completions), Money(adjusted))
    return (MonthOf(point.month), *amounts, *units)


def shares_table(build: Build) -> Table:
    """Stale, refunded, downgraded, cached and unpriced shares of the month's own usage."""
    shares, ledger = build.summary.shares, build.summary.ledger
    own = ledger.own
    rows: tuple[tuple[Cell, ...], ...] = (
        (build.say("stale"), Count(shares.stale_count), share(shares.stale_count_share)),
        (
            build.say("stale_of_cost"),
            Money(shares.stale_cost_nanos),
            share(shares.stale_cost_share),
        ),
        (build.say("refunded"), Count(shares.released_count), share(shares.released_share)),
        (
            build.say("downgraded"),
            Count(shares.downgraded_tokens),
            share(shares.downgraded_token_share),
        ),
        (build.say("downgraded_saving"), money(shares.downgraded_saving), None),
        (build.say("cached_share"), Count(own.cached_in_tokens), share(shares.cached_share)),
        (
            build.say("unpriced_requests"),
            Count(ledger.unpriced_count),
            share(ledger.unpriced_share),
        ),
        (
            build.say("unpriced_at_most" if ledger.unpriced_at_most else "unpriced_cost"),
            Money(ledger.unpriced_cost_nanos),
            share(ratio(ledger.unpriced_cost_nanos, own.cost_nanos, Reason.NO_COST)),
        ),
    )
    return Table("shares", build.say("shares"), build.columns("note", "amount", "share"), rows)


def ledger_table(build: Build) -> Table:
    """The lines that add up to what the ledger has in the month, to the nano."""
    ledger = build.summary.ledger
    keys = AMOUNT_COLUMNS if build.detail.whole else AMOUNT_COLUMNS[:3]
    width = len(keys)
    rows: list[tuple[Cell, ...]] = []
    for line in ledger.lines:
        if line.kind is LedgerKind.ADJUSTMENT:
            label = build.say("ledger_adjustment", month=build.reader.month(line.belongs_to))
        elif line.kind is LedgerKind.DEPARTMENTS and build.summary.department is not None:
            label = build.say("ledger_own")
        else:
            label = build.say(f"ledger_{line.kind}")
        rows.append((label, *amount_cells(line.amounts)[:width]))
    rows.append((build.say("total"), *amount_cells(ledger.total)[:width]))
    guessed = ledger.unpriced_share
    unpriced = build.say("unpriced_none")
    if ledger.unpriced_count:
        amount = build.reader.money(ledger.unpriced_cost_nanos)
        unpriced = build.say(
            "unpriced",
            amount=build.say("at_most", amount=amount) if ledger.unpriced_at_most else amount,
            count=f"{ledger.unpriced_count:,}",
            share=build.reader.show(share(guessed)),
        )
    return Table(
        key="ledger",
        title=build.say("ledger"),
        columns=build.columns("note", *keys),
        rows=tuple(rows),
        totals=1,
        notes=(unpriced,),
    )
