"""Channels, routes and owners: whether what is told reaches anybody. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from worker.configuration.routing import SEVERITIES
from worker.doctor.finding import FAULT, NOTE, WARNING, Finding, named, ok, one_line, times
from worker.settings import CONSOLE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from worker.doctor.facts import ChannelFacts, SubjectGroup
    from worker.settings import DeliverySettings, RouteRule

# What a failing of a threshold is told as; "available" is no alarm.
ALARMS: Final = tuple(word for word in SEVERITIES if word != "available")


class ProbeResult(NamedTuple):
    """What became of a test on a channel; `fault` None: it was sent."""

    channel: str
    to: str
    fault: str | None
    cure: str


def reachable(delivery: DeliverySettings) -> list[str]:
    """The channels that somebody reads: no console, and with an address."""
    kinds = {one.name: one.kind for one in delivery.channels}
    return [name for name, kind in kinds.items() if kind != CONSOLE and delivery.recipients(name)]


def console_only(delivery: DeliverySettings, *, attended: bool) -> list[Finding]:
    """Whether alerts go anywhere but stderr, which nobody reads under cron."""
    if reachable(delivery):
        return ok("console-only", f"alerts go to {named(reachable(delivery))}")
    return [
        Finding(
            "console-only",
            NOTE if attended else WARNING,
            "alerts go to stderr only, which nobody reads under a schedule",
            "export QUOTA_WORKER_FEISHU_WEBHOOK=ADDRESS, or another channel (README, Channels); "
            "then quota-worker channel list",
        )
    ]


def failing(found: Sequence[ChannelFacts]) -> list[str]:
    """The channels whose latest attempt of the last 24 hours failed, and nothing was sent since."""
    return [
        one.channel
        for one in found
        if one.failed_at is not None and (one.sent_at is None or one.sent_at < one.failed_at)
    ]


def channels(delivery: DeliverySettings, found: Sequence[ChannelFacts]) -> list[Finding]:
    """How the channels did in the last 24 hours."""
    bad = set(failing(found))
    told = [
        Finding(
            "channels",
            WARNING,
            f"the latest message on {one_line(one.channel)} was not sent ({one.cause})",
            f"quota-worker channel test {one_line(one.channel)}",
        )
        for one in found
        if one.channel in bad
    ]
    names = [one.name for one in delivery.channels] or [CONSOLE]
    return told or ok("channels", f"{named(names)}: none failed in the last 24 hours")


def probes(found: Sequence[ProbeResult]) -> list[Finding]:
    """What became of `--probe`'s tests."""
    told = [
        Finding(
            "probe",
            FAULT,
            f"a test on {one_line(one.channel)}{one.to} was not sent: {one_line(one.fault)}",
            one_line(one.cure) or f"quota-worker channel test {one_line(one.channel)}",
        )
        for one in found
        if one.fault is not None
    ]
    sent = [one for one in found if one.fault is None]
    if sent:
        told += ok("probe", f"{times(len(sent), 'test')} sent: {named([o.channel for o in sent])}")
    return told


def routes(
    delivery: DeliverySettings, groups: Sequence[SubjectGroup], broken: Collection[str]
) -> list[Finding]:
    """Whether each enforcing tenant and department with a budget is told about to somebody.

    `broken`: channels that can't be used, or failed last.
    """
    working = {name for name in reachable(delivery) if name not in broken}
    told = []
    for group in groups:
        mute = [word for word in ALARMS if not _tells(delivery, group, word, working, broken)]
        if not mute:
            continue
        count = times(group.subjects, group.kind)
        which = "" if len(mute) == len(ALARMS) else f", of {' and '.join(mute)} alerts,"
        if group.subjects == 1:
            whom = f"the {group.kind} {one_line(group.one)}"
        else:
            whom = f"{count} of {one_line(group.environment)}, such as {one_line(group.one)}"
        told.append((whom, which))
    if not told:
        return ok("routes", "every enforcing tenant and every budget has a working route")
    whom, which = told[0]
    more = f", and {times(len(told) - 1, 'group')} more" if len(told) > 1 else ""
    return [
        Finding(
            "routes",
            WARNING,
            f"no working channel is told{which} about {whom}{more}: nobody hears of a refusal "
            "(a console is read by nobody)",
            "quota-worker channel list; quota-worker channel test NAME; then mend [default] or "
            "the route of the configuration",
        )
    ]


def owners(
    delivery: DeliverySettings, ownerless: Sequence[tuple[str, str]], broken: Collection[str]
) -> list[Finding]:
    """Departments without addresses where the route wants their owners to be told."""
    from worker.doctor.facts import SubjectGroup

    working = {name for name in reachable(delivery) if name not in broken}
    wanted, alone = [], []
    for department, environment in ownerless:
        group = SubjectGroup("department", None, department, environment, 1, department)
        rules = [_rule(delivery, group, word) for word in ALARMS]
        if any(rule.owners is not None for rule in rules):
            wanted.append(department)
            if not all(working.intersection(rule.channels) for rule in rules):
                alone.append(department)
    if not wanted:
        return ok("owners", "every department whose route names its owners has an address")
    names = list(dict.fromkeys(alone or wanted))
    tail = ": nobody else is told" if alone else ""
    return [
        Finding(
            "owners",
            WARNING if alone else NOTE,
            f"no owner or finance address: {named(names)}{tail}",
            "quota-worker limits show --toml > limits.toml, add owner_emails, then "
            "quota-worker limits apply limits.toml; or owners = false in the route",
        )
    ]


def named_by_routes(delivery: DeliverySettings) -> tuple[list[str], list[str]]:
    """The tenants and the departments that routes name."""
    tenants = {name for rule in delivery.rules for name in rule.tenants}
    departments = {name for rule in delivery.rules for name in rule.departments}
    return sorted(tenants), sorted(departments)


def _rule(delivery: DeliverySettings, group: SubjectGroup, severity: str) -> RouteRule:
    """The rule that decides, as `quota_route` does."""
    for rule in delivery.rules:
        if (
            (not rule.tenants or (group.kind == "tenant" and group.tenant in rule.tenants))
            and (not rule.departments or group.department in rule.departments)
            and (not rule.environments or group.environment in rule.environments)
            and (not rule.severities or severity in rule.severities)
        ):
            return rule
    return delivery.default


def _tells(
    delivery: DeliverySettings,
    group: SubjectGroup,
    severity: str,
    working: Collection[str],
    broken: Collection[str],
) -> bool:
    """Whether somebody hears of it; whether owners have addresses is for `owners` to say."""
    rule = _rule(delivery, group, severity)
    if group.kind == "department" and rule.owners is not None and rule.owners not in broken:
        return True
    return any(name in working for name in rule.channels)
