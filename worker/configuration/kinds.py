"""What each kind of channel is set with: its keys, which of them are needed, what they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker import __version__
from worker.configuration.addresses import email_fault, host_fault, is_loopback, url_fault
from worker.configuration.table import KEEP_OUT
from worker.settings import ChannelSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.configuration.table import Table

SECURITIES: Final[Mapping[str, int]] = {"starttls": 587, "tls": 465, "none": 25}
ID_TYPES: Final = ("chat_id", "open_id", "user_id", "union_id", "email")
FEISHU: Final = "https://open.feishu.cn"
# Apprise's own schemes for plain http, with their counterparts.
_PLAIN_SCHEMES: Final = {"json": "jsons", "xml": "xmls", "form": "forms", "http": "https"}
PORT_MAX: Final = 65_535
ID_MAX_LETTERS: Final = 200
KEY_BYTES: Final = range(24, 65)
APPRISE_CURE: Final = (
    f"install the wheel with its extra, 'quota_worker-{__version__}-py3-none-any.whl[apprise]'; "
    "in a clone: .venv/bin/pip install -e '.[apprise]'"
)


def read_channel(name: str, kind: str, table: Table) -> ChannelSettings:
    """The channel's values; with faults in `table` they are good for nothing."""
    values = KINDS[kind](table)
    return ChannelSettings(name, kind, values)


def _console(_table: Table) -> dict[str, Any]:
    return {}


def _imbot(table: Table) -> dict[str, Any]:
    group = table.text("group", needed="the group to send to")
    if group is not None and group.startswith("-"):
        table.fault("group", "must not begin with '-': im-bot would take it for an option")
    command = table.texts("command", example='["imbot"]')
    return {"group": group, "command": command or ("imbot",)}


def _feishu_webhook(table: Table) -> dict[str, Any]:
    return {
        "url": _url(table, table.secret("url", needed=True)),
        "secret": table.secret("secret"),
        "keyword": table.text("keyword"),
    }


def _feishu_app(table: Table) -> dict[str, Any]:
    base_url = _url(table, table.text("base_url"), "base_url")
    receive_id = table.text("receive_id", needed="the chat's id, such as oc_…")
    if receive_id is not None and len(receive_id) > ID_MAX_LETTERS:
        table.fault("receive_id", f"is longer than {ID_MAX_LETTERS} letters: copy the id alone")
    return {
        "app_id": table.text("app_id", needed="the app's id, such as cli_…"),
        "app_secret": table.secret("app_secret", needed=True),
        "receive_id": receive_id,
        "receive_id_type": table.choice("receive_id_type", ID_TYPES, ID_TYPES[0]),
        "base_url": (base_url or FEISHU).rstrip("/"),
    }


def _email(table: Table) -> dict[str, Any]:
    host = table.text("host", needed="the mail server's name")
    if host is not None and (fault := host_fault(host)) is not None:
        table.fault("host", fault)
    security = table.choice("security", SECURITIES, "starttls")
    if security == "none" and host is not None and not is_loopback(host):
        table.fault("security", "may be none only to this machine: use starttls or tls")
    username, password = table.text("username"), table.secret("password")
    if (table.has("username"), table.has("password")) == (True, False):
        table.missing("password", "the server's login needs username and password")
    if (table.has("username"), table.has("password")) == (False, True):
        table.missing("username", "the server's login needs username and password")
    sender = table.text("sender", needed="the address that the mails come from")
    if sender is not None and (fault := email_fault(sender)) is not None:
        table.fault("sender", fault)
    return {
        "host": host,
        "port": table.number("port", 1, PORT_MAX) or SECURITIES[security],
        "security": security,
        "username": username,
        "password": password,
        "sender": sender,
        "to": _recipients(table),
        "ca_file": table.path("ca_file"),
    }


def _recipients(table: Table) -> tuple[str, ...]:
    addresses = table.texts("to", example='["ops@example.com"]')
    if addresses is None:
        # what could not be read is somebody all the same to the routes that are read next
        return ("",) if table.has("to") else ()
    folded: set[str] = set()
    for place, address in enumerate(addresses, start=1):
        fault = email_fault(address)
        if fault is not None:
            table.fault(f"to[{place}]", fault)
        elif address.lower() in folded:
            table.fault(f"to[{place}]", "stands there a second time: leave it out")
        folded.add(address.lower())
    return addresses


def _webhook(table: Table) -> dict[str, Any]:
    secret = table.secret("secret")
    if secret is not None and not all(map(_is_signing_key, secret.split())):
        table.fault(
            "secret", "leads to no signing key, which is whsec_ and base64 of 24 to 64 bytes"
        )
    url = _url(table, table.secret("url", needed=True, literal=True), may_hold_login=True)
    if url is not None and table.is_text("url") and "@" in url.partition("://")[2].split("/")[0]:
        table.fault("url", f"holds a login before the host's name: {KEEP_OUT}")
    return {"url": url, "secret": secret}


def _is_signing_key(word: str) -> bool:
    from base64 import b64decode

    try:
        return word.startswith("whsec_") and len(b64decode(word[6:], validate=True)) in KEY_BYTES
    except ValueError:
        return False


def _apprise(table: Table) -> dict[str, Any]:
    from importlib.util import find_spec

    if find_spec("apprise") is None:
        table.fault("kind", f"needs a package that is not installed: {APPRISE_CURE}")
    url = table.secret("url", needed=True)
    scheme, colon, rest = (url or "json://localhost").partition("://")
    if not colon or not rest or not scheme.isalnum():
        table.fault("url", "leads to no address of Apprise: one begins with a scheme and ://")
    elif scheme.lower() in _PLAIN_SCHEMES:
        host = rest.split("/")[0].rpartition("@")[2].partition(":")[0]
        if not is_loopback(host):
            better = _PLAIN_SCHEMES[scheme.lower()]
            table.fault("url", f"leads to plain http to another machine: use the scheme {better}")
    return {"url": url}


def _url(
    table: Table, url: str | None, key: str = "url", *, may_hold_login: bool = False
) -> str | None:
    if url is not None and (fault := url_fault(url, may_hold_login=may_hold_login)) is not None:
        table.fault(key, fault)
        return None
    return url


KINDS: Final[Mapping[str, Callable[[Table], dict[str, Any]]]] = {
    "console": _console,
    "im-bot": _imbot,
    "feishu-webhook": _feishu_webhook,
    "feishu-app": _feishu_app,
    "email": _email,
    "webhook": _webhook,
    "apprise": _apprise,
}
