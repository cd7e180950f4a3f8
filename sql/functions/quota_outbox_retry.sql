-- Sends messages again that were given up, or now that wait for a later attempt: all of them, or none.
--
-- outcome, by id as asked for: retried (was dead: pending, due now, its attempts and its 24 h start anew under the same
-- dedupe_key), reopened (the same, and its acknowledgement is taken back), hastened (was pending, or held by a worker
-- whose lease ran out: due now); refused are sending, sent, superseded, stale (it ended, or waits for a digest) and
-- unknown. Where one is refused nothing changes, and the others' outcomes say what would have been. Takes effect with
-- the next deliver; quiet hours hold.
-- Locks: the messages' rows, sorted. SQLSTATE: 55P03 when a row is held for 2 s.
CREATE OR REPLACE FUNCTION quota_outbox_retry(p_outbox_ids bigint[], p_now timestamptz DEFAULT NULL)
RETURNS TABLE (outbox_id bigint, outcome text)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now      timestamptz := coalesce(p_now, clock_timestamp());
    v_outcomes jsonb;
BEGIN
    SELECT coalesce(jsonb_object_agg(h.outbox_id, CASE
               WHEN h.state = 'dead' AND h.acked_at IS NOT NULL THEN 'reopened'
               WHEN h.state = 'dead' THEN 'retried'
               WHEN h.state = 'pending' OR h.state = 'sending' AND h.lease_until <= v_now THEN 'hastened'
               ELSE h.state END), '{}')
      INTO v_outcomes
      FROM (SELECT o.outbox_id, o.state, o.lease_until, o.acked_at FROM quota_outbox o
             WHERE o.outbox_id = ANY (p_outbox_ids) ORDER BY o.outbox_id FOR UPDATE) h;

    IF NOT EXISTS (SELECT FROM unnest(p_outbox_ids) AS a (id)
                    WHERE coalesce(v_outcomes ->> a.id::text, 'unknown') NOT IN ('retried', 'reopened', 'hastened')) THEN
        UPDATE quota_outbox o
           SET state = 'pending', next_attempt_at = v_now, lease_token = NULL, lease_until = NULL,
               attempts = CASE WHEN o.state = 'dead' THEN 0 ELSE o.attempts END,
               first_attempt_at = CASE WHEN o.state = 'dead' THEN NULL ELSE o.first_attempt_at END,
               request_key = CASE WHEN o.state = 'dead' THEN NULL ELSE o.request_key END,
               key_stays = o.state <> 'dead' AND (o.key_stays OR o.state = 'sending' AND o.request_key IS NOT NULL),
               lost_workers = o.lost_workers + (o.state = 'sending')::int,
               last_failure = CASE WHEN o.state = 'sending' THEN 'worker_lost' ELSE o.last_failure END,
               last_detail = CASE WHEN o.state = 'sending' THEN NULL ELSE o.last_detail END,
               failed_at = CASE WHEN o.state = 'sending' THEN v_now ELSE o.failed_at END,
               ended_at = NULL, acked_at = NULL, acked_by = NULL, ack_note = NULL
         WHERE o.outbox_id = ANY (p_outbox_ids);
    END IF;
    RETURN QUERY
    SELECT a.id, coalesce(v_outcomes ->> a.id::text, 'unknown')
      FROM unnest(p_outbox_ids) WITH ORDINALITY AS a (id, place)
     ORDER BY a.place;
END
$$;
