"""The server, the session on it, the schema, the rights, the clocks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.doctor.finding import FAULT, NOTE, WARNING, Finding, named, ok, one_line, quoted, span

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from worker.doctor.facts import RightsFacts, SchemaFacts, ServerFacts, ZoneFacts

# Whoever may grant: rarely the user that the worker logs in as.
ADMINISTRATOR: Final = "ADMINISTRATORS_ADDRESS"
PSQL: Final = f"psql {ADMINISTRATOR}"
OLDEST_MAJOR: Final = 15
NEWEST_MAJOR: Final = 18
SKEW_WARNING_SECONDS: Final = 30.0
SKEW_FAULT_SECONDS: Final = 300.0
CONNECTIONS_WARNING: Final = 0.9
STATEMENT_SECONDS_MIN: Final = 60
MILLISECONDS: Final = 1000
DEFAULT_ISOLATION: Final = "read committed"
# A month's adjustments go back so far, and rules are made known so early.
DAYS_BACK: Final = 400
DAYS_AHEAD: Final = 700
INSTANT_HOURS: Final = 12


def version(server: ServerFacts) -> list[Finding]:
    """Too old a server was refused before: see `worker.postgres.pool`."""
    major = server.version_number // 10_000
    if major > NEWEST_MAJOR:
        return [
            Finding(
                "version",
                WARNING,
                f"PostgreSQL {server.version} is newer than those that this quota-worker was "
                f"tested with ({OLDEST_MAJOR} to {NEWEST_MAJOR})",
                "pip install -U quota-worker",
            )
        ]
    return ok("version", f"PostgreSQL {server.version}")


def writable(server: ServerFacts) -> list[Finding]:
    """Whether the session may write at all."""
    if server.standby:
        return [
            Finding(
                "writable",
                FAULT,
                "the server is a standby: it takes no writes",
                "POSTGRES_DSN='postgresql://PRIMARY,STANDBY/"
                f"{one_line(server.database)}?target_session_attrs=read-write'",
            )
        ]
    if server.settings.get("default_transaction_read_only") == "on":
        return [
            Finding(
                "writable",
                FAULT,
                "default_transaction_read_only is on for this user, database or server",
                # the administrator's own session may be read-only, too
                f"{PSQL} -c 'SET default_transaction_read_only = off' "
                f"-c 'ALTER ROLE {quoted(server.user_name)} "
                "SET default_transaction_read_only = off'",
            )
        ]
    return ok("writable", "the server takes writes")


def durability(server: ServerFacts) -> list[Finding]:
    """Settings with which a crash loses charges that were answered with ok."""
    off = [
        name
        for name in ("fsync", "full_page_writes", "synchronous_commit")
        if server.settings.get(name) == "off"
    ]
    found = [
        Finding(
            "durability",
            WARNING,
            f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off: a crash of the server "
            "loses charges that were answered with ok"
            + (", or the whole database" if "fsync" in off else ""),
            "; ".join(f"{PSQL} -c 'ALTER SYSTEM SET {name} = on'" for name in off)
            + f"; {PSQL} -c 'SELECT pg_reload_conf()'; then see ALTER ROLE and ALTER DATABASE "
            "for it",
        )
    ] * bool(off)
    if server.careless_users and "synchronous_commit" not in off:
        found.append(
            Finding(
                "durability",
                WARNING,
                f"synchronous_commit is off for {named(server.careless_users)}: a crash of the "
                "server loses the charges of its last second",
                f"{PSQL} -c 'ALTER ROLE NAME RESET synchronous_commit'",
            )
        )
    return found or ok("durability", "commits are on the disk before they are answered")


def session(server: ServerFacts) -> list[Finding]:
    """Settings of this user that get in the worker's way."""
    found = []
    user = quoted(server.user_name)
    isolation = server.settings.get("default_transaction_isolation", DEFAULT_ISOLATION)
    if isolation != DEFAULT_ISOLATION:
        found.append(
            Finding(
                "session",
                WARNING,
                f"default_transaction_isolation is {one_line(isolation)}: calls of one tenant at "
                "once fail with 40001",
                f"{PSQL} -c 'ALTER ROLE {user} RESET default_transaction_isolation'",
            )
        )
    limit = int(server.settings.get("statement_timeout") or 0)
    if 0 < limit < STATEMENT_SECONDS_MIN * MILLISECONDS:
        found.append(
            Finding(
                "session",
                WARNING,
                f"statement_timeout is {limit:,} ms: roll_month and audit may need minutes",
                f"{PSQL} -c 'ALTER ROLE {user} SET statement_timeout = 0'",
            )
        )
    encoding = server.settings.get("server_encoding", "UTF8")
    if encoding != "UTF8":
        found.append(
            Finding(
                "session",
                WARNING,
                f"the database's encoding is {one_line(encoding)}: it can't hold every name",
                "createdb --encoding UTF8 --template template0 NEW, then dump and restore",
            )
        )
    return found or ok("session", "this user's settings suit the ledger")


