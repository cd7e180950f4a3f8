"""What `quota-worker channel list` shows: each channel and where it is used. No secrets. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from worker.settings import CONSOLE, ChannelSettings
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.settings import DeliverySettings, QuietHours, RouteRule

HEADER: Final = ("channel", "kind", "sends to", "used by")
SHOWN_ADDRESSES: Final = 3


def rows(delivery: DeliverySettings) -> list[tuple[str, str, str, str]]:
    """Of each channel: name, kind, whom it sends to, what uses it."""
    channels = list(delivery.channels)
    if all(channel.name != CONSOLE for channel in channels) and uses(CONSOLE, delivery):
        channels.append(ChannelSettings(CONSOLE, CONSOLE, {}))
    return [
        (
            visible(channel.name),
            channel.kind,
            _sends_to(channel),
            ", ".join(uses(channel.name, delivery)) or "nothing",
        )
        for channel in channels
    ]


def uses(name: str, delivery: DeliverySettings) -> list[str]:
    """Where the channel is named, in the words of the file."""
    named = [("default", delivery.default)]
    named += [(f"routes[{place}]", rule) for place, rule in enumerate(delivery.rules, start=1)]
    found = [where for where, rule in named if name in rule.channels]
    found += [f"owners of {where}" for where, rule in named if rule.owners == name]
    return found + (["fallback"] if name in delivery.fallback else [])


def remarks(delivery: DeliverySettings, environ: Mapping[str, str]) -> list[str]:
    """What isn't wrong and may still not be meant."""
    told = [
        f"{visible(channel.name)} is used by nothing: name it in [default], a route or [fallback]"
        for channel in delivery.channels
        if not uses(channel.name, delivery)
    ]
    if delivery.source is not None:
        ignored = _set_variables(environ)
        if ignored:
            told.append(
                f"{', '.join(ignored)} {'is' if len(ignored) == 1 else 'are'} not read: "
                f"the channels are those of {visible(delivery.source)}"
            )
    if all(channel.kind == CONSOLE for channel in delivery.channels):
        told.append("alerts go to stderr only, which nobody reads under cron: set a channel")
    return told


def route_lines(delivery: DeliverySettings) -> list[str]:
    """Who is told where, in the order in which it is decided; then what holds for all."""
    lines = ["who is told where, by the first that matches:"]
    lines += [
        f"  routes[{place}], for {_conditions(rule)}: {_goes_to(rule)}"
        for place, rule in enumerate(delivery.rules, start=1)
    ]
    lines.append(
        f"  default, for {'all others' if delivery.rules else 'all'}: {_goes_to(delivery.default)}"
    )
    lines.append(f"given up on its own channel: {_fallback(delivery)}")
    lines.append(f"quiet hours: {_quiet(delivery.quiet)}")
    told = "told" if delivery.tell_available else "not told"
    lines.append(f"that a subject is available again: {told}")
    return lines


def _conditions(rule: RouteRule) -> str:
    """``tenant acme or other and severity warning``."""
    words = zip(("tenant", "department", "environment", "severity"), rule[:4], strict=True)
    met = [f"{word} {' or '.join(map(visible, values))}" for word, values in words if values]
    return " and ".join(met) or "all"


def _goes_to(rule: RouteRule) -> str:
    """The channels, and how a department's own people hear of it."""
    channels = ", ".join(map(visible, rule.channels)) or "nobody"
    if rule.owners is None:
        return channels
    return f"{channels}; a department's owners and finance by {visible(rule.owners)}"


def _fallback(delivery: DeliverySettings) -> str:
    """Where it is told then; the console is the last resort of every one."""
    chosen = [visible(name) for name in delivery.fallback_names]
    if not [name for name in delivery.fallback_names if name != CONSOLE]:
        return "told on the console"
    if delivery.fallback:
        which = "" if len(chosen) > 1 else ", and what was given up there on the console"
        return f"told on {' and '.join(chosen)}{which}"
    if len(chosen) == 1:
        return "told on the console, as there is no other channel"
    return f"told on {' or '.join(chosen)}, whichever is another one"


def _quiet(quiet: QuietHours | None) -> str:
    if quiet is None:
        return "none"
    zone = "in the billing zone" if quiet.zone is None else visible(quiet.zone)
    return f"{quiet.begins:%H:%M} to {quiet.ends:%H:%M} {zone}, only what is at 100 % is sent then"


def _set_variables(environ: Mapping[str, str]) -> Sequence[str]:
    from worker.configuration.variables import VARIABLES

    names = (name for variables in VARIABLES.values() for name in variables.values())
    return [name for name in names if environ.get(name, "").strip()]


def _sends_to(channel: ChannelSettings) -> str:
    """Whom, in as much as it is no secret: of an address the host alone."""
    values = channel.values
    match channel.kind:
        case "console":
            return "stderr"
        case "im-bot":
            return f"group {visible(values['group'])}"
        case "email":
            shown = ", ".join(map(visible, values["to"][:SHOWN_ADDRESSES]))
            more = len(values["to"]) - SHOWN_ADDRESSES
            return f"{shown} and {more} more" if more > 0 else shown or "departments' addresses"
        case "feishu-app":
            return f"{values['receive_id_type']} {visible(values['receive_id'])}"
        case "apprise":
            return f"{visible(values['url'].partition(':')[0])}://…"
        case _:
            return f"at {urlsplit(values['url']).hostname}"
