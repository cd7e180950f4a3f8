"""Bad surroundings: one line that says what to do, and the right exit code, whatever the command."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from acceptance.here import quota_worker_here
from acceptance.program import Finished, environment
from worker.assets import Assets
from worker.clock import monotonic_seconds, utc_now
from worker.doctor.examining import Examination, Surroundings
from worker.postgres.doctor import PostgresDoctor
from worker.postgres.embedded import EmbeddedServer
from worker.postgres.queries import load_queries
from worker.settings import DeliverySettings

from conftest import chosen_binaries, fastest_folder, make_server_home

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Connection = asyncpg.Connection[asyncpg.Record]

ROOT = Path(__file__).resolve().parents[2]
TRACE = str(ROOT / "worker" / "traces" / "tiny.csv")
PASSWORD = "s3cr3t"  # noqa: S105  looked for where it must not be
# Every command that asks the ledger; those that change something are marked.
READING = (
    ("settings",),
    ("limits", "show"),
    ("limits", "history"),
    ("status",),
    ("metrics", "--top", "0"),
    ("alerts",),
    ("estimates",),
    ("price", "list"),
    ("price", "unpriced"),
    ("outcomes", "list"),
    ("source", "faults"),
    ("audit",),
    ("months",),
    ("tick", "--dry-run"),
)
CHANGING = (
    ("settings", "set", "currency", "CNY"),
    ("limits", "block", "acme", "--for", "1h", "--reason", "r"),
    (
        "topup",
        "sales",
        "--tokens",
        "1",
        "--expires",
        "2099-01-01T00:00:00Z",
        "--approved-by",
        "a",
        "--reason",
        "r",
    ),
    ("replay", TRACE, "--create-tenants", "--tenants", "1"),
    ("tick",),
    ("tick", "--jobs", "reconcile"),
    ("run", "deliver"),
    ("alerts", "retry", "1"),
    ("alerts", "ack", "1"),
    ("audit", "--repair"),
    ("migrate",),
)
WORLD = (
    "INSERT INTO tenant_limits (tenant_id) VALUES ('acme');"
    "INSERT INTO departments (department_id) VALUES ('sales');"
    "INSERT INTO department_budgets (department_id, monthly_tokens) VALUES ('sales', 9)"
)


def refused(done: Finished, code: int, *words: str) -> bool:
    """Whether it is one line with these words, and nothing of it a secret."""
    lines = done.err.splitlines()
    return (
        done.code == code
        and len(lines) == 1
        and lines[0].startswith("quota-worker: ")
        and all(word in lines[0] for word in words)
        and PASSWORD not in done.err + done.out
        and "Traceback" not in done.err
    )


async def test_a_read_only_database(dsn: str, conn: Connection) -> None:
    await conn.execute(WORLD)
    read_only = f"{dsn}&default_transaction_read_only=on"
    for words in READING:
        done = await quota_worker_here(read_only, *words)
        assert done.code == 0, (words, done.err)
    for words in CHANGING:
        done = await quota_worker_here(read_only, *words)
        assert refused(done, 1, "read-only transaction", "set POSTGRES_DSN to the primary"), (
            words,
            done,
        )


async def test_missing_rights(dsn: str, conn: Connection) -> None:
    await conn.execute(WORLD)
    stranger = f"nobody_{uuid.uuid4().hex[:8]}"
    await conn.execute(f"CREATE ROLE {stranger}")
    try:
        for role in ("quota_reader", "quota_gateway", stranger):
            for words in (*READING, *CHANGING[:-1]):
                done = await quota_worker_here(f"{dsn}&role={role}", *words)
                cure = "GRANT quota_worker TO that user; see quota-worker doctor"
                assert refused(done, 2, "permission denied for", cure), (role, words, done)
            done = await quota_worker_here(f"{dsn}&role={role}", "migrate")
            assert refused(done, 2, "migrate as the owner of the schema"), done
    finally:
        await conn.execute(f"DROP ROLE {stranger}")


async def test_a_full_disk_of_the_database(dsn: str, conn: Connection) -> None:
    """The server says so itself where a file of a table can't grow."""
    await conn.execute(WORLD)
    full = (
        "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'"
    )
    for table in ("tick_lease", "quota_settings", "quota_blocks", "tenant_limits", "quota_repairs"):
        await conn.execute(
            f"CREATE FUNCTION full_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {full}; END $$;"
            f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {table}"
            f" FOR EACH STATEMENT EXECUTE FUNCTION full_{table}()"
        )
    for words in (CHANGING[0], CHANGING[1], CHANGING[3], ("tick",), ("run", "deliver")):
        done = await quota_worker_here(dsn, *words)
        assert refused(done, 1, "No space left", "make room there, then run again"), (words, done)


