"""What must be true of a run, whatever died in it.

The expectation is worked out here, from the usage alone; what was told is read out of what
the receivers were sent.
"""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crash.run import told_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from crash.receivers import Taken
    from crash.run import Seen

THRESHOLDS = {"tenant": (80, 100), "dept": (75, 90, 98, 100)}
# They take one message per id; the others are told again what they had taken before.
KNOWS_IDS = {"app", "bot"}
_TOLD = re.compile(r"(tenant\d\d|dept\d\d)\b[^%\n]{0,30} at (\d+)\.0%")
_LINE = re.compile(rf"^\d+\. .*?{_TOLD.pattern}", re.MULTILINE)
# A digest whose worker was lost so often is broken up, so that one message spoils no other.
BROKEN_UP_AFTER = 3

# A message as people tell it from others: whom it is about, and at how many percent.
Message = tuple[str, int]


@dataclass(frozen=True)
class Verdict:
    """Figures of a run that passed."""

    runs: int
    kills: int
    messages: int
    # On hook and mail, which know no ids: requests whose worker was killed between the POST and its
    # finish, whose answer was lost, and that came again.
    in_doubt: int
    unanswered: int
    repeats: int
    # On app and bot, which show a request once: in doubt for either reason, and that came again.
    known_in_doubt: int
    known_repeats: int
    broken_up: int


def messages_of(taken: Taken) -> list[Message]:
    """The messages that a request's text tells: a digest's lines, or the one of its head."""
    text = html.unescape(taken.text)
    found = _LINE.findall(text) or _TOLD.findall(text)[:1]
    return [(name, int(percent)) for name, percent in found]


def judge(seen: Seen) -> Verdict:
    """Raises AssertionError with the seed, and where the worker died."""
    faults = [*_log_faults(seen), *_outbox_faults(seen)]
    broken_up = 0
    # gone takes nothing: its messages are told on the bot
    for channel in sorted(set(seen.plan.channels) - {"gone"}):
        more, broken = _channel_faults(seen, channel)
        faults += more
        broken_up += broken
    assert not faults, "\n".join([f"seed {seen.plan.seed}: {told_of(seen.deaths)}", *faults])
    doubts, killed, repeats = Counter[bool](), Counter[bool](), Counter[bool]()
    for (tick, channel), ids in seen.doubts.items():
        doubts[channel in KNOWS_IDS] += len(ids)
        killed[channel in KNOWS_IDS] += len(ids) if tick in {one.tick for one in seen.deaths} else 0
    for channel, taken in seen.taken.items():
        repeats[channel in KNOWS_IDS] += _repeats(taken).total()
    return Verdict(
        runs=1,
        kills=len(seen.deaths),
        messages=sum(row["state"] == "sent" for row in seen.outbox),
        in_doubt=killed[False],
        unanswered=doubts[False] - killed[False],
        repeats=repeats[False],
        known_in_doubt=doubts[True],
        known_repeats=repeats[True],
        broken_up=broken_up,
    )


def _repeats(taken: Iterable[Taken]) -> Counter[str]:
    """By request: how often it was taken again."""
    return Counter(one.request_id for one in taken) - Counter({one.request_id for one in taken})


def _log_faults(seen: Seen) -> list[str]:
    """quota_warn_log has the crossings of the usage: each once, and no other."""
    usage = {("dept00" if name == "payer" else name): pct for name, pct in seen.usage.items()}
    expected = {
        (name, threshold)
        for name, percent in usage.items()
        for threshold in THRESHOLDS[name[:-2]]
        if percent >= threshold
    }
    found = Counter((row["subject"], row["threshold"]) for row in seen.log)
    faults = [f"in the log {n} times: {key}" for key, n in found.items() if n > 1]
    if found.keys() != expected:
        faults.append(f"log: missing {expected - found.keys()}, false {found.keys() - expected}")
    for name in usage:
        told = [row for row in seen.log if row["subject"] == name]
        if told and max(told, key=lambda row: row["threshold"])["state"] != "told":
            faults.append(f"log: the highest threshold of {name} was not told")
    return faults


