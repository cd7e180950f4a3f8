"""A gateway whose charges cross a threshold: `python -m bench.versus.gateway DSN ALERTS`.

Prints a line for each tenant once its reservation is committed: its name and when it was asked
for. Then it settles, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import asyncpg

from worker.postgres.queries import parse_queries

CONNECTIONS = 4


async def main(dsn: str, alerts: int) -> None:
    text = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")
    queries = parse_queries("versus", text)
    names = [f"alert-{n}" for n in range(1, alerts + 1)]
    async with asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        gate = asyncio.Semaphore(CONNECTIONS)

        async def reserve(name: str) -> None:
            async with gate:
                asked = time.time()
                assert await pool.fetchval(queries["reserve"], name)
                print(f"{name} {asked}", flush=True)

        async def settle(name: str) -> None:
            async with gate:
                assert await pool.fetchval(queries["settle"], name) == "settled"

        await asyncio.gather(*map(reserve, names))
        await asyncio.gather(*map(settle, names))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
