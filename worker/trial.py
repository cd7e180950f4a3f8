"""The message of `quota-worker channel test`, and what is said of how it went. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from worker import __version__
from worker.models import FailureCause, OutboxMessage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

KIND: Final = "test"

# By kind of channel: where a message that was sent is to be seen.
LOOK: Final[Mapping[str, str]] = {
    "console": "above, on stderr",
    "im-bot": "in the group that the im-bot's command was given",
    "feishu-webhook": "in the group of the bot: a grey card",
    "feishu-app": "in the chat of receive_id: a grey card",
    "email": "in the mailbox; not there within minutes: in its spam folder, in the server's log",
    "webhook": 'in what the receiver got: JSON with "type": "test"',
    "apprise": "in the service that the address leads to",
}
# By cause: what to do, where the cause's own words don't say it.
CURES: Final[Mapping[FailureCause, str]] = {
    FailureCause.TIMEOUT: "look whether it arrived all the same; then at the service, and at the "
    "network between",
    FailureCause.UNREACHABLE: "check the address, DNS, firewall and proxy, and that the service "
    "runs",
    FailureCause.RATE_LIMITED: "wait a minute and try again; another program may use the same bot",
    FailureCause.SERVER_ERROR: "wait and try again; then ask who runs the service",
    FailureCause.BAD_SIGNATURE: "copy the secret again from the bot's security settings, and set "
    "this machine's clock",
    FailureCause.KEYWORD_MISSING: "set `keyword` of the channel (QUOTA_WORKER_FEISHU_KEYWORD "
    "without a file) to one of the bot's keywords",
    FailureCause.BOT_REMOVED: "add the bot to the group again, and copy its address or id anew",
    FailureCause.ADDRESS_REFUSED: "add this machine's public address to the list in the bot's "
    "security settings",
    FailureCause.TOO_LARGE: "a test is small: ask who runs the service for its limit of size",
    FailureCause.REJECTED: "check the channel's settings against its recipe in the README",
    FailureCause.UNKNOWN_ANSWER: "look whether it arrived all the same; check that the address "
    "leads to the service itself, and to no login page or proxy",
    FailureCause.COMMAND_MISSING: "install the program, or set `command` of the channel "
    "(QUOTA_WORKER_IMBOT_COMMAND without a file) to its path; the schedule's PATH is shorter "
    "than yours",
    FailureCause.COMMAND_FAILED: "run the same command by hand to see what it says",
    FailureCause.NOT_RENDERED: "install quota-worker again, its templates are incomplete",
    FailureCause.RECIPIENT_REFUSED: "check the address, and that the server takes mail for it",
    FailureCause.LOGIN_REFUSED: "copy user and password, or the app's id and secret, again",
    FailureCause.NO_PERMISSION: "grant it in the vendor's console, and publish the app's version",
    FailureCause.CONTENT_REFUSED: "ask the vendor's administrator which rule the text met",
    FailureCause.NOT_CONFIGURED: "set what the channel lacks: see its recipe in the README",
}


def trial_facts(channel: str, host: str, at: datetime) -> dict[str, Any]:
    """The facts of a test: no cap, no subject; who sent it, from where, and when."""
    return {
        "severity": KIND,
        "channel": channel,
        "host": host,
        "version": __version__,
        "decided_at": at.isoformat(timespec="seconds"),
        "zone": "UTC",
        "currency": "",
        "dimensions": [],
        "top_apps": None,
    }


def trial_message(
    channel: str, recipient: str | None, language: str, host: str, at: datetime
) -> OutboxMessage:
    """A message to send once, whose id says that it is a test."""
    from secrets import token_hex

    return OutboxMessage(
        message_id=0,
        kind=KIND,
        channel=channel,
        severity=KIND,
        locale=language,
        facts=json.dumps(trial_facts(channel, host, at)),
        attempt=1,
        dedupe_key=f"qw-test-{token_hex(8)}",
        created_at=at,
        recipient=recipient,
    )
