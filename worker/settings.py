"""What the process is set to: frozen values, and what the environment says of them. Pure.

Channels and routes are read by `worker.configuration`, when a command first asks for them;
here stand their values and the documents that SQL gets. Secrets never show in a repr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from worker.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import time

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})
LEVELS: Final = ("info", "warning", "error")
CONSOLE: Final = "console"
HEARTBEAT_VARIABLE: Final = "QUOTA_WORKER_HEARTBEAT_URL"
# How long an overdue reservation waits for the usage sources at most.
WAIT_MINUTES_MAX: Final = 60
# The kinds that collect what waits into a digest; the others tell each message by itself.
COLLECTING: Final = frozenset({"im-bot", "feishu-webhook", "feishu-app", "email", "apprise"})


class Settings(NamedTuple):
    """Where the database is.

    `postgres_dsn` None: the embedded server is used, which stops with its last
    user unless `keep_server`.
    """

    postgres_dsn: str | None = None
    keep_server: bool = False
    log_level: str = "info"
    listen_dsn: str | None = None

    def __repr__(self) -> str:
        return f"Settings(keep_server={self.keep_server}, log_level={self.log_level!r})"


class ChannelSettings(NamedTuple):
    """One channel: its name, its kind, and what the kind's notifier is made with.

    `values` has every key of the kind, None where unset; references are followed already,
    so it holds secrets.
    """

    name: str
    kind: str
    values: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"ChannelSettings(name={self.name!r}, kind={self.kind!r})"

    @property
    def recipients(self) -> tuple[str | None, ...]:
        """The addresses that a message on it goes to; None alone where it serves one group."""
        return tuple(self.values["to"]) if self.kind == "email" else (None,)


class RouteRule(NamedTuple):
    """Which messages go where; an empty condition is met by any.

    `owners` is the e-mail channel through which a department's owner and finance
    addresses get its messages, None: they don't.
    """

    tenants: tuple[str, ...] = ()
    departments: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    channels: tuple[str, ...] = (CONSOLE,)
    owners: str | None = None

    @property
    def conditions(self) -> dict[str, tuple[str, ...]]:
        """The conditions by their names in the routes document."""
        return {
            "tenants": self.tenants,
            "departments": self.departments,
            "environments": self.environments,
            "severities": self.severities,
        }


class QuietHours(NamedTuple):
    """When only what is at 100 % is sent, over midnight where `begins` is later than `ends`.

    `zone` None: the billing zone.
    """

    begins: time
    ends: time
    zone: str | None = None


class SourceSettings(NamedTuple):
    """One usage source: its name, its kind (`sql`, `http`), and what it is made with.

    `values` has every key of the kind, None where unset; references are followed already,
    so it holds secrets. `words` maps our words (`in_tokens`, ...) to its columns or paths.
    """

    name: str
    kind: str
    values: Mapping[str, Any]
    words: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"SourceSettings(name={self.name!r}, kind={self.kind!r})"


class AskingSettings(NamedTuple):
    """The usage sources in the order in which they are asked.

    `wait_seconds`: how long after its time ran out a reservation waits for their answer
    before its stale policy is applied; `ask_seconds`: how long one tick asks at most.
    """

    sources: tuple[SourceSettings, ...] = ()
    wait_seconds: int = 900
    ask_seconds: int = 30


class DiagnosisSettings(NamedTuple):
    """When requests without usage are told: more than `missing_pct` percent of a day's requests.

    Groups of fewer than `min_requests` a day say nothing. `off`: it is never told.
    """

    missing_pct: int = 5
    min_requests: int = 20
    off: bool = False


class WatchSettings(NamedTuple):
    """When caps that fall soon are told, and apps and keys that run away.

    A cap of the day is told where it falls within `day_hours` at the present pace, one of the month
    within `month_hours`, and only at `burn_times` the even pace and `burn_requests` requests an
    hour; an app or key at `usual_times` its usual pace and at least `min_requests` requests.
    `off`: nothing is told, and no pace is noted.
    """

    day_hours: int = 4
    month_hours: int = 24
    burn_times: int = 3
    burn_requests: int = 30
    usual_times: int = 10
    min_requests: int = 100
    off: bool = False


class UpkeepSettings(NamedTuple):
    """For how many days upkeep keeps what.

    `request_days`: requests after their month was closed, with the inbox and refusals;
    `message_days`: messages after their end; `alert_days`: which crossings were told, after their
    period; `run_days`: the record of jobs; `note_days`: what was told of missing usage, burns and
    runaways. `off`: all is kept.
    """

    request_days: int = 40
    message_days: int = 90
    alert_days: int = 400
    run_days: int = 30
    note_days: int = 60
    off: bool = False


class ReportSettings(NamedTuple):
    """Where the monthly reports go: an e-mail `channel`, and `to` the report of all.

    Departments' reports go to their owner and finance addresses. `channel` None: they are
    stored, and nobody gets one. `day`: of the month after, None: at the closing.
    """

    channel: str | None = None
    to: tuple[str, ...] = ()
    day: int | None = None


class DeliverySettings(NamedTuple):
    """The channels and who is told on which. As it stands: the console alone.

    `channels` are in the order of their definition, each name once. `fallback` empty: others of
    the channels, `fallback_names` says which. `source` says where it was read, None: the variables;
    `secret_variables` are those that a file's secrets stand in. `asking`: only a file has sources.
    `report` None: no monthly reports are made.
    """

    channels: tuple[ChannelSettings, ...] = ()
    rules: tuple[RouteRule, ...] = ()
    default: RouteRule = RouteRule()
    fallback: tuple[str, ...] = ()
    quiet: QuietHours | None = None
    tell_available: bool = False
    source: str | None = None
    secret_variables: tuple[str, ...] = ()
    diagnosis: DiagnosisSettings = DiagnosisSettings()
    watch: WatchSettings = WatchSettings()
    upkeep: UpkeepSettings = UpkeepSettings()
    asking: AskingSettings = AskingSettings()
    report: ReportSettings | None = None

    @property
    def fallback_names(self) -> tuple[str, ...]:
        """Where a dead message is told; its own channel is left out, console where none is left.

        Where nothing is configured: the first two channels that reach anybody, so that each has
        another one. Nobody may read a console: it is taken only where the others don't suffice.
        """
        if self.fallback:
            return self.fallback
        reaching = [channel for channel in self.channels if channel.recipients]
        reaching.sort(key=lambda channel: channel.kind == CONSOLE)
        return tuple(channel.name for channel in reaching[:2])

    def recipients(self, name: str) -> tuple[str | None, ...]:
        """The addresses of the channel of this name; None alone where it serves one group."""
        for channel in self.channels:
            if channel.name == name:
                return channel.recipients
        return (None,)


def routes_document(delivery: DeliverySettings) -> str:
    """The routes as `quota_route` reads them, JSON: every channel with its addresses.

    `digests` are the channels that collect what waits, as `quota_warn_enqueue` reads it.
    """
    import json

    named = _targets(delivery)

    def rule(one: RouteRule) -> dict[str, Any]:
        conditions = {name: list(values) for name, values in one.conditions.items() if values}
        targets = [target for name in one.channels for target in named[name]]
        return {**conditions, "to": targets, "owners": one.owners}

    document = {
        "rules": [rule(one) for one in delivery.rules],
        "default": rule(delivery.default),
        "available": delivery.tell_available,
        "digests": [one.name for one in delivery.channels if one.kind in COLLECTING],
    }
    return json.dumps(document, ensure_ascii=False)


def fallbacks_document(delivery: DeliverySettings) -> str:
    """Where a dead message is told, as `quota_outbox_fail` reads it: JSON."""
    import json

    named = _targets(delivery)
    return json.dumps([target for name in delivery.fallback_names for target in named[name]])


def _targets(delivery: DeliverySettings) -> dict[str, list[dict[str, str]]]:
    """By the names of all channels: each with its addresses, as SQL reads them."""
    return {CONSOLE: [{"channel": CONSOLE}]} | {
        one.name: [
            {"channel": one.name} | ({} if address is None else {"recipient": address})
            for address in one.recipients
        ]
        for one in delivery.channels
    }


def quiet_document(delivery: DeliverySettings) -> str | None:
    """The quiet hours as `quota_quiet` reads them, JSON; None where there are none."""
    if delivery.quiet is None:
        return None
    import json

    begins, ends, zone = delivery.quiet
    return json.dumps({"from": f"{begins:%H:%M}", "to": f"{ends:%H:%M}", "zone": zone})


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Read POSTGRES_DSN and QUOTA_WORKER_{KEEP_SERVER,LOG_LEVEL,LISTEN_DSN}; empty is unset.

    Raises ConfigurationError that names every variable that is wrong.
    """
    faults: list[str] = []
    dsns: dict[str, str | None] = {}
    for name in ("POSTGRES_DSN", "QUOTA_WORKER_LISTEN_DSN"):
        dsns[name] = dsn = environ.get(name, "").strip() or None
        if dsn is not None and not dsn.startswith(("postgresql://", "postgres://")):
            # no user@ in the example: messages are redacted, and it would be eaten
            faults.append(f"{name} must look like postgresql://host:5432/database?user=name")
    keep = environ.get("QUOTA_WORKER_KEEP_SERVER", "").strip().lower()
    if keep not in _YES | _NO:
        faults.append("QUOTA_WORKER_KEEP_SERVER is neither 1 nor 0")
    level = environ.get("QUOTA_WORKER_LOG_LEVEL", "").strip().lower() or "info"
    if level not in LEVELS:
        faults.append(f"QUOTA_WORKER_LOG_LEVEL is none of {', '.join(LEVELS)}")
    if faults:
        raise ConfigurationError("; ".join(faults))
    return Settings(
        postgres_dsn=dsns["POSTGRES_DSN"],
        keep_server=keep in _YES,
        log_level=level,
        listen_dsn=dsns["QUOTA_WORKER_LISTEN_DSN"],
    )
