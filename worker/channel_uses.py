"""What `quota-worker channel list` shows: each channel and where it is used. No secrets. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from worker.settings import CONSOLE, ChannelSettings
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.settings import DeliverySettings

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
