"""Who does what in a race, from a seed: requests with the ends and usages that they meet.

Time goes in phases: the last hour of November, the first of December, after November has closed,
after December has. In each phase requests are reserved, and then come three waves one after
another; what lies in one wave happens at once. A request's end (a release, or its time runs out)
is in the middle wave; a usage is before it, with it or after it, or phases later.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

PHASES = (
    datetime(2026, 11, 30, 23, 40, tzinfo=UTC),
    datetime(2026, 12, 1, 0, 30, tzinfo=UTC),
    datetime(2026, 12, 4, 0, 30, tzinfo=UTC),
    datetime(2027, 1, 4, 2, 0, tzinfo=UTC),
)
# reserved at a phase's time; the waves come when the reservations that are to expire are overdue
WAVES_LATER = timedelta(minutes=10)
SHORT_SECONDS, LONG_SECONDS = 300, 86_400
NOVEMBER, DECEMBER, JANUARY = date(2026, 11, 1), date(2026, 12, 1), date(2027, 1, 1)
WAVES = 3
POLICIES = ("estimate", "partial", "release")
TENANTS = tuple(f"t{number}" for number in range(9))
MOVED, MOVES_IN_PHASE = "t0", 1
RELEASE, EXPIRE = "release", "expire"
SINGLE, BATCH, INBOX = "single", "batch", "inbox"
Amounts = tuple[int, int, int]
Usage = tuple[int | None, int | None, int | None]
NO_FIGURES: Usage = (None, None, None)


def policy_of(tenant: str) -> str:
    return POLICIES[int(tenant[1:]) % 3]


def department_of(tenant: str, phase: int) -> str | None:
    """None, or the department at that phase; one tenant moves."""
    if tenant == MOVED and phase >= MOVES_IN_PHASE:
        return "d2"
    return (None, "d1", "d2")[int(tenant[1:]) // 3] if tenant != MOVED else "d1"


@dataclass(frozen=True, slots=True)
class Request:
    """`end`: RELEASE with `stated`, or EXPIRE."""

    tenant: str
    name: str
    phase: int
    estimate: Amounts
    end: str
    stated: Amounts
    # reserved while its first usage arrives
    late: bool


@dataclass(frozen=True, slots=True)
class Arrival:
    """A usage on its way by one of three ways."""

    request: Request
    usage: Usage
    usage_id: str | None
    way: str


@dataclass(slots=True)
class Plan:
    """`arrivals` by phase and wave."""

    requests: list[Request] = field(default_factory=list)
    arrivals: dict[tuple[int, int], list[Arrival]] = field(
        default_factory=lambda: defaultdict(list)
    )
    rng: random.Random = field(default_factory=random.Random)

    def reserved_in(self, phase: int, *, late: bool) -> list[Request]:
        return [r for r in self.requests if (r.phase, r.late) == (phase, late)]

    def released_in(self, phase: int) -> list[Request]:
        return [r for r in self.requests if r.phase == phase and r.end == RELEASE]


def amounts(rng: random.Random) -> Amounts:
    """Never the same twice, so that figures tell which usage they are."""
    return rng.randrange(1, 10**6), rng.randrange(1, 10**6), rng.randrange(1, 10**11)


def make_plan(seed: int, pairs: int) -> Plan:
    """`pairs` of (release or expiry) against usage, in the three orders; some requests beside them."""
    plan = Plan(rng=random.Random(seed))  # noqa: S311  a seeded test
    rng = plan.rng
    for number in range(pairs * 10 // 9):
        phase = number % len(PHASES)
        request = Request(
            rng.choice(TENANTS),
            f"r{number}",
            phase,
            amounts(rng),
            (RELEASE, EXPIRE)[number // len(PHASES) % 2],
            (0, 0, 0) if rng.random() < 0.5 else amounts(rng),
            late=rng.random() < 0.05,
        )
        plan.requests.append(request)
        if number % 10 == 9:
            # no usage at all, or one without figures
            if number % 20 == 9:
                wave = (1 if request.late else 0) + number % 40 // 20
                plan.arrivals[phase, wave].append(
                    Arrival(request, NO_FIGURES, None, rng.choice((SINGLE, BATCH)))
                )
            continue
        # before its end, at once, after it
        wave = 1 if request.late else number // (2 * len(PHASES)) % WAVES
        _send(plan, request, phase, wave, f"{request.name}-u0")
        for extra in range(1, rng.randrange(1, 4)):
            later = rng.randrange(phase, len(PHASES))
            wave = rng.randrange(1 if request.late and later == phase else 0, WAVES)
            named = f"{request.name}-u{extra}" if rng.random() < 0.8 else None
            _send(plan, request, later, wave, named)
    for number in range(pairs // 20 + 1):
        # nobody ever reserves these
        phase = number % len(PHASES)
        request = Request(
            rng.choice(TENANTS), f"x{number}", phase, (0, 0, 0), "", (0, 0, 0), late=False
        )
        for extra in range(2):
            _send(plan, request, phase, rng.randrange(WAVES), f"{request.name}-u{extra}")
    for arrivals in plan.arrivals.values():
        rng.shuffle(arrivals)
    return plan


def _send(plan: Plan, request: Request, phase: int, wave: int, usage_id: str | None) -> None:
    """A usage and its duplicates, which come by any way, with it or later."""
    rng = plan.rng
    usage: Usage = amounts(rng)
    way = rng.choice((SINGLE, SINGLE, BATCH, INBOX))
    priced = rng.random() < 0.85
    first = usage if priced else (usage[0], usage[1], None)
    plan.arrivals[phase, wave].append(Arrival(request, first, usage_id, way))
    if usage_id is None:
        return
    for _ in range(rng.choice((0, 0, 1, 2))):
        again = rng.randrange(phase, min(phase + 2, len(PHASES)))
        turn = rng.randrange(wave if again == phase else 0, WAVES)
        way = rng.choice((SINGLE, BATCH, INBOX))
        # the same again; or with the cost that was unknown
        plan.arrivals[again, turn].append(Arrival(request, usage, usage_id, way))
    if rng.random() < 0.05:
        # a fault of a model's: other figures under the same id; whichever is first, stays
        plan.arrivals[phase, WAVES - 1].append(Arrival(request, amounts(rng), usage_id, SINGLE))
