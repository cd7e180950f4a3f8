"""Departments side by side: who stands where, who improved most, who pays more than others.

The comparison is made once for all reports of a month; each report then looks itself up.
A measure is the cost per one of a metric, or of a million tokens (TOKENS).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Final

from worker.roi.checks import check_peers
from worker.roi.facts import NOTHING, UNNAMED
from worker.roi.figures import (
    TOKENS_PER_MILLION,
    Known,
    Reason,
    Unknown,
    divide,
    known,
    positive,
    ratio,
)
from worker.roi.gathering import grouped
from worker.roi.summary import AbovePeers, Improvement, Incentives, Place, Places, Standing
from worker.roi.units import USUAL_METRICS, cost_per_million_tokens, cost_per_one

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from decimal import Decimal

    from worker.roi.facts import Amounts, Facts, Peer
    from worker.roi.figures import Figure
    from worker.roi.gathering import Gathered

TOKENS: Final = ""  # the measure that needs no outcomes: nanos for a million tokens
COMPARED_METRICS_MAX: Final = 50
INCENTIVE_LINES: Final = 10
ABOVE_LINES: Final = 10  # of one measure
ABOVE_MEDIAN: Final = Fraction(1, 4)  # beyond the median by more than this is well above
PEERS_MIN: Final = 3  # of two, one is always above the median
# In both months, for the incentives: of a few orders any change is chance.
RANKED_COMPLETIONS_MIN: Final = 100
RANKED_OUTCOME_MIN: Final = 30  # of a metric, whatever it counts


@dataclass(frozen=True, slots=True)
class MeasureRanks:
    """All departments in one measure, by their id; ``costs`` ascend.

    ``improved``: the greatest improvement first. ``too_few``: how many have both months, but
    too little in one of them to be ranked there. ``above``: the greatest excess first.
    """

    own: Mapping[str, Figure]
    costs: tuple[Fraction, ...]
    median: Figure
    improved: Mapping[str, Improvement]
    too_few: int
    above: Mapping[str, AbovePeers]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All departments' ranks by measure, TOKENS first; what every report of a month needs."""

    ranks: Mapping[str, MeasureRanks]
    peers: tuple[Peer, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that were compared."""
        return tuple(measure for measure in self.ranks if measure != TOKENS)

    def of(self, metrics: Iterable[str]) -> Comparison:
        """The same of these metrics alone, in their order."""
        return Comparison(
            {name: self.ranks[name] for name in (TOKENS, *metrics) if name in self.ranks},
            self.peers,
        )


def unit_cost(measure: str, amounts: Amounts, outcomes: Mapping[str, Decimal]) -> Figure:
    """Nanos for one of the measure."""
    if measure == TOKENS:
        return cost_per_million_tokens(amounts)
    return cost_per_one(amounts, outcomes.get(measure))


def median(ascending: tuple[Fraction, ...]) -> Figure:
    """The middle one, or half of the sum of the middle two."""
    if not ascending:
        return Unknown(Reason.NO_PEERS)
    half = len(ascending) // 2
    if len(ascending) % 2:
        return Known(ascending[half])
    return Known((ascending[half - 1] + ascending[half]) / 2)


def compare(peers: Iterable[Peer]) -> Comparison:
    """Every measure's ranks over the departments; tenants without one are none.

    Of more metrics than are compared, those stay that most departments have, then by name.
    """
    departments = [peer for peer in peers if peer.department_id != UNNAMED]
    check_peers(departments)
    counts = Counter(name for peer in departments for name in peer.outcomes_now)
    metrics = sorted(counts, key=lambda name: (-counts[name], name))[:COMPARED_METRICS_MAX]
    return Comparison(
        {
            measure: _ranks(measure, departments)
            for measure in dict.fromkeys((TOKENS, *USUAL_METRICS, *metrics))
        },
        tuple(departments),
    )


def _ranks(measure: str, peers: list[Peer]) -> MeasureRanks:
    own = {peer.department_id: unit_cost(measure, peer.now, peer.outcomes_now) for peer in peers}
    costs = tuple(sorted(one.value for one in own.values() if one.value is not None))
    middle = median(costs)
    improved, too_few = _improvements(measure, peers, own)
    return MeasureRanks(
        own=own,
        costs=costs,
        median=middle,
        improved={one.department_id: one for one in improved},
        too_few=too_few,
        above={
            one.department_id: one
            for one in (_above(measure, peers, own, middle) if len(costs) >= PEERS_MIN else ())
        },
    )


def _improvements(
    measure: str, peers: list[Peer], own: Mapping[str, Figure]
) -> tuple[tuple[Improvement, ...], int]:
    """The greatest first, and how many have too little for a place."""
    found: list[tuple[Fraction, Fraction, Fraction, Peer]] = []
    too_few = 0
    for peer in peers:
        now = own[peer.department_id].value
        if now is None or peer.before is None:
            continue
        before = unit_cost(measure, peer.before, peer.outcomes_before).value
        base = None if before is None else positive(before)
        if base is not None and not _tells(measure, peer):
            too_few += 1
        elif base is not None:
            found.append((divide(base - now, base), now, base, peer))
    found.sort(key=lambda one: (-one[0], one[3].department_id))
    result: list[Improvement] = []
    for place, (improvement, now, before, peer) in enumerate(found, 1):
        equal = bool(result) and result[-1].improvement == improvement
        result.append(
            Improvement(
                rank=result[-1].rank if equal else place,
                department_id=peer.department_id,
                name=peer.name,
                now=now,
                before=before,
                improvement=improvement,
            )
        )
    return tuple(result), too_few


def _tells(measure: str, peer: Peer) -> bool:
    """Whether both months have enough for their unit costs to be compared."""
    months = (peer.now, peer.outcomes_now), (peer.before or NOTHING, peer.outcomes_before)
    return all(
        amounts.completions >= RANKED_COMPLETIONS_MIN
        and (measure == TOKENS or outcomes.get(measure, 0) >= RANKED_OUTCOME_MIN)
        for amounts, outcomes in months
    )


def _above(
    measure: str, peers: list[Peer], own: Mapping[str, Figure], middle: Figure
) -> tuple[AbovePeers, ...]:
    """Those beyond the median by more than a quarter; the excess is (own - median) * quantity."""
    base = None if middle.value is None else positive(middle.value)
    if base is None:
        return ()
    found: list[AbovePeers] = []
    for peer in peers:
        cost = own[peer.department_id].value
        if cost is None or cost - base <= ABOVE_MEDIAN * base:
            continue
        quantity = (
            Fraction(peer.now.tokens, TOKENS_PER_MILLION)
            if measure == TOKENS
            else Fraction(peer.outcomes_now[measure])
        )
        found.append(
            AbovePeers(
                measure=measure,
                department_id=peer.department_id,
                name=peer.name,
                own=cost,
                median=base,
                to_median=divide(cost - base, base),
                excess_nanos=(cost - base) * quantity,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.excess_nanos, one.department_id)))


def make_standings(facts: Facts, own: Amounts, comparison: Comparison) -> tuple[Standing, ...]:
    """The department's place in each measure: 1 + how many pay less for one.

    to_median is (own - median) / median, and needs another department that has the figure.
    """
    return tuple(
        _standing(
            measure,
            ranks,
            Unknown(Reason.NO_DEPARTMENT)
            if facts.department is None
            else unit_cost(measure, own, facts.outcomes),
        )
        for measure, ranks in comparison.ranks.items()
    )


def _standing(measure: str, ranks: MeasureRanks, own: Figure) -> Standing:
    middle = ranks.median
    if len(ranks.costs) < (1 if own.value is None else 2):
        middle = Unknown(Reason.NO_PEERS)
    if own.value is None:
        to_median: Figure = own
    elif middle.value is None:
        to_median = middle
    else:
        to_median = ratio(own.value - middle.value, middle.value, Reason.NO_COST)
    return Standing(
        measure=measure,
        rank=None if own.value is None else bisect_left(ranks.costs, own.value) + 1,
        of=len(ranks.costs),
        own=own,
        median=middle,
        to_median=to_median,
    )


def make_incentives(facts: Facts, comparison: Comparison) -> tuple[Incentives, ...]:
    """Each measure's best improvements, (before - now) / before, and the department's own."""
    mine = None if facts.department is None else facts.department.department_id
    return tuple(
        Incentives(
            measure=measure,
            lines=tuple(islice(ranks.improved.values(), INCENTIVE_LINES)),
            of=len(ranks.improved),
            own=None if mine is None else ranks.improved.get(mine),
            every=tuple(ranks.improved.values()) if mine is None else (),
            too_few=ranks.too_few,
        )
        for measure, ranks in comparison.ranks.items()
    )


def make_above(facts: Facts, comparison: Comparison) -> tuple[AbovePeers, ...]:
    """Of all: the first of each measure, by what they paid beyond; of a department: its own."""
    every = [ranks.above for ranks in comparison.ranks.values()]
    if facts.department is None:
        return tuple(one for above in every for one in islice(above.values(), ABOVE_LINES))
    mine = facts.department.department_id
    return tuple(above[mine] for above in every if mine in above)


def make_places(facts: Facts, comparison: Comparison, gathered: Gathered) -> tuple[Places, ...]:
    """Every department's place in each measure, for the report of all alone.

    Its amounts are those of its parts: peers' have no cached, released, unpriced or downgraded.
    """
    if facts.department is not None:
        return ()
    amounts = grouped(gathered.owners, lambda key: key[0])
    return tuple(
        Places(measure, _places(measure, ranks, comparison.peers, amounts))
        for measure, ranks in comparison.ranks.items()
    )


def _places(
    measure: str, ranks: MeasureRanks, peers: tuple[Peer, ...], amounts: Mapping[str, Amounts]
) -> tuple[Place, ...]:
    found: list[Place] = []
    for peer in peers:
        own, outcome = ranks.own[peer.department_id], peer.outcomes_now.get(measure)
        found.append(
            Place(
                rank=None if own.value is None else bisect_left(ranks.costs, own.value) + 1,
                department_id=peer.department_id,
                name=peer.name,
                amounts=amounts.get(peer.department_id, peer.now),
                outcome=Unknown(Reason.NO_OUTCOMES) if outcome is None else known(outcome),
                own=own,
            )
        )
    last = len(found) + 1
    return tuple(sorted(found, key=lambda one: (one.rank or last, one.department_id)))
