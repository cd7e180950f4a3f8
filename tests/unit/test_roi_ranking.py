"""Departments side by side: places, the median, who improved most, who pays more than others."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from unit.roi_world import MILLION, amounts, decimals, facts, part, peer
from worker.report.text import text_report
from worker.roi.facts import Amounts, Department, Peer
from worker.roi.figures import Reason, Unknown, known
from worker.roi.ranking import COMPARED_METRICS_MAX, INCENTIVE_LINES, TOKENS, compare
from worker.roi.report import summarize
from worker.roi.summary import Summary


def team(name: str, cost: int, orders: int | None, before: tuple[int, int] | None = None) -> Peer:
    """A hundred completions of a million tokens each month."""
    return peer(
        name,
        amounts(cost, MILLION, 100),
        None if before is None else amounts(before[0], MILLION, 100),
        outcomes_now={} if orders is None else decimals(orders=orders),
        outcomes_before={} if before is None else decimals(orders=before[1]),
    )


def report(of: str, peers: list[Peer]) -> Summary:
    mine = next(one for one in peers if one.department_id == of)
    return summarize(
        facts(
            part(mine.now, department_id=of),
            department=Department(of, of),
            outcomes=mine.outcomes_now,
            peers=tuple(peers),
        )
    )


def test_equals_share_a_rank_and_the_median_is_halfway() -> None:
    peers = [team("a", 100, 10), team("b", 40, 4), team("c", 90, 10), team("d", 300, 10)]
    places = {}
    for one in peers:
        by_tokens, by_orders, _gmv = report(one.department_id, peers).standings
        assert by_tokens.measure == TOKENS
        assert by_orders.median == known(10)
        places[one.department_id] = (by_tokens.rank, by_orders.rank, by_orders.to_median.value)
    assert places == {
        "a": (3, 2, 0),
        "b": (1, 2, 0),
        "c": (2, 1, Fraction(-1, 10)),
        "d": (4, 4, 2),
    }


def test_a_department_without_the_figure_has_no_place_but_sees_the_median() -> None:
    peers = [team("a", 100, None), team("b", 40, 4), team("c", 60, 3)]
    _, standing, _ = report("a", peers).standings
    assert (standing.rank, standing.of, standing.own) == (None, 2, Unknown(Reason.NO_OUTCOMES))
    assert standing.median == known(15)
    assert standing.to_median == Unknown(Reason.NO_OUTCOMES)


def test_alone_there_is_no_median() -> None:
    _, standing, _ = report("a", [team("a", 100, 4), team("b", 40, None)]).standings
    assert (standing.rank, standing.of) == (1, 1)
    assert standing.median == standing.to_median == Unknown(Reason.NO_PEERS)
    _, standing, _ = report("b", [team("b", 40, None)]).standings
    assert standing.median == Unknown(Reason.NO_PEERS)


def test_a_month_without_usage_is_no_first_place() -> None:
    idle = peer("idle", Amounts(), amounts(5, 5), outcomes_now=decimals(orders=9))
    peers = [idle, team("b", 400, 40, (800, 40)), team("c", 600, 30, (600, 30))]
    _, standing, _ = report("idle", peers).standings
    assert (standing.rank, standing.of) == (None, 2)
    _, incentives, _ = report("b", peers).incentives
    assert [line.department_id for line in incentives.lines] == ["b", "c"]


def test_who_improved_most() -> None:
    peers = [
        team("a", 1000, 100, (2000, 100)),  # 20 to 10: half
        team("b", 1000, 200, (1000, 100)),  # 10 to 5: half
        team("c", 900, 100, (1000, 100)),  # a tenth
        team("d", 2000, 100, (1000, 100)),  # twice as dear
        team("e", 1000, 100),  # no month before
        team("f", 1000, 100, (1000, 0)),  # no orders before
        team("g", 1000, None, (1000, 100)),
        team("h", 0, 100, (0, 100)),  # for nothing, as before: nothing to improve on
    ]
    _, orders, _ = report("d", peers).incentives
    assert [(one.rank, one.department_id, one.improvement) for one in orders.lines] == [
        (1, "a", Fraction(1, 2)),
        (1, "b", Fraction(1, 2)),
        (3, "c", Fraction(1, 10)),
        (4, "d", -1),
    ]
    assert (orders.lines[0].now, orders.lines[0].before) == (10, 20)
    assert orders.of == 4
    assert orders.own == orders.lines[3]
    assert (orders.of, orders.too_few) == (4, 0)
    assert report("e", peers).incentives[1].own is None


def test_of_a_few_orders_or_completions_nobody_wins() -> None:
    few = [
        team("three", 1, 3, (3_000, 3)),
        team("one less now", 29, 29, (3_000, 30)),
        team("one less before", 30, 30, (2_900, 29)),
        replace(team("n", 30, 30, (3_000, 30)), now=amounts(30, MILLION, 99)),
        replace(team("m", 30, 30, (3_000, 30)), before=amounts(3_000, MILLION, 99)),
    ]
    peers = [*few, team("enough", 30, 30, (60, 30))]
    for one in few:
        tokens, orders, gmv = report(one.department_id, peers).incentives
        assert [line.department_id for line in orders.lines] == ["enough"]
        assert (orders.of, orders.too_few, orders.own) == (1, 5, None)
        # a million tokens need no orders
        assert (tokens.of, tokens.too_few) == (4, 2)
        assert (gmv.of, gmv.too_few) == (0, 0)
    text = text_report(report("three", peers), "en")
    told = "A place needs 100 completions in both months and, for orders, a value of 30; departments with less: 5."
    assert told in text


def test_the_table_is_short_and_one_s_own_line_is_told_all_the_same() -> None:
    peers = [team(f"d{n:02}", 100 + n, 30, (200, 30)) for n in range(30)]
    _, orders, _ = report("d29", peers).incentives
    assert len(orders.lines) == INCENTIVE_LINES
    assert orders.own is not None
    assert (orders.own.rank, orders.of) == (30, 30)


def test_who_pays_well_above_the_median() -> None:
    peers = [team("a", 100, 10), team("b", 125, 10), team("c", 126, 10), team("d", 50, 10)]
    peers.append(team("e", 100, 10))
    of_all = summarize(facts(department=None, peers=tuple(peers)))
    # the median of orders is 10: 12.5 is a quarter more, 12.6 is above it
    assert [(one.measure, one.department_id, one.excess_nanos) for one in of_all.above_peers] == [
        ("", "c", 26),
        ("orders", "c", 26),
    ]
    assert of_all.above_peers[1].to_median == Fraction(13, 50)
    assert [one.department_id for one in report("c", peers).above_peers] == ["c", "c"]
    assert report("a", peers).above_peers == ()
    assert {one.own for one in of_all.standings} == {Unknown(Reason.NO_DEPARTMENT)}


def test_finance_sees_every_department_s_place() -> None:
    peers = [
        team("c", 900, 90, (1800, 90)),
        team("a", 1000, None),
        team("b", 400, 40),
        team("d", 10, 10),
    ]
    of_all = summarize(facts(department=None, peers=tuple(peers)))
    tokens, orders, gmv = of_all.places
    assert [(one.rank, one.department_id) for one in tokens.places] == [
        (1, "d"),
        (2, "b"),
        (3, "c"),
        (4, "a"),
    ]
    assert [(one.rank, one.department_id, one.own) for one in orders.places] == [
        (1, "d", known(1)),
        (2, "b", known(10)),
        (2, "c", known(10)),
        (None, "a", Unknown(Reason.NO_OUTCOMES)),
    ]
    assert [one.department_id for one in gmv.places] == ["a", "b", "c", "d"]
    assert orders.places[0].outcome == known(10)
    assert [one.department_id for one in of_all.incentives[1].every] == ["c"]
    assert report("c", peers).places == ()
    assert report("c", peers).incentives[1].every == ()


def test_of_two_none_is_above_the_other() -> None:
    assert report("a", [team("a", 900, 10), team("b", 1, 10)]).above_peers == ()


def test_tenants_without_a_department_are_no_department() -> None:
    peers = [team("", 1, 10), team("a", 100, 10), team("b", 100, 10)]
    assert compare(peers).ranks[TOKENS].costs == (100, 100)


def test_metrics_that_most_have_are_compared() -> None:
    many = decimals(**{f"m{n:03}": 1 for n in range(80)})
    peers = [
        peer("a", amounts(1, 1), outcomes_now={**many, **decimals(orders=1)}),
        peer("b", amounts(1, 1), outcomes_now=decimals(m079=1, orders=2)),
    ]
    metrics = compare(peers).metrics
    assert metrics[:4] == ("orders", "gmv", "m079", "m000")
    assert len(metrics) == COMPARED_METRICS_MAX + 1  # gmv is told though nobody has it


def test_reports_of_a_month_share_one_comparison() -> None:
    peers = [team("a", 100, 10, (200, 10)), team("b", 40, 4), team("c", 60, 3)]
    shared = compare(peers)
    plain = facts(part(peers[0].now, department_id="a"), department=Department("a", "a"))
    asked = facts(
        part(peers[0].now, department_id="a"), department=Department("a", "a"), peers=tuple(peers)
    )
    assert summarize(plain, shared) == summarize(asked)
