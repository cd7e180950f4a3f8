-- Of what a lease holds, keeps these messages for one request and gives the others back, as if never claimed.
--
-- Returns the id of the request, the same for the same messages; NULL when another worker has some of them: then
-- nothing may be sent, and all that this lease still holds is given back. No ids: all is given back. Locks: the lease's rows. SQLSTATE 55P03.
CREATE OR REPLACE FUNCTION quota_outbox_keep(p_outbox_ids bigint[], p_lease_token uuid) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_key  text;
    v_kept int;
BEGIN
    SELECT count(*) FILTER (WHERE h.outbox_id = ANY (p_outbox_ids)),
           CASE WHEN cardinality(p_outbox_ids) = 1 THEN min(h.dedupe_key) FILTER (WHERE h.outbox_id = ANY (p_outbox_ids))
                ELSE 'qd-' || left(encode(sha256(convert_to(string_agg(h.dedupe_key, E'\x1f' ORDER BY h.outbox_id)
                                   FILTER (WHERE h.outbox_id = ANY (p_outbox_ids)), 'UTF8')), 'hex'), 40) END
      INTO v_kept, v_key
      FROM (SELECT o.outbox_id, o.dedupe_key FROM quota_outbox o
             WHERE o.lease_token = p_lease_token ORDER BY o.outbox_id FOR UPDATE) h;
    IF v_kept < cardinality(p_outbox_ids) THEN
        v_key := NULL;
    END IF;
    UPDATE quota_outbox o
       SET request_key = v_key
     WHERE o.lease_token = p_lease_token AND v_key IS NOT NULL AND o.outbox_id = ANY (p_outbox_ids);
    UPDATE quota_outbox o
       SET state = CASE WHEN o.digest_only THEN 'stale' ELSE 'pending' END, lease_token = NULL, lease_until = NULL,
           attempts = o.attempts - 1, request_key = CASE WHEN o.key_stays THEN o.request_key END, first_attempt_at = CASE WHEN o.attempts > 1 THEN o.first_attempt_at END
     WHERE o.lease_token = p_lease_token AND (v_key IS NULL OR o.outbox_id <> ALL (p_outbox_ids));
    RETURN v_key;
END
$$;
