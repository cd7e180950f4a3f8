-- Marks a message as sent. True for the holder of its lease; false, changing nothing, for anybody else.
--
-- A lease that ran out but was not taken by another still counts: the message was sent, so better say so.
-- Locks: the message's row.
CREATE OR REPLACE FUNCTION quota_outbox_finish(p_outbox_id bigint, p_lease_token uuid, p_now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    UPDATE quota_outbox o
       SET state = 'sent', sent_at = v_now, ended_at = v_now, lease_token = NULL, lease_until = NULL
     WHERE o.outbox_id = p_outbox_id AND o.state = 'sending' AND o.lease_token = p_lease_token;
    RETURN FOUND;
END
$$;
