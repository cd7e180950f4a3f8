"""No secret shows anywhere: planted in every setting, with other sides that say back what they get."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import trustme

from acceptance.program import environment
from contract.servers_http import HttpServer, Request
from worker.commands import COMMANDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

ROOT = Path(__file__).resolve().parents[2]
TRACE = str(ROOT / "worker" / "traces" / "tiny.csv")
# One for each place, so that a leak says which.
PLACES = (
    *("dsn-url", "dsn-query", "pgpassword", "listen-dsn", "hook-token", "tls-token"),
    *("refused-token", "feishu-token", "feishu-secret", "app-secret", "smtp-password"),
    *("source-token", "source-header", "source-dsn", "heartbeat-token", "apprise-token"),
)
SECRETS = {place: f"S3cr3t+{place}/K9" for place in PLACES}
SECRETS["signing-key"] = "S3cr3tSigningKeyOfTwentyFourBytes"
WHSEC = "whsec_" + base64.b64encode(SECRETS["signing-key"].encode()).decode()
LOGIN = base64.b64encode(f"\0quota\0{SECRETS['smtp-password']}".encode()).decode()

CONFIG = """
[channels.hook]
kind = "webhook"
url = {{ env = "HOOK" }}
secret = {{ env = "WHSEC" }}
[channels.tls]
kind = "webhook"
url = {{ env = "TLS" }}
[channels.refused]
kind = "webhook"
url = {{ env = "REFUSED" }}
[channels.feishu]
kind = "feishu-webhook"
url = {{ env = "FEISHU" }}
secret = {{ env = "FEISHU_SECRET" }}
[channels.app]
kind = "feishu-app"
app_id = "cli_1"
app_secret = {{ env = "APP_SECRET" }}
receive_id = "oc_1"
base_url = "http://127.0.0.1:{port}"
[channels.mail]
kind = "email"
host = "127.0.0.1"
port = {smtp}
security = "none"
username = "quota"
password = {{ file = "password" }}
sender = "quota@example.com"
to = ["ops@example.com"]
[channels.any]
kind = "apprise"
url = {{ env = "APPRISE" }}
[channels.bot]
kind = "im-bot"
group = "g"
command = ["/bin/sh", "-c", "env; env >&2; exit 3"]
[default]
channels = ["hook", "tls", "refused", "feishu", "app", "mail", "any", "bot"]
[fallback]
channels = ["console"]
[sources.api]
kind = "http"
url = {{ env = "SOURCE" }}
headers = {{ Authorization = {{ env = "SOURCE_HEADER" }} }}
paths = {{ in_tokens = "usage.in", out_tokens = "usage.out" }}
[sources.log]
kind = "sql"
dsn = {{ env = "SOURCE_DSN" }}
query = "SELECT 1 AS id, 2 AS t, 3 AS i, 4 AS o WHERE 'x' = ANY($1::text[])"
columns = {{ request_id = "id", tenant_id = "t", in_tokens = "i", out_tokens = "o" }}
"""


@dataclass
class Parrot(HttpServer):
    """Answers with the status that the path begins with, and says back all that it was told."""

    requests: list[str] = field(default_factory=list)

    def judge(self, request: Request) -> tuple[int, Any]:
        path = request.line.split()[1]
        self.requests.append(path)
        said = f"{request.line} {request.headers} {request.body!r}"
        status = path.split("/")[1]
        if not status.isdecimal():
            return 401, {"code": 99991, "msg": said}
        return int(status), said.encode()  # no JSON


async def parrot_mail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A mail server that refuses each login, and says back what it was."""
    writer.write(b"220 mail.test\r\n")
    while line := await reader.readline():
        word = line[:4].upper()
        if word == b"EHLO":
            writer.write(b"250-mail.test\r\n250 AUTH PLAIN LOGIN\r\n")
        elif word == b"QUIT":
            writer.write(b"221 bye\r\n")
            break
        else:
            writer.write(b"535 5.7.8 " + line.strip() + b" of " + SECRETS["smtp-password"].encode())
            writer.write(b"\r\n")
    writer.close()


