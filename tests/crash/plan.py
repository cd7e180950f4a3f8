"""What happens in a run, all of it from its seed: who crosses when, what fails, where the worker dies."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from crash.nursery import POINTS

TIMER = "any moment"
REQUESTS = tuple(
    f"{side} taking, {channel}"
    for channel in ("hook", "app", "mail", "bot")
    for side in ("before", "after")
)
# Everything that a worker can die of here.
KINDS = (*POINTS, *REQUESTS, TIMER)
KILLS_MAX = 3
# A tick passes 10 to 150 points, a step between two takes some milliseconds.
TIMER_POINTS_MAX = 60
TIMER_SECONDS_MAX = 0.02
_OFTEN = {"take_slot", "claim", "finish", "deliver"}


class Fate(NamedTuple):
    """The worker dies at the `number`-th time that `kind` comes up, or at any moment: so long after so many points."""

    kind: str
    number: int = 1
    seconds: float = 0.0


@dataclass
class Turn:
    """One tick and what goes before it: the usage of each subject, in percent."""

    usage: dict[str, int] = field(default_factory=dict)
    fate: Fate | None = None
    # so many requests are told to come later; taken, and not answered
    refusals: dict[str, int] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)


@dataclass
class Plan:
    """A run. `channels` besides hook, app and bot: mail, gone (a bot that was removed)."""

    seed: str
    channels: tuple[str, ...]
    turns: list[Turn]


def deal(seed: str, runs: int) -> list[Plan]:
    """So many runs, in which every kind of death comes up in turn; a seed such as `x:17`: one run."""
    base, _, number = seed.partition(":")
    if number:
        return deal(base, int(number) + 1)[-1:]
    rng = random.Random(seed)  # noqa: S311  no secret hangs on it
    deck: list[str] = []
    plans = []
    for number in range(runs):
        while len(deck) < KILLS_MAX:
            deck += rng.sample(KINDS, len(KINDS))
        kinds, deck = deck[:KILLS_MAX], deck[KILLS_MAX:]
        plans.append(plan(f"{seed}:{number}", kinds))
    return plans


def plan(seed: str, kinds: list[str]) -> Plan:
    """A run in which these deaths can come about."""
    rng = random.Random(seed)  # noqa: S311  same
    digests = any("keep" in kind or "digest" in kind for kind in kinds) or rng.random() < 0.3
    channels = ["hook", "app", "bot"]
    if any("mail" in kind for kind in kinds) or rng.random() < 0.25:
        channels.append("mail")
    if any("fail" in kind for kind in kinds) or rng.random() < 0.15:
        channels.append("gone")
    turns: list[Turn] = []
    hot: dict[str, int] = {}
    for kind in kinds:
        usage = _wave(rng, hot, rng.randint(11, 14) if digests else rng.randint(1, 3))
        hot |= usage
        turns.append(Turn(usage, _fate(rng, kind), _some(rng, 0.25), _some(rng, 0.15)))
    # at times one that lives, and only repeats what is in doubt, or is refused that
    if rng.random() < 0.3:
        turns.insert(rng.randint(1, len(turns)), Turn({}, None, _some(rng, 0.5)))
    return Plan(seed, tuple(channels), turns)


def _wave(rng: random.Random, hot: dict[str, int], new: int) -> dict[str, int]:
    """Some cross for the first time, some of those that had crossed go higher."""
    usage = {
        f"tenant{len(hot) + number:02}": rng.choice((*range(80, 100), 100)) for number in range(new)
    }
    for subject, percent in hot.items():
        if percent < 100 and rng.random() < 0.3:
            usage[subject] = rng.randint(percent + 1, 100)
    if "payer" in hot or rng.random() < 0.4:
        usage["payer"] = min(99, hot.get("payer", 70) + rng.randint(6, 12))
    return usage


def _fate(rng: random.Random, kind: str) -> Fate:
    if kind == TIMER:
        return Fate(kind, rng.randint(0, TIMER_POINTS_MAX), rng.uniform(0, TIMER_SECONDS_MAX))
    often = kind.partition(" ")[2] in _OFTEN or kind in REQUESTS
    # not the first each time: other channels are in the middle of something then
    return Fate(kind, rng.choice((1, 1, 2, 3)) if often else 1)


def _some(rng: random.Random, chance: float) -> dict[str, int]:
    return {channel: 1 for channel in ("hook", "app") if rng.random() < chance}
