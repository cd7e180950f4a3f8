-- Draws the ceilings of a tenant's day: how far its counters may rise with no cap, daily or monthly, in the way, and no
-- threshold that is to be told at once (quota_crossing_tenant): the charge that passes one is the general path's.
-- They hold for one version of the limits row and one of yesterday's row, both named beside them, and while no
-- later day has a row; quota_usage_add drops them where an older day changes. Only enforce = 'on' gets any.
-- The caller holds the tenant's lock. A day whose ceilings are the same is left alone.
CREATE OR REPLACE FUNCTION quota_ceilings_draw(p_limits tenant_limits, p_day date) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    UPDATE quota_usage u SET
        ceiling_completions   = c.completions,
        ceiling_input_tokens  = c.input_tokens,
        ceiling_output_tokens = c.output_tokens,
        ceiling_tokens        = c.tokens,
        ceiling_cost_cents    = c.cost_cents,
        limits_ctid           = c.limits_ctid,
        limits_xmin           = c.limits_xmin,
        eve_ctid              = c.eve_ctid,
        eve_xmin              = c.eve_xmin,
        line_passed           = c.line_passed
    FROM (
        SELECT greatest(least(ceil(quota_line_ahead(d.completions, l.daily_completions, l.soft_warn_pct)) - 1,
                              ceil(quota_line_ahead(o.completions + d.completions, l.monthly_completions, l.soft_warn_pct))
                              - o.completions - 1, f.far), -f.far)::bigint AS completions,
               least(ceil(quota_line_ahead(d.input_tokens, l.daily_input_tokens, l.soft_warn_pct)), f.far)::bigint AS input_tokens,
               least(ceil(quota_line_ahead(d.output_tokens, l.daily_output_tokens, l.soft_warn_pct)), f.far)::bigint
                   AS output_tokens,
               greatest(least(ceil(quota_line_ahead(d.tokens, l.daily_tokens, l.soft_warn_pct)),
                              ceil(quota_line_ahead(o.tokens + d.tokens, l.monthly_tokens, l.soft_warn_pct)) - o.tokens, f.far),
                        -f.far)::bigint AS tokens,
               greatest(least(floor(quota_line_ahead(d.cost_nanos, l.daily_cost_cents::numeric * 10000000, l.soft_warn_pct)
                                    / 10000000),
                              floor((quota_line_ahead(o.cost_nanos + d.cost_nanos, l.monthly_cost_cents::numeric * 10000000,
                                                      l.soft_warn_pct) - o.cost_nanos) / 10000000),
                              100000000000), -f.far)::bigint AS cost_cents,
               CASE WHEN l.enforce = 'on' THEN l.ctid END AS limits_ctid,
               CASE WHEN l.enforce = 'on' THEN l.xmin END AS limits_xmin,
               y.ctid AS eve_ctid, y.xmin AS eve_xmin,
               nullif(l.soft_warn_pct BETWEEN 1 AND 99
                      AND (d.completions * 100 >= l.daily_completions::numeric * l.soft_warn_pct
                           OR d.input_tokens * 100 >= l.daily_input_tokens::numeric * l.soft_warn_pct
                           OR d.output_tokens * 100 >= l.daily_output_tokens::numeric * l.soft_warn_pct
                           OR d.tokens * 100 >= l.daily_tokens::numeric * l.soft_warn_pct
                           OR d.cost_nanos * 100 >= l.daily_cost_cents::numeric * 10000000 * l.soft_warn_pct
                           OR (o.completions + d.completions) * 100 >= l.monthly_completions::numeric * l.soft_warn_pct
                           OR (o.tokens + d.tokens) * 100 >= l.monthly_tokens::numeric * l.soft_warn_pct
                           OR (o.cost_nanos + d.cost_nanos) * 100
                              >= l.monthly_cost_cents::numeric * 10000000 * l.soft_warn_pct), false) AS line_passed
        FROM tenant_limits l
            CROSS JOIN (SELECT 1000000000000000000::numeric AS far) f
            CROSS JOIN (SELECT coalesce(sum(v.completions), 0) AS completions,
                               coalesce(sum(v.input_tokens::numeric + v.output_tokens), 0) AS tokens,
                               coalesce(sum(v.cost_nanos), 0) AS cost_nanos
                        FROM v_quota_usage v
                        WHERE v.tenant_id = (p_limits).tenant_id AND v.period >= quota_month(p_day)
                          AND v.period < (quota_month(p_day) + interval '1 month')::date AND v.period <> p_day) o
            JOIN LATERAL (SELECT v.completions::numeric, v.input_tokens::numeric, v.output_tokens::numeric,
                                 v.input_tokens::numeric + v.output_tokens AS tokens, v.cost_nanos
                          FROM v_quota_usage v WHERE v.tenant_id = l.tenant_id AND v.period = p_day) d ON true
            LEFT JOIN quota_usage y ON y.tenant_id = (p_limits).tenant_id AND y.period = p_day - 1
        WHERE l.tenant_id = (p_limits).tenant_id) c
    WHERE u.tenant_id = (p_limits).tenant_id AND u.period = p_day
      AND (u.limits_ctid, u.limits_xmin, u.eve_ctid, u.eve_xmin, u.ceiling_completions, u.ceiling_input_tokens,
           u.ceiling_output_tokens, u.ceiling_tokens, u.ceiling_cost_cents, u.line_passed)
          IS DISTINCT FROM (c.limits_ctid, c.limits_xmin, c.eve_ctid, c.eve_xmin, c.completions, c.input_tokens,
                            c.output_tokens, c.tokens, c.cost_cents, c.line_passed)
$$;

-- Are a tenant's counters below the ceilings of its day, and these drawn from its limits and its month as they are? Then
-- what was just charged passed no threshold. The caller holds the tenant's lock.
CREATE OR REPLACE FUNCTION quota_ceilings_hold(p_tenant text, p_day date) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT EXISTS (
        SELECT FROM quota_usage u JOIN tenant_limits l ON l.tenant_id = u.tenant_id
        WHERE u.tenant_id = p_tenant AND u.period = p_day AND l.ctid = u.limits_ctid AND l.xmin = u.limits_xmin
          AND u.bucket_tokens IS NOT NULL
          AND u.completions <= u.ceiling_completions AND u.input_tokens < u.ceiling_input_tokens
          AND u.output_tokens < u.ceiling_output_tokens
          AND u.input_tokens::numeric + u.output_tokens < u.ceiling_tokens AND u.cost_cents < u.ceiling_cost_cents
          AND NOT EXISTS (SELECT FROM quota_usage n
                          WHERE n.tenant_id = p_tenant AND n.period >= p_day - 1 AND n.period <> p_day
                            AND (n.ctid, n.xmin) IS DISTINCT FROM (u.eve_ctid, u.eve_xmin)))
$$;