@dataclass
class World:
    """The other sides, and the environment that leads to them."""

    folder: Path
    parrot: Parrot
    environ: dict[str, str]

    def dsn(self, dsn: str) -> str:
        """The test's address with passwords where they may stand; the server asks for none."""
        user = f"quota:{quote(SECRETS['dsn-url'], safe='')}@"
        return f"{dsn.replace('quota@', user)}&password={quote(SECRETS['dsn-query'], safe='')}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    parrot, secure = Parrot(), Parrot()
    await parrot.start()
    encryption = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(encryption)  # nobody knows it
    await secure.start(encryption)
    mail = await asyncio.start_server(parrot_mail, "127.0.0.1", 0)
    (tmp_path / "password").write_text(SECRETS["smtp-password"])
    (tmp_path / "c.toml").write_text(
        CONFIG.format(port=parrot.port, smtp=mail.sockets[0].getsockname()[1])
    )
    here = f"http://127.0.0.1:{parrot.port}"
    url = {place: quote(secret, safe="") for place, secret in SECRETS.items()}
    environ = {
        "QUOTA_WORKER_CONFIG": str(tmp_path / "c.toml"),
        "PGPASSWORD": SECRETS["pgpassword"],
        "QUOTA_WORKER_LISTEN_DSN": f"postgresql://u:{url['listen-dsn']}@127.0.0.1:1/x",
        "QUOTA_WORKER_HEARTBEAT_URL": f"{here}/500/{url['heartbeat-token']}",
        "HOOK": f"{here}/401/{url['hook-token']}?key={url['hook-token']}",
        "WHSEC": WHSEC,
        "TLS": f"https://127.0.0.1:{secure.port}/{url['tls-token']}",
        "REFUSED": f"http://127.0.0.1:1/{url['refused-token']}",
        "FEISHU": f"{here}/200/{url['feishu-token']}",
        "FEISHU_SECRET": SECRETS["feishu-secret"],
        "APP_SECRET": SECRETS["app-secret"],
        "APPRISE": f"json://127.0.0.1:{parrot.port}/401/{url['apprise-token']}",
        "SOURCE": f"{here}/403/{{tenant_id}}/{{request_id}}?key={url['source-token']}",
        "SOURCE_HEADER": f"Bearer {SECRETS['source-header']}",
        "SOURCE_DSN": f"postgresql://u:{url['source-dsn']}@127.0.0.1:1/x",
    }
    yield World(tmp_path, parrot, environ)
    mail.close()
    await parrot.stop()
    await secure.stop()


# Every command in one process, each from its arguments to its exit code.
DRIVER = """
import json, os, signal, sys, threading
from worker import cli
codes = []
for words in json.loads(sys.argv[1]):
    print("@@", *words, file=sys.stderr)
    # enough for a try on each channel; the next would come after 5 s, and what is left is for the
    # command after it
    end = threading.Timer(4, os.kill, (os.getpid(), signal.SIGTERM))
    if "schedule" in words or "tick" in words:
        end.start()
    try:
        codes.append(cli.run(words))
    except SystemExit as exit:
        codes.append(exit.code)
    end.cancel()
sys.stdout.flush()
print("\\n@@codes", json.dumps(codes), file=sys.stderr)
"""


async def drive(dsn: str, commands: list[str], world: World) -> tuple[list[int], str]:
    """The exit codes, and all that was said."""
    words = [command.split(" ") for command in commands]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DRIVER, json.dumps(words)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(dsn, **world.environ),
        cwd=ROOT,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    codes = json.loads(err.decode().rpartition("@@codes ")[2])
    return codes, out.decode() + err.decode()


