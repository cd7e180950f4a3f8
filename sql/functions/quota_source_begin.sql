-- Begins an asking of the usage sources: clears what earlier ones left, and tells the time it begins at.
--
-- At most 100,000 notes on ended reservations are cleared; of what was set aside the newest 10,000 of 40 days stay.
-- Takes no tenant's lock; rows that another worker has are left to the next time. SQLSTATE: 55P03.
CREATE OR REPLACE FUNCTION quota_source_begin(p_now timestamptz DEFAULT NULL) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now     timestamptz := quota_now(p_now);
    v_oldest  timestamptz;
    c_clear   CONSTANT int := 100000;
    c_keep    CONSTANT int := 10000;
    c_keep_for CONSTANT interval := '40 days';
BEGIN
    IF EXISTS (SELECT FROM quota_source_asks) THEN
        DELETE FROM quota_source_asks a USING (
            SELECT s.tenant_id, s.request_id
            FROM quota_source_asks s
            WHERE NOT EXISTS (SELECT FROM quota_reservations r
                              WHERE r.tenant_id = s.tenant_id AND r.request_id = s.request_id AND r.ended_at IS NULL)
            LIMIT c_clear FOR UPDATE SKIP LOCKED) AS ended
        WHERE a.tenant_id = ended.tenant_id AND a.request_id = ended.request_id;
    END IF;
    IF EXISTS (SELECT FROM quota_source_faults) THEN
        v_oldest := greatest(v_now - c_keep_for,
                             (SELECT f.seen_at FROM quota_source_faults f ORDER BY f.seen_at DESC OFFSET c_keep LIMIT 1));
        DELETE FROM quota_source_faults f USING (
            SELECT q.tenant_id, q.request_id, q.source, q.reason
            FROM quota_source_faults q WHERE q.seen_at <= v_oldest
            LIMIT c_clear FOR UPDATE SKIP LOCKED) AS old
        WHERE f.tenant_id = old.tenant_id AND f.request_id = old.request_id AND f.source = old.source AND f.reason = old.reason;
    END IF;
    RETURN v_now;
END $$;
