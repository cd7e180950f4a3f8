-- Marks messages as seen by somebody; those that still wait aren't sent any more: all of them, or none.
--
-- outcome, by id as asked for: acked (it had ended: dead, superseded or stale), acked_sent (it was sent), withdrawn (it
-- waited, for an attempt or for a digest, or was held by a worker whose lease ran out: superseded), already
-- (acknowledged before: who and when stay); refused are sending and unknown. Where one is refused nothing changes, and the others'
-- outcomes say what would have been. The crossing stays told: it is not told anew. Idempotent.
-- Locks: the messages' rows, sorted. SQLSTATE: 55P03 when a row is held for 2 s; QW002 without a name.
CREATE OR REPLACE FUNCTION quota_outbox_ack(
    p_outbox_ids bigint[], p_by text, p_note text DEFAULT NULL, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (outbox_id bigint, outcome text)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now      timestamptz := coalesce(p_now, clock_timestamp());
    v_outcomes jsonb;
BEGIN
    IF coalesce(btrim(p_by), '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'an acknowledgement needs the name of who gives it';
    END IF;
    SELECT coalesce(jsonb_object_agg(h.outbox_id, CASE
               WHEN h.acked_at IS NOT NULL THEN 'already'
               WHEN h.state = 'pending' OR h.state = 'stale' AND h.digest_only
                    OR h.state = 'sending' AND h.lease_until <= v_now THEN 'withdrawn'
               WHEN h.state = 'sending' THEN 'sending'
               WHEN h.state = 'sent' THEN 'acked_sent'
               ELSE 'acked' END), '{}')
      INTO v_outcomes
      FROM (SELECT o.* FROM quota_outbox o
             WHERE o.outbox_id = ANY (p_outbox_ids) ORDER BY o.outbox_id FOR UPDATE) h;

    IF NOT EXISTS (SELECT FROM unnest(p_outbox_ids) AS a (id)
                    WHERE coalesce(v_outcomes ->> a.id::text, 'unknown') IN ('sending', 'unknown')) THEN
        UPDATE quota_outbox o
           SET acked_at = v_now, acked_by = p_by, ack_note = p_note,
               state = CASE v_outcomes ->> o.outbox_id::text WHEN 'withdrawn' THEN 'superseded' ELSE o.state END,
               ended_at = coalesce(o.ended_at, v_now), lease_token = NULL, lease_until = NULL
         WHERE o.outbox_id = ANY (p_outbox_ids) AND o.acked_at IS NULL;
    END IF;
    RETURN QUERY
    SELECT a.id, coalesce(v_outcomes ->> a.id::text, 'unknown')
      FROM unnest(p_outbox_ids) WITH ORDINALITY AS a (id, place)
     ORDER BY a.place;
END
$$;
