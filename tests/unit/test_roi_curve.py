"""The daily curve of the ROI report beside its cap and the even pace."""

from __future__ import annotations

from datetime import date

from unit.roi_world import OCTOBER, amounts, facts, part
from worker.roi.facts import Amounts, Budget, Day, Part
from worker.roi.figures import Reason, Unknown, known
from worker.roi.report import summarize
from worker.roi.summary import Curve

TENTH = date(2026, 10, 10)


def curve(through: date | None, *days: Day, parts: tuple[Part, ...] = (), **more: object) -> Curve:
    return summarize(facts(*parts, days=days, through=through, **more)).curves[0]


def test_the_curve_goes_to_the_last_day_that_has_begun() -> None:
    days = (Day("production", TENTH, amounts(7, 3)), Day("production", OCTOBER, amounts(1, 1)))
    whole = curve(None, *days)
    assert len(whole.points) == 31
    assert (whole.points[-1].cost_nanos_so_far, whole.points[-1].tokens_so_far) == (8, 4)
    assert whole.points[4].cost_nanos == 0
    assert len(curve(date(2026, 10, 12), *days).points) == 12
    # a day that has usage has begun
    assert curve(date(2026, 10, 2), *days).points[-1].day == TENTH
    assert whole.even_cost_nanos == Unknown(Reason.NO_BUDGET)
    # the parts have nothing of it: it shows
    assert whole.rest == amounts(-8, -4, n=-2)


def test_a_cap_is_drawn_only_where_it_is_of_all_whose_usage_is() -> None:
    day = Day("production", TENTH, amounts(7, 3))
    one = (Budget("d", "production", 310, 62, 0, 31),)
    alone = curve(None, day, parts=(part(amounts(7, 3)),), budgets=one)
    assert (alone.cost_cap_nanos, alone.even_cost_nanos, alone.even_tokens) == (
        93,
        known(3),
        known(10),
    )
    assert alone.rest == Amounts()
    beside = (part(amounts(7, 3)), part(amounts(1), department_id="e"))
    assert curve(None, day, parts=beside, budgets=one, department=None).cost_cap_nanos is None
