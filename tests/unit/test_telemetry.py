"""Log lines: where, in which form, and without any secret."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from worker.clock import monotonic_seconds
from worker.telemetry import Log, redact, shown_dsn

SECRETS = [
    ("postgresql://ann:s3cr3t@db:5432/x", "s3cr3t"),
    ("connecting to postgres://s3cr3t@db/x failed", "s3cr3t"),
    ("host=db password=s3cr3t dbname=x", "s3cr3t"),
    ("host=db password='s3 cr3t' dbname=x", "cr3t"),
    ("POST https://open.feishu.cn/open-apis/bot/v2/hook/s3cr3t-token failed", "s3cr3t"),
    ("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=s3cr3t", "s3cr3t"),
    ("https://hc.example/?token=s3cr3t&x=1", "s3cr3t"),
    ('{"app_secret": "s3cr3t", "n": 1}', "s3cr3t"),
    ("Authorization: Bearer s3cr3t", "s3cr3t"),
    ("smtp://bot:s3cr3t@mail:587", "s3cr3t"),
    ("postgresql://bot:x/s3cr3t@[::1/quota", "s3cr3t"),
    ("QUOTA_WORKER_FEISHU_SECRET=s3cr3t", "s3cr3t"),
    ("api_key=s3cr3t", "s3cr3t"),
    # cut before its last quote
    ('{"app_secret": "some s3cr3t', "s3cr3t"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_in_a_text_is_hidden(text: str, secret: str) -> None:
    assert secret not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "tenant-free used 50 of 50 completions",
        "https://open.feishu.cn answered 19024",
        "12 tokens in, 4 tokens out",
        "quota-worker: the database refused: see sql/roles.sql",
    ],
)
def test_a_plain_text_stays(text: str) -> None:
    assert redact(text) == text


def test_no_text_takes_long() -> None:
    pieces = ("a-", "a.", " ", "token ", 'token="', "token='\"", "://", "http://a", "token=bearer ")
    started = monotonic_seconds()
    for piece in pieces:
        for begin in ("", "token", "://", 'token="'):
            redact(begin + piece * (100_000 // len(piece)))
    assert monotonic_seconds() - started < 3


def test_json_lines_when_no_terminal() -> None:
    stream = io.StringIO()
    log = Log(stream).bind(job="deliver")
    log.info("job done", sent=3, names=["租户"])
    log.debug("hidden", n=1)
    log.error(
        "failed",
        error=ValueError("at postgres://a:s3cr3t@db/x"),
        webhook="s3cr3t",
        nested={"feishu_secret": "s3cr3t", "url": "https://h/s3cr3t"},
        dsn="s3cr3t",
        body="s3cr3t",
    )
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["job done", "failed"]
    assert (lines[0]["job"], lines[0]["sent"], lines[0]["level"]) == ("deliver", 3, "info")
    assert "租户" in stream.getvalue()
    assert lines[0]["timestamp"].endswith("Z")
    assert "s3cr3t" not in stream.getvalue()


def test_readable_lines_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    Log(stream, debug=True).debug("job done", sent=3)
    assert "job done" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(stream.getvalue())


def test_structlog_is_imported_with_the_first_line_only() -> None:
    script = (
        "import sys; from worker.telemetry import Log; log = Log();"
        "assert 'structlog' not in sys.modules; log.info('x'); assert 'structlog' in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert json.loads(done.stderr)["event"] == "x"


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://ann:s3cr3t@db:5432/quota", "postgresql://ann:***@db:5432/quota"),
        ("postgresql://ann:s3:cr@3t@db/quota", "postgresql://ann:***@db/quota"),
        (
            "postgresql://ann@a:1,b:2/quota?sslmode=require",
            "postgresql://ann@a:1,b:2/quota?sslmode=require",
        ),
        ("postgresql:///quota?host=/run&port=5432", "postgresql:///quota?host=/run&port=5432"),
        (
            "postgresql://db/q?user=ann&password=s3cr3t&SSLPassword=s3cr3t&host=h&new=s3cr3t",
            "postgresql://db/q?user=ann&password=***&SSLPassword=***&host=h&new=***",
        ),
        ("postgresql://db/q#s3cr3t", "postgresql://db/q"),
        ("postgresql://ann:s3cr/3t@db/quota", "postgresql://***"),
        ("postgresql://ann:s3cr?3t@db/quota", "postgresql://***"),
        ("postgresql://ann:s3cr3t@[::1/quota", "postgresql://***"),
        ("postgresql://db/q?sslmode=s3cr3t", "postgresql://db/q?sslmode=***"),
    ],
)
def test_a_dsn_is_shown_without_its_secrets(dsn: str, shown: str) -> None:
    assert shown_dsn(dsn) == shown
    assert "s3" not in shown_dsn(dsn)
