-- Leases to the caller what one channel should send next: a message, or several for one digest, under one token.
--
-- The most urgent that is due, then the oldest. Due: pending with its next attempt not in the future; then, when no
-- such is left, sending with an expired lease (its worker is lost; whether it had sent is unknown, so it is sent
-- again; from the third loss on after a wait, so that what kills its worker holds up nobody else).
-- digest_key: these go out as the digest of that id, again. Otherwise more than one row: with over p_digest_over
-- waiting for this recipient, at most p_limit of them in one language, and what waits for a digest only; the caller
-- says with quota_outbox_keep how many fit. overdue: given up after 24 h, not to be sent. p_quiet as in quota_quiet:
-- only urgency 0 then. p_channel NULL takes what lies for over an hour on any channel but those of p_served.
-- Commit before sending: only the lease token, not a row lock, carries the claim. Two callers get different rows.
-- Takes row locks with SKIP LOCKED only, so it never waits.
CREATE OR REPLACE FUNCTION quota_outbox_claim(
    p_channel text, p_served text[], p_digest_over int, p_limit int, p_lease_seconds int DEFAULT 60,
    p_quiet jsonb DEFAULT NULL, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (outbox_id bigint, lease_token uuid, kind text, channel text, recipient text, severity text, locale text,
               facts text, attempt int, dedupe_key text, created_at timestamptz, is_fallback boolean,
               digest_key text, overdue boolean)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_urgency smallint := CASE WHEN quota_quiet(p_quiet, v_now) THEN 0 ELSE 32767 END;
    v_top     quota_outbox%ROWTYPE;
    v_ids     bigint[];
    v_digest  text;
    v_token   uuid := gen_random_uuid();
    v_waiting int;
BEGIN
    -- lost before it was known what would go into its request: never sent, so collected anew; the second time alone
    UPDATE quota_outbox o
       SET state = CASE WHEN o.digest_only AND o.lost_workers < 1 THEN 'stale' ELSE 'pending' END,
           lease_token = NULL, lease_until = NULL, lost_workers = o.lost_workers + 1,
           request_key = CASE WHEN o.lost_workers >= 1 THEN o.dedupe_key END,
           last_failure = 'worker_lost', last_detail = NULL, failed_at = v_now
     WHERE o.outbox_id IN (SELECT l.outbox_id FROM quota_outbox l
                            WHERE l.state = 'sending' AND quota_outbox_ready(l.lease_until, v_now) AND l.request_key IS NULL
                              AND l.channel = p_channel
                              FOR UPDATE SKIP LOCKED);

    -- not sent before its period ended: said as past; below 100 % in a digest only, where this channel has any
    UPDATE quota_outbox o
       SET facts = o.facts || '{"past": true}',
           digest_only = o.urgency > 0 AND p_digest_over IS NOT NULL,
           state = CASE WHEN o.urgency > 0 AND p_digest_over IS NOT NULL THEN 'stale' ELSE 'pending' END
     WHERE o.outbox_id IN (SELECT l.outbox_id FROM quota_outbox l
                            WHERE l.state = 'pending' AND l.attempts = 0 AND l.told_until <= v_now
                              AND l.channel = p_channel AND l.fallback_of IS NULL AND NOT l.digest_only
                              AND l.facts @> '{"past": false}'
                              FOR UPDATE SKIP LOCKED);

    SELECT o.* INTO v_top FROM quota_outbox o
     WHERE o.state = 'pending' AND quota_outbox_ready(o.next_attempt_at, v_now) AND o.urgency <= v_urgency
       AND CASE WHEN p_channel IS NOT NULL THEN o.channel = p_channel
                ELSE o.channel <> ALL (p_served) AND o.created_at <= v_now - interval '1 hour' END
     ORDER BY o.channel, o.urgency, o.created_at, o.outbox_id
     LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        SELECT o.* INTO v_top FROM quota_outbox o
         WHERE o.state = 'sending' AND quota_outbox_ready(o.lease_until, v_now) AND o.urgency <= v_urgency
           AND (o.lost_workers < 2 OR o.lease_until + quota_outbox_wait(o.attempts) <= v_now)
           AND CASE WHEN p_channel IS NOT NULL THEN o.channel = p_channel
                    ELSE o.channel <> ALL (p_served) AND o.created_at <= v_now - interval '1 hour' END
         ORDER BY o.urgency, o.created_at, o.outbox_id
         LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;

    IF v_top.request_key <> v_top.dedupe_key AND NOT (v_top.state = 'sending' AND v_top.lost_workers >= 2) THEN
        v_digest := v_top.request_key;
        v_ids := ARRAY(
            SELECT o.outbox_id FROM quota_outbox o
             WHERE o.request_key = v_digest
               AND (o.state = 'pending' OR o.state = 'sending' AND quota_outbox_ready(o.lease_until, v_now))
             ORDER BY o.outbox_id FOR UPDATE SKIP LOCKED);
        -- another worker is at it: two parts of one digest under one id, and a service that knows ids drops the second
        IF EXISTS (SELECT FROM quota_outbox o
                    WHERE o.request_key = v_digest AND o.outbox_id <> ALL (v_ids)
                      AND (o.state = 'pending' OR o.state = 'sending' AND quota_outbox_ready(o.lease_until, v_now))) THEN
            RETURN;
        END IF;
    ELSIF v_top.request_key IS NULL AND p_channel IS NOT NULL AND p_digest_over IS NOT NULL THEN
        SELECT count(*) INTO v_waiting
          FROM (SELECT FROM quota_outbox o
                 WHERE o.state = 'pending' AND o.channel = v_top.channel AND quota_outbox_ready(o.next_attempt_at, v_now)
                   AND o.urgency <= v_urgency AND o.request_key IS NULL
                   AND o.recipient IS NOT DISTINCT FROM v_top.recipient
                 LIMIT p_digest_over + 1) w;
        IF v_waiting > p_digest_over OR v_top.digest_only THEN
            v_ids := ARRAY(
                SELECT o.outbox_id FROM quota_outbox o
                 WHERE o.state = 'pending' AND o.channel = v_top.channel AND quota_outbox_ready(o.next_attempt_at, v_now)
                   AND o.urgency <= v_urgency AND o.request_key IS NULL
                   AND o.recipient IS NOT DISTINCT FROM v_top.recipient AND o.locale = v_top.locale
                 ORDER BY o.channel, o.urgency, o.created_at, o.outbox_id
                 LIMIT p_limit FOR UPDATE SKIP LOCKED)
                || ARRAY(
                SELECT o.outbox_id FROM quota_outbox o
                 WHERE o.state = 'stale' AND o.digest_only AND o.channel = v_top.channel
                   AND o.recipient IS NOT DISTINCT FROM v_top.recipient AND o.locale = v_top.locale
                 ORDER BY o.channel, o.created_at
                 LIMIT p_limit FOR UPDATE SKIP LOCKED);
        END IF;
    END IF;
    v_ids := coalesce(v_ids, ARRAY[v_top.outbox_id]);

    RETURN QUERY
    WITH claimed AS (
        UPDATE quota_outbox o
           SET state = 'sending', lease_token = v_token, lease_until = v_now + make_interval(secs => p_lease_seconds),
               attempts = o.attempts + 1, first_attempt_at = coalesce(o.first_attempt_at, v_now),
               request_key = CASE WHEN v_digest IS NOT NULL THEN v_digest
                                  WHEN cardinality(v_ids) = 1 THEN o.dedupe_key END,
               key_stays = o.key_stays OR o.state = 'sending' AND o.request_key IS NOT NULL,
               lost_workers = o.lost_workers + (o.state = 'sending')::int,
               last_failure = CASE WHEN o.state = 'sending' THEN 'worker_lost' ELSE o.last_failure END,
               last_detail = CASE WHEN o.state = 'sending' THEN NULL ELSE o.last_detail END,
               failed_at = CASE WHEN o.state = 'sending' THEN v_now ELSE o.failed_at END
         WHERE o.outbox_id = ANY (v_ids)
        RETURNING o.*
    )
    SELECT c.outbox_id, v_token, c.kind, c.channel, c.recipient, c.severity, c.locale, c.facts::text, c.attempts,
           c.dedupe_key, c.created_at, c.fallback_of IS NOT NULL, v_digest,
           v_top.state = 'sending' AND c.first_attempt_at <= v_now - interval '24 hours'
      FROM claimed c
     ORDER BY c.digest_only, c.urgency, c.created_at, c.outbox_id;
END
$$;
