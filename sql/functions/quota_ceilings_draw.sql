-- Draws the ceilings of a tenant's day: how far its counters may rise with no cap, daily or monthly, in the way.
-- They hold for one version of the limits row and one of yesterday's row, both named beside them, and while no
-- later day has a row; quota_usage_add drops them where an older day changes. Only enforce = 'on' gets any.
-- The caller holds the tenant's lock. A day whose ceilings hold is left alone.
CREATE OR REPLACE FUNCTION quota_ceilings_draw(p_limits tenant_limits, p_day date) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    UPDATE quota_usage u SET
        ceiling_completions   = least(l.daily_completions, l.monthly_completions - o.completions, f.far),
        ceiling_input_tokens  = least(l.daily_input_tokens, f.far),
        ceiling_output_tokens = least(l.daily_output_tokens, f.far),
        ceiling_tokens        = least(l.daily_tokens, l.monthly_tokens - o.tokens, f.far),
        ceiling_cost_cents    = least(l.daily_cost_cents, l.monthly_cost_cents - ceil(o.cost_nanos / 10000000), 100000000000),
        limits_ctid           = CASE WHEN l.enforce = 'on' THEN l.ctid END,
        limits_xmin           = CASE WHEN l.enforce = 'on' THEN l.xmin END,
        eve_ctid              = y.ctid,
        eve_xmin              = y.xmin
    FROM tenant_limits l
        CROSS JOIN (SELECT 1000000000000000000::numeric AS far) f
        CROSS JOIN (SELECT coalesce(sum(v.completions), 0) AS completions,
                           coalesce(sum(v.input_tokens::numeric + v.output_tokens), 0) AS tokens,
                           coalesce(sum(v.cost_nanos), 0) AS cost_nanos
                    FROM v_quota_usage v
                    WHERE v.tenant_id = (p_limits).tenant_id AND v.period >= quota_month(p_day)
                      AND v.period < (quota_month(p_day) + interval '1 month')::date AND v.period <> p_day) o
        LEFT JOIN quota_usage y ON y.tenant_id = (p_limits).tenant_id AND y.period = p_day - 1
    WHERE l.tenant_id = (p_limits).tenant_id AND u.tenant_id = (p_limits).tenant_id AND u.period = p_day
      AND (u.limits_ctid, u.limits_xmin, u.eve_ctid, u.eve_xmin) IS DISTINCT FROM (l.ctid, l.xmin, y.ctid, y.xmin)
$$;
