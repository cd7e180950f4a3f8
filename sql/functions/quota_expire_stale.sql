-- quota_expire_stale: ends reservations whose time ran out, oldest first, at most p_limit, by the tenant's
-- stale_policy, with the figures in the reservation's row. A deleted tenant's go by 'estimate'.
--
-- Returns a row per tenant and policy; none: nothing is overdue. Safe beside itself and beside a settle.
-- Lock order: tenants, reservations, department slots, each sorted. SQLSTATEs: QW002 bad limit; 55P03 (retry).
CREATE OR REPLACE FUNCTION quota_expire_stale(p_limit int DEFAULT 1000, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (tenant_id text, policy text, ended bigint, in_tokens bigint, out_tokens bigint, cost_nanos bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$ SELECT * FROM quota_expire_overdue(p_limit, p_now, 0) $$;
