"""Whether the ticks came as often as they should, and whether each failure has its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg

from chaos.journal import read_journal
from chaos.run import Happened
from worker.jobs.registry import JOBS

AWAY = {
    "postgres restarted",
    "postgres stopped at once",
    "postmaster killed",
    "connections cut",
    "pgbouncer killed",
}
LOSING = AWAY | {"tick killed", "schedule killed", "schedule stopped", "log's disk full"}
# a tick's own deadline
TICK_SECONDS = 240.0
# of a slot, before it must have had its tick
SEEN_SECONDS = 60.0
# a tick that began so shortly after may still meet what is left of it
AFTER_SECONDS = 1.5


@dataclass
class Ticks:
    happened: list[Happened]
    lines: list[dict[str, Any]]
    faults: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    slots: int = 0
    longest_pause_seconds: float = 0.0

    @classmethod
    def read(cls, happened: list[Happened], folder: Path) -> Ticks:
        return cls(happened, read_journal(folder / "cron.jsonl"))

    async def judge(self, conn: asyncpg.Connection[Any], begun: float, ended: float) -> None:
        granted = [begun]
        for line in sorted(self.lines, key=lambda one: one["t"]):
            self.ends[self._end(line)] += 1
            if line["granted"] and line["code"] == 0:
                granted.append(line["t"])
        gaps = [later - earlier for earlier, later in pairwise(granted)]
        self.longest_pause_seconds = max(gaps, default=0.0)
        await self._slots(conn, begun, ended)

    def _end(self, line: dict[str, Any]) -> str:
        if line["killed"]:
            return "killed"
        if line["code"] == 0:
            return "done" if line["granted"] else "left to another"
        explained = any(
            fault.kind in AWAY
            and fault.begun <= line["t"] + 0.5
            and fault.ended >= line["begun"] - AFTER_SECONDS
            for fault in self.happened
        )
        if line["code"] == 1 and explained:
            return "failed with the database"
        self.faults.append(f"tick: {line} without a fault that explains it")
        return "failed without a reason"

    async def _slots(self, conn: asyncpg.Connection[Any], begun: float, ended: float) -> None:
        runs = {
            (row["job"], row["scheduled_for"].timestamp()): row
            for row in await conn.fetch("SELECT * FROM job_runs")
        }
        for job in JOBS:
            slot = begun - begun % job.interval_seconds
            while slot < ended:
                self.slots += 1
                row = runs.get((job.name, slot))
                # the old version, or the first seconds of the run, may not have come so far
                seen = min(ended, slot + job.interval_seconds) - max(begun, slot)
                if seen > SEEN_SECONDS and not self._good(row, slot + job.interval_seconds, ended):
                    at = datetime.fromtimestamp(slot, UTC)
                    self.faults.append(f"slot: {job.name} of {at:%H:%M} is {row and dict(row)}")
                slot += job.interval_seconds

    def _good(self, row: asyncpg.Record | None, slot_end: float, ended: float) -> bool:
        """Done; or its last tick went on into the next slot, and was lost there."""
        if row is None or row["outcome"] == "done":
            return row is not None
        began = row["started_at"].timestamp()
        return slot_end < ended and any(
            fault.kind in LOSING and fault.ended >= began and fault.begun <= slot_end + TICK_SECONDS
            for fault in self.happened
        )
