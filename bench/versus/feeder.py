"""Prometheus' role: posts alerts that go on, again and again: `python -m bench.versus.feeder`.

As Prometheus does: to every Alertmanager, at most 64 in a request, each again once the resend
delay is over, each time with an end four delays from now; a post that fails is not repeated
before that. Prints a line for each alert once it was taken: its name and when it was first posted,
in vain or not.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

BATCH = 64
POST_SECONDS = 10.0


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--alerts", type=int, required=True)
    parser.add_argument("--resend-seconds", type=float, required=True)
    parser.add_argument("urls", nargs="+")
    args = parser.parse_args()
    names = [f"alert-{n}" for n in range(1, args.alerts + 1)]
    begin = datetime.now(UTC)
    posted: dict[str, float] = {}
    told: set[str] = set()
    async with httpx.AsyncClient(timeout=POST_SECONDS, trust_env=False) as client:
        while True:  # until it is killed
            next_at = time.monotonic() + args.resend_seconds
            for at in range(0, len(names), BATCH):
                batch = names[at : at + BATCH]
                for name in batch:
                    posted.setdefault(name, time.time())
                alerts = [_alert(name, begin, args.resend_seconds) for name in batch]
                answers = await asyncio.gather(*(_post(client, url, alerts) for url in args.urls))
                if any(answers):
                    for name in batch:
                        if name not in told:
                            told.add(name)
                            print(f"{name} {posted[name]}", flush=True)
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))


async def _post(client: httpx.AsyncClient, url: str, alerts: list[dict[str, Any]]) -> bool:
    try:
        answer = await client.post(f"{url}/api/v2/alerts", json=alerts)
    except httpx.HTTPError:
        return False
    return answer.is_success


def _alert(name: str, begin: datetime, resend_seconds: float) -> dict[str, Any]:
    return {
        "labels": {"alertname": "QuotaWarning", "alert": name, "severity": "warning"},
        "annotations": {"summary": f"{name} at 85.0% tokens"},
        "startsAt": begin.isoformat(),
        "endsAt": (datetime.now(UTC) + timedelta(seconds=4 * resend_seconds)).isoformat(),
    }


if __name__ == "__main__":
    asyncio.run(main())
