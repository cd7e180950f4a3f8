"""Months and their reports through the real program: cases 25, 26, 27 and 29 from the outside."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import cycle
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from acceptance.program import quota_worker, start, until
from acceptance.test_report import CONFIGURATION
from contract.servers_mail import HANG, OK, USER, Certificates, SmtpServer
from contract.sides import SECRET

from sql.calls import Calls, at, open_connection
from sql.rolling import everything, recomputed, roll, tenant
from sql.test_reports import CLOSES, OCTOBER, write_october

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import asyncpg

    from conftest import Connect

    Connection = asyncpg.Connection[asyncpg.Record]

UNIT = 10**9
MICROSECOND, SECOND = timedelta(microseconds=1), timedelta(seconds=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
GRACE = timedelta(hours=72)
SHANGHAI = ZoneInfo("Asia/Shanghai")
# by the session's zone these are other days, and mostly other months, than by Shanghai's
SESSIONS = ("UTC", "America/Los_Angeles", "Pacific/Kiritimati", "Asia/Kathmandu")
MINUTES = timedelta(minutes=5)


# ------------------------------------------------------------------ case 25

MIDNIGHT = datetime(2026, 11, 1, tzinfo=SHANGHAI)
BEFORE = MIDNIGHT - MICROSECOND
MONTHS = {
    # by month: when, units charged, units beyond the cap of 10, the day, when day and month reset
    date(2026, 10, 1): (MIDNIGHT - SECOND, 5, 6, date(2026, 10, 31), (MIDNIGHT, MIDNIGHT)),
    date(2026, 11, 1): (
        *(MIDNIGHT, 7, 4, date(2026, 11, 1)),
        (MIDNIGHT + DAY, datetime(2026, 12, 1, tzinfo=SHANGHAI)),
    ),
}
REFUSALS = {
    "daily": "daily_cost_reached",
    "monthly": "monthly_cost_reached",
    "pooled": "department_budget_exhausted",
}


class Midnight:
    """Tenants with a cap of 10 each, asked from a session of another zone at each step."""

    def __init__(self, dsn: str, conn: Connection) -> None:
        self.dsn, self.conn, self.calls = dsn, conn, Calls(conn)
        self._zones = cycle(SESSIONS)

    async def begin(self) -> None:
        await self.calls.zone("Asia/Shanghai")
        await self.calls.tenant("daily", soft_warn_pct=50, daily_cost_cents=1000)
        await self.calls.tenant("monthly", soft_warn_pct=50, monthly_cost_cents=1000)
        await self.calls.tenant("pooled", department_id="pool")
        await self.calls.department("pool", monthly_cost_cents=1000, warn_pct=50)

    async def another_session_zone(self) -> None:
        """Of each connection that is opened from now on, and of the test's own."""
        name, zone = await self.conn.fetchval("SELECT current_database()"), next(self._zones)
        await self.conn.execute(f"ALTER DATABASE {name} SET timezone = '{zone}'")
        await self.conn.execute(f"SET timezone = '{zone}'")

    async def run(self, *arguments: str) -> str:
        await self.another_session_zone()
        done = await quota_worker(self.dsn, *arguments)
        assert done.code == 0, done.err
        return done.out

    async def charge(self, name: str, month: date) -> None:
        """What still fits is charged; the next one is refused, and told until when."""
        now, units, beyond, _, (day_resets, month_resets) = MONTHS[month]
        await self.another_session_zone()
        amounts = (100, 50, units * UNIT)
        row = await self.calls.reserve(name, f"{month}", amounts, now=now)
        assert row["allowed"], (name, row)
        await self.calls.settle(name, f"{month}", amounts, now=now)
        later = max(now, BEFORE) if now < MIDNIGHT else now + SECOND
        row = await self.calls.reserve(name, None, (1, 1, beyond * UNIT), now=later)
        assert not row["allowed"]
        assert (row["reason"], row["limit_used"]) == (REFUSALS[name], units * 100)
        assert row["resets_at"] == (day_resets if name == "daily" else month_resets)

    async def alerts(self, now: datetime) -> set[tuple[str, date, int]]:
        """Whom the tick at that time tells something, of which period and use."""
        last = await self.conn.fetchval("SELECT coalesce(max(outbox_id), 0) FROM quota_outbox")
        await self.run("tick", "--jobs", "soft_warn", "--as-of", now.isoformat())
        found = set()
        for row in await self.conn.fetch(
            "SELECT subject, facts::text FROM quota_outbox WHERE outbox_id > $1", last
        ):
            (one,) = json.loads(row["facts"])["dimensions"]
            found.add((row["subject"], date.fromisoformat(one["period_start"]), int(one["used"])))
        return found


