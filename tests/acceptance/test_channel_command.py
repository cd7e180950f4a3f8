"""`quota-worker channel`: real processes, real services on the other side, no database anywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acceptance.program import Finished, quota_worker
from acceptance.warnings_world import World
from contract.servers import FeishuServer, ImBot
from contract.servers_mail import USER, Certificates, SmtpServer
from worker import cli

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

SECRET = "s3cret-never-shown"  # noqa: S105  looked for where it must not be
# Nobody is there: whoever asked for a database would fail.
NO_DATABASE = "postgresql://127.0.0.1:1/none"

FILE = """
[channels.ops]
kind = "feishu-webhook"
url = {{ env = "OPS_URL" }}
secret = {{ env = "OPS_SIGNING" }}
keyword = "quota"
[channels.chat]
kind = "im-bot"
group = "quota-alerts"
command = ["{command}"]
[channels.mail]
kind = "email"
host = "localhost"
port = {port}
username = "{user}"
password = {{ file = "password" }}
sender = "quota@example.com"
to = ["a@example.com", "nobody@example.com"]
ca_file = "{ca_file}"
[channels."飞书"]
kind = "console"
[default]
channels = ["ops", "mail"]
[[routes]]
tenant = "acme"
channels = ["chat"]
owners = false
[fallback]
channels = ["mail"]
"""


@pytest.fixture
async def feishu() -> AsyncIterator[FeishuServer]:
    server = FeishuServer(secret=SECRET, keyword="quota")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path, **values: object) -> Path:
    (folder / "password").write_text(SECRET + "\n")
    ca_file = folder / "ca.pem"
    ca_file.touch()
    known = {"command": "no-such-imbot", "port": 1, "user": USER, "ca_file": ca_file}
    file = folder / "quota-worker.toml"
    file.write_text(FILE.format(**known | values), encoding="utf-8")
    return file


def overwrite(file: Path, text: str) -> None:
    file.write_text(text)


async def channel(config: Path, *arguments: str, url: str = "https://h.example/x") -> Finished:
    done = await quota_worker(
        NO_DATABASE,
        *("--config", str(config), "channel", *arguments),
        OPS_URL=url,
        OPS_SIGNING=SECRET,
    )
    assert SECRET not in done.out + done.err
    assert "t0ken" not in done.out + done.err
    assert "Traceback" not in done.err
    return done


async def test_list_says_what_is_used_where(config: Path) -> None:
    done = await quota_worker(
        NO_DATABASE,
        *("channel", "list", "--config", str(config)),  # behind the command as before it
        OPS_URL=f"https://h.example/{SECRET}",
        OPS_SIGNING=SECRET,
        QUOTA_WORKER_IMBOT_GROUP="ignored",
    )
    assert done.code == 0
    assert SECRET not in done.out + done.err
    rows, routes = done.out.split("\n\n")
    assert [re.split(r"  +", line) for line in rows.splitlines()] == [
        ["channel", "kind", "sends to", "used by"],
        ["ops", "feishu-webhook", "at h.example", "default"],
        ["chat", "im-bot", "group quota-alerts", "routes[1]"],
        [
            "mail",
            "email",
            "a@example.com, nobody@example.com",
            "default, owners of default, fallback",
        ],
        ["飞书", "console", "stderr", "nothing"],
    ]
    assert routes.splitlines() == [
        "who is told where, by the first that matches:",
        "  routes[1], for tenant acme: chat",
        "  default, for all others: ops, mail; a department's owners and finance by mail",
        "given up on its own channel: told on mail, and what was given up there on the console",
        "quiet hours: none",
        "that a subject is available again: not told",
    ]
    assert done.err.splitlines() == [
        "note: 飞书 is used by nothing: name it in [default], a route or [fallback]",
        f"note: QUOTA_WORKER_IMBOT_GROUP is not read: the channels are those of {config}",
    ]


async def test_a_test_arrives_and_says_what_it_is(config: Path, feishu: FeishuServer) -> None:
    done = await channel(config, "test", "ops", "--lang", "zh-CN", url=feishu.url)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("sent: ops (feishu-webhook); look in the group of the bot: a grey")
    assert feishu.titles() == ["[quota-test] 渠道 ops 的测试消息"]
    assert "这只是一条测试消息" in feishu.texts()[0]
    assert feishu.requests[0]["card"]["header"]["template"] == "grey"


@pytest.mark.parametrize(
    ("code", "cause", "meaning", "cure"),
    [
        (19024, "keyword_missing", "a keyword of the bot is missing", "set `keyword` of the ch"),
        (19021, "bad_signature", "the signature is wrong: the secret", "copy the secret again"),
    ],
)
async def test_a_misconfigured_bot_is_told_with_its_code(
    config: Path, feishu: FeishuServer, code: int, cause: str, meaning: str, cure: str
) -> None:
    feishu.answers = [(200, {"code": code, "msg": SECRET})]
    done = await channel(config, "test", "ops", url=feishu.url)
    assert (done.code, done.out) == (1, "")
    first, causes, answer, do = done.err.splitlines()
    assert first == "not sent: ops (feishu-webhook)"
    assert causes.startswith("  cause: ")
    assert causes.endswith(f" ({cause})")
    assert f"code {code}" in answer
    assert meaning in answer
    assert do.startswith(f"  do: {cure}")


async def test_nobody_listens_and_no_such_command(config: Path) -> None:
    done = await channel(config, "test", "ops", url="http://127.0.0.1:1/t0ken")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[1:] == [
        "  cause: no connection to the service, or no secure one (unreachable)",
        "  answer: connection refused: nothing listens there",
        "  do: check the host and the port, and that the service runs",
    ]
    done = await channel(config, "test", "chat")
    assert (done.code, done.out) == (1, "")
    *told, cure = done.err.splitlines()
    assert told == [
        "not sent: chat (im-bot)",
        "  cause: the command was not found or may not be run (command_missing)",
        "  answer: there is no program no-such-imbot on the PATH",
    ]
    assert cure.startswith("  do: install it, or set `command` of the channel (QUOTA_WORKER_IMB")


async def test_an_imbot_gets_the_test_and_no_secret(tmp_path: Path) -> None:
    imbot = ImBot(tmp_path)
    done = await channel(written(tmp_path, command=imbot.path), "test", "chat")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("sent: chat (im-bot); look in the group quota-alerts; its id is ")
    (call,) = imbot.calls()
    assert call["argv"][:4] == ["send", "--group", "quota-alerts", "--text"]
    assert call["argv"][4].splitlines()[0] == "[quota-test] a test of the channel chat"
    assert SECRET not in repr(call["env"])  # another channel's, under a name of its own
    assert "OPS_URL" not in call["env"]
    assert call["env"]["QUOTA_WORKER_MESSAGE_ID"] in done.out
    imbot.mode("exit1")
    done = await channel(written(tmp_path, command=imbot.path), "test", "chat")
    assert done.err.splitlines()[-1] == (
        f"  do: run the same command by hand to see what it says: {imbot.path} send --group "
        "quota-alerts --text test"
    )


async def test_each_address_of_a_mail_channel_is_tried(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = SmtpServer(certificates, SECRET, answers={"RCPT": ["250 OK", "550 No such user"]})
    await server.start()
    try:
        file = written(tmp_path, port=server.port, ca_file=certificates.ca_file)
        done = await channel(file, "test", "mail")
        assert done.code == 1
        assert done.out.startswith("sent: mail (email) to a@example.com; look in the mailbox")
        assert done.err.startswith("not sent: mail (email) to nobody@example.com\n")
        assert "(recipient_refused)\n" in done.err
        server.answers["RCPT"] = ["250 OK"]
        alone = await channel(file, "test", "mail", "--to", "c@example.com")
        assert (alone.code, alone.err) == (0, "")
        subjects = [mail.subject for mail in server.received]
        assert subjects == ["[quota-test] a test of the channel mail"] * 2
    finally:
        await server.stop()


async def test_without_a_file_the_variables_count() -> None:
    done = await quota_worker(NO_DATABASE, "channel", "list")
    assert done.out.splitlines()[1:5] == [
        "console  console  stderr    default",
        "",
        "who is told where, by the first that matches:",
        "  default, for all: console",
    ]
    assert "alerts go to stderr only" in done.err
    done = await quota_worker(NO_DATABASE, "channel", "test", "console")
    assert done.code == 0
    assert done.err.startswith("[quota-test] a test of the channel console\n  this is only a test")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("test", "opps"), "'opps' is no channel here: did you mean ops?"),
        (("test", "ops", "--to", "a@b.c"), "--to is for e-mail channels, and ops is feishu-webho"),
        (("test", "mail", "--to", "a"), "--to is no e-mail address: one such as"),
        (("test", "ops", "--lang", "zh"), "--lang 'zh' is not known: did you mean zh-CN?"),
        (("test",), "the following arguments are required: NAME"),
        ((), "the following arguments are required: list | test"),
    ],
)
def test_wrong_usage_is_one_line(
    config: Path,
    arguments: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPS_URL", "https://h.example/x")
    monkeypatch.setenv("OPS_SIGNING", SECRET)
    try:
        code = cli.run(["--config", str(config), "channel", *arguments])
    except SystemExit as end:  # the parser's
        code = end.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert says in line


async def test_a_wrong_file_stops_a_tick_and_no_status(config: Path, dsn: str) -> None:
    overwrite(config, '[channels.status]\nkind = "emial"\nurl = 1\n[defaults]\n')
    done = await quota_worker(dsn, "--config", str(config), "tick")
    assert (done.code, done.out) == (2, "")
    first, *faults = done.err.splitlines()
    assert first == f"quota-worker: {config} is not used, it has 2 faults:"
    assert [fault.split()[0] for fault in faults] == ["channels.status.kind", "defaults"]
    assert (await quota_worker(dsn, "status", "--config", str(config))).code == 0


async def test_a_tick_tells_whom_the_file_says(
    config: Path, dsn: str, conn: asyncpg.Connection
) -> None:
    overwrite(
        config,
        '[channels.a]\nkind = "console"\n[channels.mail]\nkind = "email"\nhost = "localhost"\nport = 1\n'
        'sender = "q@example.com"\n[default]\nchannels = ["a"]\n'
        '[[routes]]\ntenant = ["acme", "other"]\nchannels = ["console"]\n'
        '[[routes]]\nenvironment = "test"\nchannels = ["a"]\nowners = false\n',
    )
    world = World(conn, await conn.fetchval("SELECT now()"))
    await world.department(monthly_tokens=100)
    for tenant in ("acme", "plain"):
        await world.tenant(tenant, daily_completions=1, department_id="d")
        await world.reserve(tenant, in_tokens=40)
    done = await quota_worker(dsn, "--config", str(config), "tick", "--jobs", "soft_warn")
    assert (done.code, done.err.count("crossings")) == (0, 1)
    rows = await conn.fetch("SELECT subject, channel, recipient FROM quota_outbox ORDER BY 1, 2")
    assert [tuple(row) for row in rows] == [
        ("acme", "console", None),
        ("d", "a", None),
        ("d", "mail", "money@example.com"),
        ("plain", "a", None),
    ]