def _outbox_faults(seen: Seen) -> list[str]:
    """Each crossing that is told has its row on each channel, and each row has ended well."""
    faults = []
    keys = {row["message_key"] for row in seen.log if row["state"] == "told"}
    rows = {
        (row["message_key"], row["channel"]): row for row in seen.outbox if not row["fallback_of"]
    }
    for key in keys:
        for channel in seen.plan.channels:
            row = rows.get((key, channel))
            ends = {"dead", "superseded"} if channel == "gone" else {"sent", "superseded"}
            if row is None or row["state"] not in ends:
                faults.append(f"outbox: {key} on {channel} is {row and row['state']}")
            elif row["state"] == "superseded":
                by = rows.get((row["superseded_by"], channel))
                if (
                    by is None
                    or by["subject"] != row["subject"]
                    or _percent(seen, by) <= _percent(seen, row)
                ):
                    faults.append(f"outbox: {key} on {channel} is superseded by nothing higher")
    told_instead = Counter(row["fallback_of"] for row in seen.outbox if row["channel"] == "bot")
    for row in seen.outbox:
        if row["state"] == "dead" and told_instead[row["outbox_id"]] != 1:
            faults.append(f"outbox: {row['message_key']} is dead, and not told once on the bot")
        elif row["state"] not in {"sent", "dead", "superseded"}:
            faults.append(f"outbox: {row['message_key']} on {row['channel']} is {row['state']}")
    return faults


def _percent(seen: Seen, row: Any) -> int:
    """At how many percent the message of this row was decided, after the log."""
    told = [one for one in seen.log if one["message_key"] == row["message_key"]]
    return int(max(100 * one["used"] // one["cap"] for one in told))


def _channel_faults(seen: Seen, channel: str) -> tuple[list[str], int]:
    """Nothing lost, nothing twice without a reason, on one channel; and how many were broken up."""
    taken = seen.taken[channel]
    faults = _repeat_faults(seen, channel)
    broken_up = 0
    # by request: how often it tells the message; a digest may hold it and its fallback
    requests: dict[Message, Counter[str]] = defaultdict(Counter)
    for one in taken:
        for message, times in Counter(messages_of(one)).items():
            requests[message] |= Counter({one.request_id: times})
    rows = [row for row in seen.outbox if row["channel"] == channel]
    wanted = Counter(_message(seen, row) for row in rows if row["state"] != "superseded")
    # superseded while it was in doubt: it may have arrived
    most = wanted | Counter({_message(seen, row): 1 for row in rows})
    for message in wanted.keys() | requests.keys():
        ids = requests[message]
        if ids.total() < wanted[message]:
            faults.append(f"{channel}: LOST {message}: {ids.total()} of {wanted[message]}")
        elif ids.total() > most[message]:
            if _lost_workers(seen, channel, set(ids)) >= BROKEN_UP_AFTER:
                broken_up += 1
            else:
                faults.append(f"{channel}: {message} TWICE, as {sorted(ids)}")
    return faults, broken_up


def _repeat_faults(seen: Seen, channel: str) -> list[str]:
    """A request comes again only where it was in doubt, and is not shown again by who knows ids."""
    taken = seen.taken[channel]
    faults = []
    for request_id, again in _repeats(taken).items():
        doubts = sum(request_id in ids for (_, c), ids in seen.doubts.items() if c == channel)
        if again > doubts:
            faults.append(f"{channel}: {request_id} came {again} times more, {doubts} in doubt")
    shown = Counter(one.request_id for one in taken if one.shown)
    if channel in KNOWS_IDS and any(times > 1 for times in shown.values()):
        faults.append(f"{channel}: an id was shown twice")
    return faults


def _message(seen: Seen, row: Any) -> Message:
    return row["subject"], _percent(seen, row)


def _lost_workers(seen: Seen, channel: str, ids: set[str]) -> int:
    """How many workers died with one of these requests, at most."""
    held = Counter(
        request_id
        for (_, one), leased in seen.held_at_death.items()
        if one == channel
        for request_id in leased & ids
    )
    return max(held.values(), default=0)
