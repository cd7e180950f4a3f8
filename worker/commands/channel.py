"""`quota-worker channel list | test NAME [--to ADDRESS] [--lang L]`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from worker.answers import say, tell
from worker.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.models import Delivery, OutboxMessage
    from worker.settings import ChannelSettings, DeliverySettings

DEFAULT_LANGUAGE = "en"


class _Target(NamedTuple):
    """Whom a test goes to; `recipient` None: the channel's one group."""

    channel: ChannelSettings
    recipient: str | None

    def __str__(self) -> str:
        from worker.untrusted import visible

        address = "" if self.recipient is None else f" to {visible(self.recipient)}"
        return f"{visible(self.channel.name)} ({self.channel.kind}){address}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    actions = parser.add_subparsers(dest="action", metavar="list | test", required=True)
    actions.add_parser("list", help="every channel, what it is and where it is used")
    test = actions.add_parser("test", help="send a test message; needs no database")
    test.add_argument("name", metavar="NAME", help="the channel's name, as `list` shows it")
    test.add_argument("--to", metavar="ADDRESS", help="of an e-mail channel: to this address alone")
    test.add_argument("--lang", metavar="L", default=DEFAULT_LANGUAGE, help="en (default) or zh-CN")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """List the channels, or send a test on one: exit 0 when it was sent, else 1.

    Raises UsageError for what doesn't exist, and ConfigurationError.
    """
    delivery = deps.delivery()
    deps.tell_variables()
    if args.action == "list":
        return _list(delivery, deps)
    return await _test(args, deps, delivery)


def _list(delivery: DeliverySettings, deps: Deps) -> int:
    from worker.channel_uses import HEADER, remarks, route_lines, rows
    from worker.status_text import table

    say(table(HEADER, rows(delivery), frozenset()))
    say("")
    for line in route_lines(delivery):
        say(line)
    for remark in remarks(delivery, deps.environ):
        tell(f"note: {remark}")
    return 0


async def _test(args: argparse.Namespace, deps: Deps, delivery: DeliverySettings) -> int:
    from worker.clock import utc_now
    from worker.jobs.draining import SEND_TIMEOUT_SECONDS
    from worker.rendering import LANGUAGES
    from worker.trial import trial_message

    if args.lang not in LANGUAGES:
        from worker.configuration.table import meant, shown

        raise UsageError(f"--lang {shown(args.lang)} is not known: {meant(args.lang, LANGUAGES)}")
    targets = _targets(_named(args.name, delivery), args.to)
    channels = deps.channels()
    failed = False
    try:
        notifier = channels.notifier(args.name)
        for target in targets:
            message = trial_message(
                args.name, target.recipient, args.lang, os.uname().nodename, utc_now()
            )
            answer = await notifier.send(message, SEND_TIMEOUT_SECONDS)
            failed = failed or not answer.delivered
            _tell_outcome(target, message, answer, deps)
    finally:
        await channels.close()
    return 1 if failed else 0


def _named(name: str, delivery: DeliverySettings) -> ChannelSettings:
    from worker.settings import CONSOLE, ChannelSettings

    known = {CONSOLE: ChannelSettings(CONSOLE, CONSOLE, {})}
    known |= {channel.name: channel for channel in delivery.channels}
    if name not in known:
        from worker.configuration.table import meant, shown

        raise UsageError(f"{shown(name)} is no channel here: {meant(name, known)}")
    return known[name]


def _targets(channel: ChannelSettings, to: str | None) -> list[_Target]:
    if to is None:
        if not channel.recipients:
            raise UsageError(f"{channel.name} has no addresses of its own: name one with --to")
        return [_Target(channel, recipient) for recipient in channel.recipients]
    if channel.kind != "email":
        raise UsageError(f"--to is for e-mail channels, and {channel.name} is {channel.kind}")
    from worker.configuration.addresses import email_fault

    fault = email_fault(to)
    if fault is not None:
        raise UsageError(f"--to {fault}")
    return [_Target(channel, to)]


def _tell_outcome(target: _Target, message: OutboxMessage, answer: Delivery, deps: Deps) -> None:
    if answer.cause is None:
        from worker.trial import where_to_look

        where = where_to_look(target.channel)
        say(f"sent: {target}; look {where}; its id is {message.dedupe_key}")
        return
    from worker.alerts_words import cause_words
    from worker.cures import cure_words

    words = cause_words(deps.assets)[answer.cause]
    tell(f"not sent: {target}")
    tell(f"  cause: {words} ({answer.cause})")
    if answer.detail:
        tell(f"  answer: {answer.detail}")
    do = cure_words(target.channel, answer.cause, answer.cure)
    if do is not None:
        tell(f"  do: {do}")
