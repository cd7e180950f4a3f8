"""The message of `quota-worker channel test`, and where it is to be seen. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from worker import __version__
from worker.models import OutboxMessage
from worker.untrusted import visible

if TYPE_CHECKING:
    from datetime import datetime

    from worker.settings import ChannelSettings

KIND: Final = "test"
# By kind of channel, where there is nothing to name.
_PLACES: Final = {
    "console": "above, on stderr",
    "feishu-webhook": "in the group of the bot: a grey card",
    "email": "in the mailbox; not there within minutes: in its spam folder, in the server's log",
    "webhook": 'in what the receiver got: JSON with "type": "test"',
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


def where_to_look(channel: ChannelSettings) -> str:
    """Where a message that was sent on it is to be seen."""
    values = channel.values
    match channel.kind:
        case "im-bot":
            place = f"in the group {visible(values['group'])}"
        case "feishu-app":
            whom = f"{values['receive_id_type']} {visible(values['receive_id'])}"
            place = f"in the chat of {whom}: a grey card"
        case "apprise":
            scheme = visible(values["url"].partition("://")[0])
            place = f"in the service that its {scheme}:// address leads to"
        case _:
            place = _PLACES[channel.kind]
    return place
