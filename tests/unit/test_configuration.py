"""Configuration: what a file or the variables make."""

from __future__ import annotations

import json
import re
import shutil
from datetime import time
from pathlib import Path

import pytest

from unit.configuration_world import ENVIRON, EXAMPLE, KEY, MAIL, OPS, SECRET, URL, faults_of, read
from worker.assets import Assets
from worker.configuration import load_delivery
from worker.configuration.addresses import email_fault, host_fault, url_fault
from worker.configuration.kinds import KINDS
from worker.configuration.variables import known_variables, variable_remarks
from worker.errors import ConfigurationError
from worker.notifiers.channels import ConfiguredChannels
from worker.notifiers.makers import MAKERS
from worker.settings import (
    COLLECTING,
    DeliverySettings,
    QuietHours,
    RouteRule,
    fallbacks_document,
    quiet_document,
    routes_document,
)


def test_an_empty_file_is_the_console(tmp_path: Path) -> None:
    delivery = read(tmp_path, b"\xef\xbb\xbf# nothing yet\r\n")
    assert delivery == DeliverySettings(source=delivery.source)
    assert json.loads(routes_document(delivery)) == {
        "rules": [],
        "default": {"to": [{"channel": "console"}], "owners": None},
        "available": False,
        "digests": [],
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


def test_every_snippet_of_the_readme_loads(tmp_path: Path) -> None:
    readme = (EXAMPLE.parents[1] / "README.md").read_text(encoding="utf-8")
    snippets = re.findall(
        r"^```toml\n(.+?)^```|(?<!wrong)(?<!prices)(?<!sales)\.toml <<'END'\n(.+?)^END$",
        readme,
        re.MULTILINE | re.DOTALL,
    )
    assert len(snippets) >= 5
    for snippet in map("".join, snippets):
        text = re.sub(r'\{ file = "[^"]+" \}', '{ env = "SECRET" }', snippet)
        urls = dict.fromkeys(re.findall(r'url = \{ env = "(\w+)" \}', text), "https://h.example/x")
        text = text.replace('_…"', '_1"')  # the app's and the chat's id are one's own
        secrets = dict.fromkeys(re.findall(r'secret = \{ env = "(\w+)" \}', text), KEY)
        assert read(tmp_path, text, **urls, **secrets).channels


def test_the_readme_shows_what_is_told(tmp_path: Path) -> None:
    """Its small file with the three mistakes of its example."""
    readme = (EXAMPLE.parents[1] / "README.md").read_text(encoding="utf-8")
    _, _, chapter = readme.partition("\n## Configuration\n")
    snippet = chapter.partition("```toml\n")[2].partition("```")[0]
    snippet = snippet.replace('{ file = "/run/secrets/ops-signing" }', '{ env = "DOTTED" }')
    wrong = snippet.replace("sender =", "sendr =").replace(
        'channels = ["mail"]', 'channels = ["mial"]'
    )
    wrong = wrong.replace("FEISHU_OPS_URL", "FEISHU_OPS_UR")
    shown = re.findall(
        r"^  (\S.+)$", chapter.partition("it has 3 faults:\n")[2].partition("```")[0], re.MULTILINE
    )
    told = [
        fault.replace("FEISHU_OPS_UR,", "FEISHU_OPS_URL,") for fault in faults_of(tmp_path, wrong)
    ]
    assert told == shown
    assert len(told) == 3


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
    collecting = [
        one for one in delivery.channels if channels.notifier(one.name).digest_over is not None
    ]
    assert {one.kind for one in collecting} == COLLECTING
    assert json.loads(channels.routes)["digests"] == [one.name for one in collecting]
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
                    "QUOTA_WORKER_SMTP_USERNAME": "…",
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
        # a variable has no quotes, no types, and no keys
        assert not re.search(r"quote|is a text|`|leave to", told.partition("; ")[2]), told
        assert "QUOTA_WORKER_SMTP_PORT is no number: digits alone are needed" in told
        assert "QUOTA_WORKER_SMTP_USERNAME still holds the README's placeholder" in told

    def test_what_is_missing_may_be_there_misspelt(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            load_delivery(
                {
                    "QUOTA_WORKER_SMTP_HOST": "h",
                    "QUOTA_WORKER_SMTP_SENDR": "a@b.c",
                    "QUOTA_WORKER_FEISHU_SECRETT": SECRET,  # of no channel that is on
                }
            )
        missing, misspelt = str(caught.value).split("; ")
        assert missing.startswith("QUOTA_WORKER_SMTP_SENDER is missing")
        assert misspelt == (
            "QUOTA_WORKER_SMTP_SENDR is not known: did you mean QUOTA_WORKER_SMTP_SENDER?"
        )

    def test_what_may_be_misspelt_is_remarked_on(self, tmp_path: Path) -> None:
        environ = {
            "QUOTA_WORKER_IMBOT_GROUP": "g",
            "QUOTA_WORKER_FEISHU_SECRETT": SECRET,
            "QUOTA_WORKER_FEISHU_SECRET": SECRET,
            "QUOTA_WORKER_SMTP_USER": SECRET,
            "QUOTA_WORKER_SMTP_TO": "a@example.com",
            "QUOTA_WORKER_SMTP_SENDER": "a@example.com",
            "QUOTA_WORKER_MOON": SECRET,
            "QUOTA_WORKER_EMPTY": " ",
            "QUOTA_WORKER_SEED": "1",
            "QUOTA": SECRET,
        }
        assert variable_remarks(environ, load_delivery(environ)) == [
            "QUOTA_WORKER_FEISHU_SECRETT is not known: did you mean QUOTA_WORKER_FEISHU_SECRET?",
            "QUOTA_WORKER_MOON is not known: is it another program's?",
            "QUOTA_WORKER_SMTP_USER is not known: did you mean QUOTA_WORKER_SMTP_USERNAME?",
            (
                "QUOTA_WORKER_FEISHU_SECRET is not used: "
                "QUOTA_WORKER_FEISHU_WEBHOOK turns feishu-webhook on, and is not set"
            ),
            (
                "QUOTA_WORKER_SMTP_SENDER, QUOTA_WORKER_SMTP_TO are not used: "
                "QUOTA_WORKER_SMTP_HOST turns email on, and is not set"
            ),
        ]
        # a file may give any name its meaning
        text = OPS.replace("FEISHU_OPS_URL", "QUOTA_WORKER_OPS_URL")
        delivery = read(tmp_path, text, QUOTA_WORKER_OPS_URL=URL)
        environ = {"QUOTA_WORKER_OPS_URL": URL, "QUOTA_WORKER_SMTP_TO": "a", "QUOTA_WORKER_X": "1"}
        assert variable_remarks(environ, delivery) == [
            "QUOTA_WORKER_X is not known: is it another program's?"
        ]

    def test_every_variable_of_the_readme_is_known(self) -> None:
        pages = ("README.md", "docs/configuration.md", "docs/channels.md", "docs/testing.md")
        text = "".join((EXAMPLE.parents[1] / page).read_text(encoding="utf-8") for page in pages)
        assert set(re.findall(r"QUOTA_WORKER_\w*[A-Z0-9]", text)) == known_variables()

    def test_with_a_file_they_are_not_read(self, tmp_path: Path) -> None:
        delivery = read(tmp_path, OPS, QUOTA_WORKER_IMBOT_GROUP="-wrong")
        assert [channel.name for channel in delivery.channels] == ["ops"]
        assert delivery.default.channels == ("ops",)


@pytest.mark.parametrize(
    ("channels", "told_on"),
    [
        (("log", "ops", "mail"), ["ops", "mail"]),
        (("log", "log2", "ops"), ["ops", "log"]),
        (("ops", "owners", "mail"), ["ops", "mail"]),
        (("ops", "owners"), ["ops"]),
        (("log",), ["log"]),
    ],
)
def test_without_fallback_two_that_reach_somebody_are_told(
    tmp_path: Path, channels: tuple[str, ...], told_on: list[str]
) -> None:
    """A console, which nobody may read, only where there is no other."""
    tables = {
        "ops": OPS,
        "mail": MAIL,
        "log": '[channels.log]\nkind = "console"\n',
        "log2": '[channels.log2]\nkind = "console"\n',
        "owners": MAIL.replace("[channels.mail]", "[channels.owners]").partition("to =")[0],
    }
    text = "".join(tables[name] for name in channels)
    delivery = read(tmp_path, f'{text}[default]\nchannels = ["{channels[0]}"]\n')
    assert list(delivery.fallback_names) == told_on
    assert [one["channel"] for one in json.loads(fallbacks_document(delivery))] == told_on


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
