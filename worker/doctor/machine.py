"""What this machine's own set-up tells: configuration, variables, heartbeat. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.channel_uses import uses
from worker.doctor.finding import FAULT, NOTE, Finding, named, ok, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.settings import DeliverySettings

HEARTBEAT: Final = "QUOTA_WORKER_HEARTBEAT_URL"


def configuration(delivery: DeliverySettings | None, faults: Sequence[str]) -> list[Finding]:
    """Whether it can be used; `faults` are its own words, without secrets."""
    told = [
        Finding("configuration", FAULT, one_line(fault), "quota-worker channel list, once mended")
        for fault in faults
    ]
    if told or delivery is None:
        return told
    idle = [channel.name for channel in delivery.channels if not uses(channel.name, delivery)]
    if idle:
        return [
            Finding(
                "configuration",
                NOTE,
                f"used by nothing: {named(idle)}",
                "name it in [default], a route or [fallback], or take it out",
            )
        ]
    source = "variables" if delivery.source is None else one_line(delivery.source)
    return ok("configuration", f"read from {source}")


def variables(remarks: Sequence[str]) -> list[Finding]:
    """Variables that may have been meant otherwise."""
    if not remarks:
        return ok("variables", "every QUOTA_WORKER_ variable is known")
    return [
        Finding("variables", NOTE, one_line(remark), "mend its name, or unset it")
        for remark in remarks
    ]


def heartbeat(url_fault: str | None, *, is_set: bool) -> list[Finding]:
    """Whether somebody outside notices silence; `url_fault` holds no address."""
    if url_fault is not None:
        return [Finding("heartbeat", FAULT, one_line(url_fault), f"export {HEARTBEAT}=https://…")]
    if is_set:
        return ok("heartbeat", "good ticks are told to a watcher")
    return [
        Finding(
            "heartbeat",
            NOTE,
            "a schedule that stops is noticed by nobody outside",
            f"export {HEARTBEAT}='https://hc-ping.com/UUID', or alert on quota-worker metrics",
        )
    ]
