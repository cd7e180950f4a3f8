-- Where tenants stand in one billing period ('day' or 'month', by its first day): one row per capped dimension.
--
-- used = posted + held, as enforcement reads it (v_quota_usage). Units: completions, tokens, nanos for cost. refused_at is the latest
-- refusal by exactly this cap in the period. Caps of 0 raise no message and are left out. Takes no locks.
CREATE OR REPLACE FUNCTION quota_warn_tenants(p_tenants text[], p_period_kind text, p_start date)
RETURNS TABLE (subject text, environment text, dimension text, used numeric, held numeric, cap numeric,
               pcts int[], severities text[], refused_at timestamptz)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
-- whatever its caller has set: by the keys
SET enable_nestloop = on
AS $$
    SELECT l.tenant_id, l.environment, d.dimension, d.used, d.held, d.cap,
           ARRAY[l.soft_warn_pct, 100], ARRAY['warning', 'exhausted'],
           f.refused_at[array_position(f.reasons, d.reason)]
      FROM unnest(p_tenants) AS t (tenant_id)
      JOIN tenant_limits l ON l.tenant_id = t.tenant_id
     CROSS JOIN LATERAL (
        SELECT coalesce(sum(u.completions), 0) AS completions,
               coalesce(sum(u.input_tokens), 0) AS input_tokens,
               coalesce(sum(u.output_tokens), 0) AS output_tokens,
               coalesce(sum(u.cost_nanos), 0) AS cost_nanos,
               coalesce(sum(u.held_input_tokens), 0) AS held_input_tokens,
               coalesce(sum(u.held_output_tokens), 0) AS held_output_tokens,
               coalesce(sum(u.held_cost_nanos), 0) AS held_cost_nanos
          FROM v_quota_usage u
         WHERE u.tenant_id = l.tenant_id
           AND u.period >= p_start AND u.period < quota_warn_period_end(p_period_kind, p_start)) u
     CROSS JOIN LATERAL (
        SELECT array_agg(r.reason ORDER BY r.reason) AS reasons, array_agg(r.last_at ORDER BY r.reason) AS refused_at
          FROM (SELECT r.reason, max(r.last_at) AS last_at
                  FROM quota_refusals r
                 WHERE r.tenant_id = l.tenant_id
                   AND r.period >= p_start AND r.period < quota_warn_period_end(p_period_kind, p_start)
                 GROUP BY r.reason) r) f
     CROSS JOIN LATERAL (VALUES
        ('day', 'completions', 'daily_cap_reached', l.daily_completions::numeric, u.completions, NULL::numeric),
        ('day', 'cost', 'daily_cost_reached', l.daily_cost_cents::numeric * 10000000, u.cost_nanos, u.held_cost_nanos),
        ('day', 'input_tokens', 'daily_input_tokens_reached', l.daily_input_tokens::numeric,
            u.input_tokens, u.held_input_tokens),
        ('day', 'output_tokens', 'daily_output_tokens_reached', l.daily_output_tokens::numeric,
            u.output_tokens, u.held_output_tokens),
        ('day', 'tokens', 'daily_tokens_reached', l.daily_tokens::numeric,
            u.input_tokens + u.output_tokens, u.held_input_tokens + u.held_output_tokens),
        ('month', 'completions', 'monthly_completions_reached', l.monthly_completions::numeric, u.completions, NULL),
        ('month', 'tokens', 'monthly_tokens_reached', l.monthly_tokens::numeric,
            u.input_tokens + u.output_tokens, u.held_input_tokens + u.held_output_tokens),
        ('month', 'cost', 'monthly_cost_reached', l.monthly_cost_cents::numeric * 10000000,
            u.cost_nanos, u.held_cost_nanos)
     ) AS d (period_kind, dimension, reason, cap, used, held)
     WHERE d.period_kind = p_period_kind AND d.cap > 0
$$;
