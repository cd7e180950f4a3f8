-- Tenants that may have something to tell in one billing period: a dimension at its lowest threshold, or a
-- refusal by a cap. A few more than needed do no harm (quota_warn_tenants judges exactly), one less would.
--
-- One pass over the period's usage rows, whoever moved: for the scans that can't go by what changed
-- (quota_warn_moved), the first of each day.
CREATE OR REPLACE FUNCTION quota_warn_candidates(p_period_kind text, p_start date) RETURNS SETOF text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT l.tenant_id
      FROM (SELECT u.tenant_id,
                   sum(u.completions) * 100 AS completions,
                   sum(u.input_tokens) * 100 AS input_tokens,
                   sum(u.output_tokens) * 100 AS output_tokens,
                   sum(u.cost_nanos) / 100000 AS cost_cents
              FROM v_quota_usage u
             WHERE u.period >= p_start AND u.period < quota_warn_period_end(p_period_kind, p_start)
             GROUP BY u.tenant_id) u
      JOIN tenant_limits l ON l.tenant_id = u.tenant_id
     CROSS JOIN LATERAL (
        SELECT CASE WHEN l.soft_warn_pct BETWEEN 1 AND 99 THEN l.soft_warn_pct ELSE 100 END::numeric AS pct) low
     WHERE CASE p_period_kind
           WHEN 'day' THEN
               l.daily_completions > 0 AND u.completions >= low.pct * l.daily_completions
               OR l.daily_input_tokens > 0 AND u.input_tokens >= low.pct * l.daily_input_tokens
               OR l.daily_output_tokens > 0 AND u.output_tokens >= low.pct * l.daily_output_tokens
               OR l.daily_tokens > 0 AND u.input_tokens + u.output_tokens >= low.pct * l.daily_tokens
               OR l.daily_cost_cents > 0 AND u.cost_cents >= low.pct * l.daily_cost_cents
           ELSE
               l.monthly_completions > 0 AND u.completions >= low.pct * l.monthly_completions
               OR l.monthly_tokens > 0 AND u.input_tokens + u.output_tokens >= low.pct * l.monthly_tokens
               OR l.monthly_cost_cents > 0 AND u.cost_cents >= low.pct * l.monthly_cost_cents
           END
    UNION
    SELECT r.tenant_id
      FROM quota_refusals r
     WHERE r.period >= p_start AND r.period < quota_warn_period_end(p_period_kind, p_start)
       AND r.reason = ANY (CASE p_period_kind
           WHEN 'day' THEN ARRAY['daily_cap_reached', 'daily_input_tokens_reached', 'daily_output_tokens_reached',
                                 'daily_tokens_reached', 'daily_cost_reached']
           ELSE ARRAY['monthly_completions_reached', 'monthly_tokens_reached', 'monthly_cost_reached'] END)
$$;