async def test_a_second_before_midnight_and_midnight_are_two_months_everywhere(
    dsn: str, conn: Connection
) -> None:
    """Case 25: 5 and 7, in enforcement, alert, roll-up and report alike, whatever the session's zone."""
    world = Midnight(dsn, conn)
    await world.begin()
    for month, (now, units, _, day, _) in MONTHS.items():
        for name in REFUSALS:
            await world.charge(name, month)
        assert await world.alerts(max(now, BEFORE)) == {
            ("daily", day, units * UNIT),
            ("monthly", month, units * UNIT),
            ("pool", month, units * UNIT),
        }
    for now, closed in ((MIDNIGHT + GRACE - MICROSECOND, False), (MIDNIGHT + GRACE, True)):
        await world.run("run", "roll_month", "--as-of", now.isoformat())
        rows = await conn.fetch(
            "SELECT t.month, t.tenant_id, t.completions::int, t.cost_nanos::bigint, t.peak_day,"
            " m.closed_at IS NOT NULL FROM quota_monthly_totals t JOIN quota_months m USING (month)"
        )
        assert {tuple(row) for row in rows} == {
            (month, name, 1, units * UNIT, day, closed and month == min(MONTHS))
            for month, (_, units, _, day, _) in MONTHS.items()
            for name in REFUSALS
        }
    for month, department, tenants in (
        (min(MONTHS), None, 3),
        (min(MONTHS), "pool", 1),
        (max(MONTHS), None, 3),
    ):
        _, units, _, day, _ = MONTHS[month]
        of = ("--department", department) if department else ()
        shown = await world.run("report", "--month", f"{month:%Y-%m}", *of, "--format", "json")
        report = json.loads(shown)
        assert report["ledger"]["total"]["cost_nanos"] == str(units * tenants * UNIT)
        (curve,) = report["curves"]
        charged = {one["day"]: one["cost_nanos"] for one in curve["points"]}
        assert {day: cost for day, cost in charged.items() if cost != "0"} == {
            str(day): str(units * tenants * UNIT)
        }
        assert Fraction(report["budgets"][0]["cost_share"]["exact"]) == Fraction(units, 10)


# ------------------------------------------------------------------ case 26

NEW_YORK = ZoneInfo("America/New_York")
# from 31 January over 29 February, and over a day of 23 hours
DAYS = [
    *(date(2028, 1, 31), date(2028, 2, 1), date(2028, 2, 28), date(2028, 2, 29)),
    *(date(2028, 3, 1), date(2028, 3, 12), date(2028, 3, 31), date(2028, 4, 1)),
]


def starts(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=NEW_YORK).astimezone(UTC)


async def use(calls: Calls, day: date) -> None:
    """In the day's first and last microsecond, and at noon."""
    for place, now in enumerate(
        (starts(day), starts(day) + 12 * HOUR, starts(day + DAY) - MICROSECOND)
    ):
        amounts = (day.day + place, 2 * day.day + 1, 1_000_003 * day.day + place)
        name, request = "ab"[place % 2], f"{day} {place}"
        await calls.reserve(name, request, amounts, model=f"m{day.day % 2}", now=now)
        await calls.settle(name, request, amounts, now=now)


