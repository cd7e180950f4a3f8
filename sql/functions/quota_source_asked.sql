-- Notes that the usage sources were asked for these reservations, without usage so far. Returns how many.
--
-- Two arrays of the same length. Locks: the notes, in the order of their keys. SQLSTATE: 55P03.
CREATE OR REPLACE FUNCTION quota_source_asked(p_tenants text[], p_request_ids text[], p_now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_noted int;
BEGIN
    INSERT INTO quota_source_asks AS a (tenant_id, request_id, asked_at)
    SELECT DISTINCT q.tenant_id, q.request_id, quota_now(p_now)
    FROM unnest(p_tenants, p_request_ids) AS q (tenant_id, request_id)
    ORDER BY q.tenant_id, q.request_id
    ON CONFLICT (tenant_id, request_id) DO UPDATE SET asked_at = excluded.asked_at, asks = a.asks + 1;
    GET DIAGNOSTICS v_noted = ROW_COUNT;
    RETURN v_noted;
END $$;
