-- Writes the outbox rows of messages whose crossings are in quota_warn_log; returns how many.
--
-- One row per message, channel and address, as quota_route says. What is for the digest only waits as stale, on the channels
-- that make any (p_routes.digests; not given: all). Rows that
-- still wait are superseded where the same recipient gets a higher threshold of each cap that they tell.
-- Runs in the caller's transaction. Locks: the outbox rows it supersedes, sorted.
CREATE OR REPLACE FUNCTION quota_warn_enqueue(p_message_keys text[], p_routes jsonb, p_now timestamptz) RETURNS int
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_written int;
BEGIN
    INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, recipient, severity, urgency, locale, facts,
                              subject_kind, subject, environment, state, digest_only, told_until,
                              next_attempt_at, created_at)
    SELECT 'qw-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', f.message_key, r.channel, r.recipient),
                                                  'UTF8')), 'hex'), 40),
           f.message_key, f.kind, r.channel, r.recipient, f.severity, f.urgency, f.locale, f.facts,
           f.facts ->> 'subject_kind', f.facts ->> 'subject', f.facts ->> 'environment',
           CASE WHEN f.for_digest THEN 'stale' ELSE 'pending' END, f.for_digest,
           (SELECT max((d.one ->> 'resets_at')::timestamptz) FROM jsonb_array_elements(f.facts -> 'dimensions') AS d (one)
             WHERE d.one @> '{"crossed": true}'),
           p_now, p_now
      FROM quota_warn_facts(p_message_keys, p_now) f
     CROSS JOIN LATERAL quota_route(p_routes, f.facts ->> 'subject_kind', f.facts ->> 'subject',
                                    f.facts ->> 'department_id', f.facts ->> 'environment', f.severity) r
     WHERE NOT f.for_digest OR p_routes -> 'digests' IS NULL OR p_routes -> 'digests' ? r.channel
     ORDER BY f.message_key, r.channel, r.recipient
    ON CONFLICT ON CONSTRAINT quota_outbox_dedupe DO NOTHING;
    GET DIAGNOSTICS v_written = ROW_COUNT;

    WITH waiting AS MATERIALIZED (
        SELECT o.outbox_id, o.message_key AS waiting_key, n.message_key
          FROM quota_outbox n
         -- by the subject, whatever the statistics of a table that has just grown say
         CROSS JOIN LATERAL (
            SELECT o.outbox_id, o.message_key, o.channel, o.recipient FROM quota_outbox o
             WHERE o.subject = n.subject AND o.subject_kind = n.subject_kind AND o.environment = n.environment
               AND o.state = 'pending' AND o.fallback_of IS NULL AND o.message_key <> n.message_key
            OFFSET 0) o
         WHERE n.message_key = ANY (p_message_keys) AND n.state = 'pending'
           AND o.channel = n.channel AND o.recipient IS NOT DISTINCT FROM n.recipient
    ), beaten AS MATERIALIZED (
        SELECT o.outbox_id, w.message_key
          FROM waiting w
          JOIN quota_outbox o ON o.outbox_id = w.outbox_id
         WHERE EXISTS (SELECT FROM quota_warn_log t
                        WHERE t.message_key = w.waiting_key AND t.state IN ('told', 'past'))
           AND NOT EXISTS (
               SELECT FROM quota_warn_log t
                WHERE t.message_key = w.waiting_key AND t.state IN ('told', 'past')
                  AND NOT EXISTS (
                      SELECT FROM quota_warn_log h
                       WHERE h.message_key = w.message_key AND h.state IN ('told', 'past')
                         AND h.dimension = t.dimension AND h.period_kind = t.period_kind
                         AND h.period_start = t.period_start AND h.threshold > t.threshold))
         ORDER BY o.outbox_id
           FOR UPDATE OF o
    )
    UPDATE quota_outbox o
       SET state = 'superseded', ended_at = p_now, superseded_by = b.message_key
      FROM beaten b
     WHERE o.outbox_id = b.outbox_id AND o.state = 'pending';
    RETURN v_written;
END
$$;
