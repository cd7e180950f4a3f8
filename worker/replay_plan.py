"""Decides, from a trace and a seed, what each replayed request does.

Every choice is a draw that anybody can repeat without this program: the first 53 bits of
SHA-256 over ``SEED:PURPOSE:INDEX`` (INDEX: the request's place in the trace by time, from
0) as a whole number, divided by 2**53: a number u, 0 <= u < 1.

- ``tenant``: with N tenants, u picks ``replay-0001`` … (equally; or, with a skew s, the
  k-th with weight 1 / k**s).
- ``fate``: u < lose: the usage chunk is lost (no settle ever comes); u < lose + abort:
  the caller hangs up in mid-stream; else the stream ends and is settled.
- ``cut``: an aborted stream got floor(u * its output tokens) tokens out; with none, the
  request is released with zeros, otherwise with its input, these tokens and their cost.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING

from worker.traffic import Ask

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from worker.replay_trace import TraceRequest

COMPLETE, LOST, ABORTED = "complete", "lost", "aborted"
# A stream's pace, so that progress and settle have a time of their own.
FIRST_TOKEN = timedelta(milliseconds=500)
PER_TOKEN = timedelta(milliseconds=20)
LONGEST_STREAM = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a trace is replayed; costs in nanos per token, shares from 0 to 1.

    ``tenants`` None: the trace's own tenant column, or one tenant if it has none.
    ``estimate_out`` is the output that each reservation holds (its input is exact).
    ``progress_every`` output tokens a progress call is made; 0: never.
    """

    run_id: str
    seed: int = 1
    tenants: int | None = None
    skew: float = 0.0
    lose_usage: float = 0.0
    abort: float = 0.0
    cost_in: int = 3000
    cost_out: int = 15000
    estimate_out: int = 256
    progress_every: int = 200
    start_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of the replay. ``consumed_*`` is what its model call really used."""

    ask: Ask
    at: datetime
    fate: str
    consumed_in: int
    consumed_out: int
    consumed_cost_nanos: int

    def streamed_at(self, out_tokens: int) -> datetime:
        """When that many output tokens were out."""
        return self.at + min(FIRST_TOKEN + PER_TOKEN * out_tokens, LONGEST_STREAM)


def draw(seed: int, purpose: str, index: int) -> float:
    """The documented draw: 0 <= u < 1."""
    digest = hashlib.sha256(f"{seed}:{purpose}:{index}".encode()).digest()
    # 53 bits: all that a float holds, and so never rounded up to 1
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


def tenant_names(count: int) -> list[str]:
    """Names of the tenants that traffic is spread over."""
    width = max(4, len(str(count)))
    return [f"replay-{number:0{width}}" for number in range(1, count + 1)]


def plan_requests(trace: Sequence[TraceRequest], options: ReplayOptions) -> list[PlannedRequest]:
    """What every request of the trace will do, in the trace's order."""
    shift = options.start_at - trace[0].at if options.start_at else timedelta(0)
    has_tenants = trace[0].tenant_id is not None
    names = tenant_names(options.tenants or 1) if options.tenants or not has_tenants else []
    weights = [(rank + 1) ** -options.skew for rank in range(len(names))]
    bounds = list(accumulate(weights))
    planned = []
    for index, request in enumerate(trace):
        if names:
            point = draw(options.seed, "tenant", index) * bounds[-1]
            tenant = names[min(bisect_right(bounds, point), len(names) - 1)]
        else:
            tenant = request.tenant_id or ""
        planned.append(_plan(index, request, tenant, request.at + shift, options))
    return planned


def _plan(
    index: int, request: TraceRequest, tenant: str, at: datetime, options: ReplayOptions
) -> PlannedRequest:
    chance = draw(options.seed, "fate", index)
    consumed_in, consumed_out = request.in_tokens, request.out_tokens
    if chance < options.lose_usage:
        fate = LOST
    elif chance < options.lose_usage + options.abort:
        fate = ABORTED
        consumed_out = int(draw(options.seed, "cut", index) * request.out_tokens)
        if consumed_out == 0:
            consumed_in = 0
    else:
        fate = COMPLETE
    ask = Ask(
        tenant_id=tenant,
        request_id=f"{options.run_id}-{index}",
        in_tokens=request.in_tokens,
        out_tokens=options.estimate_out,
        cost_nanos=request.in_tokens * options.cost_in + options.estimate_out * options.cost_out,
        model=request.model,
        app=request.app,
    )
    cost = consumed_in * options.cost_in + consumed_out * options.cost_out
    return PlannedRequest(ask, at, fate, consumed_in, consumed_out, cost)
