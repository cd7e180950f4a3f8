"""Configuration: what a file or the variables make, and how a wrong one is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
from datetime import time
from pathlib import Path

import pytest

from worker.assets import Assets
from worker.configuration import load_delivery
from worker.configuration.addresses import email_fault, host_fault, url_fault
from worker.configuration.kinds import KINDS
from worker.errors import ConfigurationError
from worker.notifiers.channels import ConfiguredChannels
from worker.notifiers.makers import MAKERS
from worker.settings import (
    DeliverySettings,
    QuietHours,
    RouteRule,
    fallbacks_document,
    quiet_document,
    routes_document,
)

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quota-worker.toml"
SECRET = "s3cr3t-never-shown"  # noqa: S105  looked for where it must not be
URL = f"https://open.feishu.cn/open-apis/bot/v2/hook/{SECRET}"
KEY = "whsec_bmV2ZXItc2hvd24tczNjcjN0LW5ldmVyLXNob3du"
ENVIRON = {
    "FEISHU_OPS_URL": URL,
    "FEISHU_OPS_SECRET": SECRET,
    "FEISHU_APP_SECRET_OF_OURS": SECRET,
    "PAGER_SECRET": KEY,
    "EMPTY": " ",
    "TWO_LINES": f"{SECRET}\n{SECRET}",
    "PLAIN": f"http://relay.example.com/{SECRET}",
}

OPS = '[channels.ops]\nkind = "feishu-webhook"\nurl = { env = "FEISHU_OPS_URL" }\n'
MAIL = (
    '[channels.mail]\nkind = "email"\nhost = "smtp.example.com"\nsender = "q@example.com"\n'
    'to = ["ops@example.com"]\n'
)
BOTH = OPS + MAIL + '[default]\nchannels = ["ops", "mail"]\n'


def read(folder: Path, text: str | bytes, **environ: str) -> DeliverySettings:
    file = folder / "quota-worker.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_delivery(ENVIRON | environ, str(file))


def faults_of(folder: Path, text: str | bytes) -> list[str]:
    """Each fault of a wrong file, without the file's name; nothing secret is among them."""
    with pytest.raises(ConfigurationError) as caught:
        read(folder, text)
    told = str(caught.value)
    assert SECRET not in told
    assert "/hook/" not in told
    first, *lines = told.splitlines()
    file = f"{folder / 'quota-worker.toml'} is not used"
    assert first.startswith(file), first
    if not lines:
        return [first.removeprefix(f"{file}: ")]
    assert first == f"{file}, it has {len(lines)} faults:"
    return [line.removeprefix("  ") for line in lines]


