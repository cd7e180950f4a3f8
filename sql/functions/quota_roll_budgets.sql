-- Notes the budgets and top-ups of an open month, of every department and environment that has either, or usage.
--
-- A top-up counts where its time meets the month's: allowances that followed one another add up. Internal to
-- quota_roll_month, which holds the month's row: after its closing they stay.
CREATE OR REPLACE FUNCTION quota_roll_budgets(p_month date) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    WITH given AS (
        SELECT t.department_id, t.environment, count(*)::int AS topups, sum(t.tokens) AS tokens,
               sum(t.cost_cents) AS cost_cents
          FROM quota_topups t
         WHERE t.valid_from < quota_month_end(p_month) AND t.expires_at > quota_day_start(p_month)
         GROUP BY t.department_id, t.environment
    ), budgets AS MATERIALIZED (
        SELECT k.department_id, k.environment, b.monthly_tokens, b.monthly_cost_cents, b.warn_pct, b.downgrade_pct,
               b.protect_pct, coalesce(g.topups, 0) AS topups, coalesce(g.tokens, 0) AS topup_tokens,
               coalesce(g.cost_cents, 0) AS topup_cost_cents
          FROM (SELECT d.department_id, d.environment FROM quota_month_days d
                 WHERE d.month = p_month AND d.department_id <> ''
                UNION SELECT e.department_id, e.environment FROM department_budgets e
                UNION SELECT i.department_id, i.environment FROM given i) k
          LEFT JOIN department_budgets b USING (department_id, environment)
          LEFT JOIN given g USING (department_id, environment)
    ), gone AS (
        DELETE FROM quota_month_budgets q
         WHERE q.month = p_month
           AND NOT EXISTS (SELECT FROM budgets b
                            WHERE b.department_id = q.department_id AND b.environment = q.environment)
    )
    INSERT INTO quota_month_budgets AS q
           (month, department_id, environment, monthly_tokens, monthly_cost_cents, warn_pct, downgrade_pct, protect_pct,
            topups, topup_tokens, topup_cost_cents)
    SELECT p_month, b.* FROM budgets b
        ON CONFLICT ON CONSTRAINT quota_month_budgets_pkey DO UPDATE
       SET monthly_tokens = excluded.monthly_tokens, monthly_cost_cents = excluded.monthly_cost_cents,
           warn_pct = excluded.warn_pct, downgrade_pct = excluded.downgrade_pct, protect_pct = excluded.protect_pct,
           topups = excluded.topups, topup_tokens = excluded.topup_tokens, topup_cost_cents = excluded.topup_cost_cents
     WHERE (q.monthly_tokens, q.monthly_cost_cents, q.warn_pct, q.downgrade_pct, q.protect_pct, q.topups, q.topup_tokens,
            q.topup_cost_cents)
           IS DISTINCT FROM (excluded.monthly_tokens, excluded.monthly_cost_cents, excluded.warn_pct,
            excluded.downgrade_pct, excluded.protect_pct, excluded.topups, excluded.topup_tokens, excluded.topup_cost_cents)
$$;
