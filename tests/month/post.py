"""What was sent and what arrived: the workers' claims on one side, the receivers' takings on the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

Rows = tuple[int, ...]


class Arrival(NamedTuple):
    """A request that a receiver took, as its reader sees it.

    `rows`: the outbox rows that it carried. `heard`: whether it was answered. `again`: a
    receiver that knows ids showed it no second time. `document`: a webhook's JSON.
    """

    channel: str
    request_id: str
    at: datetime
    rows: Rows
    text: str
    heard: bool
    again: bool = False
    document: dict[str, Any] | None = None


@dataclass
class Post:
    """Filled by all workers and receivers of a month; judged at its end."""

    arrivals: list[Arrival] = field(default_factory=list)
    # what each request carries, as it was leased last
    carried: dict[str, Rows] = field(default_factory=dict)
    # and when it was put together
    begun: dict[str, datetime] = field(default_factory=dict)
    # how often a row was given to a worker that never recorded what came of it
    in_doubt: Counter[int] = field(default_factory=Counter)
    # when each channel was asked to take something, by the simulated clock
    asked: dict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    faults: Counter[str] = field(default_factory=Counter)
    unknown: list[str] = field(default_factory=list)

    def lease(self, request_id: str, rows: list[int], at: datetime) -> None:
        self.carried[request_id] = tuple(rows)
        self.begun.setdefault(request_id, at)

    def take(self, channel: str, request_id: str, at: datetime, text: str, **more: Any) -> None:
        rows = self.carried.get(request_id)
        if rows is None:
            self.unknown.append(f"{channel}: {request_id}")
            return
        self.arrivals.append(Arrival(channel, request_id, at, rows, text, **more))
