-- Marks messages as sent; returns how many: those that the lease still holds. Changes nothing for anybody else.
--
-- A lease that ran out but was not taken by another still counts: the message was sent, so better say so.
-- Locks: the messages' rows, sorted. SQLSTATE 55P03.
CREATE OR REPLACE FUNCTION quota_outbox_finish(
    p_outbox_ids bigint[], p_lease_token uuid, p_now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_sent int;
BEGIN
    WITH held AS MATERIALIZED (
        SELECT o.outbox_id FROM quota_outbox o
         WHERE o.outbox_id = ANY (p_outbox_ids) AND o.state = 'sending' AND o.lease_token = p_lease_token
         ORDER BY o.outbox_id FOR UPDATE
    )
    UPDATE quota_outbox o
       SET state = 'sent', sent_at = v_now, ended_at = v_now, lease_token = NULL, lease_until = NULL
      FROM held h
     WHERE o.outbox_id = h.outbox_id;
    GET DIAGNOSTICS v_sent = ROW_COUNT;
    RETURN v_sent;
END
$$;
