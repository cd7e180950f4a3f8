"""What a race's own database has beyond the program's: an order of answers, and deadlocks at commit.

`race_order` numbers the answers. A caller draws from it within its transaction, after the function
has answered and while the tenant's lock is held: the numbers are the order in which the database
decided. What the worker books from the inbox is numbered by a trigger.

One commit in ten that changed the ledger ends with SQLSTATE 40P01. Which one is drawn from the
number of the commit and the seed.
"""

from __future__ import annotations

import re
from typing import Any

import asyncpg

DEADLOCK_ONE_IN = 10
TABLES = (
    "quota_usage",
    "quota_reservations",
    "quota_usage_inbox",
    "quota_adjustments",
    "quota_monthly_totals",
)
_SET_UP = """
CREATE SEQUENCE race_order;
CREATE SEQUENCE race_commits;
CREATE SEQUENCE race_deadlocks;
CREATE TABLE race_booked (place bigint, batch xid8, inbox_id bigint, outcome text);

CREATE FUNCTION race_booked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO race_booked VALUES (nextval('race_order'), pg_current_xact_id(), NEW.inbox_id, NEW.outcome);
    RETURN NULL;
END $$;
CREATE TRIGGER race_booked AFTER UPDATE OF booked_at ON quota_usage_inbox
    FOR EACH ROW EXECUTE FUNCTION race_booked();

CREATE FUNCTION race_deadlock() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    v_transaction text := pg_current_xact_id()::text;
BEGIN
    IF current_setting('race.drawn', true) IS DISTINCT FROM v_transaction THEN
        PERFORM set_config('race.drawn', v_transaction, true);
        IF hashint8extended(nextval('race_commits'), {seed}) % {one_in} = 0 THEN
            PERFORM nextval('race_deadlocks');
            RAISE EXCEPTION USING ERRCODE = '40P01', MESSAGE = 'deadlock detected', DETAIL = 'planted by the test';
        END IF;
    END IF;
    RETURN NULL;
END $$;
"""
_TRIGGER = """
CREATE CONSTRAINT TRIGGER race_deadlock_{table} AFTER INSERT OR UPDATE ON {table}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION race_deadlock()
"""


async def set_up(conn: asyncpg.Connection[Any], seed: int) -> None:
    script = re.sub(r"\{seed\}", str(seed), _SET_UP).replace("{one_in}", str(DEADLOCK_ONE_IN))
    await conn.execute(script)
    for table in TABLES:
        await conn.execute(_TRIGGER.format(table=table))


async def drawn(conn: asyncpg.Connection[Any]) -> tuple[int, int]:
    """Commits that were drawn for, and how many of them were made to fail."""
    row = await conn.fetchrow(
        "SELECT c.last_value AS commits, CASE WHEN d.is_called THEN d.last_value ELSE 0 END AS deadlocks"
        " FROM race_commits c, race_deadlocks d"
    )
    assert row is not None
    return row["commits"], row["deadlocks"]
