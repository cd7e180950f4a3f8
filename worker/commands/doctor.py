"""`quota-worker doctor [--probe] [--json] [--roles-sql]`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from worker.answers import say, say_json, say_script, tell
from worker.errors import ConfigurationError, QuotaWorkerError, SchemaMissingError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.doctor.delivery import ProbeResult
    from worker.doctor.finding import Finding
    from worker.notifiers.channels import ConfiguredChannels
    from worker.settings import ChannelSettings, DeliverySettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "--probe",
        action="store_true",
        help="also send a test on each channel, as `channel test` does",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--roles-sql",
        action="store_true",
        help="write the SQL of the roles instead, for an administrator to run with psql",
    )


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Look at everything, change nothing; exit 0 without faults, else 1."""
    if args.roles_sql:
        say_script(await _roles_sql(deps))
        return 0
    from worker.clock import utc_now
    from worker.doctor.finding import FAULT
    from worker.doctor.showing import as_document, render_text
    from worker.status_text import Palette, wants_colour

    findings, roles_sql = await _look(args, deps)
    if args.json:
        say_json(as_document(findings, utc_now(), roles_sql))
    else:
        # The long script first: the findings are what is left on the screen.
        if roles_sql is not None:
            say(f"-- what `quota-worker doctor --roles-sql` writes:\n{roles_sql.rstrip()}\n")
        say(render_text(findings, Palette(coloured=wants_colour(sys.stdout, deps.environ))))
    return 1 if any(finding.severity == FAULT for finding in findings) else 0


async def _look(args: argparse.Namespace, deps: Deps) -> tuple[list[Finding], str | None]:
    """The findings, and the SQL of the roles where it is needed."""
    delivery, findings = _set_up(deps)
    broken: list[str] = []
    if delivery is not None and args.probe:
        from worker.doctor.delivery import probes

        results = await _probe(deps, delivery)
        findings += probes(results)
        broken += [one.channel for one in results if one.fault is not None]
    return await _database(deps, delivery, findings, broken)


def _set_up(deps: Deps) -> tuple[DeliverySettings | None, list[Finding]]:
    from worker.configuration.variables import variable_remarks
    from worker.doctor import machine
    from worker.heartbeat import heartbeat_url

    delivery, faults, remarks = None, [], []
    try:
        delivery = deps.delivery()
        remarks = variable_remarks(deps.environ, delivery)
    except ConfigurationError as error:
        # of a file the first line only says how many there are
        first, *rest = [line for line in str(error).splitlines() if line.strip()]
        faults = rest or [first]
    findings = machine.configuration(delivery, faults)
    if delivery is not None:
        findings += machine.variables(remarks)
    try:
        url = heartbeat_url(deps.environ)
    except ConfigurationError as error:
        return delivery, [*findings, *machine.heartbeat(str(error), is_set=True)]
    return delivery, [*findings, *machine.heartbeat(None, is_set=url is not None)]


async def _probe(deps: Deps, delivery: DeliverySettings) -> list[ProbeResult]:
    """A test to each channel's own addresses, all at once."""
    from worker.settings import CONSOLE, ChannelSettings

    known = delivery.channels or (ChannelSettings(CONSOLE, CONSOLE, {}),)
    targets = [(channel, recipient) for channel in known for recipient in channel.recipients]
    channels = deps.channels()
    try:
        return list(await asyncio.gather(*(_test(deps, channels, *one) for one in targets)))
    finally:
        await channels.close()


async def _test(
    deps: Deps, channels: ConfiguredChannels, channel: ChannelSettings, recipient: str | None
) -> ProbeResult:
    from worker.alerts_words import cause_words
    from worker.clock import utc_now
    from worker.cures import cure_words
    from worker.doctor.delivery import ProbeResult
    from worker.jobs.draining import SEND_TIMEOUT_SECONDS
    from worker.trial import trial_message
    from worker.untrusted import visible

    message = trial_message(channel.name, recipient, "en", os.uname().nodename, utc_now())
    to = "" if recipient is None else f" to {visible(recipient)}"
    try:
        answer = await channels.notifier(channel.name).send(message, SEND_TIMEOUT_SECONDS)
    except ConfigurationError as error:  # what only the channel's own library knows
        return ProbeResult(channel.name, to, str(error), "")
    if answer.cause is None:
        return ProbeResult(channel.name, to, None, "")
    words = f"{cause_words(deps.assets)[answer.cause]} ({answer.cause})"
    fault = f"{words}: {answer.detail}" if answer.detail else words
    return ProbeResult(
        channel.name, to, fault, cure_words(channel, answer.cause, answer.cure) or ""
    )


async def _database(
    deps: Deps, delivery: DeliverySettings | None, findings: list[Finding], broken: list[str]
) -> tuple[list[Finding], str | None]:
    """What the database tells, before the rest; a database that can't be asked is a fault."""
    from worker.clock import utc_now
    from worker.doctor.examining import Examination, Surroundings
    from worker.doctor.finding import FAULT, WARNING, Finding, one_line
    from worker.doctor.work import disk
    from worker.jobs.registry import JOBS
    from worker.postgres.migrate import function_bodies, roles_script
    from worker.settings import CONSOLE

    where: dict[str, str] = {}
    try:
        where = deps.whereabouts()
        if "data folder" in where:
            from shutil import disk_usage

            folder = where["data folder"]
            findings += disk(folder, disk_usage(folder).free)
        reads = await deps.doctor()
    except QuotaWorkerError as error:
        # what is wrong, and the advice behind it
        advice = error.default_message()
        what = one_line(str(error).removesuffix(f" ({advice})"))
        if "database" in where:
            what = f"{what}, at {one_line(where['database'])}"
        cure = one_line(advice.partition(": ")[2]).rstrip(".") or "quota-worker doctor, once mended"
        return [Finding("database", FAULT, what, cure), *findings], None
    names = [channel.name for channel in delivery.channels] if delivery is not None else []
    around = Surroundings(
        where=where["database"],
        listen_dsn=deps.settings.listen_dsn,
        migrations=[path.stem for path in deps.assets.sql_files("migrations")],
        functions=function_bodies(deps.assets),
        jobs={job.name: job.interval_seconds for job in JOBS},
        delivery=delivery,
        served=list(dict.fromkeys([*names, CONSOLE])),
        broken=broken,
        embedded_home=where.get("data folder"),
    )
    examination = Examination(reads, around, utc_now)
    told = await examination.run()
    off = {finding.check for finding in told if finding.severity in {FAULT, WARNING}}
    unmigrated = any(one.check == "schema" and one.severity == FAULT for one in told)
    needed = "roles" in off and not unmigrated  # migrate makes the roles, or prints the same
    roles_sql = None
    if needed and examination.schema_name is not None:
        roles_sql = roles_script(deps.assets, examination.schema_name)
    return [*told, *findings], roles_sql


async def _roles_sql(deps: Deps) -> str:
    """For an administrator. Raises SchemaMissingError where there is no ledger."""
    from worker.postgres.migrate import roles_script

    server = await (await deps.doctor()).server()
    if server.schema_name is None:
        raise SchemaMissingError
    tell(f"-- for the database {server.database}")
    return roles_script(deps.assets, server.schema_name).rstrip()
