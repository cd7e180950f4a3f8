-- The overdue reservations that a usage source should be asked for next, at most p_limit; changes nothing.
--
-- p_again false: those never asked for, newest first, whose time ran out at p_before or earlier (NULL: now). The caller
-- passes the last batch's oldest, so that no batch looks through those before it again.
-- p_again true: those asked for before p_since, the longest ago first. Reads without locks. SQLSTATE QW002: bad limit.
CREATE OR REPLACE FUNCTION quota_source_due(
    p_again boolean, p_since timestamptz, p_before timestamptz, p_limit int, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (tenant_id text, request_id text, expires_at timestamptz)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
-- Both reads follow an index and stop early, also where statistics know nothing of a flood of overdue ones yet.
SET enable_sort = off
SET jit = off
SET enable_hashjoin = off
SET jit = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_now timestamptz := quota_now(p_now);
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_source_due: p_limit must be 1 to 1000';
    END IF;
    IF p_again THEN
        RETURN QUERY
        SELECT r.tenant_id, r.request_id, r.expires_at
        FROM quota_source_asks a
            JOIN quota_reservations r ON r.tenant_id = a.tenant_id AND r.request_id = a.request_id
        WHERE a.asked_at < p_since AND r.ended_at IS NULL AND r.expires_at <= v_now
        ORDER BY a.asked_at LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT r.tenant_id, r.request_id, r.expires_at
        FROM quota_reservations r
        WHERE r.state = 'open' AND r.expires_at <= least(v_now, p_before)
          AND NOT EXISTS (SELECT FROM quota_source_asks a WHERE a.tenant_id = r.tenant_id AND a.request_id = r.request_id)
        ORDER BY r.expires_at DESC LIMIT p_limit;
    END IF;
END $$;
