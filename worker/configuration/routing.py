"""Who is told on which channel: the default, the routes, the fallback, quiet hours."""

from __future__ import annotations

from contextlib import suppress
from datetime import time
from typing import TYPE_CHECKING, Final

from worker.configuration.table import meant, shown
from worker.settings import CONSOLE, QuietHours, RouteRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.configuration.table import Table
    from worker.settings import ChannelSettings

ENVIRONMENTS: Final = ("production", "test")
# "available": the notice that an exhausted subject may go on.
SEVERITIES: Final = ("warning", "downgrade", "protected", "exhausted", "available")
CONDITIONS: Final = ("tenant", "department", "environment", "severity")
CHANNELS_EXAMPLE: Final = '["ops", "mail"]'
UNKNOWN: Final = "unknown"  # the kind of a channel that could not be read
ROUTES_MAX: Final = 10_000
GUESSES_MAX: Final = 20
TIME_LETTERS: Final = len("22:00")
# Files of the zone data that are no zones of their own, or this machine's.
_ODD_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})


class Routing:
    """Reads the tables that name channels, of those that are defined."""

    def __init__(self, channels: Sequence[ChannelSettings]) -> None:
        self._channels = {channel.name: channel for channel in channels}
        mails = [channel.name for channel in channels if channel.kind == "email"]
        self._only_mail = mails[0] if len(mails) == 1 else None
        # one that could not be read may be meant as one
        self._mails = {one.name: None for one in channels if one.kind in {"email", UNKNOWN}}
        self._guesses = 0
        self._mute = {one.name for one in channels if not one.recipients}

    def default(self, table: Table | None, document: Table) -> RouteRule:
        """What goes nowhere else. Without the table: the one channel there is, or the console."""
        if table is None:
            if len(self._channels) > 1:
                document.missing(
                    "default",
                    "write [default] and in it `channels`, where messages go that no route matches",
                )
            return RouteRule(channels=tuple(self._channels) or (CONSOLE,), owners=self._only_mail)
        return RouteRule(channels=self._to(table), owners=self._owners(table, self._only_mail))

    def rules(self, tables: Sequence[Table], default: RouteRule) -> tuple[RouteRule, ...]:
        """The routes in their order; each must be able to match something."""
        rules: list[RouteRule] = []
        taken = _Taken()
        for place, table in enumerate(tables, start=1):
            conditions = {
                name: table.texts(name, example='["one", "two"]', names=True) or ()
                for name in CONDITIONS
            }
            _known(table, "environment", conditions["environment"], ENVIRONMENTS)
            _known(table, "severity", conditions["severity"], SEVERITIES)
            rule = RouteRule(
                tenants=conditions["tenant"],
                departments=conditions["department"],
                environments=conditions["environment"],
                severities=conditions["severity"],
                channels=self._to(table),
                owners=self._owners(table, default.owners),
            )
            table.finish()
            rules.append(rule)
            if table.is_faulty:
                # what one with a fault would match is not known: it takes nothing
                continue
            earlier = taken.by(rule)
            if earlier is None:
                taken.add(place, rule)
            else:
                table.fault(
                    "channels",
                    f"are never used: routes[{earlier}] stands before it and matches "
                    "whatever this one would; change their order, or leave one out",
                )
        return tuple(rules)

    def fallback(self, table: Table | None) -> tuple[str, ...]:
        """Where a message goes that its own channel gave up on."""
        if table is None:
            return ()
        names = self._to(table)
        if len(self._channels) == 1 and names == tuple(self._channels) and CONSOLE not in names:
            table.fault(
                "channels",
                "holds the only channel, which can't stand in for itself: define another one, or "
                "leave [fallback] out and the console is the last resort",
            )
        table.finish()
        return names

    def _to(self, table: Table) -> tuple[str, ...]:
        needed = f"the names of channels, such as {CHANNELS_EXAMPLE}"
        names = table.texts("channels", needed=needed, example=CHANNELS_EXAMPLE)
        if names is None:
            return ()
        for place, name in enumerate(names, start=1):
            if name != CONSOLE and name not in self._channels:
                known = dict.fromkeys((*self._channels, CONSOLE))
                table.fault(f"channels[{place}]", self._undefined(name, known))
            elif name in self._mute:
                table.fault(
                    f"channels[{place}]",
                    f"is {shown(name)}, which has no addresses: set its `to`, or name it under "
                    "`owners` alone",
                )
        return names

    def _owners(self, table: Table, inherited: str | None) -> str | None:
        if not table.has("owners"):
            return inherited
        if table.is_false("owners"):
            return None
        if not table.is_text("owners"):
            table.fault("owners", f"is {table.type_of('owners')}: name an e-mail channel, or false")
            return None
        name = table.text("owners")
        if name is None:
            return None
        if name not in self._channels:
            table.fault("owners", self._undefined(name, self._mails))
        elif name not in self._mails:
            table.fault("owners", f"is {shown(name)}, which is no e-mail channel")
        return name

    def _undefined(self, name: str, names: Iterable[str]) -> str:
        self._guesses += 1
        # many wrong names among many channels would be compared for minutes
        cure = meant(name, names) if self._guesses <= GUESSES_MAX else "define it, or mend the name"
        return f"names {shown(name)}, a channel that isn't defined: {cure}"


