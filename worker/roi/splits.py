"""The month's own usage, split by one label: the greatest first, the rest in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.roi.facts import UNNAMED
from worker.roi.figures import Reason, ratio
from worker.roi.gathering import grouped, total
from worker.roi.summary import LineKind, Split, SplitLine, Splits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.roi.facts import Amounts, Facts
    from worker.roi.gathering import Gathered

TOP_APPS: Final = 10
TOP_MODELS: Final = 10
TOP_TENANTS: Final = 20
TOP_DEPARTMENTS: Final = 30


def make_splits(facts: Facts, gathered: Gathered) -> Splits:
    """By app, model, environment and tenant; by department where the report is of all."""
    uses, owners = gathered.uses, gathered.owners
    departments = grouped(owners, lambda key: key[0])
    return Splits(
        apps=split(grouped(uses, lambda key: key[2]), TOP_APPS),
        models=split(grouped(uses, lambda key: key[1]), TOP_MODELS),
        environments=split(grouped(uses, lambda key: key[0]), len(uses)),
        tenants=split(grouped(owners, lambda key: key[2]), TOP_TENANTS),
        departments=None
        if facts.department is not None
        else split(departments, TOP_DEPARTMENTS, facts.names),
    )


def split(sums: Mapping[str, Amounts], top: int, names: Mapping[str, str] | None = None) -> Split:
    """Lines by cost, then tokens, then key; ``top`` of them by name, one more if it is the last.

    A share is line / total. All lines of one split add up to its total.
    """
    whole = total(sums.values())

    def line(kind: LineKind, key: str, members: int, amounts: Amounts) -> SplitLine:
        return SplitLine(
            kind=kind,
            key=key,
            name=(names or {}).get(key, key),
            members=members,
            amounts=amounts,
            cost_share=ratio(amounts.cost_nanos, whole.cost_nanos, Reason.NO_COST),
            token_share=ratio(amounts.tokens, whole.tokens, Reason.NO_USAGE),
        )

    ranked = sorted(
        ((key, amounts) for key, amounts in sums.items() if key != UNNAMED),
        key=lambda one: (-one[1].cost_nanos, -one[1].tokens, one[0]),
    )
    named = [line(LineKind.NAMED, key, 1, amounts) for key, amounts in ranked]
    unnamed = [line(LineKind.UNNAMED, UNNAMED, 1, sums[UNNAMED])] if UNNAMED in sums else []
    shown = len(named) if len(named) <= top + 1 else top
    rest = [amounts for _, amounts in ranked[shown:]]
    others = [line(LineKind.OTHERS, UNNAMED, len(rest), total(rest))] if rest else []
    return Split(lines=(*named[:shown], *unnamed, *others), every=(*named, *unnamed), total=whole)
