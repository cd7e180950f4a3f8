-- Tenants that may have something to tell in one billing period: a dimension at its lowest threshold, or a
-- refusal by a cap. A few more than needed do no harm (quota_warn_tenants judges exactly), one less would.
--
-- p_moved: of these tenants only, by the key; NULL: of all, in one pass over the period's usage rows, for the scans
-- that can't go by what changed (quota_warn_moved), the first of each day.
CREATE OR REPLACE FUNCTION quota_warn_candidates(p_period_kind text, p_start date, p_moved text[] DEFAULT NULL)
RETURNS SETOF text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    WITH used AS (
        -- binary fractions: many times faster to sum, and what rounding may hide is added below
        SELECT u.tenant_id, sum(u.completions::float8) AS completions, sum(u.input_tokens::float8) AS input_tokens,
               sum(u.output_tokens::float8) AS output_tokens, sum(u.cost_nanos::float8) AS cost_nanos
          FROM v_quota_usage u
         WHERE p_moved IS NULL
           AND u.period >= p_start AND u.period < quota_warn_period_end(p_period_kind, p_start)
         GROUP BY u.tenant_id
        UNION ALL
        SELECT m.tenant_id, u.completions, u.input_tokens, u.output_tokens, u.cost_nanos
          FROM unnest(p_moved) AS m (tenant_id)
         CROSS JOIN LATERAL (
            SELECT sum(u.completions::float8) AS completions, sum(u.input_tokens::float8) AS input_tokens,
                   sum(u.output_tokens::float8) AS output_tokens, sum(u.cost_nanos::float8) AS cost_nanos
              FROM v_quota_usage u
             WHERE u.tenant_id = m.tenant_id
               AND u.period >= p_start AND u.period < quota_warn_period_end(p_period_kind, p_start)) u
    )
    SELECT l.tenant_id
      FROM used u
      JOIN tenant_limits l ON l.tenant_id = u.tenant_id
     CROSS JOIN LATERAL (
        SELECT (CASE WHEN l.soft_warn_pct BETWEEN 1 AND 99 THEN l.soft_warn_pct ELSE 100 END) * 0.00999999999::float8
               AS share) low
     WHERE CASE p_period_kind
           WHEN 'day' THEN
               l.daily_completions > 0 AND u.completions >= low.share * l.daily_completions
               OR l.daily_input_tokens > 0 AND u.input_tokens >= low.share * l.daily_input_tokens
               OR l.daily_output_tokens > 0 AND u.output_tokens >= low.share * l.daily_output_tokens
               OR l.daily_tokens > 0 AND u.input_tokens + u.output_tokens >= low.share * l.daily_tokens
               OR l.daily_cost_cents > 0 AND u.cost_nanos >= low.share * l.daily_cost_cents * 1e7
           ELSE
               l.monthly_completions > 0 AND u.completions >= low.share * l.monthly_completions
               OR l.monthly_tokens > 0 AND u.input_tokens + u.output_tokens >= low.share * l.monthly_tokens
               OR l.monthly_cost_cents > 0 AND u.cost_nanos >= low.share * l.monthly_cost_cents * 1e7
           END
    UNION
    SELECT r.tenant_id
      FROM quota_refusals r
     WHERE r.period >= p_start AND r.period < quota_warn_period_end(p_period_kind, p_start)
       AND (p_moved IS NULL OR r.tenant_id = ANY (p_moved))
       AND r.reason = ANY (CASE p_period_kind
           WHEN 'day' THEN ARRAY['daily_cap_reached', 'daily_input_tokens_reached', 'daily_output_tokens_reached',
                                 'daily_tokens_reached', 'daily_cost_reached']
           ELSE ARRAY['monthly_completions_reached', 'monthly_tokens_reached', 'monthly_cost_reached'] END)
$$;