def quiet_hours(table: Table | None) -> QuietHours | None:
    """The hours in which only what is at 100 % is sent."""
    if table is None:
        return None
    begins, ends = _time(table, "from"), _time(table, "to")
    zone = table.text("zone")
    if begins is not None and begins == ends:
        table.fault("to", "is the same time as `from`: the quiet hours would have no end")
    if zone is not None:
        _check_zone(table, zone)
    table.finish()
    return None if begins is None or ends is None else QuietHours(begins, ends, zone)


def _time(table: Table, key: str) -> time | None:
    text = table.text(key, needed='a time such as "22:00"')
    if text is None:
        return None
    if len(text) == TIME_LETTERS and text.isascii() and text[2] == ":":
        with suppress(ValueError):
            return time.fromisoformat(text)
    table.fault(key, f'is {shown(text)}: a time from "00:00" to "23:59" is needed')
    return None


def _check_zone(table: Table, zone: str) -> None:
    from worker.periods import load_zone, near_zone

    if zone not in _ODD_ZONES:
        with suppress(ValueError):
            load_zone(zone)
            return
    near = near_zone(zone)
    cure = f"did you mean {near}?" if near else "use a name such as Asia/Shanghai"
    table.fault("zone", f"is {shown(zone)}, which is no time zone: {cure}")


def _known(table: Table, key: str, words: Iterable[str], choices: Sequence[str]) -> None:
    for word in words:
        if word not in choices:
            table.fault(key, f"is {shown(word)}, which there is not: {meant(word, choices)}")


class _Taken:
    """What the routes so far match: sets of them, each an integer with a bit for its place."""

    def __init__(self) -> None:
        self._routes = 0
        # of each condition: who names it at all, and who names a value
        self._naming = dict.fromkeys(RouteRule().conditions, 0)
        self._by_value: dict[tuple[str, str], int] = {}

    def by(self, rule: RouteRule) -> int | None:
        """The place of the first that takes whatever this one would match; None: none does."""
        covering = self._routes
        for name, values in rule.conditions.items():
            # it must name every value that this one does, or none at all
            named = self._naming[name] if values else 0
            for value in values:
                named &= self._by_value.get((name, value), 0)
            covering &= named | ~self._naming[name]
            if not covering:
                return None
        return (covering & -covering).bit_length() - 1

    def add(self, place: int, rule: RouteRule) -> None:
        """Count this one, too."""
        bit = 1 << place
        self._routes |= bit
        for name, values in rule.conditions.items():
            if values:
                self._naming[name] |= bit
            for value in values:
                self._by_value[name, value] = self._by_value.get((name, value), 0) | bit
