-- Records a failed attempt of the messages of one request and says what becomes of them.
--
-- Out, how many: retried (pending again, all at one time; wait_seconds to it), dead (given up: the cause is permanent,
-- or 24 h have passed since the first attempt), untold (of the dead, those that no channel tells), lost (the lease is
-- another's; nothing changed). The waits: quota_outbox_wait, the last attempt at 24 h. A digest whose content was
-- refused is broken up: each goes out by itself at once, so that one spoils no other. Where the service may have
-- taken the request, at this attempt or at an earlier one, it is repeated as it was, else its messages are free to be
-- collected anew.
-- A dead message is told on the fallbacks, once each, whatever channels of it die, in this transaction: rows of their
-- own, with the same facts and the cause. p_fallbacks: [{"channel": "ops", "recipient": null}, …]; its own channel is no fallback; a message that is
-- one itself, or that has none, goes to the console.
-- p_cause is one of the closed set of quota_outbox_failure. Locks: the messages' rows, sorted. SQLSTATE: 23514 for a
-- cause outside the set; 55P03.
CREATE OR REPLACE FUNCTION quota_outbox_fail(
    p_outbox_ids bigint[], p_lease_token uuid, p_cause text, p_detail text, p_retryable boolean,
    p_fallbacks jsonb DEFAULT NULL, p_now timestamptz DEFAULT NULL,
    OUT retried int, OUT dead int, OUT untold int, OUT lost int, OUT wait_seconds double precision
) RETURNS record
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    -- the service may have taken it, though it didn't say so
    v_in_doubt constant boolean := p_cause IN ('timeout', 'unknown_answer', 'server_error', 'command_failed', 'worker_lost');
    v_now      timestamptz := coalesce(p_now, clock_timestamp());
    v_ids      bigint[];
    v_attempts int;
    v_dead     bigint[];
    v_next     timestamptz;
    v_apart    boolean;
BEGIN
    SELECT coalesce(array_agg(h.outbox_id ORDER BY h.outbox_id), '{}'), max(h.attempts),
           coalesce(array_agg(h.outbox_id) FILTER (WHERE v_now >= h.first_attempt_at + interval '24 hours'), '{}'),
           min(h.first_attempt_at) FILTER (WHERE v_now < h.first_attempt_at + interval '24 hours') + interval '24 hours'
      INTO v_ids, v_attempts, v_dead, v_next
      FROM (SELECT o.* FROM quota_outbox o
             WHERE o.outbox_id = ANY (p_outbox_ids) AND o.state = 'sending' AND o.lease_token = p_lease_token
             ORDER BY o.outbox_id FOR UPDATE) h;
    v_apart := cardinality(v_ids) > 1 AND p_cause IN ('too_large', 'rejected', 'not_rendered', 'content_refused');
    IF v_apart THEN
        v_next := v_now;
    ELSIF p_retryable THEN
        v_next := least(v_next, v_now + quota_outbox_wait(v_attempts));
    ELSE
        v_dead := v_ids;
    END IF;

    UPDATE quota_outbox o
       SET state = CASE WHEN o.outbox_id = ANY (v_dead) THEN 'dead'
                        WHEN o.digest_only AND NOT (v_apart OR v_in_doubt OR o.key_stays) THEN 'stale'
                        ELSE 'pending' END,
           ended_at = CASE WHEN o.outbox_id = ANY (v_dead) THEN v_now END,
           next_attempt_at = CASE WHEN o.outbox_id = ANY (v_dead) THEN o.next_attempt_at ELSE v_next END,
           request_key = CASE WHEN v_apart THEN o.dedupe_key WHEN v_in_doubt OR o.key_stays THEN o.request_key END,
           key_stays = o.key_stays OR v_in_doubt OR v_apart, lost_workers = 0,
           lease_token = NULL, lease_until = NULL, last_failure = p_cause, last_detail = p_detail, failed_at = v_now
     WHERE o.outbox_id = ANY (v_ids);

    WITH target AS (
        SELECT o.*, f.channel AS to_channel, f.recipient AS to_recipient,
               -- by the message: of several channels that are dead, one tells
               'qf-' || left(encode(sha256(convert_to(concat_ws(E'\x1f', o.message_key, f.channel, f.recipient),
                                                      'UTF8')), 'hex'), 40) AS key
          FROM quota_outbox o
         CROSS JOIN LATERAL (
            SELECT t.one ->> 'channel' AS channel, t.one ->> 'recipient' AS recipient
              FROM jsonb_array_elements(CASE WHEN o.fallback_of IS NULL THEN p_fallbacks END) AS t (one)
             WHERE t.one ->> 'channel' <> o.channel
            UNION ALL
            SELECT 'console', NULL
             WHERE o.channel <> 'console'
               AND (o.fallback_of IS NOT NULL OR NOT EXISTS (
                    SELECT FROM jsonb_array_elements(p_fallbacks) AS t (one) WHERE t.one ->> 'channel' <> o.channel))) f
         WHERE o.outbox_id = ANY (v_dead)
    ), told AS (
        INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, recipient, severity, urgency, locale, facts,
                                  subject_kind, subject, environment, next_attempt_at, created_at, fallback_of)
        SELECT DISTINCT ON (t.key)
               t.key, t.message_key, t.kind, t.to_channel, t.to_recipient, t.severity, t.urgency, t.locale,
               t.facts || jsonb_build_object('undelivered', jsonb_build_object(
                   'channel', t.channel, 'recipient', t.recipient, 'cause', p_cause, 'attempts', t.attempts)),
               t.subject_kind, t.subject, t.environment, v_now, v_now, t.outbox_id
          FROM target t
         ORDER BY t.key, t.outbox_id
        ON CONFLICT DO NOTHING
        RETURNING dedupe_key
    )
    -- told before: for another channel of the same message, or before a retry by hand
    SELECT cardinality(v_dead) - count(DISTINCT t.outbox_id) INTO untold
      FROM target t
     WHERE t.key IN (SELECT n.dedupe_key FROM told n)
        OR EXISTS (SELECT FROM quota_outbox o WHERE o.dedupe_key = t.key);

    dead := cardinality(v_dead);
    retried := cardinality(v_ids) - dead;
    lost := cardinality(p_outbox_ids) - cardinality(v_ids);
    wait_seconds := CASE WHEN retried > 0 THEN date_part('epoch', v_next - v_now) ELSE 0 END;
END
$$;
