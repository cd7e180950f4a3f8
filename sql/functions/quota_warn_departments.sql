-- Where department budgets stand in one billing month: one row per budgeted dimension of a pool.
--
-- cap = budget + the top-ups live at p_at (a NULL budget stays no limit, a cap of 0 raises no message); cost in
-- nanos. A refusal for want of budget doesn't say which of the two it was: it counts for the fuller one, and
-- for the pool to which its tenant belongs now. Takes no locks.
CREATE OR REPLACE FUNCTION quota_warn_departments(p_month date, p_at timestamptz, p_departments text[] DEFAULT NULL)
RETURNS TABLE (subject text, environment text, dimension text, used numeric, held numeric, cap numeric,
               pcts int[], severities text[], refused_at timestamptz)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    WITH refused AS MATERIALIZED (
        SELECT l.department_id, l.environment, max(r.last_at) AS refused_at
          FROM quota_refusals r JOIN tenant_limits l ON l.tenant_id = r.tenant_id
         WHERE r.reason = 'department_budget_exhausted'
           AND r.period >= p_month AND r.period < quota_warn_period_end('month', p_month)
         GROUP BY l.department_id, l.environment
    ), live AS MATERIALIZED (
        SELECT t.department_id, t.environment, sum(t.tokens) AS tokens, sum(t.cost_cents) AS cost_cents
          FROM quota_topups t
         WHERE t.valid_from <= p_at AND p_at < t.expires_at
         GROUP BY t.department_id, t.environment
    ), stand AS (
        SELECT b.department_id, b.environment, d.dimension, d.used, d.held, d.cap,
               ARRAY[b.warn_pct, b.downgrade_pct, b.protect_pct, 100] AS pcts,
               row_number() OVER (PARTITION BY b.department_id, b.environment
                                  ORDER BY d.used / d.cap DESC, d.dimension) AS fullness
          FROM department_budgets b
          LEFT JOIN live t ON t.department_id = b.department_id AND t.environment = b.environment
         CROSS JOIN LATERAL quota_department_used(b.department_id, b.environment, p_month) u
         CROSS JOIN LATERAL (VALUES
            ('tokens', u.tokens_used::numeric, u.tokens_held::numeric,
                b.monthly_tokens + coalesce(t.tokens, 0)),
            ('cost', u.cost_used_nanos::numeric, u.cost_held_nanos::numeric,
                (b.monthly_cost_cents + coalesce(t.cost_cents, 0)) * 10000000)
         ) AS d (dimension, used, held, cap)
         WHERE d.cap > 0 AND (p_departments IS NULL OR b.department_id = ANY (p_departments))
    )
    SELECT s.department_id, s.environment, s.dimension, greatest(s.used, s.held, 0), s.held, s.cap, s.pcts,
           ARRAY['warning', 'downgrade', 'protected', 'exhausted'],
           CASE WHEN s.fullness = 1 THEN f.refused_at END
      FROM stand s
      LEFT JOIN refused f ON f.department_id = s.department_id AND f.environment = s.environment
$$;
