"""The monthly report from the ledger to the mailbox: the real program, a real mail server."""

from __future__ import annotations

import csv
import io
import json
from calendar import monthrange
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast
from zoneinfo import ZoneInfo

import asyncpg
import openpyxl

from acceptance.program import quota_worker, start, until
from contract.servers_mail import HANG, OK, USER, Certificates, SmtpServer
from contract.sides import SECRET
from worker.report.json_file import load_summary

from sql.calls import Calls, at
from sql.rolling import roll
from sql.test_reports import CLOSES, OCTOBER, outcome, write_october

if TYPE_CHECKING:
    from datetime import datetime

    Connection = asyncpg.Connection[asyncpg.Record]

CONFIGURATION = """
[channels.mail]
kind = "email"
host = "localhost"
port = {port}
username = "{user}"
password = {{ env = "MAIL_PASSWORD" }}
ca_file = "{ca_file}"
sender = "quota@example.com"
to = ["ops@example.com"]
[default]
channels = ["mail"]
[report]
channel = "mail"
to = ["cfo@example.com"]
"""
SETTINGS = """
[channels.mail]
kind = "email"
host = "localhost"
sender = "quota@example.com"
[report]
channel = "mail"
"""
NOW = "2026-11-20T00:00:00Z"  # September is too long ago to be told
LATER = "2026-11-20T00:05:00Z"