async def test_a_newer_schema(dsn: str, conn: Connection) -> None:
    """Two versions run side by side during an upgrade; only migrate of the older one is refused."""
    await conn.execute(WORLD)
    await conn.execute("INSERT INTO quota_migrations (name, checksum) VALUES ('0999_x', '')")
    done = await quota_worker_here(dsn, "migrate")
    assert refused(done, 2, "0999_x", "install the newer quota-worker"), done
    for words in (("tick",), ("status",), ("doctor",)):
        assert (await quota_worker_here(dsn, *words)).code == 0, words


async def test_a_full_outbox(dsn: str, conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency, facts,"
        " next_attempt_at, created_at, subject) SELECT n, n, 'tenant-warn', 'console', 'warning', 1,"
        " '{}', now() + interval '1 h', now(), 'acme' FROM generate_series(1, 100000) AS n"
    )
    for words in (("status",), ("alerts",), ("metrics",), ("tick", "--dry-run"), ("tick",)):
        started = monotonic_seconds()
        done = await quota_worker_here(dsn, *words)
        assert done.code == 0, (words, done.err)
        assert monotonic_seconds() - started < 20, words
    done = await quota_worker_here(dsn, "doctor")
    assert "100,000 messages wait" in done.out


async def test_a_clock_an_hour_off(dsn: str, conn: Connection) -> None:
    for hours in (1, -1):
        around = Surroundings("here", None, (), (), {}, DeliverySettings(), ["console"], ())
        reads = PostgresDoctor(conn, load_queries(Assets(), "doctor"))

        def off(hours: int = hours):  # the machine's clock, not the database's
            return utc_now() + timedelta(hours=hours)

        (clock,) = [
            one for one in await Examination(reads, around, off).run() if one.check == "clock"
        ]
        assert clock.severity == "fault"
        assert f"60 min {'ahead of' if hours > 0 else 'behind'}" in clock.what


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty: a header line is needed"),
        ("not a trace\n", "no column"),
        ("\x00\x01\x02", "line 1"),
        ("timestamp,input_tokens,output_tokens\n", "has a header but no request"),
        ("timestamp,input_tokens,output_tokens\nyesterday,1,1\n", "line 2"),
    ],
)
async def test_a_file_that_is_no_trace(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "trace.csv").write_text(text)
    done = await quota_worker_here(
        "postgresql://127.0.0.1:1/x", "replay", str(tmp_path / "trace.csv")
    )
    assert refused(done, 2, "trace.csv", says), done


