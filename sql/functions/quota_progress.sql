-- quota_progress: tokens streamed so far. Keeps the greatest seen, and the reservation alive by its TTL, up to
-- 60 minutes after admission, never backwards. Idempotent.
--
-- Outcomes: progressed, already_final, unknown.
-- Locks: tenant, reservation. SQLSTATEs: QW002 unusable arguments; 55P03 lock wait over 2 s (retry).
CREATE OR REPLACE FUNCTION quota_progress(
    p_tenant text, p_request_id text, p_out_tokens bigint, p_now timestamptz DEFAULT NULL,
    OUT outcome text, OUT expires_at timestamptz
) RETURNS record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_fault text := quota_request_fault(p_tenant, p_request_id, 0, p_out_tokens, 0);
    v_now   timestamptz;
BEGIN
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_progress: ' || v_fault;
    END IF;
    IF pg_advisory_xact_lock(hashtextextended(p_tenant, 1)) IS NULL THEN NULL; END IF;
    v_now := quota_now(p_now);
    UPDATE quota_reservations r SET
        progress_out_tokens = greatest(r.progress_out_tokens, p_out_tokens),
        expires_at = greatest(r.expires_at, least(v_now + r.ttl_seconds * interval '1 second',
                                                  r.admitted_at + interval '60 minutes'))
    WHERE r.tenant_id = p_tenant AND r.request_id = p_request_id AND r.ended_at IS NULL
    RETURNING 'progressed', r.expires_at INTO outcome, expires_at;
    IF NOT FOUND THEN
        SELECT 'already_final', r.expires_at INTO outcome, expires_at
        FROM quota_reservations r WHERE r.tenant_id = p_tenant AND r.request_id = p_request_id;
        outcome := coalesce(outcome, 'unknown');
    END IF;
END $$;
