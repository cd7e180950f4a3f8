"""The Hypothesis state machine: short and repeatable by default, long on request.

`QUOTA_WORKER_LONG=1` runs thousands of random examples (QUOTA_WORKER_SEED
repeats one such run; the seed is printed either way).
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING

import asyncpg
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from sql.machine import LedgerMachine

if TYPE_CHECKING:
    import pytest

LONG = os.environ.get("QUOTA_WORKER_LONG") == "1"
EXAMPLES = 2000 if LONG else 60
STEPS = 60 if LONG else 50


def test_random_operations_hold_the_invariants(
    dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = int(os.environ.get("QUOTA_WORKER_SEED", "0")) or random.SystemRandom().randrange(
        1, 2**31
    )
    profile = settings(
        max_examples=int(os.environ.get("QUOTA_WORKER_EXAMPLES", EXAMPLES)),
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=not LONG,
        print_blob=True,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        verbosity=Verbosity.normal,
        suppress_health_check=list(HealthCheck),
    )
    # A loop of its own: asyncio.Runner would unset pytest-asyncio's.
    loop = asyncio.new_event_loop()
    try:
        conn = loop.run_until_complete(asyncpg.connect(dsn, statement_cache_size=500))
        machine = type("Machine", (LedgerMachine,), {"conn": conn, "loop": loop})
        if LONG:
            with capsys.disabled():
                print(f"\nQUOTA_WORKER_SEED={chosen}")  # noqa: T201 - told even when all is well
            machine = seed(chosen)(machine)
        run_state_machine_as_test(machine, settings=profile)
        loop.run_until_complete(conn.close())
    finally:
        loop.close()
