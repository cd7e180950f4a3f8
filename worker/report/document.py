"""A summary becomes a document in one language: what must be read first, figures, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.report.cells import Cell, Document, Headline, Missing, Money
from worker.report.corrections import correction_table
from worker.report.detail import BRIEF, Build, change, money, share
from worker.report.month_tables import (
    budgets_table,
    daily_tables,
    figures_table,
    ledger_table,
    outcomes_table,
    shares_table,
    trend_table,
)
from worker.report.ranking_tables import (
    above_table,
    incentives_tables,
    places_tables,
    standings_table,
)
from worker.report.reader import Reader, language_of
from worker.report.split_tables import split_tables
from worker.report.suggestion_tables import suggestion_tables
from worker.roi.facts import PRODUCTION
from worker.roi.figures import Reason

if TYPE_CHECKING:
    from worker.report.cells import Table
    from worker.report.corrections import Correction
    from worker.report.detail import Detail
    from worker.roi.summary import Summary


def make_document(
    summary: Summary,
    locale: str | None,
    detail: Detail = BRIEF,
    correction: Correction | None = None,
) -> Document:
    """The whole report for a reader, before it takes a form."""
    reader = Reader(language_of(locale), summary.currency)
    build = Build(summary, reader, detail)
    month = reader.month(summary.month)
    provisional = (build.say("provisional", month=month),) if summary.provisional else ()
    corrected: tuple[str, ...] = ()
    changed: tuple[Table, ...] = ()
    if correction is not None:
        count = f"{len(correction.changes):,}"
        corrected = (build.say("corrected", revision=correction.revision, count=count),)
        changed = (correction_table(build, correction),)
    return Document(
        title=report_title(summary, locale, detail),
        marks=(*provisional, *corrected),
        headlines=_headlines(build),
        tables=(*changed, *_tables(build)),
        foot=_foot(build),
    )


def report_title(summary: Summary, locale: str | None, detail: Detail = BRIEF) -> str:
    """Whose report of which month; for a mail's subject, too, which has escapes of its own."""
    build = Build(summary, Reader(language_of(locale), summary.currency), detail)
    return build.say("title", name=build.subject, month=build.reader.month(summary.month))


def _headlines(build: Build) -> tuple[Headline, ...]:
    """Cost, the first metric's unit cost, the budget's use and the place: for a phone's screen."""
    summary = build.summary
    beside = build.say("against_before")
    result = [
        Headline(
            build.say("cost"),
            Money(summary.ledger.own.cost_nanos),
            (beside, change(summary.changes.cost)),
        )
    ]
    with_cost = [one for one in summary.metrics if one.now.cost_per_one.value is not None]
    one = next(iter(with_cost or summary.metrics), None)
    if one is not None:
        told = None
        if one.now.cost_per_one.value is not None:
            told = (beside, change(one.change.cost_per_one, one.metric))
        unit_cost = money(one.now.cost_per_one, one.metric)
        result.append(Headline(build.measure(one.metric), unit_cost, told))
    result.append(_budget(build))
    measure = one.metric if one is not None and with_cost else ""
    standing = next((s for s in summary.standings if s.measure == measure), None)
    if standing is not None and standing.rank is not None and standing.of > 1:
        place = build.say("place_value", place=standing.rank, of=standing.of)
        against = (build.say("against_median"), change(standing.to_median))
        label = build.say("place_by", measure=build.measure(measure))
        result.append(Headline(label, place, against))
    return tuple(result)


def _budget(build: Build) -> Headline:
    label = build.say("budget_used")
    use = next((one for one in build.summary.budgets if one.environment == PRODUCTION), None)
    if use is None or (use.tokens_allowed is None and use.cost_allowed_nanos is None):
        return Headline(label, Missing(Reason.NO_BUDGET))
    which: tuple[str, Cell] = ("budget_cost", share(use.cost_share))
    if use.cost_allowed_nanos is None:
        which = ("budget_tokens", share(use.tokens_share))
    name = build.reader.environment(PRODUCTION)
    return Headline(label, which[1], (build.say(which[0], environment=name), ""))


def _tables(build: Build) -> tuple[Table, ...]:
    of_all = build.summary.department is None
    return (
        figures_table(build),
        outcomes_table(build),
        budgets_table(build),
        *daily_tables(build),
        trend_table(build),
        *split_tables(build),
        shares_table(build),
        # nobody's place in the report of all, where the departments' own are
        *(places_tables(build) if of_all else (standings_table(build),)),
        *incentives_tables(build),
        above_table(build),
        *suggestion_tables(build),
        ledger_table(build),
    )


def _foot(build: Build) -> tuple[str, ...]:
    summary = build.summary
    foot = [build.say("foot_zone", zone=summary.zone, currency=summary.currency)]
    if summary.metrics_left_out:
        names = ", ".join(map(build.name, summary.metrics_left_out[:10]))
        more = len(summary.metrics_left_out) - 10
        left_out = f"{names}, {build.say('others', count=more)}" if more > 0 else names
        foot.append(build.say("foot_left_out", names=left_out))
    if not build.detail.whole:
        foot.append(build.say("foot_short"))
    return (*foot, build.say("foot_formulas"))
