-- quota_check_and_charge: the tutorial's function, its signature and answers unchanged, now right about every
-- cap, tier and bucket. The charge is final at once: there is no reservation to settle.
--
-- Answers: (true, 'ok') or (false, reason). Lock order: tenant, department slot.
-- SQLSTATEs: QW002 unusable arguments; 55P03 lock wait over 2 s (retry).
CREATE OR REPLACE FUNCTION quota_check_and_charge(p_tenant text, p_in_tokens bigint, p_out_tokens bigint, p_cost_cents bigint)
RETURNS TABLE (allowed boolean, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_fault text := CASE
        WHEN p_cost_cents > 100000000 THEN 'more than 10^8 cents in one call'
        ELSE quota_request_fault(p_tenant, 'check', p_in_tokens, p_out_tokens, p_cost_cents) END;
BEGIN
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_check_and_charge: ' || v_fault;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(p_tenant, 1));
    RETURN QUERY
    SELECT j.allowed, j.reason
    FROM quota_reserve_judge((SELECT l FROM tenant_limits l WHERE l.tenant_id = p_tenant), p_tenant, NULL,
                             p_in_tokens, p_out_tokens, p_cost_cents * 10000000, NULL, NULL, NULL, NULL, 'normal', NULL, clock_timestamp()) j;
END $$;