async def test_months_from_31_january_and_29_february_on_are_contiguous_however_rolled(
    dsn: str, conn: Connection
) -> None:
    """Case 26: three times, in halves, by two processes."""
    await conn.execute("UPDATE quota_settings SET billing_zone = $1", NEW_YORK.key)
    calls = Calls(conn)
    await tenant(calls, "a", "sales")
    await tenant(calls, "b")

    async def rolled(now: datetime) -> None:
        done = await quota_worker(dsn, "run", "roll_month", "--as-of", now.isoformat())
        assert done.code == 0, done.err

    # the halves end within 29 February, whose evening is still to come
    for day in DAYS[:4]:
        await use(calls, day)
    await rolled(starts(DAYS[3]) + 13 * HOUR)
    for day in DAYS[4:]:
        await use(calls, day)
    right = await recomputed(conn, NEW_YORK)
    end = starts(DAYS[-1]) + 5 * DAY
    await asyncio.gather(rolled(end), rolled(end))
    once = await everything(conn)
    assert once[:2] == right
    closed = await conn.fetch("SELECT month, closed_at FROM quota_months ORDER BY month")
    await rolled(end + HOUR)
    assert await everything(conn) == once
    assert await conn.fetch("SELECT month, closed_at FROM quota_months ORDER BY month") == closed

    # each month begins where the one before ends
    listed = json.loads((await quota_worker(dsn, "months", "--json", "--last", "0")).out)["months"]
    listed.reverse()
    firsts = [date(2028, month, 1) for month in (1, 2, 3, 4, 5)]
    assert [one["month"] for one in listed] == [f"{first:%Y-%m}" for first in firsts[:4]]
    ends = [datetime.fromisoformat(one["ends_at"]) for one in listed]
    assert ends == [starts(first) for first in firsts[1:]]
    assert ends == [
        await conn.fetchval("SELECT quota_day_start($1)", first) for first in firsts[1:]
    ]
    completions = [3 * sum(day.replace(day=1) == first for day in DAYS) for first in firsts[:4]]
    assert [one["completions"] for one in listed] == completions
    report = await quota_worker(dsn, "report", "--month", "2028-04", "--format", "json")
    trend = json.loads(report.out)["trend"]
    months = [f"{year}-{month:02}-01" for year, month in ((2027, 11), (2027, 12))]
    assert [one["month"] for one in trend] == [*months, *map(str, firsts[:4])]
    assert [one["own"] and int(one["own"]["completions"]) for one in trend] == [
        *(None, None),
        *completions,
    ]


# ------------------------------------------------------------------ cases 27 and 29


class Receiver(SmtpServer):
    """A mail server that may take a mail and never say so."""

    silent_at: int | None = None

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        answer = await super().handle_DATA(server, session, envelope)
        if self.silent_at == len(self.received):
            await asyncio.sleep(60)
        return answer


@asynccontextmanager
async def mailing(folder: Path) -> AsyncIterator[tuple[Receiver, dict[str, str]]]:
    """A mail server, and the variables of a program that reports through it."""
    certificates = Certificates(folder)
    server = Receiver(certificates, SECRET, size_max=10_000_000)
    await server.start()
    file = folder / "quota-worker.toml"
    file.write_text(
        CONFIGURATION.format(port=server.port, user=USER, ca_file=certificates.ca_file),
        encoding="utf-8",
    )
    try:
        yield server, {"QUOTA_WORKER_CONFIG": str(file), "MAIL_PASSWORD": SECRET}
    finally:
        await server.stop()


NOW = datetime(2026, 11, 20, tzinfo=UTC)  # September is too long ago to be told
JOBS = ("tick", "--jobs", "roi_report,deliver", "--as-of")
ADDRESSES = {"Boss@example.com", "cfo@example.com", "money@example.com", "ops@example.com"}
REPORTS = [("", 1), ("ops", 1), ("sales", 1)]


async def reports_of_october(conn: Connection) -> list[tuple[str, int]]:
    rows = await conn.fetch(
        "SELECT department_id, revision FROM quota_reports WHERE month = $1 ORDER BY 1, 2", OCTOBER
    )
    return [tuple(row) for row in rows]


async def waiting(conn: Connection, table: str, count: int) -> bool:
    """Whether so many wait for the table's lock."""
    return count == await conn.fetchval(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::regclass", table
    )


async def killed(process: asyncio.subprocess.Process, conn: Connection) -> None:
    """SIGKILL; its lease of the tick is taken for over, which it is a minute later."""
    process.kill()
    await process.communicate()
    assert process.returncode == -signal.SIGKILL
    await conn.execute("UPDATE tick_lease SET expires_at = clock_timestamp()")


