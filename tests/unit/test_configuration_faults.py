"""A wrong configuration file is refused whole, with every fault in one line."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest

from unit.configuration_world import BOTH, EXAMPLE, KEY, MAIL, OPS, SECRET, URL, read
from worker.assets import Assets
from worker.configuration import load_delivery
from worker.errors import ConfigurationError
from worker.notifiers.channels import ConfiguredChannels
from worker.telemetry import redact


def faults_of(folder: Path, text: str | bytes) -> list[str]:
    """Each fault of a wrong file, without the file's name; nothing secret is among them."""
    with pytest.raises(ConfigurationError) as caught:
        read(folder, text)
    told = str(caught.value)
    assert SECRET not in told
    assert redact(told) == told  # as the cli shows it: no advice is taken for a secret
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
        '[[routes]]\nowners = "my-secret"\ndepartment = 3\n'
        '[fallback]\nchannels = "mail"\n',
        [
            "default.channels is an empty list: name at least one",
            "default.owners is true or false: a text is needed",
            "routes[1].tenant is an empty list",
            "routes[1].channels[1] names 'opps', a channel that isn't defined: did you mean ops?",
            "routes[2].environment is 'prod', which there is not: did you mean production?",
            "routes[2].severity is 'warnin', which there is not: did you mean warning?",
            "routes[2].channels[2] is 'quiet', which has no addresses: set its `to`",
            "routes[2].owners is 'ops', which is no e-mail channel",
            "routes[3].department is a number: a list is needed",
            "routes[3].channels is missing: the names of channels",
            "routes[3].owners names 'my-secret', a channel that isn't defined: choose one of mail, quiet",
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
    "text",
    [
        "[" * 100_000,
        "a = " + "[" * 100_000,
        "\0",
        "a.b.c = 1\n" * 1000,
        "= 1",
        "a = " + "9" * 5000,
        "a = 2026-13-45",
        "a = nan",
    ],
)
def test_no_file_breaks_the_reader(tmp_path: Path, text: str) -> None:
    assert faults_of(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.toml can't be read: No such file"):
        load_delivery({"QUOTA_WORKER_CONFIG": str(tmp_path / "gone.toml")})


def test_whatever_is_changed_is_refused_or_can_be_used(tmp_path: Path) -> None:
    """Random changes of the example: a fault is told, or every notifier can be made."""
    seed = int(os.environ.get("QUOTA_WORKER_SEED", "3"))
    chance = random.Random(seed)  # noqa: S311  no secret
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    (tmp_path / "smtp-password").write_text(SECRET)
    values = [
        '""',
        '"-x"',
        "[]",
        "{}",
        "0",
        "-1",
        "true",
        '[""]',
        '["ops"]',
        '["a", 1]',
        "1979-05-27",
    ]
    values += [
        '"a\\u0000b"',
        '"\\u202e"',
        '"console"',
        '"email"',
        '{ env = "EMPTY" }',
        '{ file = "" }',
    ]
    values += ['"https://h:99999/"', '"http://[::1"', "[{}]", "inf", '"é@é"', f'"{"x" * 2000}"']
    used = 0
    told: list[str] = []
    for _ in range(400):
        changed = list(lines)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(changed))
            key, equals, _ = changed[place].partition(" = ")
            match chance.randrange(4):
                case 0:
                    del changed[place]
                case 1:
                    changed.insert(chance.randrange(len(changed)), changed[place])
                case _ if equals and not key.startswith("#"):
                    changed[place] = f"{key} = {chance.choice(values)}"
                case _:
                    changed[place] = changed[place].removeprefix("# ")
        try:
            delivery = read(tmp_path, "\n".join(changed), TEAMS_URL="jsons://h.example/x")
        except ConfigurationError as error:
            told.append(str(error))
            continue
        used += 1
        channels = ConfiguredChannels.from_delivery(delivery, Assets())
        for name in channels.names:
            channels.notifier(name)
        json.loads(channels.routes)
        json.loads(channels.fallbacks)
    assert SECRET not in "".join(told), seed
    assert 20 < used < 380, (seed, used)
