"""The ledger's month beside the invoice's: by model and by day, and whether they agree. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.invoice.figures import (
    COST,
    INPUT,
    MEASURES,
    NOTHING,
    OUTPUT,
    TOKENS,
    Figures,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import date
    from decimal import Decimal

    from worker.invoice.converting import Invoice
    from worker.invoice.figures import LedgerMonth
    from worker.invoice.names import Matching, Names

NO_MODEL: Final = "(no model)"
LEGACY: Final = "(legacy charges)"
UNLISTED: Final = "(requests no longer remembered)"
ALL_MODELS: Final = "(all models)"
UNKNOWN: Final = frozenset({NO_MODEL, LEGACY, UNLISTED})
# Costs that differ by less are the roundings of both sides: half of the last place that is shown.
LEAST_NANOS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Line:
    """A model, a day, or a model's day on both sides; "": of all of them.

    ``beyond``: the judged measures that differ by more than the tolerance. ``names``: the model
    as both sides write it.
    """

    day: str
    model: str
    ledger: Figures
    invoice: Figures
    beyond: frozenset[str]
    names: tuple[str, ...] = ()

    @property
    def within(self) -> bool:
        """Whether it agrees within the tolerance, by its own amount."""
        return not self.beyond

    @property
    def difference(self) -> Figures:
        """What the ledger has more than the invoice."""
        return self.ledger - self.invoice

    def differs(self, *measures: str) -> bool:
        """Whether the sides differ in one of them, by more than costs are rounded."""
        return any(
            one in self.beyond
            or abs(self.difference.of(one)) >= (LEAST_NANOS if one == COST else 1)
            for one in measures
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one measure: what the models' differences add up to, none making up for another.

    ``allowed``: how much that may be.
    """

    measure: str
    spread: int
    allowed: int

    @property
    def within(self) -> bool:
        """Whether the invoice agrees with the ledger within the tolerance."""
        return self.spread <= self.allowed


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides of a month.

    ``measures``: what the invoice tells of, and so what can be compared. ``measure``: what it is
    judged by, COST, INPUT, OUTPUT or TOKENS; where these are input and output, ``verdicts`` has
    one of each, else the one. ``models``, ``days`` and ``cells``, a model's days, are ranked by
    their absolute difference in what is judged.
    """

    measure: str
    measures: tuple[str, ...]
    tolerance_pct: Decimal
    ledger: Figures
    invoice: Figures
    models: tuple[Line, ...]
    days: tuple[Line, ...]
    cells: tuple[Line, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def judged(self) -> tuple[str, ...]:
        """The measures that are judged, each apart."""
        return tuple(one.measure for one in self.verdicts)

    @property
    def spread(self) -> int:
        """What all judged differences add up to."""
        return sum(one.spread for one in self.verdicts)

    @property
    def allowed(self) -> int:
        """What is allowed for them, added up."""
        return sum(one.allowed for one in self.verdicts)

    @property
    def within(self) -> bool:
        """Whether the invoice agrees with the ledger within the tolerance, in all judged."""
        return all(one.within for one in self.verdicts)

    @property
    def differs(self) -> bool:
        """Whether there is anything to explain: some model's day differs in what is compared."""
        return not self.within or any(one.differs(*self.measures) for one in self.cells)

    @property
    def difference(self) -> Figures:
        """What the ledger has more than the invoice."""
        return self.ledger - self.invoice


def judged_measures(measures: frozenset[str]) -> tuple[str, ...]:
    """The cost where the invoice has it, else what it tells of input, output, or their sum."""
    if COST in measures:
        return (COST,)
    return tuple(one for one in (INPUT, OUTPUT, TOKENS) if one in measures)


@dataclass(slots=True)
class _Sides:
    """Both sides by day and name, and how the names were written."""

    left: dict[tuple[date, str], Figures] = field(default_factory=dict)
    right: dict[tuple[date, str], Figures] = field(default_factory=dict)
    spelled: dict[str, set[str]] = field(default_factory=dict)

    def add_ledger(self, day: date, name: str, figures: Figures, written: str = "") -> None:
        self.left[day, name] = self.left.get((day, name), NOTHING) + figures
        self._spell(name, written)

    def add_invoice(self, day: date, name: str, figures: Figures, written: str) -> None:
        self.right[day, name] = self.right.get((day, name), NOTHING) + figures
        self._spell(name, written)

    def _spell(self, name: str, written: str) -> None:
        if written and name != ALL_MODELS:
            self.spelled.setdefault(name, set()).add(written)

    def lines(
        self,
        key: Callable[[date, str], tuple[str, str]],
        judged: tuple[str, ...],
        tolerance_pct: Decimal,
    ) -> tuple[Line, ...]:
        """Both sides by a day and model each, the largest differences first."""
        ours, theirs = _grouped(self.left, key), _grouped(self.right, key)
        lines = []
        for day, model in ours.keys() | theirs.keys():
            a, b = ours.get((day, model), NOTHING), theirs.get((day, model), NOTHING)
            beyond = frozenset(
                one for one in judged if _beyond(a.of(one), b.of(one), tolerance_pct)
            )
            names = tuple(sorted(self.spelled.get(model, ())))
            lines.append(Line(day, model, a, b, frozenset(beyond), names))
        lines.sort(key=lambda one: (-_apart(one.difference, judged), one.day, one.model))
        return tuple(lines)


