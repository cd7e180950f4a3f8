-- Records a failed attempt and says what becomes of the message.
--
-- outcome: retry (pending again; wait_seconds to its next attempt), dead (given up: the cause is permanent, or
-- 24 h have passed since the first attempt), lost (the lease is another's; nothing changed). The waits are 5 s,
-- 30 s, 5 min, 30 min, 2 h, then 5 h each, the last attempt at 24 h. A dead message is told on p_fallback_channel,
-- once, in this transaction: a row of its own, with the same facts and the cause; told is whether that was so.
-- p_cause is one of the closed set of quota_outbox_failure. Locks: the message's row. SQLSTATE: 23514 for a cause
-- outside the set; 55P03.
CREATE OR REPLACE FUNCTION quota_outbox_fail(
    p_outbox_id bigint, p_lease_token uuid, p_cause text, p_detail text, p_retryable boolean,
    p_fallback_channel text DEFAULT NULL, p_now timestamptz DEFAULT NULL,
    OUT outcome text, OUT wait_seconds double precision, OUT told boolean
) RETURNS record
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_message quota_outbox%ROWTYPE;
    v_last    timestamptz;
    v_next    timestamptz;
BEGIN
    told := false;
    SELECT o.* INTO v_message FROM quota_outbox o
     WHERE o.outbox_id = p_outbox_id AND o.state = 'sending' AND o.lease_token = p_lease_token
       FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'lost';
        RETURN;
    END IF;
    v_last := v_message.first_attempt_at + interval '24 hours';
    IF p_retryable AND v_now < v_last THEN
        v_next := least(v_last, v_now + (ARRAY[interval '5 seconds', '30 seconds', '5 minutes', '30 minutes',
                                               '2 hours', '5 hours'])[least(v_message.attempts, 6)]);
        UPDATE quota_outbox o
           SET state = 'pending', lease_token = NULL, lease_until = NULL, next_attempt_at = v_next,
               last_failure = p_cause, last_detail = p_detail, failed_at = v_now
         WHERE o.outbox_id = p_outbox_id;
        outcome := 'retry';
        wait_seconds := date_part('epoch', v_next - v_now);
        RETURN;
    END IF;
    UPDATE quota_outbox o
       SET state = 'dead', ended_at = v_now, lease_token = NULL, lease_until = NULL,
           last_failure = p_cause, last_detail = p_detail, failed_at = v_now
     WHERE o.outbox_id = p_outbox_id;
    outcome := 'dead';
    IF p_fallback_channel IS NOT NULL THEN
        INSERT INTO quota_outbox (dedupe_key, message_key, kind, channel, severity, urgency, locale, facts,
                                  next_attempt_at, created_at, fallback_of)
        VALUES ('qf-' || left(encode(sha256(convert_to(v_message.dedupe_key, 'UTF8')), 'hex'), 40),
                v_message.message_key, v_message.kind, p_fallback_channel, v_message.severity, v_message.urgency,
                v_message.locale,
                v_message.facts || jsonb_build_object('undelivered', jsonb_build_object(
                    'channel', v_message.channel, 'cause', p_cause, 'attempts', v_message.attempts)),
                v_now, v_now, p_outbox_id)
        ON CONFLICT DO NOTHING;
        told := FOUND;
    END IF;
END
$$;
