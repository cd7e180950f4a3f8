"""kill -9 at every await around a side effect: nothing is lost, nothing told twice without need.

`make test` runs a dozen seeds that together die of everything in the list; `make crash` runs
200 from a fresh seed. QUOTA_WORKER_CRASH_RUNS and QUOTA_WORKER_CRASH_SEED choose others;
a seed such as 1a2b3c4d:17 is one run of them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import uuid
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from contract.servers_mail import Certificates
from crash.judge import Verdict, judge
from crash.nursery import Nursery
from crash.plan import KILLS_MAX, KINDS, Fate, Plan, Turn, deal, plan
from crash.run import Run

from conftest import TEMPLATE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from crash.run import Seen
    from worker.postgres.embedded import EmbeddedServer

DOZEN = 12
MORE_RUNS_MAX = 4
RUNS = int(os.environ.get("QUOTA_WORKER_CRASH_RUNS", str(DOZEN)))
SEED = os.environ.get("QUOTA_WORKER_CRASH_SEED") or (
    "dozen" if RUNS == DOZEN else secrets.token_hex(4)
)
# So many runs side by side, each with a nursery of its own.
LANES = 2


class Laboratory:
    """Carries plans out, each on a database of its own."""

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._certificates = Certificates(folder)
        self.died: Counter[str] = Counter()
        self.verdicts: list[Verdict] = []

    async def carry_out(self, plans: Iterable[Plan]) -> list[Seen]:
        """Every plan, in lanes; raises AssertionError for the first that went wrong."""
        waiting = list(reversed(list(plans)))
        seen: list[Seen] = []

        async def lane() -> None:
            stderr = self._folder / f"stderr-{uuid.uuid4().hex}"
            nursery = Nursery(stderr)
            await nursery.start()
            try:
                while waiting:
                    seen.append(await self._one(waiting.pop(), nursery))
            finally:
                await nursery.stop()

        async with asyncio.TaskGroup() as lanes:
            for _ in range(min(LANES, len(waiting))):
                lanes.create_task(lane())
        return seen

    async def _one(self, one: Plan, nursery: Nursery) -> Seen:
        folder = self._folder / uuid.uuid4().hex
        async with self._database() as dsn:
            try:
                seen = await Run(one, dsn, folder, nursery, self._certificates).carried_out()
            except Exception as error:
                error.add_note(f"in the run of seed {one.seed}")
                raise
        self.verdicts.append(judge(seen))
        self.died.update(death.kind for death in seen.deaths)
        return seen

    @asynccontextmanager
    async def _database(self) -> AsyncIterator[str]:
        name = f"t_{uuid.uuid4().hex}"
        admin = await asyncpg.connect(self._server.dsn_of("postgres"), statement_cache_size=0)
        try:
            await admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
            yield self._server.dsn_of(name)
        finally:
            await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            await admin.close()

    def total(self, name: str) -> int:
        return sum(int(getattr(verdict, name)) for verdict in self.verdicts)


@pytest.fixture
def laboratory(pg_server: EmbeddedServer, template_database: str, tmp_path: Path) -> Laboratory:
    return Laboratory(pg_server, tmp_path)


async def test_nothing_is_lost_and_nothing_told_twice_wherever_it_dies(
    laboratory: Laboratory,
) -> None:
    print(f"\nQUOTA_WORKER_CRASH_SEED={SEED} QUOTA_WORKER_CRASH_RUNS={RUNS}")  # noqa: T201
    await laboratory.carry_out(deal(SEED, RUNS))
    for number in range(MORE_RUNS_MAX if RUNS >= DOZEN and ":" not in SEED else 0):
        missing = [kind for kind in KINDS if not laboratory.died[kind]]
        if not missing:
            break
        # its point did not come up so often: the first time, then
        again = plan(f"{SEED}-more:{number}", missing[:KILLS_MAX])
        for turn in again.turns:
            if turn.fate is not None:
                turn.fate = turn.fate._replace(number=1, seconds=0.0)
        await laboratory.carry_out([again])
    else:
        assert ":" in SEED or RUNS < DOZEN or not set(KINDS) - laboratory.died.keys()
    for name in Verdict.__dataclass_fields__:
        print(f"{name:<16}{laboratory.total(name):>7}")  # noqa: T201
    print(*(f"{count:>5}  {kind}" for kind, count in sorted(laboratory.died.items())), sep="\n")  # noqa: T201
    assert laboratory.total("repeats") <= laboratory.total("in_doubt") + laboratory.total(
        "unanswered"
    )
    assert laboratory.total("known_repeats") <= laboratory.total("known_in_doubt")


def _crossing(first: int, end: int) -> dict[str, int]:
    return {f"tenant{number:02}": 80 + number % 20 for number in range(first, end)}


async def test_what_is_in_doubt_keeps_its_id_though_it_is_refused_later(
    laboratory: Laboratory,
) -> None:
    """A refusal says that this request was not taken, and nothing of the one before it."""
    plans = [
        Plan(
            f"digest in doubt, {channel}",
            (channel,),
            [
                Turn(_crossing(0, 12), Fate(f"after taking, {channel}")),
                Turn({}, None, {channel: 1}),
                Turn(_crossing(12, 15)),
            ],
        )
        for channel in ("hook", "app")
    ]
    await laboratory.carry_out(plans)
    assert [
        (one.kills, one.repeats + one.known_repeats, one.broken_up) for one in laboratory.verdicts
    ] == [(1, 1, 0)] * 2


async def test_a_digest_is_broken_up_for_lost_workers_and_for_nothing_else(
    laboratory: Laboratory,
) -> None:
    lost = Turn({}, Fate("after taking, app"))
    refused = Turn({}, None, {"app": 1})
    plans = [
        Plan("refused", ("app",), [Turn(_crossing(0, 12), None, {"app": 1}), refused, lost]),
        Plan("fatal", ("app",), [Turn(_crossing(0, 12), lost.fate), lost, lost]),
    ]
    await laboratory.carry_out(plans)
    assert {(one.kills, one.broken_up) for one in laboratory.verdicts} == {(1, 0), (3, 12)}
