"""What the ledger must hold, from the gateways' journals alone, compared with what it holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import asyncpg

from chaos.journal import read_journal
from chaos.plan import GATEWAYS, Plan

# in, out, nanos
Amounts = tuple[int, int, int]
DONE = ("settled", "corrected", "replayed", "unreserved", "estimated")


@dataclass
class Known:
    """One request, as its gateway knows it. Times are seconds of the real clock."""

    tenant: str
    estimate: Amounts | None = None
    allowed: bool = False
    refusals: list[tuple[float, str]] = field(default_factory=list)
    # figures that were sent, in order; None: none came. With the time of the answer
    usages: list[tuple[float, Amounts | None]] = field(default_factory=list)
    released: tuple[float, Amounts] | None = None
    progress: list[int] = field(default_factory=list)
    # a progress that may have counted, though its repeat found the request ended
    maybe_progress: list[int] = field(default_factory=list)

    def charges(self, policy: str) -> set[tuple[Amounts, bool]]:
        """What it may be charged in the end, and whether its completion counts."""
        figures = [one for _, one in self.usages if one is not None]
        if figures:
            return {(figures[-1], True)}
        assert self.estimate is not None
        if self.usages:
            return {(self.estimate, True)}
        if self.released is not None:
            return {(self.released[1], any(self.released[1]))}
        if policy == "estimate":
            return {(self.estimate, True)}
        if policy == "release":
            return {((0, 0, 0), False)}
        tokens_in, tokens_out, cost = self.estimate
        surely = max(self.progress, default=0)
        return {
            ((tokens_in, out, -(-cost * (tokens_in + out) // (tokens_in + tokens_out))), True)
            for out in {surely, *(one for one in self.maybe_progress if one > surely)}
        }


@dataclass
class Truth:
    plan: Plan
    requests: dict[tuple[str, str], Known] = field(default_factory=dict)
    rows: dict[tuple[str, str], asyncpg.Record] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    # when what lay in the inbox was booked
    booked: dict[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    async def read(cls, plan: Plan, folder: Path, conn: asyncpg.Connection[Any]) -> Truth:
        truth = cls(plan)
        for number in range(GATEWAYS):
            truth._read_journal(folder / f"gateway-{number}.jsonl")
        for row in await conn.fetch("SELECT * FROM quota_reservations"):
            truth.rows[row["tenant_id"], row["request_id"]] = row
        for row in await conn.fetch("SELECT * FROM quota_usage_inbox"):
            key = row["tenant_id"], row["request_id"]
            if row["booked_at"] is None or row["outcome"] in ("conflict", "invalid"):
                truth.faults.append(f"inbox: {key} is {row['outcome']}")
            else:
                truth.booked[key] = row["booked_at"].timestamp()
        truth._compare_requests()
        await truth._compare_days(conn)
        await truth._compare_departments(conn)
        return truth

    def _read_journal(self, path: Path) -> None:
        asked: dict[str, dict[str, Any]] = {}
        answers: dict[str, dict[str, Any]] = {}
        for line in read_journal(path):
            if "call" in line:
                asked.setdefault(line["n"], line)
            else:
                answers[line["n"]] = line
        for number, line in asked.items():
            answer = answers.get(number)
            if answer is None or "error" in answer:
                self.faults.append(f"gateway: {line} was answered {answer}")
                continue
            self._learn(line, answer)

    def _learn(self, line: dict[str, Any], answer: dict[str, Any]) -> None:
        self.calls += 1
        known = self.requests.setdefault((line["tenant"], line["id"]), Known(line["tenant"]))
        call, figures = line["call"], line["args"]
        self.outcomes[f"{call}: {answer.get('outcome', answer.get('reason'))}"] += 1
        if call == "reserve":
            known.estimate = (figures[0], figures[1], figures[2])
            known.allowed = known.allowed or answer["allowed"]
            if not answer["allowed"]:
                known.refusals.append((answer["t"], answer["reason"]))
        elif call == "progress":
            counted = answer["outcome"] == "progressed"
            (known.progress if counted else known.maybe_progress).append(figures[0])
        elif call == "release":
            if answer["outcome"] in ("released", "replayed"):
                known.released = (answer["t"], (figures[0], figures[1], figures[2]))
            elif answer["outcome"] != "already_final":
                self.faults.append(f"gateway: {line} was answered {answer}")
        else:
            if call == "settle" and answer["outcome"] not in DONE:
                self.faults.append(f"gateway: {line} was answered {answer}")
            usage = None if figures[0] is None else (figures[0], figures[1], figures[2])
            known.usages.append((answer["t"], usage))

    def final(self) -> Iterator[tuple[tuple[str, str], Known, asyncpg.Record, Amounts, bool]]:
        """Each request that was charged, with what it is charged."""
        for key, row in self.rows.items():
            known = self.requests.get(key)
            if known is None or not (known.allowed or known.usages):
                continue
            allowed = known.charges(self.plan.tenants[key[0]]["stale_policy"])
            found = (
                (row["charged_in_tokens"], row["charged_out_tokens"], row["charged_cost_nanos"]),
                row["completion_counted"],
            )
            charge, counted = found if found in allowed else min(allowed)
            yield key, known, row, charge, counted

    def _compare_requests(self) -> None:
        for key, known in self.requests.items():
            if (known.allowed or known.usages) and key not in self.rows:
                self.faults.append(f"ledger: {key} was taken and isn't there")
        for key, row in self.rows.items():
            if key not in self.requests:
                self.faults.append(f"ledger: {key} is there, and nobody asked for it")
            elif row["state"] == "open":
                self.faults.append(f"ledger: {key} is open since {row['admitted_at']}")
        for key, known, row, charge, counted in self.final():
            found = (row["charged_in_tokens"], row["charged_out_tokens"], row["charged_cost_nanos"])
            if (found, row["completion_counted"]) != (charge, counted) and row["state"] != "open":
                self.faults.append(f"ledger: {key} is charged {found}, not {charge}: {known}")

    async def _compare_days(self, conn: asyncpg.Connection[Any]) -> None:
        sums: dict[tuple[str, date], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for (tenant, _), _, row, charge, counted in self.final():
            day = sums[tenant, row["period"]]
            for place, amount in enumerate((int(counted), *charge)):
                day[place] += amount
        query = (
            "SELECT tenant_id, period, completions, input_tokens, output_tokens, held_input_tokens,"
            " held_output_tokens, held_cost_nanos, cost_cents * 10000000 + cost_subcent_nanos AS nanos"
            " FROM quota_usage"
        )
        found = {(row["tenant_id"], row["period"]): row for row in await conn.fetch(query)}
        names = ("completions", "input_tokens", "output_tokens", "nanos")
        for key in sums.keys() | found.keys():
            row = found.get(key)
            theirs = [row[name] for name in names] if row else [0, 0, 0, 0]
            if theirs != sums[key]:
                self.faults.append(f"ledger: {key} holds {theirs}, the truth is {sums[key]}")
            if row and any(
                row[f"held_{name}"] for name in ("input_tokens", "output_tokens", "cost_nanos")
            ):
                self.faults.append(f"ledger: {key} still holds something: {dict(row)}")

    async def _compare_departments(self, conn: asyncpg.Connection[Any]) -> None:
        sums: dict[tuple[str, date], list[int]] = defaultdict(lambda: [0, 0])
        for _, _, row, charge, _ in self.final():
            if row["department_id"]:
                month = sums[row["department_id"], row["period"].replace(day=1)]
                month[0] += charge[0] + charge[1]
                month[1] += charge[2]
        query = (
            "SELECT department_id, month, sum(tokens_used)::bigint AS tokens,"
            " sum(cost_used_nanos)::bigint AS nanos FROM quota_department_slots GROUP BY 1, 2"
        )
        found = {(r[0], r[1]): [r[2], r[3]] for r in await conn.fetch(query)}
        for key in sums.keys() | found.keys():
            if found.get(key, [0, 0]) != sums[key]:
                self.faults.append(
                    f"ledger: {key} holds {found.get(key)}, the truth is {sums[key]}"
                )
