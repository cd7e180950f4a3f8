"""`quota-worker doctor` on real databases, with real channels on the other side."""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from acceptance.program import quota_worker
from contract.servers import FeishuServer
from worker import cli
from worker.assets import Assets
from worker.bootstrap import build_deps
from worker.clock import monotonic_seconds
from worker.commands import doctor
from worker.postgres.pool import connect as connect_as_worker

if TYPE_CHECKING:
    from pathlib import Path

    import asyncpg

    from conftest import Connect, NewDatabase

    Connection = asyncpg.Connection[asyncpg.Record]

OPS = {"QUOTA_WORKER_FEISHU_WEBHOOK": "https://h.example/open-apis/bot/v2/hook/s3cr3t"}
# The tests' servers are made without durability.
ALWAYS = {"durability"}


class Told(NamedTuple):
    code: int
    document: dict[str, Any]

    def found(self, check: str) -> list[dict[str, str]]:
        return [one for one in self.document["findings"] if one["check"] == check]

    def off(self) -> set[tuple[str, str]]:
        """The checks that aren't well, with their severity."""
        return {
            (one["check"], one["severity"])
            for one in self.document["findings"]
            if one["severity"] != "ok" and one["check"] not in ALWAYS
        }


async def call(dsn: str, capsys: pytest.CaptureFixture[str], *words: str, **environ: str) -> Told:
    """The command with its own dependencies, in this process."""
    args = cli.build_parser("doctor").parse_args(["doctor", "--json", *words])
    path = {"PATH": os.environ["PATH"]}
    async with build_deps(
        environ={"POSTGRES_DSN": dsn} | path | environ, config=args.config
    ) as deps:
        code = await doctor.run(args, deps)
    out, err = capsys.readouterr()
    assert "s3cr3t" not in out + err
    return Told(code, json.loads(out))


async def tick_now(conn: Connection) -> None:
    await conn.execute("UPDATE tick_lease SET renewed_at = clock_timestamp()")


async def test_a_sound_installation(dsn: str, conn: Connection) -> None:
    await conn.execute("INSERT INTO tenant_limits (tenant_id) VALUES ('acme')")
    assert (await quota_worker(dsn, "tick", **OPS)).code == 0
    done = await quota_worker(dsn, "doctor", **OPS, QUOTA_WORKER_HEARTBEAT_URL="https://h.example")
    assert done.code == 0, done.out
    lines = done.out.splitlines()
    assert [line for line in lines if line.startswith(("fault", "note"))] == []
    (warning,) = [line for line in lines if line.startswith("warning")]
    assert "durability" in warning
    assert lines[-1].startswith("1 warning; ")
    assert "s3cr3t" not in done.out + done.err


PLANTED = """
ALTER TABLE tenant_limits DROP CONSTRAINT tenant_limits_daily_completions,
    DROP CONSTRAINT tenant_limits_soft_warn_pct;
ALTER TABLE department_budgets DROP CONSTRAINT department_budgets_pcts;
INSERT INTO tenant_limits (tenant_id, daily_completions, soft_warn_pct, department_id)
VALUES ('odd', -1, 500, 'nowhere');
INSERT INTO department_budgets (department_id, monthly_tokens, downgrade_model, warn_pct, downgrade_pct)
VALUES ('marketing', 1000, 'small', 95, 90);
INSERT INTO tenant_limits (tenant_id, daily_completions, daily_input_tokens, bucket_capacity)
VALUES ('acme', NULL, NULL, 1e9);
SELECT quota_reserve('acme', 'r' || n, 10, 5, 7, p_now => clock_timestamp() - interval '2 h')
  FROM generate_series(1, 3) AS n;
SELECT quota_settle('acme', 'u' || n, 10, 5, 7) FROM generate_series(1, 20) AS n;
SELECT quota_settle('acme', 'r1', NULL, NULL, NULL);
UPDATE quota_reservations SET usage_missing = true WHERE request_id IN ('u1', 'u2');
UPDATE quota_usage SET held_input_tokens = held_input_tokens + 1;
UPDATE tick_lease SET renewed_at = clock_timestamp() - interval '20 min';
INSERT INTO job_runs (job, scheduled_for, outcome, fence, started_at, ended_at, error)
VALUES ('deliver', now() - interval '4 h', 'done', 1, now() - interval '4 h', now() - interval '4 h', NULL),
       ('deliver', now() - interval '5 min', 'failed', 2, now(), now(), 'no such table'),
       ('soft_warn', now() - interval '5 min', 'done', 2, now(), now(), NULL);
INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency, facts, state,
                          next_attempt_at, created_at, last_failure, failed_at)
VALUES ('a', 'a', 'tenant-warn', 'feishu-webhook', 'warning', 1, '{}', 'dead', now(), now() - interval '2 h',
        'bot_removed', now()),
       ('b', 'b', 'tenant-warn', 'feishu-webhook', 'warning', 1, '{}', 'pending', now(), now() - interval '2 h',
        NULL, NULL),
       ('c', 'c', 'tenant-warn', 'renamed', 'warning', 1, '{}', 'pending', now(), now(), NULL, NULL);
INSERT INTO quota_usage_inbox (tenant_id, request_id, input_tokens, output_tokens, received_at)
VALUES ('acme', 'i', 1, 1, now() - interval '2 h');
INSERT INTO quota_unpriced (tenant_id, request_id, reason, since) VALUES ('acme', 'u1', 'no_model', now());
INSERT INTO quota_crossings (subject_kind, crossed_at) VALUES ('tenant', now() - interval '1 h');
INSERT INTO quota_months (month) VALUES ('2026-01-01');
INSERT INTO quota_source_faults (tenant_id, request_id, source, reason, excerpt, first_seen_at, seen_at)
VALUES ('acme', 'u1', 'log', 'no_figures', '', now(), now());
INSERT INTO departments (department_id) VALUES ('marketing');
"""
EXPECTED = {
    ("limits", "warning"): "odd: daily_completions is -1, odd: soft_warn_pct is 500",
    ("tiers", "note"): "marketing (production)",
    ("budgets", "note"): "such as odd",
    ("ticks", "fault"): "no tick for 20 min",
    ("jobs", "fault"): "deliver fails (last done 4 h ago): no such table",
    ("overdue", "warning"): "2 reservations",
    ("inbox", "warning"): "usage waits in quota_usage_inbox for over an hour, 1 row",
    ("unpriced", "warning"): "1 request without a price",
    ("crossings", "warning"): "over 15 min",
    ("months", "warning"): "2026-01",
    ("unreserved", "warning"): "87% of the last 24 hours' 23",
    ("usage-missing", "warning"): "13% of the last 24 hours' 23",
    ("sources", "warning"): "answers of log on 1 request",
    ("drift", "warning"): "what is held isn't",
    ("dead", "warning"): "1 message on feishu-webhook given up, the oldest 2 h old",
    ("waiting", "warning"): "messages wait for renamed",
    ("channels", "warning"): "feishu-webhook was not sent (bot_removed)",
    ("routes", "warning"): "about 2 tenants of production, such as acme, and 1 group more",
    ("heartbeat", "note"): "nobody outside",
    ("variables", "note"): "QUOTA_WORKER_FEISHU_SECRETT is not known",
}


