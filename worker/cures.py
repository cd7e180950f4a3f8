"""What to do about a failed test of a channel, by kind and cause. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from worker.models import FailureCause
from worker.untrusted import for_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.settings import ChannelSettings

# By cause: what is right for every kind that can fail so, but for those below.
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
    FailureCause.LOGIN_REFUSED: "copy user and password again",
    FailureCause.NO_PERMISSION: "grant it in the vendor's console, and publish the app's version",
    FailureCause.CONTENT_REFUSED: "ask who runs the service which rule the text met",
    FailureCause.NOT_CONFIGURED: "set what the channel lacks: see its recipe in the README",
}
# Where another thing is to be done for a kind.
KIND_CURES: Final[Mapping[tuple[str, FailureCause], str]] = {
    ("console", FailureCause.UNREACHABLE): "stderr is closed: see where the schedule sends it",
    ("im-bot", FailureCause.TIMEOUT): "look whether it arrived all the same; then run it by hand",
    ("email", FailureCause.TIMEOUT): 'check host and port (465 wants security = "tls", 587 '
    '"starttls"); look in the mailbox whether it arrived all the same',
    ("email", FailureCause.UNREACHABLE): "check host, port and firewall, and that the mail "
    "server runs",
    ("email", FailureCause.RATE_LIMITED): "nothing, if it ends: an alert is repeated after 5 s, "
    "30 s, 5 minutes and later, which greylisting asks for; else ask who runs the mail server",
    ("email", FailureCause.SERVER_ERROR): "wait and try again; then ask who runs the mail server",
    ("email", FailureCause.ADDRESS_REFUSED): "set `sender` of the channel "
    "(QUOTA_WORKER_SMTP_SENDER without a file) to an address that this login may send from",
    ("email", FailureCause.REJECTED): 'check port and security: "starttls" with 587, "tls" with '
    "465",
    ("email", FailureCause.UNKNOWN_ANSWER): "look in the mailbox whether it arrived all the "
    "same; check that a mail server is at host and port",
    ("email", FailureCause.CONTENT_REFUSED): "have the sender allowed in the mail server's filter",
    ("webhook", FailureCause.TIMEOUT): "look whether the receiver has it all the same; it should "
    "answer before it acts",
    ("webhook", FailureCause.UNREACHABLE): "check the address, DNS, firewall and proxy, and that "
    "the receiver runs",
    ("webhook", FailureCause.RATE_LIMITED): "wait and try again; then ask who runs the receiver "
    "for its limit: every alert is a request of its own",
    ("webhook", FailureCause.SERVER_ERROR): "look in the receiver's log",
    ("webhook", FailureCause.BOT_REMOVED): "the address is gone or wrong: copy the receiver's "
    "present one into `url`",
    ("webhook", FailureCause.LOGIN_REFUSED): "set `secret` to the signing secret that the "
    "receiver has (whsec_…), and this machine's clock; or give the address the login that it "
    "wants",
    ("webhook", FailureCause.REJECTED): "look in the receiver's log for why; check that `url` is "
    "its address for POST",
    ("webhook", FailureCause.TOO_LARGE): "a test is small: raise the receiver's limit of size",
    ("feishu-app", FailureCause.LOGIN_REFUSED): "copy app_id and app_secret again from the "
    "vendor's console",
    ("feishu-app", FailureCause.ADDRESS_REFUSED): "add this machine's public address to the "
    "list in the app's security settings",
    ("feishu-app", FailureCause.BOT_REMOVED): "add the app's bot to the group, and copy "
    "receive_id again, with its receive_id_type",
    ("feishu-app", FailureCause.RATE_LIMITED): "wait a minute and try again; all bots in a group "
    "share its limit",
    ("feishu-app", FailureCause.REJECTED): "check receive_id and receive_id_type; a card that "
    "could not be built is a fault of quota-worker's own: report it with the answer",
    ("feishu-webhook", FailureCause.REJECTED): "check that the address is a custom bot's, whose "
    "path begins with /open-apis/bot/v2/hook/",
    ("feishu-app", FailureCause.NO_PERMISSION): "mend what the answer names, in the vendor's "
    "console or the group's settings; a permission holds when the app's version is published",
    ("apprise", FailureCause.UNKNOWN_ANSWER): "look whether it arrived all the same; if not, "
    "copy the key or token in the address again, and check that the service can be reached from "
    "here: Apprise doesn't say which it is",
}
_BY_HAND: Final = frozenset({FailureCause.TIMEOUT, FailureCause.COMMAND_FAILED})


def cure_words(channel: ChannelSettings, cause: FailureCause, cure: str = "") -> str | None:
    """What to do, in one line: `cure` is what the failure itself says. None: it is unknown."""
    words = cure or KIND_CURES.get((channel.kind, cause)) or CURES.get(cause)
    if cure or channel.kind != "im-bot" or cause not in _BY_HAND:
        return words
    return f"{words}: {command_line(channel)}"


def command_line(channel: ChannelSettings) -> str:
    """What an im-bot's channel runs, to be typed; with another text."""
    words = (*channel.values["command"], "send", "--group", channel.values["group"])
    return for_terminal(f"{shlex.join(words)} --text test")
