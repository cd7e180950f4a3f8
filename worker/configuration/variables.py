"""The usual set-up without a file: a channel for each group of variables that is set.

The channels are named after their kinds, and each gets every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker.errors import ConfigurationError
from worker.settings import DeliverySettings, RouteRule
from worker.untrusted import visible

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

PREFIX: Final = "QUOTA_WORKER_"
# What sets up something else, here or in the program that im-bot runs.
_MORE: Final = frozenset(
    {"CONFIG", "DATA", "HEARTBEAT_URL", "KEEP_SERVER", "LISTEN_DSN", "LOG_LEVEL", "MESSAGE_ID"}
)
# What the tests are run with.
_OF_TESTS: Final = frozenset(
    {"TEST_PG", "LONG", "EXAMPLES", "SEED", "BATCHES", "CASE_07", "CRASH_RUNS", "CRASH_SEED"}
    | {"HERMES", "KUBERNETES", "MONTH", "MONTHS", "MUTANTS", "RACES", "REPORTS"}
    | {"CHAOS_MINUTES", "CHAOS_OLD", "CHAOS_KEEP"}
)
NUMBER_MAX_LETTERS: Final = 20  # Python refuses what has thousands
NAME_NEARNESS: Final = 0.7  # difflib's, without the prefix


def known_variables() -> frozenset[str]:
    """Every name with the prefix that means something."""
    channels = {name for variables in VARIABLES.values() for name in variables.values()}
    return frozenset(channels | {PREFIX + name for name in _MORE | _OF_TESTS})


def variable_remarks(environ: Mapping[str, str], delivery: DeliverySettings) -> list[str]:
    """What isn't wrong, as others may use the prefix, and may still not be meant. No values."""
    told = [
        f"{visible(name)} is not known: {_name_cure(name)}"
        for name in _unknown(environ)
        if name not in delivery.secret_variables
    ]
    if delivery.source is not None:
        return told
    for kind, variables in VARIABLES.items():
        switch, *rest = variables.values()
        idle = [name for name in rest if environ.get(name, "").strip()]
        if idle and not environ.get(switch, "").strip():
            told.append(
                f"{', '.join(idle)} {'is' if len(idle) == 1 else 'are'} not used: "
                f"{switch} turns {kind} on, and is not set"
            )
    return told


def _unknown(environ: Mapping[str, str]) -> list[str]:
    known = known_variables()
    return sorted(
        name
        for name, value in environ.items()
        if name.startswith(PREFIX) and value.strip() and name not in known
    )


def _name_cure(wrong: str) -> str:
    near = _near_name(wrong)
    return f"did you mean {near}?" if near else "is it another program's?"


def _near_name(wrong: str) -> str | None:
    from difflib import get_close_matches

    names = [name.removeprefix(PREFIX) for name in sorted(known_variables())]
    names = [name for name in names if name not in _OF_TESTS]
    near = get_close_matches(wrong.removeprefix(PREFIX), names, n=1, cutoff=NAME_NEARNESS)
    return PREFIX + near[0] if near else None


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
        # what is missing may be there under another name
        faults += [
            f"{visible(name)} is not known: did you mean {near}?"
            for name in _unknown(environ)
            if (near := _near_name(name)) and any(fault.startswith(f"{near} ") for fault in faults)
        ]
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
    port = raw.get("port", "")
    if len(port) > NUMBER_MAX_LETTERS:
        table.fault("port", f"is longer than {NUMBER_MAX_LETTERS} letters: a number is needed")
        del raw["port"]
    elif port.isdecimal():
        raw["port"] = int(port)
