"""Makes ``tiny.csv``: ``python -m worker.traces.generate > worker/traces/tiny.csv``.

Wholly synthetic: five tenants over seventy minutes, drawn from a fixed seed. The same
bytes at every run; a test holds the shipped file to it.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta

SEED = 20261130
FIRST = datetime(2026, 11, 30, 9, 0, 0)  # noqa: DTZ001  a trace's times carry no zone
SPAN = timedelta(minutes=70)
HEADER = "timestamp,input_tokens,output_tokens,tenant,model,app"


@dataclass(frozen=True, slots=True)
class Source:
    """One tenant's traffic; tokens are the medians of log-normal draws.

    ``burst``: so many requests come within seconds of one another.
    """

    tenant: str
    requests: int
    burst: int
    in_tokens: int
    out_tokens: int
    model: str
    apps: tuple[str, ...]


SOURCES = (
    Source("tenant-free", 64, 1, 420, 110, "small", ("playground",)),
    Source("tenant-pro", 96, 2, 1800, 260, "large", ("support-bot", "search")),
    Source("tenant-abuser", 36, 12, 150, 40, "small", ("scraper",)),
    Source("marketing-copy", 62, 1, 900, 520, "large", ("newsletter", "landing-pages")),
    Source("marketing-seo", 48, 3, 2600, 180, "large", ("seo-audit",)),
)


def lines() -> list[str]:
    """The file's lines, header first, by time."""
    chance = random.Random(SEED)  # noqa: S311  no secret
    rows = []
    for source in SOURCES:
        for burst in range(0, source.requests, source.burst):
            # spread evenly with some jitter, so that every ten minutes bring something
            place = (burst + chance.uniform(0.1, 0.9) * source.burst) / source.requests
            at = FIRST + SPAN * place
            for _ in range(min(source.burst, source.requests - burst)):
                at += timedelta(seconds=chance.expovariate(1 / 1.5))
                rows.append(
                    (
                        at,
                        max(1, round(source.in_tokens * chance.lognormvariate(0, 0.5))),
                        max(1, round(source.out_tokens * chance.lognormvariate(0, 0.6))),
                        source.tenant,
                        source.model,
                        chance.choice(source.apps),
                    )
                )
    rows.sort()
    return [
        HEADER,
        *(
            f"{at.isoformat(sep=' ', timespec='milliseconds')},{tokens_in},{tokens_out},"
            f"{tenant},{model},{app}"
            for at, tokens_in, tokens_out, tenant, model, app in rows
        ),
    ]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
