"""A wrong configuration file is refused whole, with every fault in one line."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unit.configuration_world import BOTH, EXAMPLE, KEY, MAIL, OPS, SECRET, URL, faults_of, read
from worker.assets import Assets
from worker.configuration import load_delivery
from worker.configuration.kinds import APPRISE_CURE
from worker.errors import ConfigurationError
from worker.notifiers.channels import ConfiguredChannels

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
            "channels.mail.ca_file names the file 'gone.pem', which can't be read: No such file",
            "channels.other.security may be none only to this machine",
            "channels.other.username is missing",
            "channels.other.sender is missing: the address that the mails come from",
            "channels.other.port is true or false: a whole number is needed",
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
            "default.channels is an empty list: name at least one, such as",
            "default.owners is true: name an e-mail channel, or false",
            "routes[1].tenant is an empty list: name at least one, or leave it out",
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
    "one mistake, one fault": (
        ('[channels.mail]\nkind = "email"\nhost = "h"\nsendr = "a@b.c"\nto = ["a@b.c"]\nusername = "u"\n'
        'pasword = { env = "PAGER_SECRET" }\n'
        '[channels.chat]\nkind = "im-bot"\n[channels.app]\nkind = "feishu-app"\napp_id = "i"\n'
        'app_secret = { env = "PAGER_SECRET" }\nreceive_id_type = "chat_id"\n'
        '[defaults]\nchannels = ["mail"]\n[[routes]]\ndepartement = "d"\nchannels = ["mail"]\n'
        '[[routes]]\nchanels = ["mail"]\n[[routes]]\ntenant = "t"\nchannels = ["mail"]\n'),
        [
            "channels.mail.sendr is not known here: did you mean sender?",
            "channels.mail.pasword is not known here: did you mean password",
            "channels.chat.group is missing: the group",
            "channels.app.receive_id is missing: the chat's id",
            "routes[1].departement is not known here: did you mean department?",
            "routes[2].chanels is not known here: did you mean channels?",
            "defaults is not known here: did you mean default?",
        ],
    ),
    "owners": (
        BOTH + '[[routes]]\ntenant = "a"\nchannels = ["ops"]\nowners = ["mail"]\n'
        '[[routes]]\ntenant = "b"\nchannels = []\nowners = 0\n'
        '[[routes]]\ntenant = "c"\nchannels = ["console"]\nowners = ""\n',
        [
            "routes[1].owners is a list: name an e-mail channel, or false",
            "routes[2].channels is an empty list: name at least one, such as",
            "routes[2].owners is a number: name an e-mail channel, or false",
            "routes[3].owners is empty: leave it out",
        ],
    ),
    "console": (
        BOTH + '[fallback]\nchannels = ["consol", "op"]\n[[routes]]\nchannels = ["Console"]\n',
        [
            "routes[1].channels[1] names 'Console', a channel that isn't defined: did you mean console?",
            "fallback.channels[1] names 'consol', a channel that isn't defined: did you mean console?",
            "fallback.channels[2] names 'op', a channel that isn't defined: did you mean ops?",
        ],
    ),
    "placeholders": (
        ('[channels.a]\nkind = "feishu-webhook"\nurl = { env = "HOOK" }\nsecret = { env = "DOTS" }\n'
        '[channels.b]\nkind = "feishu-app"\napp_id = "cli_…"\nreceive_id = "oc_..."\napp_secret = { env = "DOTS" }\n'
        '[channels.c]\nkind = "webhook"\nurl = "https://h.example/…"\nsecret = { env = "WHSEC" }\n'
        '[channels.d]\nkind = "apprise"\nurl = { env = "WECOM" }\n'
        '[channels.e]\nkind = "im-bot"\ngroup = "…"\ncommand = ["imbot", "…"]\n'
        '[channels.f]\nkind = "email"\nhost = "h"\nsender = "a@b.c"\nusername = "u"\npassword = { env = "DOTTED" }\n'
        '[default]\nchannels = ["a"]\n'),
        [
            "channels.a.url still holds the README's placeholder: put a value of your own",
            "channels.a.secret still holds the README's placeholder: put",
            "channels.b.receive_id still holds the README's placeholder: put",
            "channels.b.app_id still holds the README's placeholder: put",
            "channels.b.app_secret still holds the README's placeholder: put",
            "channels.c.secret still holds the README's placeholder: put",
            "channels.c.url still holds the README's placeholder: put",
            "channels.d.url still holds the README's placeholder: put",
            "channels.e.group still holds the README's placeholder: put",
            "channels.e.command[2] still holds the README's placeholder: put",
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
            "quiet_hours.zone is 'localtime', which is no time zone: use a name such as Asia/Shanghai",
            "quiet_hours.end is not known here: choose one of from, to, zone",
        ],
    ),
    "syntax": (
        OPS + "keyword = quota\n",
        ["line 4, column 11 holds a text whose quotes are missing: write it as in kind ="],
    ),
    "twice": (OPS + OPS, ["line 4, column 14 Cannot declare ('channels', 'ops') twice: each table"]),
    "open string": (OPS + 'keyword = "quota', ["the last line Unterminated string: close the quotes"]),
    "not UTF-8": (OPS.encode() + b"# \xff", ["the configuration file"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "cure"),
    [
        *[(zone, "use a name such as Asia/Shanghai") for zone in ("CST", "cst", "AEST", "BST", "GMT+8")],
        *[(zone, "use a name such as Asia/Shanghai") for zone in ("UTC+08:00", "China", "Beijing", "Etc/GMT+80")],
        ("shanghai", "did you mean Asia/Shanghai?"),
        ("Asia/Shangai", "did you mean Asia/Shanghai?"),
        ("New York/New_York", "use a name such as Asia/Shanghai"),
        ("utc", "did you mean UTC?"),
        ("new york", "did you mean America/New_York?"),
    ],
)  # fmt: skip
def test_a_zone_is_guessed_from_a_city_only(tmp_path: Path, zone: str, cure: str) -> None:
    hours = f'[quiet_hours]\nfrom = "22:00"\nto = "08:00"\nzone = "{zone}"\n'
    (fault,) = faults_of(tmp_path, OPS + hours)
    assert fault == f"quiet_hours.zone is '{zone}', which is no time zone: {cure}"


def test_without_its_package_apprise_is_told_how_to_install_it(tmp_path: Path) -> None:
    """A real interpreter that has only its own library."""
    file = tmp_path / "quota-worker.toml"
    file.write_text('[channels.a]\nkind = "apprise"\nurl = { env = "WECOM" }\n')
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from worker.configuration import load_delivery\n"
        "from worker.errors import ConfigurationError\n"
        "try: load_delivery({'WECOM': 'wecombot://k'}, sys.argv[2])\n"
        "except ConfigurationError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(EXAMPLE.parents[1]), str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert line.endswith(f"channels.a.kind needs a package that is not installed: {APPRISE_CURE}")
    readme = (EXAMPLE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "pip install -e '.[apprise]'" in readme
    assert "quota_worker-0.1.0-py3-none-any.whl[apprise]" in readme


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
