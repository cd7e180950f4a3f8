"""The usual set-up without a file: a channel for each group of variables that is set.

The channels are named after their kinds, and each gets every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker.errors import ConfigurationError
from worker.settings import DeliverySettings, RouteRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.configuration.table import Table
    from worker.settings import ChannelSettings

# Of each kind: its keys by their variables; the first one turns the channel on.
VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "im-bot": {"group": "QUOTA_WORKER_IMBOT_GROUP", "command": "QUOTA_WORKER_IMBOT_COMMAND"},
    "feishu-webhook": {
        "url": "QUOTA_WORKER_FEISHU_WEBHOOK",
        "secret": "QUOTA_WORKER_FEISHU_SECRET",
        "keyword": "QUOTA_WORKER_FEISHU_KEYWORD",
    },
    "email": {
        "host": "QUOTA_WORKER_SMTP_HOST",
        "port": "QUOTA_WORKER_SMTP_PORT",
        "security": "QUOTA_WORKER_SMTP_SECURITY",
        "username": "QUOTA_WORKER_SMTP_USERNAME",
        "password": "QUOTA_WORKER_SMTP_PASSWORD",
        "sender": "QUOTA_WORKER_SMTP_SENDER",
        "to": "QUOTA_WORKER_SMTP_TO",
        "ca_file": "QUOTA_WORKER_SMTP_CA_FILE",
    },
}


def delivery_of_variables(environ: Mapping[str, str]) -> DeliverySettings:
    """Every channel whose first variable is set; an empty value counts as unset.

    Raises ConfigurationError that names every variable that is wrong.
    """
    faults: list[str] = []
    channels = tuple(
        _channel(kind, environ, faults)
        for kind, variables in VARIABLES.items()
        if environ.get(next(iter(variables.values())), "").strip()
    )
    if faults:
        raise ConfigurationError("; ".join(faults))
    if not channels:
        return DeliverySettings()
    names = tuple(channel.name for channel in channels)
    default = RouteRule(channels=names, owners="email" if "email" in names else None)
    return DeliverySettings(channels, default=default)


def _channel(kind: str, environ: Mapping[str, str], faults: list[str]) -> ChannelSettings:
    from pathlib import Path

    from worker.configuration.kinds import read_channel
    from worker.configuration.table import Source, Table

    variables = VARIABLES[kind]
    source = Source(environ, Path(), literal_secrets=True)

    def name_of(key: str) -> str:
        name, bracket, place = key.partition("[")
        return variables.get(name, f"{kind}.{name}") + bracket + place

    raw: dict[str, Any] = {
        key: text for key, name in variables.items() if (text := environ.get(name, "").strip())
    }
    table = Table(raw, source, name_of)
    _split(raw, table)
    channel = read_channel(kind, kind, table)
    faults += source.faults
    return channel


def _split(raw: dict[str, Any], table: Table) -> None:
    """Turn texts into what a file would hold: words, numbers and lists."""
    if "command" in raw:
        import shlex

        try:
            # a shell's quoting rules, and no others
            raw["command"] = shlex.split(raw["command"])
        except ValueError as error:
            table.fault("command", f"can't be split into words: {error}")
            del raw["command"]
    if "to" in raw:
        raw["to"] = [one.strip() for one in raw["to"].split(",") if one.strip()]
    if raw.get("port", "").isdecimal():
        raw["port"] = int(raw["port"])