def compare(
    invoice: Invoice, ledger: LedgerMonth, names: Names, tolerance_pct: Decimal
) -> Comparison:
    """Compare what both sides tell of, model by model and day by day.

    Where the invoice names no model at all, all of the ledger's are one. Raises UsageError
    where ``names`` leaves nothing of the invoice, or mean no model.
    """
    sides = _sides(invoice, ledger, names)
    judged = judged_measures(invoice.tally.measures)
    ours, theirs = total(sides.left.values()), total(sides.right.values())
    models = sides.lines(lambda _, model: ("", model), judged, tolerance_pct)
    bases = {one: theirs.of(one) or ours.of(one) for one in judged}
    return Comparison(
        measure=judged[0] if len(judged) == 1 else TOKENS,
        measures=tuple(one for one in MEASURES if one in invoice.tally.measures),
        tolerance_pct=tolerance_pct,
        ledger=ours,
        invoice=theirs,
        models=models,
        days=sides.lines(lambda day, _: (str(day), ""), judged, tolerance_pct),
        cells=sides.lines(lambda day, model: (str(day), model), judged, tolerance_pct),
        verdicts=tuple(
            Verdict(one, _spread(models, one), _allowed(abs(bases[one]), tolerance_pct))
            for one in judged
        ),
    )


def match_names(invoice: Invoice, ledger: LedgerMonth, names: Names) -> Matching:
    """The names of both sides, each with the one that it is compared under."""
    return names.match(
        {written for _, written in invoice.cells}, {cell.model for cell in ledger.cells}
    )


def _sides(invoice: Invoice, ledger: LedgerMonth, names: Names) -> _Sides:
    by_model = any(name for (_, name), figures in invoice.cells.items() if figures != NOTHING)
    if not by_model and not names.all:
        raise UsageError("--only can't be followed: the invoice names no models")
    matching, sides = match_names(invoice, ledger, names), _Sides()
    for (day, written), figures in invoice.cells.items():
        name = matching.of_invoice(written)
        if name is not None:
            name = name or NO_MODEL
            sides.add_invoice(day, name if by_model else ALL_MODELS, figures, written)
    if not sides.right:
        raise UsageError("--only leaves nothing of the invoice: its models have other names")
    for cell in ledger.cells:
        name = matching.of_ledger(cell.model)
        if cell.charged.requests and name is not None:
            name, figures = name or NO_MODEL, cell.charged.figures
            sides.add_ledger(cell.day, name if by_model else ALL_MODELS, figures, cell.model)
    for name, days in ((LEGACY, ledger.legacy), (UNLISTED, ledger.unlisted)):
        for day, figures in days.items():
            sides.add_ledger(day, name if by_model else ALL_MODELS, figures)
    return sides


def _grouped(
    cells: Mapping[tuple[date, str], Figures], key: Callable[[date, str], tuple[str, str]]
) -> dict[tuple[str, str], Figures]:
    found: dict[tuple[str, str], Figures] = {}
    for (day, model), figures in cells.items():
        place = key(day, model)
        found[place] = found.get(place, NOTHING) + figures
    return found


def _spread(models: tuple[Line, ...], measure: str) -> int:
    """What the models' differences add up to, none making up for another's.

    Charges of no known model may be anybody's: they fill up what others lack.
    """
    known = [one.difference.of(measure) for one in models if one.model not in UNKNOWN]
    unknown = sum(one.difference.of(measure) for one in models if one.model in UNKNOWN)
    more = sum(one for one in known if one > 0)
    less = -sum(one for one in known if one < 0)
    return more + abs(less - unknown) if unknown >= 0 else less + abs(more + unknown)


def _apart(difference: Figures, judged: tuple[str, ...]) -> int:
    return sum(abs(difference.of(one)) for one in judged)


def _beyond(ours: int, theirs: int, tolerance_pct: Decimal) -> bool:
    return abs(ours - theirs) > _allowed(max(abs(ours), abs(theirs)), tolerance_pct)


def _allowed(amount: int, tolerance_pct: Decimal) -> int:
    return int(amount * tolerance_pct / 100)