async def test_what_is_off_is_found(
    dsn: str, conn: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    await conn.execute(PLANTED)
    told = await call(dsn, capsys, QUOTA_WORKER_FEISHU_SECRETT="s3cr3t", **OPS)
    assert told.off() == set(EXPECTED)
    for (check, _), words in EXPECTED.items():
        assert any(words in one["what"] for one in told.found(check)), told.found(check)
    assert told.code == 1
    budgets = [one["what"] for one in told.found("limits") if "budget" in one["what"]]
    assert budgets == [
        "1 odd limit of budgets: marketing (production): its percents are 95, 90, 98"
    ]
    late = "1 message on feishu-webhook waited for over an hour, the oldest for 2 h"
    assert any(late in one["what"] for one in told.found("waiting"))


async def test_a_locked_table_holds_nothing_up(
    dsn: str, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = await connect()
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("LOCK TABLE quota_outbox IN ACCESS EXCLUSIVE MODE")
    started = monotonic_seconds()
    told = await call(dsn, capsys)
    assert monotonic_seconds() - started < 10
    await transaction.rollback()
    (unread,) = told.found("unread")
    assert "outbox, channels: A lock was not free in time" in unread["what"]
    assert told.found("owners")  # what comes after it is looked at all the same
    assert told.code == 0


async def test_the_schema_of_another_version(
    dsn: str, conn: Connection, new_database: NewDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (await call(await new_database(), capsys)).off() >= {("schema", "fault")}
    await conn.execute("ALTER FUNCTION quota_forecast RENAME TO quota_forecast_gone")
    told = await call(dsn, capsys)
    assert told.found("schema")[0]["what"].endswith("missing from the schema: quota_forecast")
    await conn.execute(
        "CREATE FUNCTION quota_forecast() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$"
    )
    told = await call(dsn, capsys)
    assert ("schema", "warning") in told.off()
    assert told.found("schema")[0]["what"].endswith("another version's: quota_forecast")
    assert told.found("ticks")  # it is looked at all the same
    await conn.execute("DELETE FROM quota_migrations WHERE name LIKE '0009%'")
    told = await call(dsn, capsys)
    assert "lacks 0009_diagnosis" in told.found("schema")[0]["what"]
    assert told.found("ticks") == []  # what stands in tables of an older version isn't judged
    # nor is an administrator sent for what migrate brings
    await conn.execute("REVOKE SELECT ON tenant_limits FROM quota_worker")
    told = await call(dsn, capsys)
    assert ("roles", "warning") in told.off()
    assert told.document["roles_sql"] is None
    await conn.execute("GRANT SELECT ON tenant_limits TO quota_worker")
    await conn.execute("INSERT INTO quota_migrations (name, checksum) VALUES ('0999_x', '')")
    told = await call(dsn, capsys)
    assert ("schema", "warning") in told.off()
    assert "it has 0999_x" in told.found("schema")[0]["what"]


async def test_rights_and_roles(
    dsn: str, conn: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (await call(f"{dsn}&role=quota_worker", capsys)).found("unread") == []
    assert (await call(f"{dsn}&role=quota_worker", capsys)).found("rights")[0]["severity"] == "ok"
    stranger = f"nobody_{uuid.uuid4().hex[:8]}"
    await conn.execute(f"CREATE ROLE {stranger}")
    try:
        for role in ("quota_reader", "quota_gateway", stranger):
            told = await call(f"{dsn}&role={role}", capsys)
            (rights,) = told.found("rights")
            assert rights["severity"] == "fault"
            assert rights["cure"] == (
                f"psql ADMINISTRATORS_ADDRESS -c 'GRANT quota_worker TO \"{role}\"'"
            )
            (unread,) = told.found("unread")
            assert unread["cure"] == "see rights"
            assert told.code == 1
        assert told.document["roles_sql"] is None
        # a role that lacks a right itself is told with the whole script
        await conn.execute("REVOKE INSERT ON job_runs FROM quota_worker")
        told = await call(f"{dsn}&role=quota_worker", capsys)
        assert told.off() >= {("roles", "warning"), ("rights", "fault")}
        script = told.document["roles_sql"]
        assert script.endswith(Assets().read("sql/roles.sql"))
        await conn.execute(script)
        assert (await call(f"{dsn}&role=quota_worker", capsys)).found("rights")[0]["what"] == (
            "quota_worker has every right that jobs need"
        )
    finally:
        await conn.execute(f"DROP ROLE {stranger}")
    done = await quota_worker(dsn, "doctor", "--roles-sql")
    assert (done.code, done.out) == (0, script)


async def test_a_session_that_hurts(dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    hurting = (
        "default_transaction_read_only=on&default_transaction_isolation=serializable"
        "&synchronous_commit=off&statement_timeout=4000"
    )
    told = await call(f"{dsn}&{hurting}", capsys)
    assert told.off() >= {("writable", "fault"), ("session", "warning")}
    assert len(told.found("session")) == 2
    assert "synchronous_commit" in told.found("durability")[0]["what"]


async def test_probes(
    dsn: str, conn: Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await conn.execute("INSERT INTO tenant_limits (tenant_id) VALUES ('acme')")
    await conn.execute("INSERT INTO department_budgets (department_id) VALUES ('sales')")
    feishu = FeishuServer(secret="s3cr3t")  # noqa: S106  looked for where it must not be
    await feishu.start()
    (tmp_path / "c.toml").write_text(
        '[channels.ops]\nkind = "feishu-webhook"\nurl = { env = "OPS" }\nsecret = { env = "SIGN" }\n'
        '[channels.chat]\nkind = "im-bot"\ngroup = "g"\ncommand = ["no-such-imbot"]\n'
        '[channels.mail]\nkind = "email"\nhost = "localhost"\nport = 1\nsender = "q@example.com"\n'
        '[default]\nchannels = ["chat"]\n'
        '[[routes]]\ndepartment = "sales"\nseverity = "warning"\nchannels = ["ops"]\n'
    )
    try:
        told = await call(
            *(dsn, capsys, "--probe", "--config", str(tmp_path / "c.toml")),
            OPS=feishu.url,
            SIGN="s3cr3t",
        )
    finally:
        await feishu.stop()
    assert feishu.titles() == ["[quota-test] a test of the channel ops"]
    bad, good = told.found("probe")
    assert bad["severity"] == "fault"
    assert "a test on chat was not sent" in bad["what"]
    assert "of the channel (QUOTA_WORKER_IMBOT_COMMAND" in bad["cure"]
    assert good["what"] == "1 test sent: ops"
    (routes,) = told.found("routes")
    assert "about the tenant acme" in routes["what"]
    (owners,) = told.found("owners")
    assert (owners["severity"], "sales" in owners["what"]) == ("warning", True)


async def test_what_can_not_be_asked_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text(
        '[channels.ops]\nkind = "webhok"\n[default]\nchannels = ["op"]\n'
    )
    told = await call(
        *("postgresql://127.0.0.1:1/none", capsys, "--config", str(tmp_path / "c.toml")),
        QUOTA_WORKER_HEARTBEAT_URL="http://h.example/s3cr3t",
    )
    assert told.code == 1
    assert told.off() == {
        ("database", "fault"),
        ("configuration", "fault"),
        ("heartbeat", "fault"),
    }
    assert len(told.found("configuration")) == 2


async def test_a_connection_that_breaks_while_doctor_looks(
    dsn: str, conn: Connection, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect_and_break(*arguments: Any) -> Connection:
        opened = await connect_as_worker(*arguments)
        await conn.execute("SELECT pg_terminate_backend($1)", opened.get_server_pid())
        return opened

    monkeypatch.setattr("worker.postgres.pool.connect", connect_and_break)
    told = await call(dsn, capsys)
    assert told.off() >= {("database", "fault")}
    assert told.code == 1