# By the name of the case: the file, and the beginnings of its faults, all of them, in order.
WRONG: dict[str, tuple[str | bytes, list[str]]] = {
    "keys": (
        OPS + 'secrett = "x"\n[defaults]\nchannels = ["ops"]\n[messages]\navailable = true\n',
        [
            "channels.ops.secrett is not known here: did you mean secret?",
            "messages.available is not known here: did you mean available_again?",
            "defaults is not known here: did you mean default?",
        ],
    ),
    "literal secrets": (
        (f'[channels.a]\nkind = "feishu-webhook"\nurl = "{URL}"\nsecret = "{SECRET}"\n'
        f'[channels.b]\nkind = "email"\nhost = "h"\nsender = "a@b.c"\nusername = "u"\npassword = "{SECRET}"\n'
        f'[channels.c]\nkind = "feishu-app"\napp_id = "i"\nreceive_id = "r"\napp_secret = "{SECRET}"\n'
        f'[channels.d]\nkind = "apprise"\nurl = "json://u:{SECRET}@h"\n'
        f'[channels.e]\nkind = "webhook"\nurl = "https://u:{SECRET}@h/"\nsecret = "{KEY}"\n'
        '[default]\nchannels = ["a"]\n'),
        [
            "channels.a.url stands there itself: a secret is kept out of the file",
            "channels.a.secret stands there itself",
            "channels.b.password stands there itself",
            "channels.c.app_secret stands there itself",
            "channels.d.url stands there itself",
            "channels.e.secret stands there itself",
            "channels.e.url holds a login before the host's name: a secret is kept out of the file",
        ],
    ),
    "references": (
        ('[channels.a]\nkind = "feishu-webhook"\nurl = { env = "NOWHERE" }\nsecret = { env = "EMPTY" }\n'
        '[channels.b]\nkind = "feishu-webhook"\nurl = { file = "gone" }\nsecret = { enw = "X" }\n'
        '[channels.c]\nkind = "feishu-webhook"\nurl = { env = "TWO_LINES" }\nsecret = { file = "." }\n'
        '[channels.d]\nkind = "feishu-webhook"\nurl = { file = "large" }\nsecret = { file = "latin" }\n'
        '[channels.e]\nkind = "feishu-webhook"\nurl = { env = "PLAIN" }\nsecret = { file = "pipe" }\n'
        '[channels.f]\nkind = "webhook"\nurl = 5\nsecret = { env = "FEISHU_OPS_SECRET" }\n'
        '[default]\nchannels = ["a"]\n'),
        [
            "channels.a.url names the variable NOWHERE, which is not set: set it where",
            "channels.a.secret names the variable EMPTY, which is empty",
            "channels.b.url names the file gone, which can't be read: No such file",
            'channels.b.secret is no reference: write { env = "NAME" } or { file =',
            "channels.c.url names the variable TWO_LINES, which holds a line break",
            "channels.c.secret names the file ., which can't be read: Is a directory",
            "channels.d.url names the file large, which is larger than 65,536 bytes",
            "channels.d.secret names the file latin, which is not UTF-8, in line 2",
            "channels.e.url is plain http to relay.example.com: use https",
            "channels.e.secret names the file pipe, which is no plain file",
            "channels.f.secret leads to no signing key, which is whsec_ and base64",
            "channels.f.url is a number: a reference is needed",
        ],
    ),
    "types": (
        ("channels = 3\ndefault = []\nroutes = 1\nmessages = { available_again = 1 }\n"
        "quiet_hours = { from = 22:00:00, to = 8 }\n"),
        [
            "channels is a number: a table is needed",
            "default is a list: a table is needed",
            "routes is a number: write each as [[routes]]",
            "quiet_hours.from is a date or time: a text is needed, in quotes",
            "quiet_hours.to is a number: a text is needed, in quotes",
            "messages.available_again is a number: true or false is needed",
        ],
    ),
    "kinds": (
        ('[channels.a]\nkind = "emial"\n[channels.b]\nkind = "feishu"\n[channels.c]\nurl = "x"\n'
        '[channels.console]\nkind = "im-bot"\ngroup = "-g"\ncommand = "imbot"\n'
        '[default]\nchannels = ["a", "b", "c"]\nowners = "a"\n'),
        [
            "channels.a.kind is 'emial', which there is not: did you mean email?",
            "channels.b.kind is 'feishu', which there is not: did you mean feishu-app",
            "channels.c.kind is missing: one of console, im-bot,",
            "channels.console.kind must be console for a channel of that name",
            "channels.console.group must not begin with '-'",
            'channels.console.command is a text: a list is needed, such as ["imbot"]',
        ],
    ),
    "names": (
        ('[channels."-a"]\nkind = "console"\n[channels."a\\nb"]\nkind = "console"\n[channels." "]\nkind = "console"\n'
        '[channels."飞书"]\nkind = "consol"\n[default]\nchannels = ["飞书", "飞书", ""]\n'),
        [
            "channels.-a is no name",
            'channels."a␊b" is no name',
            'channels."␠" is no name',
            'channels."飞书".kind is \'consol\'',
            "default.channels[2] stands there a second time",
            "default.channels[3] is empty",
        ],
    ),
    "email": (
        ('[channels.mail]\nkind = "email"\nhost = "smtp://h"\nport = 70000\nsecurity = "ssl"\nusername = "u"\n'
        'sender = "Quota <q@example.com>"\nca_file = "gone.pem"\n'
        'to = ["ops", "a@b.c", "A@B.C", "é@b.c", "a@b.c\\r\\nBcc: x@y.z", 5]\n'
        '[channels.other]\nkind = "email"\nhost = "h.example.com"\nsecurity = "none"\nport = true\npassword = { env = "PAGER_SECRET" }\n'
        '[default]\nchannels = ["mail", "other"]\n'),
        [
            "channels.mail.host is no host's name",
            "channels.mail.security 'ssl' is not known: choose one of starttls, tls, none",
            "channels.mail.password is missing: the server's login needs username and password",
            "channels.mail.sender is more than one plain address",
            "channels.mail.port is out of bounds: 1 to 65535",
            "channels.mail.to[5] holds a control character or line break",
            "channels.mail.to[6] is a number: a text is needed",
            "channels.mail.ca_file names a file that can't be read: No such file",
            "channels.other.security may be none only to this machine",
            "channels.other.username is missing",
            "channels.other.sender is missing: the address that the mails come from",
            "channels.other.port is true or false: a number is needed",
            "default.channels[2] is 'other', which has no addresses",
        ],
    ),
    "addresses": (
        MAIL.replace('["ops@', '["ops", "a@b.c", "A@B.C", "a@é.c", "a;b@c.d", ".a@b.c", "a@-b.c", "ops@')
        .replace("smtp.example.com", "-h"),
        [
            "channels.mail.host is no host's name: one such as",
            "channels.mail.to[1] is no e-mail address: one such as ops@example.com is needed",
            "channels.mail.to[3] stands there a second time",
            "channels.mail.to[4] has letters beyond ASCII",
            "channels.mail.to[5] is more than one plain address",
            "channels.mail.to[6] is no e-mail address",
            "channels.mail.to[7] is no e-mail address",
        ],
    ),
    "routing": (
        OPS + MAIL + '[channels.quiet]\nkind = "email"\nhost = "h"\nsender = "a@b.c"\n'
        '[default]\nchannels = []\nowners = true\n'
        '[[routes]]\ntenant = []\nchannels = ["opps"]\n'
        '[[routes]]\nseverity = ["warnin", "exhausted"]\nenvironment = "prod"\nchannels = ["mail", "quiet"]\nowners = "ops"\n'
        '[[routes]]\nowners = "mial"\ndepartment = 3\n'
        '[fallback]\nchannels = "mail"\n',
        [
            "default.channels is an empty list: name at least one",
            "default.owners is true or false: a text is needed",
            "routes[1].tenant is an empty list",
            "routes[1].channels[1] names a channel that isn't defined, 'opps': did you mean ops?",
            "routes[2].environment is 'prod', which there is not: did you mean production?",
            "routes[2].severity is 'warnin', which there is not: did you mean warning?",
            "routes[2].channels[2] is 'quiet', which has no addresses: set its `to`",
            "routes[2].owners is 'ops', which is no e-mail channel",
            "routes[3].department is a number: a list is needed",
            "routes[3].channels is missing: the names of channels",
            "routes[3].owners names a channel that isn't defined, 'mial': did you mean mail?",
            "fallback.channels is a text: a list is needed",
        ],
    ),
    "routes that never match": (
        BOTH
        + '[[routes]]\nseverity = ["exhausted", "protected"]\nchannels = ["ops"]\n'
        '[[routes]]\ntenant = "acme"\nseverity = "exhausted"\nchannels = ["mail"]\n'
        '[[routes]]\nchannels = ["mail"]\n[[routes]]\nenvironment = "test"\nchannels = ["ops"]\n',
        [
            "routes[2].channels are never used: routes[1] stands before it",
            "routes[4].channels are never used: routes[3] stands before it",
        ],
    ),
    "no default": (OPS + MAIL, ["default is missing: write [default] and in it `channels`"]),
    "fallback alone": (
        OPS + '[fallback]\nchannels = ["ops"]\n',
        ["fallback.channels holds the only channel, which can't stand in for itself"],
    ),
    "quiet hours": (
        OPS + '[quiet_hours]\nfrom = "24:00"\nto = "8:00"\nzone = "asia/shanghai"\n',
        [
            "quiet_hours.from is '24:00': a time from \"00:00\" to \"23:59\" is needed",
            "quiet_hours.to is '8:00': a time",
            "quiet_hours.zone is 'asia/shanghai', which is no time zone: did you mean Asia/Shanghai?",
        ],
    ),
    "no quiet hours": (
        OPS + '[quiet_hours]\nfrom = "08:00"\nto = "08:00"\nzone = "localtime"\nend = 1\n',
        [
            "quiet_hours.to is the same time as `from`",
            "quiet_hours.zone is 'localtime', which is no time zone: one such as Asia/Shanghai",
            "quiet_hours.end is not known here: choose one of from, to, zone",
        ],
    ),
    "syntax": (
        OPS + "keyword = quota\n",
        ["line 4, column 11 Invalid value: a text stands in quotes"],
    ),
    "twice": (OPS + OPS, ["line 4, column 14 Cannot declare ('channels', 'ops') twice: each table"]),
    "open string": (OPS + 'keyword = "quota', ["the last line Unterminated string: close the quotes"]),
    "not UTF-8": (OPS.encode() + b"# \xff", ["the configuration file"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_with_every_fault(tmp_path: Path, case: str) -> None:
    (tmp_path / "large").write_text("x" * 65_537)
    (tmp_path / "latin").write_bytes(b"a\n\xe9")
    os.mkfifo(tmp_path / "pipe")
    text, expected = WRONG[case]
    if case == "not UTF-8":
        with pytest.raises(ConfigurationError, match="is not UTF-8, in line 4: name another"):
            read(tmp_path, text)
        return
    found = faults_of(tmp_path, text)
    assert len(found) == len(expected), found
    for fault, beginning in zip(found, expected, strict=True):
        assert fault.startswith(beginning), found
        # what would be right, or what the system says, follows
        assert re.search(r": |, which |, such as ", fault), fault


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "a = " + "[" * 100_000, "\0", "a.b.c = 1\n" * 1000, "= 1"]
)
def test_no_file_breaks_the_reader(tmp_path: Path, text: str) -> None:
    assert faults_of(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.toml can't be read: No such file"):
        load_delivery({"QUOTA_WORKER_CONFIG": str(tmp_path / "gone.toml")})


def test_an_empty_file_is_the_console(tmp_path: Path) -> None:
    delivery = read(tmp_path, b"\xef\xbb\xbf# nothing yet\r\n")
    assert delivery == DeliverySettings(source=delivery.source)
    assert json.loads(routes_document(delivery)) == {
        "rules": [],
        "default": {"to": [{"channel": "console"}], "owners": None},
        "available": False,
    }
    assert (fallbacks_document(delivery), quiet_document(delivery)) == ("[]", None)


def test_the_example_file_loads_whole(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path / "quota-worker.toml")
    (tmp_path / "smtp-password").write_text(f"  {SECRET}\n")
    # named by the variable, and its relative path begins at the file's folder, not here
    environ = ENVIRON | {"QUOTA_WORKER_CONFIG": str(tmp_path / "quota-worker.toml")}
    delivery = load_delivery(environ)
    assert [(c.name, c.kind) for c in delivery.channels] == [
        ("ops", "feishu-webhook"),
        ("mail", "email"),
        ("chat", "im-bot"),
        ("marketing", "feishu-app"),
        ("pager", "webhook"),
    ]
    ops, mail, chat, marketing, _ = (channel.values for channel in delivery.channels)
    assert ops == {"url": URL, "secret": SECRET, "keyword": "quota"}
    assert (mail["port"], mail["password"], mail["to"]) == (587, SECRET, ("ops@example.com",))
    assert chat == {"group": "quota-alerts", "command": ("imbot",)}
    assert marketing["receive_id_type"] == "chat_id"
    assert delivery.default == RouteRule(channels=("ops", "mail"), owners="mail")
    assert delivery.quiet == QuietHours(time(22), time(8), "Asia/Shanghai")
    assert SECRET not in repr(delivery)
    assert KEY not in repr(delivery)
    documents = routes_document(delivery) + fallbacks_document(delivery)
    assert SECRET not in documents
    assert json.loads(routes_document(delivery))["rules"] == [
        {
            "environments": ["production"],
            "severities": ["exhausted"],
            "to": [
                {"channel": "pager"},
                {"channel": "ops"},
                {"channel": "mail", "recipient": "ops@example.com"},
            ],
            "owners": "mail",
        },
        {
            "departments": ["marketing", "sales"],
            "severities": ["warning", "downgrade", "protected"],
            "to": [{"channel": "marketing"}],
            "owners": "mail",
        },
        {
            "tenants": ["acme-ci"],
            "environments": ["test"],
            "to": [{"channel": "chat"}],
            "owners": None,
        },
    ]
    assert json.loads(fallbacks_document(delivery)) == [
        {"channel": "mail", "recipient": "ops@example.com"},
        {"channel": "console"},
    ]
    assert json.loads(quiet_document(delivery) or "") == {
        "from": "22:00",
        "to": "08:00",
        "zone": "Asia/Shanghai",
    }


def test_the_example_names_every_key() -> None:
    """Keys of the kinds that are commented out there count, too."""
    text = EXAMPLE.read_text(encoding="utf-8")
    for kind in KINDS:
        assert f'kind = "{kind}"' in text
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (EXAMPLE.parents[1] / "worker" / "configuration").glob("*.py")
    )
    keys = set(
        re.findall(r'table\.(?:text|texts|secret|choice|number|flag|path)\(\s*"(\w+)"', source)
    )
    assert len(keys) > 20
    assert [
        key for key in sorted(keys) if not re.search(rf"^(# )?{key} = ", text, re.MULTILINE)
    ] == []


def test_every_kind_has_a_notifier(tmp_path: Path) -> None:
    """Each is made from its settings; none opens anything yet."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("# [channels.teams]", "[channels.teams]")
    text = text.replace('# kind = "apprise"', 'kind = "apprise"').replace("# url = ", "url = ")
    text = text.replace("# [channels.log]", "[channels.log]").replace(
        '# kind = "con', 'kind = "con'
    )
    (tmp_path / "smtp-password").write_text(SECRET)
    delivery = read(tmp_path, text, TEAMS_URL="jsons://hooks.example.com/x")
    channels = ConfiguredChannels.from_delivery(delivery, Assets())
    kinds = {channels.notifier(channel.name).channel for channel in delivery.channels}
    assert kinds == set(KINDS) == set(MAKERS)
    assert channels.notifier("console").channel == "console"
    with pytest.raises(KeyError):
        channels.notifier("opps")


class TestVariables:
    def test_nothing_is_the_console(self) -> None:
        assert load_delivery({"QUOTA_WORKER_IMBOT_GROUP": " "}) == DeliverySettings()
        channels = ConfiguredChannels.from_delivery(load_delivery({}), Assets())
        assert channels.names == ("console",)

    def test_the_usual_set_up(self) -> None:
        delivery = load_delivery(
            {
                "QUOTA_WORKER_IMBOT_GROUP": "quota-alerts",
                "QUOTA_WORKER_IMBOT_COMMAND": "env 'X=1 2' imbot",
                "QUOTA_WORKER_FEISHU_WEBHOOK": URL,
                "QUOTA_WORKER_FEISHU_SECRET": SECRET,
                "QUOTA_WORKER_SMTP_HOST": "smtp.example.com",
                "QUOTA_WORKER_SMTP_SECURITY": "tls",
                "QUOTA_WORKER_SMTP_USERNAME": "u",
                "QUOTA_WORKER_SMTP_PASSWORD": SECRET,
                "QUOTA_WORKER_SMTP_SENDER": "q@example.com",
                "QUOTA_WORKER_SMTP_TO": "a@example.com, b@example.com",
            }
        )
        imbot, feishu, mail = delivery.channels
        assert imbot.values == {"group": "quota-alerts", "command": ("env", "X=1 2", "imbot")}
        assert feishu.values == {"url": URL, "secret": SECRET, "keyword": None}
        assert (mail.values["port"], mail.values["security"]) == (465, "tls")
        assert SECRET not in repr(delivery)
        route = json.loads(routes_document(delivery))["default"]
        assert route["to"] == [
            {"channel": "im-bot"},
            {"channel": "feishu-webhook"},
            {"channel": "email", "recipient": "a@example.com"},
            {"channel": "email", "recipient": "b@example.com"},
        ]
        assert route["owners"] == "email"
        # each has another one; nobody asked for three
        assert (
            fallbacks_document(delivery) == '[{"channel": "im-bot"}, {"channel": "feishu-webhook"}]'
        )

    def test_mail_without_addresses_is_for_departments(self) -> None:
        delivery = load_delivery(
            {"QUOTA_WORKER_SMTP_HOST": "localhost", "QUOTA_WORKER_SMTP_SENDER": "q@example.com"}
        )
        assert json.loads(routes_document(delivery))["default"] == {"to": [], "owners": "email"}
        assert fallbacks_document(delivery) == "[]"

    def test_every_wrong_variable_is_named(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            load_delivery(
                {
                    "QUOTA_WORKER_IMBOT_GROUP": "-g",
                    "QUOTA_WORKER_IMBOT_COMMAND": "imbot '",
                    "QUOTA_WORKER_FEISHU_WEBHOOK": f"http://relay.example.com/{SECRET}",
                    "QUOTA_WORKER_SMTP_HOST": "smtp://h",
                    "QUOTA_WORKER_SMTP_PORT": "many",
                    "QUOTA_WORKER_SMTP_PASSWORD": SECRET,
                    "QUOTA_WORKER_SMTP_TO": "a@example.com,ops",
                    "QUOTA_WORKER_SMTP_CA_FILE": "/nowhere.pem",
                }
            )
        told = str(caught.value)
        assert SECRET not in told
        assert [fault.split()[0] for fault in told.split("; ")] == [
            "QUOTA_WORKER_IMBOT_COMMAND",
            "QUOTA_WORKER_IMBOT_GROUP",
            "QUOTA_WORKER_FEISHU_WEBHOOK",
            "QUOTA_WORKER_SMTP_HOST",
            "QUOTA_WORKER_SMTP_USERNAME",
            "QUOTA_WORKER_SMTP_SENDER",
            "QUOTA_WORKER_SMTP_PORT",
            "QUOTA_WORKER_SMTP_TO[2]",
            "QUOTA_WORKER_SMTP_CA_FILE",
        ]

    def test_with_a_file_they_are_not_read(self, tmp_path: Path) -> None:
        delivery = read(tmp_path, OPS, QUOTA_WORKER_IMBOT_GROUP="-wrong")
        assert [channel.name for channel in delivery.channels] == ["ops"]
        assert delivery.default.channels == ("ops",)


def test_addresses() -> None:
    for good in ("a@b.c", "a.b+c@x-y.example", "root@localhost"):
        assert email_fault(good) is None
    for bad in (
        "",
        "a",
        "@b",
        "a@",
        "a@b@c",
        "a..b@c",
        "a@b.",
        "a@b\n",
        "a@b>\r\nRCPT TO:<e@x",
        "x" * 65 + "@b",
    ):
        assert email_fault(bad) is not None, bad
    for good in (
        "https://h/x",
        "http://127.0.0.1:1/",
        "http://[::1]/",
        "http://localhost",
        "https://[2001:db8::1]:8443/",
    ):
        assert url_fault(good) is None
    for bad in (
        "",
        "h/x",
        "ftp://h",
        "https://",
        "https://h:x/",
        "https://h /",
        "https://u:p@h/",
        "http://127.0.0.1.example.com/",
        "https://[::1/",
    ):
        assert url_fault(bad) is not None, bad
    for good in ("smtp.example.com", "mail", "10.0.0.1", "::1", "my_mail.local."):
        assert host_fault(good) is None
    for bad in ("smtp:25", "smtps://h", "a b", "-a", "a..b", "x" * 64, "a/b"):
        assert host_fault(bad) is not None, bad
