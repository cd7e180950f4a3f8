"""What the ledger must hold, from what it answered: the last usage that it took is the charge.

Nothing here reads the ledger's own tables but to compare them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import asyncpg

from reconcile.gateway import Answer
from reconcile.plan import (
    NO_FIGURES,
    PHASES,
    RELEASE,
    Arrival,
    Request,
    Usage,
    department_of,
    policy_of,
)

# completions, input, output, nanos
Sums = tuple[int, int, int, int]


@dataclass(slots=True)
class Taken:
    """A usage that the database took: its place in the order, and what it said of it."""

    place: tuple[int, int]
    outcome: str
    arrival: Arrival
    phase: int

    @property
    def usage(self) -> Usage:
        return self.arrival.usage


@dataclass(slots=True)
class Known:
    """What is known of one request."""

    request: Request
    reserved: bool = False
    released: bool = False
    taken: list[Taken] = field(default_factory=list)
    # a lost try may have been taken, or a duplicate of it later
    doubtful: bool = False

    @property
    def unreserved(self) -> Taken | None:
        return next((one for one in self.taken if one.outcome == "unreserved"), None)

    def usages(self) -> list[Taken]:
        figures = [one for one in self.taken if one.usage != NO_FIGURES]
        return sorted(figures, key=lambda one: one.place)

    def cost_of(self, usage: Usage) -> int:
        """Without a price the estimate's cost in proportion, rounded up; nothing was estimated, nothing."""
        tokens_in, tokens_out, cost = usage
        assert tokens_in is not None
        assert tokens_out is not None
        if cost is not None:
            return cost
        if self.unreserved:
            return 0
        e_in, e_out, e_cost = self.request.estimate
        return -(-e_cost * (tokens_in + tokens_out) // (e_in + e_out))

    def charge_at(self, place: tuple[int, int]) -> Sums | None:
        """By the usages up to that place; None without any."""
        usages = [one for one in self.usages() if one.place <= place]
        return self._charge_of(usages[-1].usage) if usages else None

    def charge(self) -> Sums:
        """Completions, input, output, nanos."""
        usages = self.usages()
        if usages:
            return self._charge_of(usages[-1].usage)
        if self.unreserved:
            # no figures, and nothing estimated
            return (1, 0, 0, 0)
        if self.released:
            return (int(any(self.request.stated)), *self.request.stated)
        e_in, e_out, e_cost = self.request.estimate
        # taken: without figures, and so at its estimate
        policy = "estimate" if self.taken else policy_of(self.request.tenant)
        return {
            "estimate": (1, e_in, e_out, e_cost),
            "partial": (1, e_in, 0, -(-e_cost * e_in // (e_in + e_out))),
            "release": (0, 0, 0, 0),
        }[policy]

    def _charge_of(self, usage: Usage) -> Sums:
        return (1, usage[0] or 0, usage[1] or 0, self.cost_of(usage))

    @property
    def admitted_in(self) -> int:
        """The phase whose day has the charge."""
        return self.unreserved.phase if self.unreserved else self.request.phase


class Truth:
    """Hears every answer; `day` and `month` sums are by what was heard so far."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Known] = {}
        self.left: dict[int, Arrival] = {}
        self._answers: list[tuple[Known, Answer]] = []
        # by place: what was answered without being taken
        self._repeats: list[tuple[tuple[int, int], str, Arrival]] = []

    def of(self, request: Request) -> Known:
        return self.known.setdefault((request.tenant, request.name), Known(request))

    def hear_release(self, request: Request, answer: Answer) -> None:
        assert request.end == RELEASE
        if answer.taken:
            self.of(request).released = True

    def hear_usage(self, arrival: Arrival, answer: Answer, phase: int) -> None:
        known = self.of(arrival.request)
        if answer.taken:
            place, outcome = answer.taken
            known.taken.append(Taken((place, 0), outcome, arrival, phase))
            known.doubtful |= not answer.sure and answer.outcome == "replayed"
        if answer.outcome != "conflict" and arrival.usage != NO_FIGURES:
            self._answers.append((known, answer))
        if answer.outcome in ("replayed", "conflict") and not answer.taken:
            self._repeats.append(((answer.place, 0), answer.outcome, arrival))

    async def hear_inbox(self, conn: asyncpg.Connection[Any], phase: int) -> None:
        """What the worker booked since: in the order of its batches, and of the inbox within one."""
        rows = await conn.fetch(
            "WITH taken AS (DELETE FROM race_booked RETURNING *)"
            " SELECT min(place) OVER (PARTITION BY batch) AS place, inbox_id, outcome FROM taken"
        )
        for row in rows:
            arrival = self.left.pop(row["inbox_id"])
            if row["outcome"] in ("settled", "corrected", "unreserved"):
                place = (row["place"], row["inbox_id"])
                taken = Taken(place, row["outcome"], arrival, phase)
                self.of(arrival.request).taken.append(taken)
            else:
                assert row["outcome"] in ("replayed", "conflict"), row
                place = (row["place"], row["inbox_id"])
                self._repeats.append((place, row["outcome"], arrival))

    def check_answers(self) -> None:
        """Each answer's charge is that of the last usage at its place, and each usage id was taken once."""
        for known, answer in self._answers:
            if not known.doubtful:
                charge = known.charge_at((answer.place, 0))
                assert charge is not None, (known, answer)
                assert answer.charged == charge[1:], (known, answer)
        for known in self.known.values():
            by_id: dict[str, list[Usage]] = defaultdict(list)
            for one in sorted(known.taken, key=lambda taken: taken.place):
                if one.arrival.usage_id is not None and not known.doubtful:
                    by_id[one.arrival.usage_id].append(one.usage)
            for usages in by_id.values():
                # again only to bring the cost that was missing
                first, *others = usages
                assert others in ([], [(first[0], first[1], others[0][2] if others else None)]), (
                    known
                )
                assert not others or first[2] is None, known
        for place, outcome, arrival in self._repeats:
            if arrival.usage_id is not None:
                before = [
                    one.usage
                    for one in self.of(arrival.request).taken
                    if one.arrival.usage_id == arrival.usage_id
                    and (one.place < place or outcome == "conflict")
                ]
                assert before, (outcome, arrival)
                # be it without the cost that it came with before
                came = arrival.usage in before or (
                    arrival.usage[2] is None and arrival.usage[:2] in [one[:2] for one in before]
                )
                if outcome == "replayed" and not came:
                    # it brought what it had lacked, and a later usage had come
                    came = NO_FIGURES in before or (*arrival.usage[:2], None) in before
                    usages = self.of(arrival.request).usages()
                    latest = [one for one in usages if one.place < place][-1]
                    assert latest.arrival.usage_id != arrival.usage_id, (latest, arrival)
                assert came == (outcome == "replayed"), (before, arrival)

    def days(self) -> dict[tuple[str, date], Sums]:
        sums: dict[tuple[str, date], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for known in self.known.values():
            add(sums[known.request.tenant, PHASES[known.admitted_in].date()], known.charge())
        return {key: (row[0], row[1], row[2], row[3]) for key, row in sums.items()}

    def months(self) -> dict[tuple[str, str, date], Sums]:
        """By tenant, department ('' for none) and month of admission."""
        sums: dict[tuple[str, str, date], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for known in self.known.values():
            phase = known.admitted_in
            department = department_of(known.request.tenant, phase) or ""
            month = PHASES[phase].date().replace(day=1)
            add(sums[known.request.tenant, department, month], known.charge())
        return {key: (row[0], row[1], row[2], row[3]) for key, row in sums.items()}


def add(sums: list[int], charge: Sums) -> None:
    for place, amount in enumerate(charge):
        sums[place] += amount
