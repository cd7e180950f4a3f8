"""Which crossings there were, from the gateways' journals and the caps; compared with what was logged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import asyncpg

from chaos.plan import CENT, Plan
from chaos.truth import Amounts, Known, Truth

DEPARTMENT_PCTS = (75, 90, 98, 100)
NOTHING = (0, 0, 0, 0)


class Line(NamedTuple):
    """A cap of a subject in a period."""

    subject: str
    dimension: str
    period_kind: str
    period_start: date


REASONS = {
    "daily_cap_reached": ("completions", "day"),
    "daily_input_tokens_reached": ("input_tokens", "day"),
    "daily_output_tokens_reached": ("output_tokens", "day"),
    "daily_tokens_reached": ("tokens", "day"),
    "daily_cost_reached": ("cost", "day"),
    "monthly_completions_reached": ("completions", "month"),
    "monthly_tokens_reached": ("tokens", "month"),
    "monthly_cost_reached": ("cost", "month"),
}


@dataclass
class Course:
    """How one line was used: charges in the order of their times."""

    cap: int
    pcts: tuple[int, ...]
    steps: list[tuple[float, int]] = field(default_factory=list)
    # no more than this can have been used at any moment
    most: int = 0
    refused_at: float | None = None

    def final(self) -> int:
        return sum(step for _, step in self.steps)

    def crossed_at(self, pct: int) -> float | None:
        """When this threshold was passed first."""
        used = 0
        for at, step in sorted(self.steps):
            used += step
            if used * 100 >= pct * self.cap:
                return min(at, self.refused_at or at) if pct == 100 else at
        return self.refused_at if pct == 100 else None


def _measures(charge: Amounts, counted: int) -> dict[str, int]:
    tokens_in, tokens_out, nanos = charge
    return {
        "completions": counted,
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "tokens": tokens_in + tokens_out,
        "cost": nanos,
    }


@dataclass
class Crossings:
    plan: Plan
    courses: dict[Line, Course] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, truth: Truth) -> Crossings:
        found = cls(truth.plan)
        for key, known, row, charge, counted in truth.final():
            found._follow(key, known, row, (charge, counted), truth)
        for (tenant, _), known in truth.requests.items():
            for at, reason in known.refusals:
                found._refused(tenant, at, reason)
        return found

    def _caps(self, tenant: str, day: date) -> Iterator[tuple[Line, int, tuple[int, ...]]]:
        limits = self.plan.tenants[tenant]
        starts = {"day": day, "month": day.replace(day=1)}
        for dimension, kind in REASONS.values():
            prefix = "daily" if kind == "day" else "monthly"
            cap = limits.get(f"{prefix}_{'cost_cents' if dimension == 'cost' else dimension}")
            if cap:
                line = Line(tenant, dimension, kind, starts[kind])
                yield (
                    line,
                    cap * (CENT if dimension == "cost" else 1),
                    (limits["soft_warn_pct"], 100),
                )
        department = limits["department_id"]
        budget = self.plan.budgets.get(department or "", {})
        for dimension, name, unit in (
            ("tokens", "monthly_tokens", 1),
            ("cost", "monthly_cost_cents", CENT),
        ):
            if budget.get(name):
                yield (
                    Line(department, dimension, "month", starts["month"]),
                    budget[name] * unit,
                    DEPARTMENT_PCTS,
                )

    def _course(self, line: Line, cap: int, pcts: tuple[int, ...]) -> Course:
        return self.courses.setdefault(line, Course(cap, pcts))

    def _follow(
        self,
        key: tuple[str, str],
        known: Known,
        row: asyncpg.Record,
        end: tuple[Amounts, bool],
        truth: Truth,
    ) -> None:
        """What it held and was charged, one after the other."""
        stages: list[tuple[float, dict[str, int]]] = []
        if known.allowed and known.estimate is not None:
            stages.append((row["admitted_at"].timestamp(), _measures(known.estimate, 1)))
        for at, usage in known.usages:
            if usage is not None:
                stages.append((truth.booked.get(key, at), _measures(usage, 1)))
        ended = row["ended_at"] or row["admitted_at"]
        stages.append((max(ended.timestamp(), stages[-1][0] if stages else 0.0), _measures(*end)))
        for line, cap, pcts in self._caps(key[0], row["period"]):
            course = self._course(line, cap, pcts)
            before = 0
            for at, measures in stages:
                course.steps.append((at, measures[line.dimension] - before))
                before = measures[line.dimension]
            course.most += max(measures[line.dimension] for _, measures in stages)

    def _refused(self, tenant: str, at: float, reason: str) -> None:
        if reason not in REASONS:
            return
        day = datetime.fromtimestamp(at, UTC).date()
        for line, cap, pcts in self._caps(tenant, day):
            if line.subject == tenant and (line.dimension, line.period_kind) == REASONS[reason]:
                course = self._course(line, cap, pcts)
                course.refused_at = min(at, course.refused_at or at)

    def compare(self, log: list[asyncpg.Record]) -> None:
        """Every line that stands passed was logged, and nothing that never was."""
        logged: dict[tuple[Line, int], list[asyncpg.Record]] = defaultdict(list)
        for row in log:
            line = Line(row["subject"], row["dimension"], row["period_kind"], row["period_start"])
            logged[line, row["threshold"]].append(row)
        for line, course in self.courses.items():
            self._missing(line, course, {pct: logged.get((line, pct), []) for pct in course.pcts})
        for (line, pct), rows in logged.items():
            known = self.courses.get(line)
            if len({row["generation"] for row in rows}) != len(rows):
                self.faults.append(f"crossing: {line} at {pct} % is logged twice")
            if known is None or pct not in known.pcts or not self._possible(known, pct, rows):
                self.faults.append(f"crossing: {line} at {pct} % was told and never was: {rows}")

    def _missing(self, line: Line, course: Course, logged: dict[int, list[asyncpg.Record]]) -> None:
        """Of the thresholds that stand passed the highest was told, the others logged at least."""
        passed = [pct for pct in course.pcts if course.final() * 100 >= pct * course.cap]
        if course.refused_at is not None and not logged[100]:
            self.faults.append(f"crossing: the refusal of {line} was not told")
        for pct in passed:
            live = [row for row in logged[pct] if row["rearmed_at"] is None]
            if not live:
                self.faults.append(f"crossing: {line} at {pct} % was not told: {logged[pct]}")
            elif pct == max(passed) and live[0]["state"] == "superseded":
                higher = [row for one in course.pcts if one > pct for row in logged[one]]
                if not any(row["state"] != "superseded" for row in higher):
                    self.faults.append(f"crossing: {line} at {pct} % is superseded by nothing")

    @staticmethod
    def _possible(course: Course, pct: int, rows: list[Any]) -> bool:
        if course.most * 100 >= pct * course.cap:
            return True
        return pct == 100 and any(row["refused_at"] is not None for row in rows)