def pooler(server: ServerFacts, listen_dsn: str | None) -> list[Finding]:
    """Whether a pooler lies in between, which `schedule` can't listen through."""
    if not server.pooled:
        return ok("pooler", "the connection is direct")
    if listen_dsn is not None:
        return ok("pooler", "a pooler lies in between, and schedule has an address of its own")
    return [
        Finding(
            "pooler",
            NOTE,
            "a pooler such as pgbouncer lies in between: schedule looks for crossings each second "
            "instead of listening; ticks need nothing else",
            "export QUOTA_WORKER_LISTEN_DSN=postgresql://HOST:5432/"
            f"{one_line(server.database)}?user=NAME, a direct address",
        )
    ]


def connections(server: ServerFacts) -> list[Finding]:
    """Whether the server has room for more."""
    what = f"{server.connections} of {server.connections_max} connections are taken"
    if server.connections < CONNECTIONS_WARNING * server.connections_max:
        return ok("connections", what)
    return [
        Finding(
            "connections",
            WARNING,
            f"{what}: a tick needs up to 4, schedule 5",
            'psql "$POSTGRES_DSN" -c \'SELECT usename, application_name, state, count(*) FROM '
            "pg_stat_activity "
            "GROUP BY 1, 2, 3 ORDER BY 4 DESC'; close what idles, or raise max_connections",
        )
    ]


def schema(
    server: ServerFacts,
    found: SchemaFacts | None,
    migrations: Sequence[str],
    functions: Collection[tuple[str, str]],
    embedded_home: str | None = None,
) -> list[Finding]:
    """Whether the database is at the version of this program, whose `migrations` these are.

    `embedded_home`: the embedded server's folder, where POSTGRES_DSN names no other.
    """
    if server.schema_name is None or found is None:
        what = "there is no ledger in this database" + (
            "" if server.schema_name is None else ": a tutorial's tables, not taken over yet"
        )
        cure = "quota-worker migrate"
        if embedded_home is not None:
            what += "; no POSTGRES_DSN is set, so it is the embedded server's in "
            what += one_line(embedded_home)
            cure = f"set POSTGRES_DSN; or, if you mean the embedded server, {cure}"
        return [Finding("schema", FAULT, what, cure)]
    newer = sorted(set(found.migrations) - set(migrations))
    if newer:
        # migrations only add: an older program goes on working beside a newer one
        what = f"the schema is newer than this program: it has {named(newer)}"
        return [Finding("schema", WARNING, what, "pip install -U quota-worker")]
    missing = sorted(set(migrations) - set(found.migrations))
    if missing:
        what = f"the schema is older than this program: it lacks {named(missing)}"
        return [Finding("schema", FAULT, what, "quota-worker migrate")]
    there = {name for name, _ in found.functions}
    other = sorted({name for name, _ in set(functions) - found.functions})
    absent = [name for name in other if name not in there]
    if absent:
        what = f"functions are missing from the schema: {named(absent)}"
        return [Finding("schema", FAULT, what, "quota-worker migrate")]
    if other:
        what = f"functions are another version's: {named(other)}"
        return [
            Finding(
                "schema", WARNING, what, "quota-worker migrate, of the newer of the two versions"
            )
        ]
    return ok("schema", f"schema {one_line(server.schema_name)} is at {found.migrations[-1]}")


