"""The whole report: a month's own sheets, and those of the departments side by side."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from acceptance.spreadsheet import (
    KEPT,
    MILLION,
    Figure,
    cost_for_one,
    months_before,
    quotient,
    sumif,
    tokens,
)
from acceptance.spreadsheet_month import MonthSheet


class Sheet(MonthSheet):
    """One month's report, of a department or of all (None)."""

    def report(self) -> dict[str, Any]:
        whose = self.department
        return {
            "format": "quota-worker report",
            "version": 1,
            "month": self.month.isoformat(),
            "zone": self.book.zone,
            "currency": self.book.currency,
            "provisional": False,
            "department": whose
            and {"department_id": whose, "name": self.book.names[whose], "locale": None},
            "ledger": self.ledger(),
            "changes": self.changes(),
            "trend": [self.trend(months_before(self.month, 5 - place)) for place in range(6)],
            "budgets": [self.budget(where) for where in self.environments()],
            "cost_per_million_tokens": cost_for_one("", self.own, {}),
            "outcomes": self.outcomes,
            "metrics": [self.metric(metric) for metric in self.metrics],
            "splits": self.splits(),
            "shares": self.shares(),
            "curves": [self.curve(where) for where in self.environments() if self.within(where)],
            "standings": [self.standing(measure) for measure in self.measures],
            "incentives": [self.incentives(measure) for measure in self.measures],
            "above_peers": [one for measure in self.measures for one in self.above(measure)],
            "places": []
            if whose
            else [
                {"measure": measure, "places": self.places(measure)} for measure in self.measures
            ],
            "metrics_left_out": [],
        }

    # departments side by side -----------------------------------------------------

    def costs(self, measure: str) -> dict[str, Figure]:
        found = {}
        for of in self.compared:
            cells = sumif(self.book.own(self.month, of), KEPT)
            found[of] = cost_for_one(measure, cells, self.book.imported(self.month, of))
        return found

    def known(self, measure: str) -> list[Fraction]:
        return sorted(one for one in self.costs(measure).values() if isinstance(one, Fraction))

    def middle(self, measure: str) -> Figure:
        known = self.known(measure)
        if not known:
            return "no_peers"
        return (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2

    def rank(self, measure: str, cost: Figure) -> int | None:
        if isinstance(cost, str):
            return None
        return 1 + sum(one < cost for one in self.known(measure))

    def standing(self, measure: str) -> dict[str, Any]:
        own: Figure = "no_department"
        if self.department:
            own = cost_for_one(measure, self.own, self.outcomes)
        known, middle = self.known(measure), self.middle(measure)
        if isinstance(own, Fraction) and len(known) == 1:
            middle = "no_peers"
        to_middle: Figure = own
        if isinstance(own, Fraction):
            to_middle = middle
            if isinstance(middle, Fraction):
                to_middle = quotient(own - middle, middle, "no_cost")
        return {
            "measure": measure,
            "rank": self.rank(measure, own),
            "of": len(known),
            "own": own,
            "median": middle,
            "to_median": to_middle,
        }

    def incentives(self, measure: str) -> dict[str, Any]:
        last, found, too_few = months_before(self.month, 1), [], 0
        for of, now in self.costs(measure).items():
            told = self.told(last, of)
            if told is None or isinstance(now, str):
                continue
            before = cost_for_one(measure, told, self.book.imported(last, of))
            if isinstance(before, str) or before <= 0:
                continue
            cells = [told, sumif(self.book.own(self.month, of), KEPT)]
            amounts = [self.book.imported(when, of).get(measure, 0) for when in (last, self.month)]
            if min(one["completions"] for one in cells) < 100 or (measure and min(amounts) < 30):
                too_few += 1
            else:
                found.append(((before - now) / before, of, now, before))
        found.sort(key=lambda one: (-one[0], one[1]))
        lines = [
            {
                "rank": 1 + sum(one[0] > improvement for one in found),
                "department_id": of,
                "name": self.book.names[of],
                "now": now,
                "before": before,
                "improvement": improvement,
            }
            for improvement, of, now, before in found
        ]
        mine = [line for line in lines if line["department_id"] == self.department]
        return {
            "measure": measure,
            "lines": lines[:10],
            "of": len(lines),
            "too_few": too_few,
            "own": mine[0] if mine else None,
            "every": [] if self.department else lines,
        }

    def above(self, measure: str) -> list[dict[str, Any]]:
        middle = self.middle(measure)
        if len(self.known(measure)) < 3 or isinstance(middle, str) or middle <= 0:
            return []
        found = []
        for of, cost in self.costs(measure).items():
            if isinstance(cost, str) or cost <= middle * Fraction(5, 4):
                continue
            cells = sumif(self.book.own(self.month, of))
            outcomes = self.book.imported(self.month, of)
            quantity = outcomes[measure] if measure else Fraction(tokens(cells), MILLION)
            found.append(
                {
                    "measure": measure,
                    "department_id": of,
                    "name": self.book.names[of],
                    "own": cost,
                    "median": middle,
                    "to_median": (cost - middle) / middle,
                    "excess_nanos": (cost - middle) * quantity,
                }
            )
        found.sort(key=lambda one: (-one["excess_nanos"], one["department_id"]))
        if self.department:
            return [one for one in found if one["department_id"] == self.department]
        return found[:10]

    def places(self, measure: str) -> list[dict[str, Any]]:
        found = []
        for of, cost in self.costs(measure).items():
            outcomes = self.book.imported(self.month, of)
            found.append(
                {
                    "rank": self.rank(measure, cost),
                    "department_id": of,
                    "name": self.book.names[of],
                    "amounts": sumif(self.book.own(self.month, of)),
                    "outcome": outcomes.get(measure, "no_outcomes"),
                    "own": cost,
                }
            )
        return sorted(found, key=lambda one: (one["rank"] or len(found) + 1, one["department_id"]))
