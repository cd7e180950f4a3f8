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

-- The same for those that have been overdue for p_wait_seconds: younger ones wait for a usage source's answer.
CREATE OR REPLACE FUNCTION quota_expire_overdue(p_limit int, p_now timestamptz, p_wait_seconds int)
RETURNS TABLE (tenant_id text, policy text, ended bigint, in_tokens bigint, out_tokens bigint, cost_nanos bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET lock_timeout = '2s'
AS $$
DECLARE
    v_now    timestamptz := quota_now(p_now);
    v_until  timestamptz := v_now - make_interval(secs => p_wait_seconds);
    v_due    text[];
    v_ids    text[];
    v_locked text[];
    v_ended  quota_reservations[];
    g        record;
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION USING ERRCODE = 'QW002', MESSAGE = 'quota_expire_stale: p_limit must be 1 to 100000';
    END IF;
    SELECT array_agg(q.tenant_id), array_agg(q.request_id) INTO v_due, v_ids
    FROM (SELECT r.tenant_id, r.request_id FROM quota_reservations r
          WHERE r.state = 'open' AND r.expires_at <= v_until ORDER BY r.expires_at LIMIT p_limit) q;
    IF v_due IS NULL THEN
        RETURN;
    END IF;
    v_locked := quota_lock_free_tenants(v_due);

    WITH due AS (
        SELECT d.tenant_id, d.request_id, coalesce(l.stale_policy, 'estimate') AS policy
        FROM unnest(v_due, v_ids) AS d (tenant_id, request_id)
            JOIN unnest(v_locked) AS k (tenant_id) USING (tenant_id)
            LEFT JOIN tenant_limits l USING (tenant_id)
    ), ended AS (
        UPDATE quota_reservations r SET
            state = 'expired',
            ended_at = v_now,
            stale_policy = d.policy,
            completion_counted = d.policy <> 'release',
            usage_missing = true,
            charged_in_tokens = CASE WHEN d.policy = 'release' THEN 0 ELSE r.estimated_in_tokens END,
            charged_out_tokens = CASE d.policy WHEN 'release' THEN 0 WHEN 'partial' THEN r.progress_out_tokens
                                               ELSE r.estimated_out_tokens END,
            charged_cost_nanos = CASE d.policy WHEN 'release' THEN 0 WHEN 'partial' THEN quota_partial_cost(r)
                                               ELSE r.estimated_cost_nanos END
        FROM due d
        WHERE r.tenant_id = d.tenant_id AND r.request_id = d.request_id AND r.ended_at IS NULL AND r.expires_at <= v_until
        RETURNING r.*
    )
    SELECT array_agg(e::quota_reservations) INTO v_ended FROM ended e;

    FOR g IN SELECT e.tenant_id, e.period, count(*) FILTER (WHERE NOT e.completion_counted) AS uncounted,
                    sum(e.charged_in_tokens)::bigint AS i, sum(e.charged_out_tokens)::bigint AS o,
                    sum(e.charged_cost_nanos)::bigint AS c, sum(e.estimated_in_tokens)::bigint AS ei,
                    sum(e.estimated_out_tokens)::bigint AS eo, sum(e.estimated_cost_nanos)::bigint AS ec
             FROM unnest(v_ended) e GROUP BY e.tenant_id, e.period ORDER BY e.tenant_id, e.period LOOP
        PERFORM quota_usage_add(g.tenant_id, g.period, -g.uncounted, g.i - g.ei, g.o - g.eo, g.c - g.ec,
                                -g.ei, -g.eo, -g.ec, false);
    END LOOP;
    PERFORM quota_bookings_book(ARRAY(
        SELECT (e.department_id, e.environment, quota_month(e.period),
                e.charged_in_tokens + e.charged_out_tokens - e.estimated_in_tokens - e.estimated_out_tokens,
                e.charged_cost_nanos - e.estimated_cost_nanos,
                -e.estimated_in_tokens - e.estimated_out_tokens, -e.estimated_cost_nanos)::quota_booking
        FROM unnest(v_ended) e), v_now);

    RETURN QUERY
    SELECT e.tenant_id, e.stale_policy, count(*), sum(e.charged_in_tokens)::bigint, sum(e.charged_out_tokens)::bigint,
           sum(e.charged_cost_nanos)::bigint
    FROM unnest(v_ended) e GROUP BY e.tenant_id, e.stale_policy ORDER BY e.tenant_id, e.stale_policy;
END $$;
