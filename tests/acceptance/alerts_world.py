"""An outbox with messages in every state, and what `quota-worker alerts` says of it."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from acceptance.program import quota_worker
from worker.samples import sample_facts

if TYPE_CHECKING:
    from pathlib import Path

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

CHANNELS = """
[channels.ops]
kind = "im-bot"
group = "ops"
[channels.chat]
kind = "im-bot"
group = "chat"
[channels.mail]
kind = "email"
host = "127.0.0.1"
security = "none"
sender = "quota@example.com"
to = ["ops@example.com"]
[default]
channels = ["ops", "chat", "mail"]
"""


def configured(folder: Path, more: str = "") -> dict[str, str]:
    """The variables of a program that knows the channels ops, chat and mail."""
    path = folder / "quota-worker.toml"
    path.write_text(CHANNELS + more)
    return {"QUOTA_WORKER_CONFIG": str(path)}


async def quiet_hours(conn: Connection, zone: str) -> tuple[str, str]:
    """Quiet hours for the file, from two hours ago to two hours from now; and their end, HH:MM."""
    begins, ends = await conn.fetchrow(
        "SELECT to_char(now() AT TIME ZONE $1 - interval '2 h', 'HH24:MI'),"
        "       to_char(now() AT TIME ZONE $1 + interval '2 h', 'HH24:MI')",
        zone,
    )
    return f"[quiet_hours]\nfrom = '{begins}'\nto = '{ends}'\nzone = '{zone}'\n", ends


async def put(conn: Connection, alert: str, **columns: Any) -> int:
    """One row of the outbox; `alert` is its message_key, `ago` seconds since it was made."""
    (facts,) = sample_facts(columns.pop("kind", "tenant-warn"), columns.pop("samples", "usual"))
    facts["subject"] = columns.get("subject", "acme")
    now: datetime = await conn.fetchval("SELECT clock_timestamp()")
    made = now - timedelta(seconds=columns.pop("ago", 0))
    values = {
        "dedupe_key": f"key-{alert}-{columns.get('channel', 'ops')}-{columns.get('recipient')}",
        "message_key": alert,
        "kind": f"{facts['subject_kind']}-warn",
        "channel": "ops",
        "severity": facts["severity"],
        "urgency": 0 if facts["severity"] == "exhausted" else 3,
        "facts": json.dumps(facts),
        "subject_kind": facts["subject_kind"],
        "subject": facts["subject"],
        "environment": "production",
        "next_attempt_at": made,
        "created_at": made,
    } | columns
    if values.get("state") == "sent":
        values |= {"sent_at": made, "ended_at": made}
    elif values.get("state") == "dead":
        values |= {"ended_at": made, "failed_at": made, "first_attempt_at": made}
    marks = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    outbox_id: int = await conn.fetchval(
        f"INSERT INTO quota_outbox ({', '.join(values)}) VALUES ({marks}) RETURNING outbox_id",
        *values.values(),
    )
    return outbox_id


async def sending(conn: Connection, alert: str, seconds: int, **columns: Any) -> int:
    """A row that a worker holds for so many seconds; a past number: it is lost."""
    until: datetime = await conn.fetchval("SELECT clock_timestamp()") + timedelta(seconds=seconds)
    held = {"state": "sending", "lease_token": uuid.uuid4(), "lease_until": until, "attempts": 1}
    return await put(conn, alert, **held, **columns)


async def listed(dsn: str, *arguments: str) -> dict[str, Any]:
    done = await quota_worker(dsn, "alerts", "--json", *arguments)
    assert (done.code, done.err) == (0, ""), done
    document: dict[str, Any] = json.loads(done.out)
    return document


def line_of(text: str, outbox_id: int) -> str:
    """The words after the id and the channel, in the list below the summary."""
    found = [
        line for line in text.splitlines() if line.startswith("  ") and f" {outbox_id}  " in line
    ]
    return " ".join(found[-1].split())