def rights(server: ServerFacts, found: RightsFacts) -> list[Finding]:
    """What the connected user lacks, and whether the roles are there."""
    told = []
    admin = f"quota-worker doctor --roles-sql | psql -v ON_ERROR_STOP=1 {ADMINISTRATOR}"
    if found.missing_roles:
        told.append(
            Finding("roles", WARNING, f"there is no role {named(found.missing_roles)}", admin)
        )
    elif found.role_lacks:
        told.append(
            Finding(
                "roles", WARNING, f"the role quota_worker lacks {named(found.role_lacks)}", admin
            )
        )
    else:
        told += ok("roles", "quota_gateway, quota_worker and quota_reader have their rights")
    if not found.lacks:
        return told + ok("rights", f"{one_line(server.user_name)} has every right that jobs need")
    user = quoted(server.user_name)
    what = f"{one_line(server.user_name)} lacks rights on {named(found.lacks)}"
    if found.missing_roles or found.role_lacks:
        cure = f"{admin}; then {PSQL} -c 'GRANT quota_worker TO {user}'"
    elif found.is_member:
        cure = f"{PSQL} -c 'ALTER ROLE {user} INHERIT'; from PostgreSQL 16 on "
        cure += f"{PSQL} -c 'GRANT quota_worker TO {user} WITH INHERIT TRUE'"
    else:
        cure = f"{PSQL} -c 'GRANT quota_worker TO {user}'"
    return [*told, Finding("rights", FAULT, what, cure)]


def clock(skew_seconds: float) -> list[Finding]:
    """How far this machine's clock is ahead of the database's."""
    off = abs(skew_seconds)
    if off <= SKEW_WARNING_SECONDS:
        return ok("clock", "this machine's clock and the database's agree")
    where = "ahead of" if skew_seconds > 0 else "behind"
    return [
        Finding(
            "clock",
            FAULT if off > SKEW_FAULT_SECONDS else WARNING,
            f"this machine's clock is {span(off)} {where} the database's: signatures of messages "
            "are refused, and times in them are wrong; limits go by the database's",
            "timedatectl set-ntp true; timedatectl; on both machines",
        )
    ]


def instants(now: datetime) -> list[datetime]:
    """When the zone's rules are compared: a day each, back and ahead."""
    from datetime import timedelta

    begin = now.replace(hour=INSTANT_HOURS, minute=0, second=0, microsecond=0)
    return [begin + timedelta(days=day) for day in range(-DAYS_BACK, DAYS_AHEAD)]


def zone(found: ZoneFacts) -> list[Finding]:
    """The billing zone: known to Python, and the same in the settings and the functions."""
    from worker.periods import load_zone, near_zone

    name = found.billing_zone
    if found.functions_zone != name:
        return [
            Finding(
                "zone",
                FAULT,
                f"the settings say {one_line(name)}, and the functions judge by "
                f"{one_line(found.functions_zone)}",
                f"quota-worker settings set zone {one_line(found.functions_zone)}",
            )
        ]
    try:
        load_zone(name)
    except ValueError:
        near = near_zone(name)
        cure = f"quota-worker settings set zone {near}; or " if near else ""
        return [
            Finding(
                "zone",
                FAULT,
                f"this machine doesn't know the billing zone {one_line(name)}",
                f"{cure}pip install -U tzdata",
            )
        ]
    return ok("zone", f"the billing zone is {one_line(name)}")


def zone_rules(name: str, days: Sequence[datetime], database: Sequence[int]) -> list[Finding]:
    """Whether both know the same rules: `database` are its offsets on these days."""
    from worker.periods import load_zone

    here = load_zone(name)
    for day, offset in zip(days, database, strict=True):
        mine = day.astimezone(here).utcoffset()
        if mine is not None and int(mine.total_seconds()) != offset:
            return [
                Finding(
                    "zone-rules",
                    WARNING,
                    f"from {day:%Y-%m-%d} on this machine and the database have other rules for "
                    f"{one_line(name)}: reports and messages would name other hours than limits "
                    "go by",
                    "pip install -U tzdata; and on the server its package tzdata, then restart it",
                )
            ]
    return ok("zone-rules", f"both know the same rules for {one_line(name)}")
