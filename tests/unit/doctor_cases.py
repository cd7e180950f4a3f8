"""What doctor finds in which facts: one row for each finding, and some for what is well."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from worker.doctor import delivery, limits, machine, server, work
from worker.doctor.facts import (
    BacklogFacts,
    ChannelFacts,
    DriftFacts,
    JobFacts,
    OddFacts,
    OutboxFacts,
    RequestFacts,
    RightsFacts,
    SchemaFacts,
    ServerFacts,
    SourceFacts,
    SubjectGroup,
    TenantFacts,
    TickFacts,
    ZoneFacts,
)
from worker.doctor.finding import FAULT, NOTE, OK, WARNING, Finding
from worker.settings import ChannelSettings, DeliverySettings, RouteRule

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SETTINGS = {
    "default_transaction_read_only": "off",
    "synchronous_commit": "on",
    "fsync": "on",
    "full_page_writes": "on",
    "default_transaction_isolation": "read committed",
    "statement_timeout": "0",
    "server_encoding": "UTF8",
}
SERVER = ServerFacts(
    NOW, 180_001, "18.1", "ledger", "ann", False, "public", 3, 97, SETTINGS, (), False
)
FUNCTIONS = frozenset({("quota_reserve", "1"), ("quota_settle", "2")})
SCHEMA = SchemaFacts(("0001_ledger", "0002_alerts"), FUNCTIONS)
RIGHTS = RightsFacts((), (), (), True)
BACKLOG = BacklogFacts(NOW, 0, None, 0, None, 0, None, None, None)
OUTBOX = OutboxFacts("ops", 0, None, 0, 0, None)
NO_ODD = OddFacts((), 0)
JOB = JobFacts("deliver", "done", None, NOW, NOW)
SLOTS = {"deliver": 300}
OPS = ChannelSettings("ops", "webhook", {"url": "https://h.example"})
MAIL = ChannelSettings("mail", "email", {"to": ()})
DELIVERY = DeliverySettings(channels=(OPS,), default=RouteRule(channels=("ops",)))
CONSOLE = DeliverySettings()
GROUP = SubjectGroup("tenant", None, None, "production", 3, "acme")
OWNED = DeliverySettings(channels=(OPS, MAIL), default=RouteRule(channels=("ops",), owners="mail"))


def with_settings(**changes: str) -> ServerFacts:
    return SERVER._replace(settings=SETTINGS | changes)


def schema(found: SchemaFacts | None) -> list[Finding]:
    return server.schema(SERVER, found, ["0001_ledger", "0002_alerts"], FUNCTIONS)


def offsets(zone: str) -> list[int]:
    days = server.instants(NOW)
    return [int(day.astimezone(ZoneInfo(zone)).utcoffset().total_seconds()) for day in days]


def zone_rules(zone: str, database: str) -> list[Finding]:
    return server.zone_rules(zone, server.instants(NOW), offsets(database))


def rule(*channels: str, **conditions: tuple[str, ...]) -> RouteRule:
    return RouteRule(channels=channels, **conditions)


# What is found: its check, its severity, and words of it or of its cure.
CASES: list[tuple[list[Finding], str, str, str]] = [
    (server.version(SERVER), "version", OK, "PostgreSQL 18.1"),
    (server.version(SERVER._replace(version_number=190_000)), "version", WARNING, "newer"),
    (server.writable(SERVER), "writable", OK, "writes"),
    (server.writable(SERVER._replace(standby=True)), "writable", FAULT, "read-write"),
    (
        server.writable(with_settings(default_transaction_read_only="on")),
        "writable",
        FAULT,
        'ALTER ROLE "ann" SET default_transaction_read_only = off',
    ),
    (server.durability(SERVER), "durability", OK, "on the disk"),
    (server.durability(with_settings(synchronous_commit="off")), "durability", WARNING, "loses"),
    (server.durability(with_settings(fsync="off")), "durability", WARNING, "whole database"),
    (
        server.durability(SERVER._replace(careless_users=("gateway_1",))),
        "durability",
        WARNING,
        "off for gateway_1",
    ),
    (server.session(SERVER), "session", OK, ""),
    (
        server.session(with_settings(default_transaction_isolation="serializable")),
        "session",
        WARNING,
        "40001",
    ),
    (server.session(with_settings(statement_timeout="5000")), "session", WARNING, "5,000 ms"),
    (server.session(with_settings(server_encoding="LATIN1")), "session", WARNING, "LATIN1"),
    (server.pooler(SERVER, None), "pooler", OK, "direct"),
    (server.pooler(SERVER._replace(pooled=True), None), "pooler", NOTE, "QUOTA_WORKER_LISTEN_DSN"),
    (server.pooler(SERVER._replace(pooled=True), "postgresql://h"), "pooler", OK, "of its own"),
    (server.connections(SERVER), "connections", OK, "3 of 97"),
    (server.connections(SERVER._replace(connections=90)), "connections", WARNING, "90 of 97"),
    (server.clock(12.0), "clock", OK, "agree"),
    (server.clock(-31.0), "clock", WARNING, "31 s behind"),
    (server.clock(3600.0), "clock", FAULT, "60 min ahead of"),
    (schema(SCHEMA), "schema", OK, "at 0002_alerts"),
    (schema(None), "schema", FAULT, "not taken over yet"),
    (
        server.schema(SERVER._replace(schema_name=None), None, [], FUNCTIONS),
        "schema",
        FAULT,
        "there is no ledger",
    ),
    (
        server.schema(SERVER._replace(schema_name=None), None, [], FUNCTIONS, "/data"),
        "schema",
        FAULT,
        "no POSTGRES_DSN is set, so it is the embedded server's in /data",
    ),
    (schema(SCHEMA._replace(migrations=("0001_ledger",))), "schema", FAULT, "lacks 0002_alerts"),
    (
        schema(SCHEMA._replace(migrations=(*SCHEMA.migrations, "0099_later"))),
        "schema",
        WARNING,
        "pip install -U",
    ),
    (
        schema(SCHEMA._replace(functions=frozenset({("quota_reserve", "1")}))),
        "schema",
        FAULT,
        "missing from the schema: quota_settle",
    ),
    (
        schema(
            SCHEMA._replace(functions=FUNCTIONS - {("quota_settle", "2")} | {("quota_settle", "0")})
        ),
        "schema",
        WARNING,
        "another version's: quota_settle",
    ),
    (server.rights(SERVER, RIGHTS), "rights", OK, "every right"),
    (server.rights(SERVER, RIGHTS), "roles", OK, ""),
    (
        server.rights(SERVER, RIGHTS._replace(missing_roles=("quota_reader",))),
        "roles",
        WARNING,
        "--roles-sql",
    ),
    (
        server.rights(SERVER, RIGHTS._replace(role_lacks=("quota_blocks",))),
        "roles",
        WARNING,
        "quota_blocks",
    ),
    (
        server.rights(SERVER, RIGHTS._replace(lacks=("job_runs",), is_member=False)),
        "rights",
        FAULT,
        "psql ADMINISTRATORS_ADDRESS -c 'GRANT quota_worker TO \"ann\"'",
    ),
    (
        server.rights(SERVER, RIGHTS._replace(lacks=("job_runs",))),
        "rights",
        FAULT,
        "WITH INHERIT TRUE",
    ),
    (
        server.rights(
            SERVER, RIGHTS._replace(lacks=("job_runs",), missing_roles=("quota_worker",))
        ),
        "rights",
        FAULT,
        "--roles-sql | psql",
    ),
    (server.zone(ZoneFacts("Asia/Shanghai", "Asia/Shanghai")), "zone", OK, "Asia/Shanghai"),
    (server.zone(ZoneFacts("Asia/Shanghai", "UTC")), "zone", FAULT, "settings set zone UTC"),
    (server.zone(ZoneFacts("Asia/Shangai", "Asia/Shangai")), "zone", FAULT, "zone Asia/Shanghai"),
    (zone_rules("Asia/Shanghai", "Asia/Shanghai"), "zone-rules", OK, "same rules"),
    (zone_rules("Europe/Berlin", "Africa/Lagos"), "zone-rules", WARNING, "tzdata"),
    (limits.tenants(TenantFacts(2, 3, 0, None)), "tenants", OK, "2 of 3 tenants"),
    (limits.tenants(TenantFacts(0, 3, 0, None)), "tenants", NOTE, "nobody is refused"),
    (limits.tenants(TenantFacts(0, 0, 0, None)), "tenants", NOTE, "unknown_tenant"),
    (limits.tenants(TenantFacts(2, 3, 0, None)), "budgets", OK, ""),
    (limits.tenants(TenantFacts(2, 3, 1, "ac\nme")), "budgets", NOTE, "such as ac me"),
    (limits.odd(NO_ODD, NO_ODD), "limits", OK, ""),
    (
        limits.odd(OddFacts((("acme", "", "soft_warn_pct is 500"),), 9), NO_ODD),
        "limits",
        WARNING,
        "9 odd limits of tenants: acme: soft_warn_pct is 500 and 8 more",
    ),
    (
        limits.odd(NO_ODD, OddFacts((("d", "test", "its percents are 90, 75, 98"),), 1)),
        "limits",
        WARNING,
        "d (test): its percents",
    ),
    (limits.tiers(NO_ODD), "tiers", OK, ""),
    (limits.tiers(OddFacts((("d", "test", ""),), 1)), "tiers", NOTE, "saves money, not tokens"),
    (work.drift(DriftFacts(True, 0)), "drift", OK, "audit"),
    (work.drift(DriftFacts(False, 2)), "drift", WARNING, "2 days of tenants"),
    (work.ticks(TickFacts(NOW, NOW - HOUR / 6, False), enforcing=True), "ticks", OK, "10 min ago"),
    (work.ticks(TickFacts(NOW, NOW - HOUR, True), enforcing=True), "ticks", OK, ""),
    (work.ticks(TickFacts(NOW, NOW - HOUR, False), enforcing=True), "ticks", FAULT, "60 min"),
    (work.ticks(TickFacts(NOW, None, False), enforcing=True), "ticks", WARNING, "install --kind"),
    (work.ticks(TickFacts(NOW, None, False), enforcing=False), "ticks", NOTE, "install --kind"),
    (work.jobs([JOB], SLOTS, NOW), "jobs", OK, ""),
    (
        work.jobs([JOB._replace(outcome="failed", error="a\nb")], SLOTS, NOW),
        "jobs",
        WARNING,
        "deliver fails (last done 0 s ago): a b",
    ),
    (
        work.jobs([JOB._replace(outcome="failed", done_at=NOW - 2 * HOUR)], SLOTS, NOW),
        "jobs",
        FAULT,
        "last done 2 h ago",
    ),
    (
        work.jobs(
            [JOB._replace(outcome="failed", done_at=None, first_at=NOW - 2 * HOUR)], SLOTS, NOW
        ),
        "jobs",
        FAULT,
        "no run on record was done",
    ),
    (
        work.jobs([JOB._replace(outcome="unfinished", done_at=NOW - 2 * HOUR)], SLOTS, NOW),
        "jobs",
        WARNING,
        "leaves work",
    ),
    (work.jobs([JOB._replace(outcome="unfinished")], SLOTS, NOW), "jobs", OK, ""),
    (work.backlog(BACKLOG), "overdue", OK, ""),
    (work.backlog(BACKLOG._replace(overdue=4)), "overdue", WARNING, "run reconcile"),
    (work.backlog(BACKLOG._replace(inbox=1, inbox_since=NOW - HOUR / 2)), "inbox", OK, "1 row"),
    (
        work.backlog(BACKLOG._replace(inbox=2, inbox_since=NOW - 2 * HOUR)),
        "inbox",
        WARNING,
        "2 rows",
    ),
    (work.backlog(BACKLOG), "unpriced", OK, ""),
    (work.backlog(BACKLOG._replace(unpriced=2)), "unpriced", WARNING, "price unpriced"),
    (work.backlog(BACKLOG), "crossings", OK, ""),
    (work.backlog(BACKLOG._replace(crossed_at=NOW - HOUR)), "crossings", WARNING, "run soft_warn"),
    (work.backlog(BACKLOG), "months", OK, ""),
    (work.backlog(BACKLOG._replace(unclosed=date(2026, 9, 1))), "months", WARNING, "2026-09"),
    (work.requests(RequestFacts(0, 0, 0)), "unreserved", OK, "0 of"),
    (work.requests(RequestFacts(19, 19, 19)), "unreserved", OK, ""),
    (work.requests(RequestFacts(1000, 60, 10)), "unreserved", WARNING, "6% of"),
    (work.requests(RequestFacts(1000, 60, 10)), "usage-missing", OK, "10 of"),
    (work.requests(RequestFacts(1000, 60, 500)), "usage-missing", WARNING, "50% of"),
    (work.sources([], configured=True), "sources", OK, ""),
    (
        work.sources([SourceFacts("log", 3, 2, "no_figures")], configured=True),
        "sources",
        WARNING,
        "source faults log",
    ),
    (work.disk("/data", 2**40), "disk", OK, ""),
    (work.disk("/data", 2**30), "disk", WARNING, "1,024 MB"),
    (work.disk("/data", 2**20), "disk", FAULT, "1 MB"),
    (work.dead([OUTBOX], NOW), "dead", OK, ""),
    (
        work.dead([OUTBOX._replace(dead=2, dead_since=NOW - 3 * HOUR)], NOW),
        "dead",
        WARNING,
        "2 messages on ops given up, the oldest 3 h old",
    ),
    (
        work.waiting([OUTBOX._replace(waiting=1, waiting_since=NOW)], ["ops"], NOW),
        "waiting",
        OK,
        "1 message on",
    ),
    (
        work.waiting([OUTBOX._replace(waiting=1, waiting_since=NOW)], ["mail"], NOW),
        "waiting",
        WARNING,
        "isn't configured here",
    ),
    (
        work.waiting(
            [OUTBOX._replace(waiting=3, waiting_since=NOW - 4 * HOUR, overdue=2)], ["ops"], NOW
        ),
        "waiting",
        WARNING,
        "2 messages on ops waited for over an hour, the oldest for 4 h",
    ),
    (
        work.waiting([OUTBOX._replace(waiting=100_000, waiting_since=NOW)], ["ops"], NOW),
        "waiting",
        WARNING,
        "100,000 messages",
    ),
    (machine.configuration(DELIVERY, []), "configuration", OK, "variables"),
    (machine.configuration(None, ["a is wrong"]), "configuration", FAULT, "a is wrong"),
    (
        machine.configuration(DELIVERY._replace(channels=(OPS, MAIL)), []),
        "configuration",
        NOTE,
        "used by nothing: mail",
    ),
    (machine.variables([]), "variables", OK, ""),
    (machine.variables(["QUOTA_WORKER_X is not known"]), "variables", NOTE, "is not known"),
    (machine.heartbeat(None, is_set=True), "heartbeat", OK, ""),
    (machine.heartbeat(None, is_set=False), "heartbeat", NOTE, "hc-ping"),
    (machine.heartbeat("X is wrong", is_set=True), "heartbeat", FAULT, "X is wrong"),
    (delivery.console_only(DELIVERY, attended=False), "console-only", OK, "ops"),
    (delivery.console_only(CONSOLE, attended=False), "console-only", WARNING, "stderr only"),
    (delivery.console_only(CONSOLE, attended=True), "console-only", NOTE, "channel list"),
    (delivery.channels(DELIVERY, []), "channels", OK, "ops"),
    (
        delivery.channels(DELIVERY, [ChannelFacts("ops", NOW - HOUR, NOW, "timeout")]),
        "channels",
        WARNING,
        "channel test ops",
    ),
    (
        delivery.channels(DELIVERY, [ChannelFacts("ops", NOW, NOW - HOUR, "timeout")]),
        "channels",
        OK,
        "",
    ),
    (delivery.probes([delivery.ProbeResult("ops", "", None, "")]), "probe", OK, "1 test sent"),
    (
        delivery.probes([delivery.ProbeResult("mail", " to a@b.example", "no", "do it")]),
        "probe",
        FAULT,
        "mail to a@b.example was not sent: no",
    ),
    (delivery.routes(DELIVERY, [GROUP], []), "routes", OK, ""),
    (delivery.routes(DELIVERY, [GROUP], ["ops"]), "routes", WARNING, "3 tenants of production"),
    (
        delivery.routes(
            DELIVERY._replace(
                rules=(rule("console", tenants=("acme",), severities=("warning", "exhausted")),)
            ),
            [GROUP, GROUP._replace(tenant="acme", subjects=1)],
            [],
        ),
        "routes",
        WARNING,
        "of warning and exhausted alerts, about the tenant acme",
    ),
    (
        delivery.routes(
            OWNED._replace(default=rule("console")._replace(owners="mail")),
            [SubjectGroup("department", None, None, "test", 2, "d")],
            [],
        ),
        "routes",
        OK,
        "",
    ),
    (delivery.owners(OWNED, [], []), "owners", OK, ""),
    (delivery.owners(DELIVERY, [("d", "test")], []), "owners", OK, ""),
    (delivery.owners(OWNED, [("d", "test")], []), "owners", NOTE, "no owner or finance address: d"),
    (delivery.owners(OWNED, [("d", "test")], ["ops"]), "owners", WARNING, "nobody else is told"),
]