async def test_a_month_is_mailed_once_and_its_correction_says_what_changed(  # noqa: PLR0915  a story
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    await write_october(conn)
    await roll(conn, at(CLOSES))
    await conn.execute(
        "UPDATE departments SET finance_emails = '{no address}' WHERE department_id = 'ops'"
    )
    certificates = Certificates(tmp_path)
    server = SmtpServer(certificates, SECRET, size_max=10_000_000)
    await server.start()
    file = tmp_path / "quota-worker.toml"
    file.write_text(
        CONFIGURATION.format(port=server.port, user=USER, ca_file=certificates.ca_file),
        encoding="utf-8",
    )
    try:
        environ = {"QUOTA_WORKER_CONFIG": str(file), "MAIL_PASSWORD": SECRET}
        jobs = ("tick", "--jobs", "roi_report,deliver", "--as-of", NOW, "--json")
        # killed between two recipients: after two mails, while the third is handed in
        server.answers = {"RCPT": [OK, OK, HANG, OK]}
        process = await start(dsn, *jobs, **environ)

        async def hangs() -> bool:
            return len(server.received) == 2 and len(server.answers["RCPT"]) == 1

        await until(hangs)
        process.kill()
        await process.communicate()
        assert await conn.fetchval("SELECT count(*) FROM quota_outbox WHERE state = 'sending'") == 1
        await conn.execute("UPDATE tick_lease SET expires_at = clock_timestamp()")
        done = await quota_worker(dsn, *jobs[:3], "--as-of", LATER, "--json", **environ)
        assert done.code == 0, done.err
        assert len(server.received) == await conn.fetchval(
            "SELECT count(*) FROM quota_outbox WHERE channel = 'mail' AND state = 'sent'"
        )
        ids = [one.mail["Message-ID"] for one in server.received]
        assert len(set(ids)) == len(ids) == 4
        # the bad address was told on the fallback
        october = [one for one in server.received if "2026-10" in one.subject]
        assert sorted(one.recipient for one in october) == [
            "Boss@example.com", "cfo@example.com", "money@example.com", "ops@example.com"
        ]  # fmt: skip
        (boss,) = [one for one in october if one.recipient == "Boss@example.com"]
        assert boss.subject == "[quota-report] Sales, 2026-10: 40.00 CNY, 2,000 tokens"
        assert "40" in boss.part("plain")
        pictures = [part for part in boss.mail.walk() if part.get_content_type() == "image/png"]
        assert pictures
        for picture in pictures:
            assert f"cid:{picture['Content-ID'][1:-1]}" in boss.part("html")
            assert picture.get_content_disposition() == "inline"
        book, table = list(boss.mail.iter_attachments())
        assert openpyxl.load_workbook(io.BytesIO(book.get_content()), data_only=False).sheetnames
        assert list(csv.reader(io.StringIO(table.get_content())))
        dead = await conn.fetch(
            "SELECT recipient, last_failure FROM quota_outbox WHERE state = 'dead'"
        )
        assert [tuple(row) for row in dead] == [("no address", "recipient_refused")]

        sent = len(server.received)
        report = ("report", "--month", "2026-10", "--department", "sales")
        asked = await quota_worker(dsn, *report, "--send", **environ)
        assert (asked.code, asked.out) == (0, "")
        assert "revision 1, as it was: no mail queued" in asked.err
        await outcome(conn, OCTOBER, "sales", "orders", "100")
        await quota_worker(dsn, *report, "--send", **environ)
        await quota_worker(dsn, *jobs, **environ)
        new = server.received[sent:]
        assert sorted(one.recipient for one in new) == [
            "Boss@example.com", "cfo@example.com", "money@example.com"
        ]  # fmt: skip
        (corrected,) = [one for one in new if one.recipient == "Boss@example.com"]
        assert "corrected, revision 2" in corrected.subject
        assert "80" in corrected.part("plain")

        told = await quota_worker(dsn, "alerts", "--limit", "0", **environ)
        for words in ("department sales: 2026-10, revision 1", "roi-report: 2026-10, revision 1"):
            assert f"  report  {words}\n" in told.out
        assert "  report  department sales: 2026-10, revision 2\n" in told.out

        # by hand: the same figures
        shown = await quota_worker(dsn, *report, "--format", "json")
        stored = await conn.fetchval(
            "SELECT summary FROM quota_reports WHERE (month, department_id, revision) = ($1, 'sales', 2)",
            OCTOBER,
        )
        assert load_summary(shown.out) == load_summary(stored)
        assert json.loads(shown.out)["provisional"] is False
    finally:
        await server.stop()


async def test_a_preview_is_a_file_and_no_file_is_written_over(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    await write_october(conn)
    report = ("report", "--month", "2026-10", "--out", str(tmp_path))
    page = await quota_worker(dsn, *report, "--preview", BROWSER="true %s")
    assert page.code == 0, page.err
    assert "may change" in page.err
    assert (tmp_path / "roi-2026-10.html").read_text(encoding="utf-8").startswith("<!")
    (tmp_path / "roi-2026-10.html").write_text("mine", encoding="utf-8")
    again = await quota_worker(dsn, *report, "--format", "html")
    assert (again.code, again.err.count("exists: move it away")) == (2, 1)
    assert (tmp_path / "roi-2026-10.html").read_text(encoding="utf-8") == "mine"


async def test_a_month_closed_ahead_of_the_clock_is_shown_whole_and_named(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    """As a replay's `--as-of` closes it: its days are the month's, not those up to today."""
    calls = Calls(conn)
    now: datetime = await conn.fetchval("SELECT clock_timestamp()")
    # in one of the two it isn't the month's last day
    zone = next(
        name
        for name in ("Pacific/Kiritimati", "Etc/GMT+12")
        if (now.astimezone(ZoneInfo(name)) + timedelta(days=1)).day > 1
    )
    await calls.zone(zone)
    await calls.tenant("a", department_id="sales")
    await calls.reserve("a", "r", (10, 5, 100), now=now)
    await calls.settle("a", "r", (10, 5, 100), now=now)
    later = (now + timedelta(days=40)).isoformat()
    closed = await quota_worker(dsn, "run", "roll_month", "--as-of", later)
    assert (closed.code, closed.err.count("closed for good before the end")) == (0, 1)
    today = now.astimezone(ZoneInfo(zone)).date()
    shown = await quota_worker(dsn, "report", "--month", f"{today:%Y-%m}", "--format", "json")
    report = json.loads(shown.out)
    assert report["provisional"] is False
    assert len(report["curves"][0]["points"]) == monthrange(today.year, today.month)[1]

    # What is charged from then on is named at once, with what to do.
    month = f"{today:%Y-%m}"
    await calls.reserve("a", "s", (1, 1, 7), now=now)
    await calls.settle("a", "s", (1, 1, 7), now=now)
    assert ", early" in (await quota_worker(dsn, "months")).out
    found = await doctor_months(dsn)
    assert found["severity"] == "warning"
    assert f"audit --month {month} --repair" in found["cure"]
    audit = await quota_worker(dsn, "audit", "--month", month)
    assert "the month was closed before it was over" in audit.out

    # Of a month that closes only in a time to come nothing is due now, and that is said; as is that nobody asked for it.
    nobody = await quota_worker(dsn, "run", "roi_report")
    assert (nobody.code, nobody.err.count("the configuration has no [report]")) == (0, 1)
    settings = tmp_path / "report.toml"
    settings.write_text(SETTINGS)
    early = await quota_worker(dsn, "--config", str(settings), "run", "roi_report")
    assert (early.code, early.err.count("no report is due")) == (0, 1)
    empty = await quota_worker(dsn, "report", "--month", month, "--department", "")
    assert (empty.code, empty.err.count("--department is empty")) == (2, 1)


async def doctor_months(dsn: str) -> dict[str, str]:
    report = json.loads((await quota_worker(dsn, "doctor", "--json")).out)
    (found,) = [one for one in report["findings"] if one["check"] == "months"]
    return cast("dict[str, str]", found)
