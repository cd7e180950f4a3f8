"""Holds the worker's log, outbox and post against what was to be told."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import date, datetime
from itertools import pairwise
from typing import Any, NamedTuple

import asyncpg

from month.expected import Expected, Message
from month.post import Arrival, Post
from month.routing import FALLBACKS, Target, is_quiet, targets_of

_LOG = """
SELECT subject_kind, subject, environment, dimension, period_kind, period_start, threshold, generation,
       state, severity, used::bigint, cap::bigint, refused_at, rearmed_at, rearmed_by
  FROM quota_warn_log ORDER BY 1, 2, 3, 4, 5, 6, 7, 8"""
_OUTBOX = """
SELECT outbox_id, message_key, kind, channel, recipient, severity, facts::text, state, digest_only, fallback_of,
       superseded_by, last_failure, last_detail, told_until, sent_at
  FROM quota_outbox ORDER BY outbox_id"""


# What is for a digest only isn't for them.
WITHOUT_DIGESTS = frozenset({"hook", "console"})


class Row(NamedTuple):
    """An outbox row with its facts read."""

    outbox_id: int
    message_key: str
    kind: str
    channel: str
    recipient: str | None
    severity: str
    facts: str
    state: str
    digest_only: bool
    fallback_of: int | None
    superseded_by: str | None
    last_failure: str | None
    last_detail: str | None
    told_until: datetime | None
    sent_at: datetime | None

    @property
    def message(self) -> Message:
        """As it was decided: what waited until its period ended is sent as past, or in a digest."""
        message = message_of(json.loads(self.facts), digest=self.digest_only)
        over = self.told_until is not None and (
            self.sent_at is None or self.sent_at >= self.told_until
        )
        return message._replace(past=False, digest=False) if self.waited and over else message

    @property
    def waited(self) -> bool:
        """Decided within its period, and said as past."""
        facts = json.loads(self.facts)
        decided_at = datetime.fromisoformat(facts["decided_at"])
        return bool(facts["past"] and self.told_until is not None and decided_at < self.told_until)


def message_of(facts: dict[str, Any], *, digest: bool) -> Message:
    return Message(
        datetime.fromisoformat(facts["decided_at"]),
        facts["subject_kind"],
        facts["subject"],
        facts["environment"],
        facts["severity"],
        facts["past"],
        digest,
        frozenset(
            (
                d["dimension"],
                d["period_kind"],
                date.fromisoformat(d["period_start"]),
                d["threshold"],
            )
            for d in facts["dimensions"]
            if d["crossed"]
        ),
    )


async def check_log(conn: asyncpg.Connection[Any], expected: Expected) -> None:
    """After a tick: each telling is there with its generation and state, and no other."""
    theirs = {tuple(row.values())[:8]: tuple(row.values())[8:] for row in await conn.fetch(_LOG)}
    ours = {
        (*cap, threshold, generation): (
            one.state,
            one.severity,
            one.used,
            one.cap,
            one.refused_at,
            one.rearmed_at,
            one.rearmed_by,
        )
        for (cap, threshold), tellings in expected.log.items()
        for generation, one in enumerate(tellings)
    }
    wrong = {key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)}
    assert not wrong, "\n".join(
        f"{key}:\n  log   {theirs.get(key)}\n  model {ours.get(key)}" for key in sorted(wrong)
    )


class Judge:
    """The end of the month: who was told what, how often."""

    def __init__(self, rows: list[Row], expected: Expected, post: Post, console: str) -> None:
        self.rows = {row.outbox_id: row for row in rows}
        self.expected = expected
        self.post = post
        self.console = console
        self.shown: dict[int, list[Arrival]] = defaultdict(list)
        for one in post.arrivals:
            for outbox_id in one.rows:
                if self.rows[outbox_id].channel == one.channel:
                    self.shown[outbox_id].append(one)

    @classmethod
    async def of(
        cls, conn: asyncpg.Connection[Any], expected: Expected, post: Post, console: str
    ) -> Judge:
        rows = [Row(*row.values()) for row in await conn.fetch(_OUTBOX)]
        return cls(rows, expected, post, console)

    def check(self) -> None:
        assert not self.post.unknown, "arrived, and nobody sent it"
        self._right_rows()
        for row in self.rows.values():
            self._told(row)
        self._contents()
        self._no_more_than_in_doubt()
        self._rates()

    def _right_rows(self) -> None:
        """Each message for each of its targets once; a fallback for each target that died."""
        wanted = Counter(
            (message, *target)
            for message in self.expected.messages
            for target in targets_of(message)
            if not (message.digest and target[0] in WITHOUT_DIGESTS)
        )
        found = Counter(
            (row.message, row.channel, row.recipient)
            for row in self.rows.values()
            if row.fallback_of is None
        )
        assert found == wanted, (found - wanted, wanted - found)
        fallbacks = Counter(
            (row.message_key, row.channel, row.recipient)
            for row in self.rows.values()
            if row.fallback_of is not None
        )
        # of several that died one is told
        dead = {
            (row.message_key, *target)
            for row in self.rows.values()
            if row.state == "dead"
            for target in _fallbacks_of(row)
        }
        assert set(fallbacks) == dead, (set(fallbacks) - dead, dead - set(fallbacks))
        assert set(fallbacks.values()) <= {1}, fallbacks.most_common(3)

    def _told(self, row: Row) -> None:
        """It arrived, or a higher threshold of each of its caps goes to the same reader."""
        arrived = row.outbox_id in self.shown
        if row.channel == "console":
            arrived = row.message.subject in self.console
        if row.state == "superseded":
            assert any(self._beats(other, row) for other in self.rows.values()), row
        elif row.state == "stale":
            assert row.digest_only, row
        elif row.state == "sent":
            assert arrived, row
        else:
            # another row tells it; after the console there is none
            assert row.state == "dead", row
            assert row.channel != "console", row

    @staticmethod
    def _beats(other: Row, row: Row) -> bool:
        if (other.message_key, other.channel, other.recipient) != (
            row.superseded_by,
            row.channel,
            row.recipient,
        ):
            return False
        higher = {told[:3]: told[3] for told in other.message.told}
        return all(threshold < higher.get((*cap,), 0) for *cap, threshold in row.message.told)

    def _contents(self) -> None:
        """What a reader saw names each subject, and the program's JSON says just what was decided."""
        for one in self.post.arrivals:
            for outbox_id in one.rows:
                assert self.rows[outbox_id].message.subject in one.text, one
            if one.document is not None:
                said = message_of(one.document["data"], digest=False)
                assert {said, said._replace(past=False)} & set(self.expected.messages), one

    def _no_more_than_in_doubt(self) -> None:
        """A row is shown again only where its taking was not heard of, or not recorded."""
        for outbox_id, arrivals in self.shown.items():
            doubts = self.post.in_doubt[outbox_id] + sum(not one.heard for one in arrivals)
            seen = [one for one in arrivals if not one.again]
            assert len(arrivals) <= 1 + doubts, arrivals
            if arrivals[0].channel == "hook":
                assert len(seen) == 1, arrivals
            if arrivals[0].channel == "app":
                self._once_within_the_hour(outbox_id, arrivals)

    def _once_within_the_hour(self, outbox_id: int, arrivals: list[Arrival]) -> None:
        """As long as the service remembers the id. Another id only where three workers were lost."""
        ids = {one.request_id for one in arrivals}
        assert len(ids) == 1 or self.post.in_doubt[outbox_id] >= 3, arrivals
        for request_id in ids:
            same = [one for one in arrivals if one.request_id == request_id]
            shown = [one for one in same if not one.again]
            gaps = [(later.at - earlier.at).total_seconds() for earlier, later in pairwise(shown)]
            assert all(gap >= 3600 for gap in gaps), arrivals

    def _rates(self) -> None:
        """The vendor's limits, over all workers and the whole month."""
        for channel, times in self.post.asked.items():
            for seconds, most in ((1.0, 5), (60.0, 100)):
                for first, last in zip(times, times[most:], strict=False):
                    gap = (last - first).total_seconds()
                    assert gap >= seconds, f"{channel}: {most + 1} requests within {gap} s"

    def check_quiet(self, zone: str) -> None:
        """What is below 100 % came to nobody at night, but in a digest of the day with what is not.

        That one may have arrived, so it is repeated as it was.
        """
        for one in self.post.arrivals:
            rows = [self.rows[outbox_id] for outbox_id in one.rows]
            urgent = [row.severity == "exhausted" for row in rows]
            waits = [row for row in rows if row.severity != "exhausted" and not row.digest_only]
            if waits and is_quiet(one.at, zone):
                assert any(urgent), one
                assert not is_quiet(self.post.begun[one.request_id], zone), one

    def figures(self) -> dict[str, int]:
        states = Counter(row.state for row in self.rows.values())
        tellings = [one for tellings in self.expected.log.values() for one in tellings]
        told = Counter(one.state for one in tellings)
        twice: Counter[str] = Counter()
        for arrivals in self.shown.values():
            seen = [one for one in arrivals if not one.again]
            twice[f"{arrivals[0].channel} shown twice"] += max(0, len(seen) - 1)
        return {
            "crossings": sum(told.values()),
            **{f"crossings {state}": count for state, count in sorted(told.items())},
            "rearmed by cap": sum(one.rearmed_by == "cap" for one in tellings),
            "rearmed by usage": sum(one.rearmed_by == "usage" for one in tellings),
            "refusals told": sum(one.refused_at is not None for one in tellings),
            "messages": len(self.expected.messages),
            **{f"outbox {state}": count for state, count in sorted(states.items())},
            "requests taken": len(self.post.arrivals),
            "digests": sum(len(one.rows) > 1 for one in self.post.arrivals),
            **dict(sorted(twice.items())),
            "not recorded": sum(self.post.in_doubt.values()),
        }


def _fallbacks_of(row: Row) -> list[Target]:
    own = [target for target in FALLBACKS if target[0] != row.channel]
    if row.channel == "console":
        return []
    return [("console", None)] if row.fallback_of is not None or not own else own
