-- Tells a crossing if what was just added to a tenant's day took one of its caps over a threshold: soft_warn_pct or
-- 100 %, of the day or of its month, as quota_warn_untold judges. The amounts are those that were added, after which
-- the counters stand as they do now. Exact, and therefore only asked where the day's ceilings leave room for doubt.
--
-- Internal: the caller holds the tenant's lock. Reads the month's rows of one tenant.
CREATE OR REPLACE FUNCTION quota_crossing_tenant(
    p_tenant text, p_period date, p_completions bigint, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF EXISTS (
        SELECT
        FROM tenant_limits l
            CROSS JOIN (
                SELECT coalesce(sum(v.completions) FILTER (WHERE v.period = p_period), 0) AS day_completions,
                       coalesce(sum(v.input_tokens) FILTER (WHERE v.period = p_period), 0) AS day_in,
                       coalesce(sum(v.output_tokens) FILTER (WHERE v.period = p_period), 0) AS day_out,
                       coalesce(sum(v.cost_nanos) FILTER (WHERE v.period = p_period), 0) AS day_cost,
                       coalesce(sum(v.completions), 0) AS month_completions,
                       coalesce(sum(v.input_tokens::numeric + v.output_tokens), 0) AS month_tokens,
                       coalesce(sum(v.cost_nanos), 0) AS month_cost
                FROM v_quota_usage v
                WHERE v.tenant_id = p_tenant AND v.period >= quota_month(p_period)
                  AND v.period < (quota_month(p_period) + interval '1 month')::date) u
            CROSS JOIN LATERAL (VALUES
                (l.daily_completions::numeric, u.day_completions, p_completions::numeric),
                (l.daily_input_tokens, u.day_in, p_in_tokens),
                (l.daily_output_tokens, u.day_out, p_out_tokens),
                (l.daily_tokens, u.day_in + u.day_out, p_in_tokens::numeric + p_out_tokens),
                (l.daily_cost_cents::numeric * 10000000, u.day_cost, p_cost_nanos),
                (l.monthly_completions, u.month_completions, p_completions),
                (l.monthly_tokens, u.month_tokens, p_in_tokens::numeric + p_out_tokens),
                (l.monthly_cost_cents::numeric * 10000000, u.month_cost, p_cost_nanos)
            ) AS d (cap, used, added)
            CROSS JOIN LATERAL (VALUES (l.soft_warn_pct::int), (100)) AS t (pct)
        WHERE l.tenant_id = p_tenant AND quota_line_passed(d.used, d.added, d.cap, t.pct)
    ) THEN
        PERFORM quota_crossing_tell('tenant');
    END IF;
END $$;