async def test_no_file_and_a_binary_for_a_trace(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(bytes(range(256)))
    for name in ("nothing.csv", "picture.png", "."):
        done = await quota_worker_here("postgresql://127.0.0.1:1/x", "replay", str(tmp_path / name))
        assert refused(done, 2), (name, done)


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server with passwords on its socket, and over TCP for TLS alone, which it doesn't have."""
    home = make_server_home(fastest_folder())
    hba = home / "hba.conf"
    hba.write_text(
        "local all quota trust\nlocal all all scram-sha-256\nhostnossl all all all reject\n"
    )
    hba.chmod(0o644)
    server = EmbeddedServer(
        home / "pg",
        binaries=chosen_binaries(),
        durable=False,
        # an address of its own: another server may have this port
        options={"hba_file": str(hba), "listen_addresses": address()},
    )
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


def address() -> str:
    """A loopback address of this process."""
    return f"127.77.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}"


async def test_logins_that_are_refused(strict_server: EmbeddedServer) -> None:
    admin = await asyncpg.connect(strict_server.dsn)
    await admin.execute(
        f"CREATE ROLE ann LOGIN PASSWORD '{PASSWORD}';"
        f"CREATE ROLE bob LOGIN CONNECTION LIMIT 0 PASSWORD '{PASSWORD}'"
    )
    await admin.close()
    socket = strict_server.dsn.partition("?")[2]
    over_tcp = f"ann:{PASSWORD}@{address()}:5432/quota"
    in_vain = "check the user and the password in POSTGRES_DSN"
    surroundings = {
        f"postgresql://ann:wrong-{PASSWORD}@/quota?{socket}": (2, 'for user "ann"', in_vain),
        f"postgresql://ghost:{PASSWORD}@/quota?{socket}": (2, 'for user "ghost"', in_vain),
        f"postgresql://ann@/quota?{socket}&password=wrong-{PASSWORD}": (2, in_vain),
        f"postgresql://ann:{PASSWORD}@/nowhere?{socket}": (2, "nowhere", "correct its name"),
        f"postgresql://bob:{PASSWORD}@/quota?{socket}": (1, "too many", "raise max_connections"),
        f"postgresql://{over_tcp}": (2, "no encryption", "add sslmode=require"),
        f"postgresql://{over_tcp}?sslmode=require": (1, "SSL", "check host, port and sslmode"),
        f"postgresql://ann:{PASSWORD}@127.0.0.1:1/quota": (1, "check POSTGRES_DSN and that the se"),
    }
    for dsn, (code, *words) in surroundings.items():
        for command in (("tick",), ("status",), ("migrate",), ("limits", "show"), ("schedule",)):
            if command == ("schedule",) and code == 1:
                continue  # it waits for a database that may come back
            done = await quota_worker_here(dsn, *command)
            assert refused(done, int(code), *map(str, words)), (dsn, command, done)
        told = await quota_worker_here(dsn, "doctor")
        first, cure, *_ = told.out.splitlines()
        assert told.code == 1
        assert first.startswith("fault    database")
        assert str(words[-1]) in cure, (dsn, told.out)
        assert PASSWORD not in told.out + told.err


async def run_shell(command: str, dsn: str, **environ: str) -> tuple[int, str, str]:
    """A command line as cron or a person would write it."""
    process = await asyncio.create_subprocess_exec(
        *("/bin/bash", "-c", command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
        env=environment(dsn, **environ),
        cwd=ROOT,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


TICK = f"{sys.executable} -m worker tick"
STATUS = f"{sys.executable} -m worker status"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (f"{TICK} >&- 2>&-", 0, ""),
        (f"{TICK} >/dev/full 2>/dev/full", 0, ""),
        (f"({TICK}; echo ended $? >&3) 3>&1 2>&1 >/dev/null | (sleep 1; cat)", 0, "ended 0"),
        (f"{TICK} 2> >(exec 0<&-)", 0, ""),
        (f"{TICK} --json >/dev/full", 1, "stdout could not be written: No space left on device"),
        (f"{STATUS} >&-", 1, "stdout could not be written: it is closed"),
    ],
)
async def test_streams_that_are_closed_full_or_slow(
    dsn: str,
    conn: Connection,
    until_done: Callable[[], Awaitable[None]],
    command: str,
    code: int,
    words: str,
) -> None:
    """The tick does its work and ends, whatever becomes of its words."""
    await conn.execute(
        "INSERT INTO tenant_limits (tenant_id) VALUES ('acme');"
        "SELECT quota_reserve('acme', 'r', 1, 1, 1, p_now => clock_timestamp() - interval '2 h')"
    )
    ended, out, err = await run_shell(command, dsn)
    assert ended == code, (out, err)
    assert words in out + err
    assert "Traceback" not in out + err
    assert "Exception ignored" not in out + err
    if "tick" in command:
        await until_done()


@pytest.fixture
def until_done(conn: Connection) -> Callable[[], Awaitable[None]]:
    async def check() -> None:
        assert await conn.fetchval("SELECT state FROM quota_reservations") == "expired"

    return check
