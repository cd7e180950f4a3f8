"""Whether each decided message arrived, and what arrived twice and why."""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from chaos.journal import read_journal
from chaos.plan import CHANNELS
from chaos.receivers import bot_arrivals
from chaos.run import Happened

# after these the worker or its database can't note what was just sent
DOUBTING = {
    "postgres restarted",
    "postgres stopped at once",
    "postmaster killed",
    "connections cut",
    "pgbouncer killed",
    "tick killed",
    "schedule killed",
    "schedule stopped",
    "log's disk full",
}
# how long after its arrival a message may still wait to be noted, on a machine that has much to do
NOTING_SECONDS = 5.0
# from a request to the note that it was refused
REFUSING_SECONDS = 40.0
# a cause for giving a message up, and the answers of a receiver that explain it
GIVEN_UP = {
    "bot_removed": ("gone",),
    "bad_signature": ("refused 19021",),
    "login_refused": ("refused 401",),
    "rejected": ("refused 401", "550"),
    "content_refused": ("550",),
    "address_refused": ("550",),
}


@dataclass
class Told:
    happened: list[Happened]
    arrivals: list[dict[str, Any]] = field(default_factory=list)
    rows: list[asyncpg.Record] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)
    # by message: when it arrived first, anywhere
    first: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, happened: list[Happened], folder: Path, rows: list[asyncpg.Record]) -> Told:
        told = cls(happened)
        told.arrivals = [*read_journal(folder / "arrivals.jsonl"), *bot_arrivals(folder)]
        for one in told.arrivals:
            # as a person reads it
            one["text"] = html.unescape(one["text"])
        told.arrivals.sort(key=lambda one: one["t"])
        told.rows = rows
        told._console = "".join(file.read_text(errors="replace") for file in folder.glob("*.log"))
        told._by_id = defaultdict(list)
        for one in told.arrivals:
            told._by_id[one["channel"], one["id"]].append(one)
        return told

    def __post_init__(self) -> None:
        self._console = ""
        self._by_id: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def judge(self, log: list[asyncpg.Record]) -> None:
        self._each_has_rows(log)
        for row in self.rows:
            self.figures[row["state"]] += 1
            self._row(row)
        self._twice()
        self.figures["arrived"] = sum(one["taken"] for one in self.arrivals)
        self.figures["misanswered"] = sum(not one["heard"] for one in self.arrivals)

    def _each_has_rows(self, log: list[asyncpg.Record]) -> None:
        rows = {
            (row["message_key"], row["channel"]) for row in self.rows if row["fallback_of"] is None
        }
        for one in log:
            if one["state"] not in ("told", "past"):
                continue
            for channel in CHANNELS:
                if (one["message_key"], channel) not in rows:
                    self.faults.append(f"outbox: {one['message_key']} has no row for {channel}")

    def _row(self, row: asyncpg.Record) -> None:
        name = f"{row['message_key']} ({row['kind']}, {row['subject']}) on {row['channel']}"
        arrived = [one for one in self._arrivals_of(row) if one["taken"]]
        if arrived:
            at = arrived[0]["t"]
            self.first[row["message_key"]] = min(at, self.first.get(row["message_key"], at))
        if row["state"] == "sent":
            self._sent(row, name, arrived)
        elif row["state"] == "superseded":
            by = [one for one in self.rows if one["message_key"] == row["superseded_by"]]
            if not any(
                (one["channel"], one["subject"]) == (row["channel"], row["subject"]) for one in by
            ):
                self.faults.append(f"outbox: {name} is superseded by nothing")
        elif row["state"] == "dead":
            self._dead(row, name)
        elif not (row["state"] == "stale" and row["digest_only"]):
            self.faults.append(f"outbox: {name} is still {row['state']}: {row['last_failure']}")

    def _sent(self, row: asyncpg.Record, name: str, arrived: list[dict[str, Any]]) -> None:
        if row["channel"] == "console":
            if str(row["subject"]) not in self._console:
                self.faults.append(f"outbox: LOST {name}: sent, and not in any log")
        elif not any(one["heard"] for one in arrived):
            self.faults.append(f"outbox: LOST {name}: sent, and never taken with a good answer")
        elif row["subject"] and not any(row["subject"] in one["text"] for one in arrived):
            self.faults.append(f"outbox: LOST {name}: its request doesn't name it")

    def _dead(self, row: asyncpg.Record, name: str) -> None:
        # a digest that was refused keeps no id
        refused_at = row["failed_at"].timestamp()
        modes = {
            one["mode"]
            for one in self.arrivals
            if one["channel"] == row["channel"]
            and refused_at - REFUSING_SECONDS < one["t"] < refused_at + 1
            and (row["subject"] or "") in one["text"]
        }
        if not modes & set(GIVEN_UP.get(row["last_failure"], ())):
            why = f"{row['last_failure']} {row['last_detail']}"
            self.faults.append(f"outbox: {name} was given up ({why}), its receiver: {modes}")
        told = [
            one
            for one in self.rows
            if one["message_key"] == row["message_key"] and one["fallback_of"] is not None
        ]
        if not told:
            self.faults.append(f"outbox: {name} was given up, and told nowhere else")

    def _arrivals_of(self, row: asyncpg.Record) -> list[dict[str, Any]]:
        ids = {row["dedupe_key"], row["request_key"]}
        return [one for key in ids for one in self._by_id.get((row["channel"], key), ())]

    def _twice(self) -> None:
        """What was taken again, by its id; and digests whose messages came a second time under other ids."""
        known = {
            (row["channel"], row[key]) for row in self.rows for key in ("dedupe_key", "request_key")
        }
        for (channel, request_id), arrivals in self._by_id.items():
            taken = [one for one in arrivals if one["taken"]]
            again = taken[:-1] if (channel, request_id) in known else taken
            for one in again:
                cause = self._doubt(one)
                if cause is None:
                    self.faults.append(
                        f"{channel}: {request_id} was sent again without a reason: {one}"
                    )
                kind = "an answer that was none" if cause == "answer" else "a kill or a cut"
                self.doubled[kind] += 1
                self.doubled[channel] += 1
        self.figures["in doubt by the answer"] = sum(
            one["taken"] and not one["heard"] for one in self.arrivals
        )
        self.figures["kills and cuts"] = sum(one.kind in DOUBTING for one in self.happened)

    def _doubt(self, one: dict[str, Any]) -> str | None:
        """Why the sender may not have noted that it was taken."""
        if not one["heard"]:
            return "answer"
        for fault in self.happened:
            if (
                fault.kind in DOUBTING
                and fault.begun <= one["t"] + NOTING_SECONDS
                and fault.ended >= one["t"] - 0.5
            ):
                return fault.kind
        return None