def leaks(text: str) -> list[str]:
    """Which secrets the text shows, in any of the forms in which they travel."""
    found = []
    for place, secret in SECRETS.items():
        raw = secret.encode()
        forms = {secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1]}
        forms |= {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex()}
        # what was cut is a leak, too
        forms |= {secret[: len(secret) // 2 + 4]}
        found += [place for form in forms if form in text]
    return sorted({*found, *(["smtp-login"] if LOGIN in text else [])})


COMMANDS_EACH = (
    "migrate",
    "settings",
    "limits show",
    "topup sales --tokens 1 --expires 2099-01-01T00:00:00Z --approved-by a --reason r",
    f"replay {TRACE} --create-tenants --tenants 1",
    "tick --json",
    "run deliver",
    "run reconcile --dry-run",
    "schedule",
    "channel list",
    *(f"channel test {name}" for name in ("hook", "tls", "refused", "feishu", "app", "mail")),
    "channel test bot",
    "status acme",
    "doctor --json --probe",
    "doctor",
    "metrics",
    "alerts --json",
    "alerts",
    "estimates",
    "invoice compare nothing.csv --month 2026-10",
    "price unpriced",
    "outcomes list",
    "source list",
    "source test api --tenant acme --request r",
    "source test log --tenant acme --request r",
    "source faults",
    "audit",
    "months",
    "report --month 2026-10",
    "install --kind cron --print",
    "preview tenant-warn",
)


def test_a_leak_would_be_seen() -> None:
    for place, secret in SECRETS.items():
        for form in (secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode()):
            assert place in leaks(f"x{form}y"), place
    assert leaks("a quiet line") == []


async def test_no_secret_shows_anywhere(dsn: str, conn: Connection, world: World) -> None:
    assert {command.split(" ")[0] for command in COMMANDS_EACH} >= set(COMMANDS) - {
        "demo",
        "upkeep",
    }
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id, daily_completions) VALUES ('acme', 1), ('late', 9);"
        "INSERT INTO departments (department_id) VALUES ('sales');"
        "INSERT INTO department_budgets (department_id, monthly_tokens) VALUES ('sales', 9);"
        "SELECT quota_reserve('acme', 'q', 1, 1, 1);"
        "SELECT quota_reserve('late', 'r', 1, 1, 1, p_now => clock_timestamp() - interval '2 h')"
    )
    commands = [f"--debug {command}" for command in COMMANDS_EACH]
    codes, said = await drive(world.dsn(dsn), commands, world)
    assert leaks(said) == []
    # each way to fail was gone
    answered = {path.split("/")[1] for path in world.parrot.requests}
    assert answered >= {"200", "401", "403", "500", "open-apis"}
    failures = await conn.fetch(
        "SELECT channel, last_failure FROM quota_outbox WHERE last_failure <> ''"
    )
    assert {row["channel"] for row in failures} >= {
        *("hook", "tls", "refused", "feishu", "app", "mail", "bot", "any")
    }
    assert codes[commands.index("--debug tick --json")] in {0, 1}
    # nor in the database, where others read
    for table in ("job_runs", "quota_outbox", "quota_source_faults", "quota_limit_changes"):
        rows = await conn.fetch(f"SELECT t::text AS row FROM {table} t")
        assert leaks("\n".join(row["row"] for row in rows)) == [], table


async def test_nor_where_the_database_fails(world: World) -> None:
    """Tracebacks of connections that are refused, and addresses that can't be read."""
    secret = quote(SECRETS["dsn-url"], safe="")
    query = f"password={quote(SECRETS['dsn-query'], safe='')}"
    commands = [
        f"--debug {command}"
        for command in COMMANDS_EACH
        if command.split(" ")[0] not in {"schedule", "channel", "install", "preview", "source"}
    ]
    codes, said = await drive(f"postgresql://u:{secret}@127.0.0.1:1/x?{query}", commands, world)
    assert leaks(said) == []
    assert "Traceback" in said
    assert set(codes) <= {1, 2}
    for odd in (
        f"postgresql://u:{secret}@127.0.0.1:port/x?{query}",
        f"postgresql://u:{SECRETS['dsn-url']}@[::1/x?{query}",
        f"postgres//u:{secret}@h/x",
        f"postgresql://u:{secret}@127.0.0.1:1/x?sslmode={SECRETS['dsn-query']}",
        f"postgresql://u:{secret}@127.0.0.1:1/x?sslpassword={SECRETS['dsn-query']}&sslcert=/no",
    ):
        codes, said = await drive(odd, ["--debug status", "--debug doctor"], world)
        assert leaks(said) == [], odd
        assert set(codes) <= {1, 2}
