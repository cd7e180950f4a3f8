"""The set-up of a simulated month: a file as operators write it, and what it means by the README's words."""

from __future__ import annotations

from datetime import datetime, time
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from contract.servers_mail import USER
from contract.sides import SECRET
from month.expected import Message
from month.receivers import App, Bot, Hook, MailBox
from month.world import OWNERS
from worker.configuration import load_delivery
from worker.settings import DeliverySettings

Target = tuple[str, str | None]
OPS_MAIL = "ops@example.com"
QUIET = (time(22), time(7))
FALLBACKS: tuple[Target, ...] = (("mail", OPS_MAIL), ("console", None))

_FILE = """
[channels.ops]
kind = "feishu-webhook"
url = {{ env = "OPS_URL" }}
secret = {{ env = "OPS_SECRET" }}

[channels.app]
kind = "feishu-app"
app_id = "{app.app_id}"
app_secret = {{ env = "APP_SECRET" }}
receive_id = "{app.chat}"
base_url = "{app.url}"

[channels.hook]
kind = "webhook"
url = {{ env = "HOOK_URL" }}
secret = {{ env = "HOOK_SECRET" }}

[channels.mail]
kind = "email"
host = "localhost"
port = {mail.port}
username = "{user}"
password = {{ env = "MAIL_PASSWORD" }}
sender = "quota@example.com"
to = ["ops@example.com"]
ca_file = "{mail.certificates.ca_file}"

[default]
channels = ["ops", "app", "mail"]
owners = "mail"

[[routes]]
environment = "test"
channels = ["hook"]
owners = false

[[routes]]
severity = "exhausted"
channels = ["ops", "app", "hook", "mail"]

[fallback]
channels = ["mail", "console"]
"""
_QUIET_HOURS = '\n[quiet_hours]\nfrom = "22:00"\nto = "07:00"\n'


class Receivers(NamedTuple):
    ops: Bot
    app: App
    hook: Hook
    mail: MailBox


def read_set_up(folder: Path, receivers: Receivers, *, quiet: bool) -> DeliverySettings:
    file = folder / "quota-worker.toml"
    text = _FILE.format(app=receivers.app, mail=receivers.mail, user=USER)
    file.write_text(text + (_QUIET_HOURS if quiet else ""))
    environ = {
        "OPS_URL": receivers.ops.url,
        "OPS_SECRET": SECRET,
        "APP_SECRET": receivers.app.app_secret,
        "HOOK_URL": receivers.hook.url,
        "HOOK_SECRET": receivers.hook.secret,
        "MAIL_PASSWORD": SECRET,
    }
    return load_delivery(environ, str(file))


def targets_of(message: Message) -> set[Target]:
    """Who is to be told, each address once however it is written."""
    if message.environment == "test":
        return {("hook", None)}
    found: set[Target] = {("ops", None), ("app", None), ("mail", OPS_MAIL)}
    if message.severity == "exhausted":
        found.add(("hook", None))
    if message.subject_kind == "department":
        owners, finance = OWNERS[message.subject]
        found |= {("mail", one) for one in owners + finance if one.lower() != OPS_MAIL}
    return found


def is_quiet(moment: datetime, zone: str) -> bool:
    local = moment.astimezone(ZoneInfo(zone)).time()
    return local >= QUIET[0] or local < QUIET[1]
