"""A month's own sheets: its ledger, trend, shares, budgets, days and splits."""

from __future__ import annotations

import calendar
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

from acceptance.spreadsheet import (
    AMOUNTS,
    KEPT,
    Allowance,
    Book,
    Cells,
    Figure,
    Line,
    by,
    change,
    months_before,
    quotient,
    sumif,
    tokens,
    unit,
)


class MonthSheet:
    """One month, of a department or of all (None)."""

    def __init__(self, book: Book, month: date, department: str | None) -> None:
        self.book, self.month, self.department = book, month, department
        self.lines = book.own(month, department)
        self.own = sumif(self.lines)
        self.outcomes = book.imported(month, department)
        self.days = calendar.monthrange(month.year, month.month)[1]
        self.compared = sorted(book.names)
        known = {name for of in self.compared for name in book.imported(month, of)}
        past = {
            name
            for when in book.recorded
            if months_before(month, 5) <= when < month
            for name in book.imported(when, department)
        }
        names = ["orders", "gmv", *sorted(self.outcomes), *sorted(known | past)]
        self.metrics = list(dict.fromkeys(names))
        assert len(self.metrics) <= 12
        self.measures = ["", *(one for one in self.metrics if one in known | {"orders", "gmv"})]

    # the month itself -------------------------------------------------------------

    def ledger(self) -> dict[str, Any]:
        adjusted = self.book.adjustments(self.month, self.department)
        sides = by(self.lines, "department")
        owned = [line for of, lines in sides.items() if of for line in lines]
        lines = [("departments", self.month, sumif(owned))]
        if "" in sides:
            lines.append(("without_department", self.month, sumif(sides[""])))
        for month in sorted({line.belongs for line in adjusted}):
            of = [line for line in adjusted if line.belongs == month]
            lines.append(("adjustment", month, sumif(of)))
        requests = self.own["completions"]
        uses: dict[tuple[str, str, str], list[Line]] = {}
        for line in self.lines:
            uses.setdefault((line.environment, line.model, line.app), []).append(line)
        unpriced = [one for one in map(sumif, uses.values()) if one["unpriced_count"]]
        return {
            "lines": [
                {"kind": kind, "belongs_to": month.isoformat(), "amounts": cells}
                for kind, month, cells in lines
            ],
            "own": self.own,
            "adjustments": sumif(adjusted),
            "total": sumif([*self.lines, *adjusted]),
            "unpriced_count": self.own["unpriced_count"],
            "unpriced_share": quotient(self.own["unpriced_count"], requests, "no_usage"),
            "unpriced_cost_nanos": sum(one["cost_nanos"] for one in unpriced),
            "unpriced_at_most": any(one["unpriced_count"] < one["completions"] for one in unpriced),
        }

    def told(self, month: date, department: str | None) -> Cells | None:
        if month not in self.book.recorded:
            return None
        return sumif(self.book.own(month, department), KEPT)

    def changes(self) -> dict[str, Any]:
        before = self.told(months_before(self.month, 1), self.department)
        if before is None:
            missing = dict.fromkeys(("completions", "tokens", "cost"), "no_month_before")
            return {**missing, "before": None}
        return {
            "completions": change(Fraction(self.own["completions"]), Fraction(before["completions"])),
            "tokens": change(Fraction(tokens(self.own)), Fraction(tokens(before))),
            "cost": change(Fraction(self.own["cost_nanos"]), Fraction(before["cost_nanos"])),
            "before": before,
        }  # fmt: skip

    def trend(self, month: date) -> dict[str, Any]:
        now = month == self.month
        own = self.own if now else self.told(month, self.department)
        adjusted = self.book.adjustments(month, self.department)
        outcomes = self.book.imported(month, self.department) if own is not None else {}
        return {
            "month": month.isoformat(),
            "own": own,
            "adjustments": None if own is None else sumif(adjusted, AMOUNTS if now else KEPT),
            "units": {one: unit(one, own, outcomes, "not_recorded") for one in self.metrics},
        }

    def metric(self, metric: str) -> dict[str, Any]:
        last = months_before(self.month, 1)
        told = self.told(last, self.department)
        outcomes = {} if told is None else self.book.imported(last, self.department)
        now = unit(metric, self.own, self.outcomes, "not_recorded")
        before = unit(metric, told, outcomes, "no_month_before")
        return {
            "metric": metric,
            "now": now,
            "before": before,
            "change": {name: change(now[name], before[name]) for name in now},
        }

    def shares(self) -> dict[str, Any]:
        own = self.own
        requests = own["completions"] + own["released_count"]
        return {
            **{name: own[name] for name in own if name.startswith(("stale", "released", "down"))},
            "stale_count_share": quotient(own["stale_count"], own["completions"], "no_usage"),
            "stale_cost_share": quotient(own["stale_cost_nanos"], own["cost_nanos"], "no_cost"),
            "released_share": quotient(own["released_count"], requests, "no_usage"),
            "downgraded_token_share": quotient(own["downgraded_tokens"], tokens(own), "no_usage"),
            "downgraded_saving": "asked_not_kept",
            "cached_share": quotient(own["cached_in_tokens"], own["input_tokens"], "no_usage"),
        }

    # budgets and days -------------------------------------------------------------

    def allowances(self, environment: str) -> dict[str, Allowance]:
        return {
            of: given
            for (month, of, where), given in self.book.budgets.items()
            if (month, where) == (self.month, environment) and self.department in {None, of}
        }

    def within(self, environment: str) -> list[Line]:
        return [line for line in self.lines if line.environment == environment]

    def environments(self) -> list[str]:
        given = (where for where in ("production", "test") if self.allowances(where))
        return sorted({line.environment for line in self.lines} | set(given))

    def limits(self, environment: str, what: str, scale: int) -> dict[str, int]:
        """Budget and top-ups of each department that has that budget; a top-up alone is none."""
        return {
            of: (getattr(one, what) + getattr(one, f"more_{what}")) * scale
            for of, one in self.allowances(environment).items()
            if getattr(one, what) is not None
        }

    def budget(self, environment: str) -> dict[str, Any]:
        found: dict[str, Any] = {"environment": environment}
        usage = by(self.within(environment), "department")
        for what, scale, word, used_as, topped in (
            ("tokens", 1, "tokens", "tokens_used", "topup_tokens"),
            ("cents", 10**7, "cost", "cost_used_nanos", "topup_cost_nanos"),
        ):
            limits = self.limits(environment, what, scale)
            of = [line for key in usage if key in limits or not limits for line in usage[key]]
            cells = sumif(of)
            used = tokens(cells) if word == "tokens" else cells["cost_nanos"]
            allowed = sum(limits.values()) if limits else None
            given = self.allowances(environment)
            share: Figure = "no_budget"
            if allowed is not None:
                share = Fraction(used, allowed) if allowed else Fraction(1)
            found |= {
                used_as: used,
                used_as.replace("used", "allowed"): allowed,
                f"{word}_share": share,
                topped: sum(getattr(given[one], f"more_{what}") for one in limits) * scale,
                f"departments_with_{word}": len(limits),
            }
        return found

    def curve(self, environment: str) -> dict[str, Any]:
        points, so_far, spent = [], 0, 0
        lines = by(self.within(environment), "day")
        for number in range(self.days):
            day = self.month + timedelta(days=number)
            cells = sumif(lines.get(day, []))  # type: ignore[call-overload]
            so_far += tokens(cells)
            spent += cells["cost_nanos"]
            points.append(
                {
                    "day": day.isoformat(),
                    "tokens": tokens(cells),
                    "cost_nanos": cells["cost_nanos"],
                    "tokens_so_far": so_far,
                    "cost_nanos_so_far": spent,
                }
            )
        users = set(by(self.within(environment), "department"))
        caps: dict[str, int | None] = {}
        for what, scale in (("tokens", 1), ("cents", 10**7)):
            limits = self.limits(environment, what, scale)
            caps[what] = sum(limits.values()) if limits and users <= set(limits) else None
        even = {
            what: "no_budget" if cap is None else Fraction(cap, self.days)
            for what, cap in caps.items()
        }
        return {
            "environment": environment,
            "points": points,
            "cost_cap_nanos": caps["cents"],
            "token_cap": caps["tokens"],
            "even_cost_nanos": even["cents"],
            "even_tokens": even["tokens"],
            "rest": sumif([]),
        }

    # splits -----------------------------------------------------------------------

    def splits(self) -> dict[str, Any]:
        return {
            "apps": self.split("app", 10),
            "models": self.split("model", 10),
            "environments": self.split("environment", 10),
            "tenants": self.split("tenant", 20),
            "departments": None if self.department else self.split("department", 30),
        }

    def split(self, label: str, top: int) -> dict[str, Any]:
        sums = {key: sumif(lines) for key, lines in by(self.lines, label).items()}

        def line(kind: str, key: str, members: int, cells: Cells) -> dict[str, Any]:
            name = self.book.names.get(key, key) if label == "department" else key
            return {
                "kind": kind,
                "key": key,
                "name": name,
                "members": members,
                "amounts": cells,
                "cost_share": quotient(cells["cost_nanos"], self.own["cost_nanos"], "no_cost"),
                "token_share": quotient(tokens(cells), tokens(self.own), "no_usage"),
            }

        order = sorted(
            (key for key in sums if key),
            key=lambda key: (-sums[key]["cost_nanos"], -tokens(sums[key]), key),
        )
        named = [line("named", key, 1, sums[key]) for key in order]
        unnamed = [line("unnamed", "", 1, sums[""])] if "" in sums else []
        if len(named) <= top + 1:
            shown = [*named, *unnamed]
        else:
            rest = {key: sums[key] for key in order[top:]}
            cells = {name: sum(one[name] for one in rest.values()) for name in AMOUNTS}
            shown = [*named[:top], *unnamed, line("others", "", len(rest), cells)]
        return {"lines": shown, "every": [*named, *unnamed], "total": self.own}