async def test_a_worker_killed_at_any_moment_of_a_report_leaves_it_to_the_next(
    dsn: str, conn: Connection, connect: Connect, tmp_path: Path
) -> None:
    """Case 27: while it is stored, claimed, between two recipients, and taken but not answered."""
    await write_october(conn)
    await roll(conn, at(CLOSES))
    await conn.execute("DELETE FROM quota_outbox")
    holder = await connect()

    async def state(name: str, count: int) -> bool:
        return count == await conn.fetchval(
            "SELECT count(*) FROM quota_outbox WHERE state = $1", name
        )

    async with mailing(tmp_path) as (server, environ):
        now = NOW
        # while the first one is stored; the server hears nothing of the death, and goes on
        blocked = holder.transaction()
        await blocked.start()
        await holder.execute("LOCK TABLE quota_outbox IN SHARE MODE")
        process = await start(dsn, *JOBS, now.isoformat(), **environ)
        await until(lambda: waiting(conn, "quota_outbox", 1))
        await killed(process, conn)
        await blocked.rollback()
        await until(lambda: waiting(conn, "quota_outbox", 0))
        await until(lambda: state("pending", 1))  # the report with its mail: both or neither
        assert await reports_of_october(conn) == REPORTS[:1]

        # claimed, and nothing sent: the server doesn't even greet back
        server.answers = {"EHLO": [HANG, OK]}
        process = await start(dsn, *JOBS, now.isoformat(), **environ)
        await until(lambda: state("sending", 1))
        await until(lambda: asyncio.sleep(0, server.connections > 0))
        await killed(process, conn)
        assert await reports_of_october(conn) == REPORTS
        assert server.received == []

        # between two recipients
        now += MINUTES
        server.answers = {"RCPT": [OK, HANG, OK]}
        process = await start(dsn, *JOBS, now.isoformat(), **environ)
        await until(lambda: asyncio.sleep(0, len(server.answers["RCPT"]) == 1))
        await killed(process, conn)
        assert (len(server.received), await state("sent", 1)) == (1, True)

        # taken by the server, whose answer never came: only this one comes twice
        now += MINUTES
        server.silent_at = 2
        process = await start(dsn, *JOBS, now.isoformat(), **environ)
        await until(lambda: asyncio.sleep(0, len(server.received) == 2))
        await killed(process, conn)
        server.silent_at = None

        now += MINUTES
        done = await quota_worker(dsn, *JOBS, now.isoformat(), **environ)
        assert done.code == 0, done.err
        assert await state("sent", len(ADDRESSES))
        assert await reports_of_october(conn) == REPORTS
        told = [one.recipient for one in server.received]
        assert set(told) == ADDRESSES
        twice = [address for address in ADDRESSES if told.count(address) > 1]
        assert (len(twice), len(told)) == (1, len(ADDRESSES) + 1)
        # the second one is the same mail: readers' programs show it once
        assert len({one.mail["Message-ID"] for one in server.received}) == len(ADDRESSES)
        for one in server.received:
            assert "2026-10" in one.subject
            assert len(list(one.mail.iter_attachments())) == 2


async def test_of_four_processes_one_report_and_one_mail_for_each(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    """Case 29: four ticks, one of them stopped over its lease, and two by hand, whom no lease keeps apart."""
    await write_october(conn)
    await roll(conn, at(CLOSES))
    async with mailing(tmp_path) as (server, environ):
        # all of them have built the report before any may store it: the race itself
        holder = await open_connection(dsn)
        blocked = holder.transaction()
        await blocked.start()
        await holder.execute("LOCK TABLE quota_reports IN SHARE MODE")
        report = ("report", "--month", "2026-10", "--send")
        processes = [await start(dsn, *report, **environ) for _ in range(2)]
        processes.append(await start(dsn, *JOBS, NOW.isoformat(), **environ))

        await until(lambda: waiting(conn, "quota_reports", len(processes)))
        # the tick is stopped with its lease over; another takes its place
        processes[-1].send_signal(signal.SIGSTOP)
        await conn.execute("UPDATE tick_lease SET expires_at = clock_timestamp()")
        ticks = [await start(dsn, *JOBS, NOW.isoformat(), **environ) for _ in range(3)]
        await blocked.rollback()
        await holder.close()
        answers = [await one.communicate() for one in (*processes[:-1], *ticks)]
        processes[-1].send_signal(signal.SIGCONT)
        answers.append(await processes[-1].communicate())
        for one, answer in zip((*processes[:-1], *ticks, processes[-1]), answers, strict=True):
            assert one.returncode == 0, answer
        done = await quota_worker(dsn, *JOBS, (NOW + MINUTES).isoformat(), **environ)
        assert done.code == 0, done.err
        assert await reports_of_october(conn) == REPORTS
        assert sorted(one.recipient for one in server.received) == sorted(ADDRESSES)
        assert await conn.fetchval("SELECT count(*) FROM quota_outbox") == len(ADDRESSES)
