"""What a run does, from one seed: subjects with their caps, and faults with their times."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker.replay_trace import TraceRequest, read_trace

TRACE = Path(__file__).parents[2] / "worker" / "traces" / "tiny.csv"
GATEWAYS = 3
TENANTS_PER_SOURCE = 14
REQUESTS_PER_SECOND = 13.0  # of each gateway
DEPARTMENTS = 14
TTL_SECONDS = 20
NANOS_IN, NANOS_OUT, CENT = 3_000, 15_000, 10_000_000
POLICIES = ("estimate", "partial", "release")
CAPS = (
    "daily_completions",
    "daily_input_tokens",
    "daily_output_tokens",
    "daily_tokens",
    "daily_cost_cents",
    "monthly_completions",
    "monthly_tokens",
    "monthly_cost_cents",
)
# how each receiver misbehaves: see receivers.py
CHANNELS = {
    "feishu": ("hang", "late", "lie", "gone", "429", "500", "close", "close-taken"),
    "hook": ("hang", "late", "429", "500", "500-taken", "close", "close-taken"),
    "mail": ("hang", "late", "451", "421", "close-taken", "550"),
    "bot": ("hang", "late", "exit", "says-error", "exit-taken"),
}
# kind of fault: how many in six minutes
FAULTS = {
    "postgres restarted": 2,
    "postgres stopped at once": 2,
    "postmaster killed": 2,
    "connections cut": 6,
    "pgbouncer killed": 3,
    "tick killed": 8,
    "schedule killed": 6,
    "gateway killed": 4,
    "schedule stopped": 2,
    "gateway stopped": 2,
    "clock an hour ahead": 2,
    "clock an hour behind": 2,
    "log's disk full": 2,
    "receiver": 20,
}
SECONDS_OF_FAULTS = 360.0
# beyond a lease of 60 s; where there is time for it
STOPPED_SECONDS = 70.0
UPGRADE_AT = 0.12
FIRST_FAULT, LAST_FAULT = 0.04, 0.94


@dataclass(frozen=True, order=True)
class Fault:
    at: float
    kind: str
    seconds: float = 0.0
    # of a receiver: its channel and how it misbehaves
    detail: tuple[str, ...] = ()


@dataclass
class Plan:
    seed: int
    seconds: float
    tenants: dict[str, dict[str, Any]] = field(default_factory=dict)
    # tenants of each gateway
    shares: list[list[str]] = field(default_factory=list)
    budgets: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def amounts(one: TraceRequest) -> tuple[int, int, int]:
    """The tokens that a request of the trace used, and their cost."""
    cost = one.in_tokens * NANOS_IN + one.out_tokens * NANOS_OUT
    return one.in_tokens, one.out_tokens, cost


def make_plan(seed: int, seconds: float) -> Plan:
    rng = random.Random(seed)  # noqa: S311  a seeded test
    plan = Plan(seed, seconds)
    trace = read_trace(TRACE)
    sources: dict[str, list[TraceRequest]] = defaultdict(list)
    for one in trace:
        sources[str(one.tenant_id)].append(one)
    needs: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for gateway in range(GATEWAYS):
        plan.shares.append([])
        for source, requests in sources.items():
            # what the run will ask for in one of this source's tenants
            share = len(requests) / len(trace) / TENANTS_PER_SOURCE
            times = REQUESTS_PER_SECOND * seconds * share
            means = [sum(one) / len(requests) for one in zip(*map(amounts, requests), strict=True)]
            for number in range(TENANTS_PER_SOURCE):
                name = f"{source}-{gateway}-{number:02}"
                limits = _limits(rng, times, means)
                if rng.random() < 0.5:
                    department = f"dept-{rng.randrange(DEPARTMENTS):02}"
                    limits["department_id"] = department
                    needs[department][0] += times * (means[0] + means[1])
                    needs[department][1] += times * means[2]
                plan.tenants[name] = limits
                plan.shares[-1].append(name)
    for department, (tokens, nanos) in sorted(needs.items()):
        share = rng.uniform(0.25, 0.8)
        plan.budgets[department] = {
            "monthly_tokens": int(tokens * share) if rng.random() < 0.6 else None,
            "monthly_cost_cents": int(nanos * share * rng.uniform(0.8, 1.2) / CENT) + 1,
            "downgrade_model": "small",
        }
    plan.faults = _faults(rng, seconds)
    return plan


def _limits(rng: random.Random, times: float, means: list[float]) -> dict[str, Any]:
    most = {
        "completions": times,
        "input_tokens": times * means[0],
        "output_tokens": times * means[1],
        "tokens": times * (means[0] + means[1]),
        "cost_cents": times * means[2] / CENT,
    }
    limits: dict[str, Any] = dict.fromkeys(CAPS)
    for cap in rng.sample(CAPS, k=rng.choice((1, 1, 2, 3))):
        needed = most[cap.partition("_")[2]]
        limits[cap] = max(2, int(needed * rng.uniform(0.3, 1.1)))
    return limits | {
        "soft_warn_pct": rng.choice((50, 80, 80, 90)),
        "stale_policy": rng.choice(POLICIES),
        "enforce": "observe" if rng.random() < 0.1 else "on",
        "bucket_capacity": 1e9,
        "bucket_refill_per_sec": 1e6,
        "department_id": None,
    }


def _faults(rng: random.Random, seconds: float) -> list[Fault]:
    found = [Fault(UPGRADE_AT * seconds, "upgrade")]
    last = LAST_FAULT * seconds
    modes = [(channel, mode) for channel, all_modes in CHANNELS.items() for mode in all_modes]
    rng.shuffle(modes)
    for kind, often in FAULTS.items():
        count = max(1, round(often * seconds / SECONDS_OF_FAULTS))
        # they start when the upgrade is done
        first = (UPGRADE_AT + 0.08 if kind.startswith("schedule") else FIRST_FAULT) * seconds
        for number in range(count):
            at = first + (number + rng.random()) * (last - first) / count
            length, detail = 0.0, ()
            if kind == "receiver":
                length, detail = rng.uniform(6, 14), modes[len(found) % len(modes)]
            elif kind == "schedule stopped":
                length = rng.uniform(4, 12)
                if number == 0 and seconds >= 4 * STOPPED_SECONDS:
                    at = rng.uniform(first, last - STOPPED_SECONDS)
                    length = STOPPED_SECONDS
            elif kind == "gateway stopped":
                length = rng.uniform(3, 8)
            elif kind.startswith("clock") or kind == "log's disk full":
                length = rng.uniform(12, 25)
            elif kind == "pgbouncer killed":
                length = rng.uniform(0.2, 3)
            found.append(Fault(at, kind, length, detail))
    return sorted(found)


def dump(plan: Plan) -> str:
    """For a gateway's process."""
    return json.dumps({"seed": plan.seed, "seconds": plan.seconds, "shares": plan.shares})
