-- Leases due messages of one channel to the caller: the most urgent first, then the oldest.
--
-- Out: one row per message; attempt counts from 1. Due: pending with its next attempt not in the future, or
-- sending with an expired lease (its worker is lost; whether it had sent is unknown, so it is sent again).
-- Commit before sending: only the lease token, not a row lock, carries the claim. Two callers get different
-- messages. p_channel NULL takes what lies for over an hour on any channel but those of p_served: nobody serves it.
-- Takes row locks only on what it returns (SKIP LOCKED), so it never waits.
CREATE OR REPLACE FUNCTION quota_outbox_claim(
    p_channel text, p_served text[], p_limit int, p_lease_seconds int DEFAULT 60, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (outbox_id bigint, lease_token uuid, kind text, channel text, severity text, locale text, facts text,
               attempt int, dedupe_key text, created_at timestamptz, is_fallback boolean)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT o.outbox_id AS id, o.state = 'sending' AS lost
          FROM quota_outbox o
         WHERE (o.state = 'pending' AND o.next_attempt_at <= v_now OR o.state = 'sending' AND o.lease_until <= v_now)
           AND CASE WHEN p_channel IS NOT NULL THEN o.channel = p_channel
                    ELSE o.channel <> ALL (p_served) AND o.created_at <= v_now - interval '1 hour' END
         ORDER BY o.urgency, o.created_at, o.outbox_id
         LIMIT p_limit
           FOR UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE quota_outbox o
           SET state = 'sending', lease_token = gen_random_uuid(),
               lease_until = v_now + make_interval(secs => p_lease_seconds), attempts = o.attempts + 1,
               first_attempt_at = coalesce(o.first_attempt_at, v_now),
               last_failure = CASE WHEN d.lost THEN 'worker_lost' ELSE o.last_failure END,
               failed_at = CASE WHEN d.lost THEN v_now ELSE o.failed_at END
          FROM due d
         WHERE o.outbox_id = d.id
        RETURNING o.*
    )
    SELECT c.outbox_id, c.lease_token, c.kind, c.channel, c.severity, c.locale, c.facts::text, c.attempts,
           c.dedupe_key, c.created_at, c.fallback_of IS NOT NULL
      FROM claimed c
     ORDER BY c.urgency, c.created_at, c.outbox_id;
END
$$;
