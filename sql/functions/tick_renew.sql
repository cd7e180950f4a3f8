-- Prolongs the lease of p_fence from now on. False: it was lost to a later tick.
-- A lease that ran out but that nobody took is prolonged all the same.
-- Lock: tick_lease's row. SQLSTATE: 55P03 when it stays locked for 2 s.
CREATE OR REPLACE FUNCTION tick_renew(p_fence bigint, p_lease_seconds integer)
RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
BEGIN
    UPDATE tick_lease l
       SET expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds),
           renewed_at = clock_timestamp()
     WHERE l.lease_name = 'tick' AND l.fence = p_fence;
    RETURN FOUND;
END
$$;
