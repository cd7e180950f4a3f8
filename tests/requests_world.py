"""Ended requests by the thousand, put in as the ledger's functions leave them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sql.calls import NOON

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

# A request's estimate, and what is charged where no usage came.
IN_TOKENS, OUT_TOKENS, COST_NANOS = 100, 50, 1_000
PUT = """
INSERT INTO quota_reservations (
    tenant_id, request_id, state, period, department_id, environment,
    estimated_in_tokens, estimated_out_tokens, estimated_cost_nanos,
    charged_in_tokens, charged_out_tokens, charged_cost_nanos, usage_missing, ttl_seconds,
    admitted_at, expires_at, ended_at, requested_model, answered_model, model, app, api_key,
    usage_in_tokens, usage_out_tokens, usage_cost_nanos)
SELECT 't', gen_random_uuid()::text, CASE WHEN n <= $2 THEN 'expired' ELSE 'settled' END, $3::timestamptz::date, $7,
       'production', $8::bigint, $9::bigint, 1000,
       CASE WHEN n <= $2 THEN $8 ELSE $10::bigint END, CASE WHEN n <= $2 THEN $9 ELSE $11::bigint END,
       CASE WHEN n <= $2 THEN 1000 ELSE 700 END, n <= $2, 600, $3, $3 + interval '600 s', $3 + interval '9 s',
       $4, $4, $4, $5, $6, CASE WHEN n > $2 THEN $10 END, CASE WHEN n > $2 THEN $11 END,
       CASE WHEN n > $2 THEN 700 END
  FROM generate_series(1, $1::bigint) n
"""


async def put(conn: Connection, requests: int, missing: int = 0, **extra: Any) -> None:
    """So many ended requests, of which so many expired without usage.

    extra: model, app, key, department, at (when they were admitted); estimate and usage,
    (input, output) of each.
    """
    at: datetime = extra.get("at", NOON - timedelta(hours=1))
    await conn.execute(
        PUT,
        requests,
        missing,
        at,
        extra.get("model", "large"),
        extra.get("app", "bot"),
        extra.get("key", "k-1"),
        extra.get("department"),
        *extra.get("estimate", (IN_TOKENS, OUT_TOKENS)),
        *extra.get("usage", (80, 20)),
    )
