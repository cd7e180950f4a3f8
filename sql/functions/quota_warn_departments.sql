-- Where department budgets stand in one billing month: one row per budgeted dimension of a pool.
--
-- cap = budget + the top-ups live at p_at (a NULL budget stays no limit, a cap of 0 raises no message); cost in
-- nanos. A refusal for want of budget doesn't say which of the two it was: it counts for the fuller one (a budget of
-- 0 is full before all, so then no message tells it), and for the pool to which its tenant belongs now. Takes no locks.
CREATE OR REPLACE FUNCTION quota_warn_departments(p_month date, p_at timestamptz, p_departments text[] DEFAULT NULL)
RETURNS TABLE (subject text, environment text, dimension text, used numeric, held numeric, cap numeric,
               pcts int[], severities text[], refused_at timestamptz)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
-- whatever its caller has set: by the keys
SET enable_nestloop = on
AS $$
    WITH refused AS MATERIALIZED (
        SELECT l.department_id, l.environment, max(r.last_at) AS refused_at
          FROM quota_refusals r JOIN tenant_limits l ON l.tenant_id = r.tenant_id
         WHERE r.reason = 'department_budget_exhausted'
           AND r.period >= p_month AND r.period < quota_warn_period_end('month', p_month)
         GROUP BY l.department_id, l.environment
    ), stand AS (
        SELECT b.department_id, b.environment, d.dimension, d.used, d.held, d.cap,
               ARRAY[b.warn_pct, b.downgrade_pct, b.protect_pct, 100] AS pcts,
               row_number() OVER (PARTITION BY b.department_id, b.environment
                                  ORDER BY d.cap <= 0 DESC, d.used / nullif(d.cap, 0) DESC, d.dimension) AS fullness
          FROM department_budgets b
         CROSS JOIN LATERAL quota_department_standing(b.department_id, b.environment, p_month, p_at) u
         CROSS JOIN LATERAL (
            SELECT coalesce(sum(s.tokens_held), 0) AS tokens, coalesce(sum(s.cost_held_nanos), 0) AS cost_nanos
              FROM quota_department_slots s
             WHERE s.department_id = b.department_id AND s.environment = b.environment AND s.month = p_month) h
         CROSS JOIN LATERAL (VALUES
            ('tokens', u.tokens_used, h.tokens, u.budget_tokens),
            ('cost', u.cost_used_nanos, h.cost_nanos, u.budget_cost_nanos)
         ) AS d (dimension, used, held, cap)
         WHERE d.cap IS NOT NULL AND (p_departments IS NULL OR b.department_id = ANY (p_departments))
    )
    SELECT s.department_id, s.environment, s.dimension, s.used, s.held, s.cap, s.pcts,
           ARRAY['warning', 'downgrade', 'protected', 'exhausted'],
           CASE WHEN s.fullness = 1 THEN f.refused_at END
      FROM stand s
      LEFT JOIN refused f ON f.department_id = s.department_id AND f.environment = s.environment
     WHERE s.cap > 0
$$;
