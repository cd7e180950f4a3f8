"""Reads quota-worker.toml. A wrong file is refused whole, with every fault named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from worker.configuration.kinds import KINDS, read_channel
from worker.configuration.references import UnreadableFileError, read_bounded
from worker.configuration.report import read_report
from worker.configuration.routing import ROUTES_MAX, UNKNOWN, Routing, quiet_hours
from worker.configuration.syntax import BrokenSyntaxError, parse
from worker.configuration.table import Source, Table, bare, meant, shown
from worker.errors import ConfigurationError
from worker.settings import (
    CONSOLE,
    AskingSettings,
    ChannelSettings,
    DeliverySettings,
    DiagnosisSettings,
    UpkeepSettings,
    WatchSettings,
)
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_MAX_BYTES: Final = 1_048_576
NAME_MAX_LETTERS: Final = 63
MIN_REQUESTS_MAX: Final = 1_000_000
# The least and the greatest of each figure of [watch].
WATCH_BOUNDS: Final = {
    "day_hours": (1, 24),
    "month_hours": (1, 744),
    "burn_times": (1, 1_000),
    "burn_requests": (1, MIN_REQUESTS_MAX),
    "usual_times": (2, 1_000),
    "min_requests": (1, MIN_REQUESTS_MAX),
}
# The same of [upkeep]; the least as quota_upkeep_rule has it.
UPKEEP_BOUNDS: Final = {
    "request_days": (40, 3_650),
    "message_days": (30, 3_650),
    "alert_days": (100, 3_650),
    "run_days": (14, 3_650),
    "note_days": (14, 3_650),
}
NAME_FAULT: Final = (
    f"is no name: 1 to {NAME_MAX_LETTERS} letters, none of them a control character, "
    "no space or '-' at its beginning, no space at its end"
)


def read_delivery(file: str, environ: Mapping[str, str]) -> DeliverySettings:
    """The settings of the file. Raises ConfigurationError, one line for each fault."""
    path = Path(file)
    try:
        text = read_bounded(path, FILE_MAX_BYTES)
    except UnreadableFileError as error:
        raise ConfigurationError(
            f"the configuration file {visible(file)} {error}: name another with --config or "
            "QUOTA_WORKER_CONFIG"
        ) from None
    source = Source(environ, path.absolute().parent)
    try:
        raw = parse(text)
    except BrokenSyntaxError as error:
        raise ConfigurationError(_refusal(file, [str(error)])) from None
    delivery = _delivery(raw, file, source)
    if source.faults:
        raise ConfigurationError(_refusal(file, source.faults))
    return delivery


def _refusal(file: str, faults: list[str]) -> str:
    if len(faults) == 1:
        return f"{visible(file)} is not used: {faults[0]}"
    lines = "".join(f"\n  {fault}" for fault in faults)
    return f"{visible(file)} is not used, it has {len(faults)} faults:{lines}"


def _delivery(raw: dict[str, Any], file: str, source: Source) -> DeliverySettings:
    document = Table(raw, source, bare)
    channels = _channels(document)
    routing = Routing(channels)
    default_table = document.table("default")
    default = routing.default(default_table, document)
    if default_table is not None:
        default_table.finish()
    messages = document.table("messages")
    diagnosis = _diagnosis(document.table("diagnosis"))
    watch = _watch(document.table("watch"))
    upkeep = _upkeep(document.table("upkeep"))
    report = read_report(document.table("report"), channels)
    delivery = DeliverySettings(
        channels=channels,
        default=default,
        rules=routing.rules(document.tables("routes", ROUTES_MAX), default),
        fallback=routing.fallback(document.table("fallback")),
        quiet=quiet_hours(document.table("quiet_hours")),
        tell_available=messages is not None and messages.flag("available_again"),
        source=file,
        asking=_asking(document),
        diagnosis=diagnosis,
        watch=watch,
        upkeep=upkeep,
        report=report,
    )
    # those of the sources, too
    delivery = delivery._replace(secret_variables=tuple(sorted(source.secret_variables)))
    if messages is not None:
        messages.finish()
    document.finish()
    return delivery


def _asking(document: Table) -> AskingSettings:
    sources, reconcile = document.table("sources"), document.table("reconcile")
    if sources is None and reconcile is None:
        return AskingSettings()
    from worker.configuration.sources import read_asking

    return read_asking(sources, reconcile)


def _diagnosis(table: Table | None) -> DiagnosisSettings:
    """When requests without usage are told."""
    usual = DiagnosisSettings()
    if table is None:
        return usual
    missing_pct = table.number("missing_pct", 0, 99)
    min_requests = table.number("min_requests", 1, MIN_REQUESTS_MAX)
    off = table.flag("off")
    table.finish()
    return DiagnosisSettings(
        usual.missing_pct if missing_pct is None else missing_pct,
        usual.min_requests if min_requests is None else min_requests,
        off,
    )


def _watch(table: Table | None) -> WatchSettings:
    """When burning caps and runaways are told."""
    usual = WatchSettings()
    if table is None:
        return usual
    read = {name: table.number(name, least, most) for name, (least, most) in WATCH_BOUNDS.items()}
    off = table.flag("off")
    table.finish()
    return usual._replace(off=off, **{k: v for k, v in read.items() if v is not None})


def _upkeep(table: Table | None) -> UpkeepSettings:
    """For how many days what is kept."""
    usual = UpkeepSettings()
    if table is None:
        return usual
    read = {name: table.number(name, least, most) for name, (least, most) in UPKEEP_BOUNDS.items()}
    off = table.flag("off")
    table.finish()
    return usual._replace(off=off, **{k: v for k, v in read.items() if v is not None})


def _channels(document: Table) -> tuple[ChannelSettings, ...]:
    tables = document.table("channels")
    if tables is None:
        return ()
    channels: list[ChannelSettings] = []
    for name in tables.names():
        if not is_name(name):
            tables.fault(name, NAME_FAULT)
        table = tables.table(name)
        # what names a channel that could not be read is right all the same
        channels.append(
            ChannelSettings(name, UNKNOWN, {}) if table is None else _channel(name, table)
        )
    return tuple(channels)


def _channel(name: str, table: Table) -> ChannelSettings:
    kind = table.text("kind", needed=f"one of {', '.join(KINDS)}")
    if kind is None:
        return ChannelSettings(name, UNKNOWN, {})
    if kind not in KINDS:
        table.fault("kind", f"is {shown(kind)}, which there is not: {meant(kind, KINDS)}")
        return ChannelSettings(name, UNKNOWN, {})
    if name == CONSOLE and kind != CONSOLE:
        table.fault("kind", f"must be {CONSOLE} for a channel of that name: give it another name")
    channel = read_channel(name, kind, table)
    table.finish()
    return channel


def is_name(name: str) -> bool:
    """Whether a channel may be called so."""
    return (
        0 < len(name) <= NAME_MAX_LETTERS
        and name.isprintable()
        and name == name.strip()
        and not name.startswith("-")
    )
