"""A hard week, compressed: `PYTHONPATH=tests python -m chaos`, or `make chaos`.

QUOTA_WORKER_SEED repeats a run's plan, QUOTA_WORKER_CHAOS_MINUTES says how long faults are made,
QUOTA_WORKER_CHAOS_KEEP keeps the folder of a run. Exit 1: something is wrong, and is named.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from typing import TextIO
from uuid import uuid4

from chaos.crew import HAS_FAKETIME
from chaos.crossings import Crossings
from chaos.plan import make_plan
from chaos.run import Run
from chaos.site import BOUNCER
from chaos.summary import summary
from chaos.ticks import Ticks
from chaos.told import Told
from chaos.truth import Truth

from conftest import fastest_folder, make_server_home

MINUTES = 6.0
# beyond that many of a kind, the number says enough
SHOWN_FAULTS = 40


def _say(text: str, stream: TextIO = sys.stdout) -> None:
    stream.write(text + "\n")
    stream.flush()


async def main() -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    seed = int(os.environ.get("QUOTA_WORKER_SEED") or uuid4().int % 10**9)
    seconds = 60 * float(os.environ.get("QUOTA_WORKER_CHAOS_MINUTES") or MINUTES)
    _say(f"QUOTA_WORKER_SEED={seed}, faults for {seconds:.0f} s")
    for what, there in (("pgbouncer", BOUNCER), ("libfaketime", HAS_FAKETIME)):
        if not there:
            _say(f"without {what}, which isn't installed: its faults do nothing")
    folder = make_server_home(fastest_folder(programs=True))
    begun = time.monotonic()
    run = Run(make_plan(seed, seconds), folder)
    try:
        await run.carried_out()
        conn = await run.connect()
        try:
            log = await conn.fetch("SELECT * FROM quota_warn_log ORDER BY logged_at")
            truth = await Truth.read(run.plan, folder, conn)
            crossings = Crossings.of(truth)
            crossings.compare(log)
            outbox = await conn.fetch("SELECT * FROM quota_outbox ORDER BY outbox_id")
            told = Told.read(run.happened, folder, outbox)
            told.judge(log)
            ticks = Ticks.read(run.happened, folder)
            await ticks.judge(conn, run.begun, run.ended)
        finally:
            await conn.close()
        code, answer = await run.crew.run_worker("audit", "--json")
        audit = json.loads(answer)
        faults = [*run.crew.faults, *truth.faults, *crossings.faults, *told.faults, *ticks.faults]
        if any(run.waiting.values()):
            faults.append(f"still waits at the end: {run.waiting}")
        if code != 0 or audit["drifts"]:
            faults.append(f"audit: {code} {answer[:2000]}")
        _say(summary(run, truth, crossings, told, ticks, log, time.monotonic() - begun))
    finally:
        await run.stop()
        if os.environ.get("QUOTA_WORKER_CHAOS_KEEP"):
            _say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for fault in faults[:SHOWN_FAULTS]:
        _say(f"WRONG {fault}", sys.stderr)
    if faults:
        _say(f"{len(faults)} wrong, QUOTA_WORKER_SEED={seed}", sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
