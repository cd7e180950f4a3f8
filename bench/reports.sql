-- Months as roll_month leaves them, and nothing else: what reports are computed from.

-- August and September 2026, closed; in each, p_departments departments of four tenants each with 20 apps, 5 models, 30
-- days and a budget, an owner's address and orders.
CREATE FUNCTION load_for_reports(p_departments int) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO departments (department_id, name, owner_emails)
    SELECT 'dep-' || d, 'Department ' || d, ARRAY['owner-' || d || '@example.com'] FROM generate_series(1, p_departments) d;
    INSERT INTO quota_months (month, rolled_at, closed_at)
    SELECT m, quota_month_end(m) + interval '3 days', quota_month_end(m) + interval '3 days'
    FROM unnest(ARRAY['2026-08-01', '2026-09-01']::date[]) m;
    INSERT INTO quota_month_parts (
        month, belongs_to, tenant_id, department_id, environment, model, app, completions, input_tokens, cached_in_tokens,
        output_tokens, cost_nanos, stale_count, stale_cost_nanos, released_count, unpriced_count, downgraded_count, downgraded_tokens)
    SELECT m.month, m.month, 'tenant-' || d || '-' || k % 4, 'dep-' || d, 'production', 'model-' || k % 5, 'app-' || k,
           100, 1000 * k, 100 * k, 500, 1000000000 + d * k, 1, 1000, 2, 0, 3, 300
    FROM quota_months m, generate_series(1, p_departments) d, generate_series(1, 20) k;
    INSERT INTO quota_month_days
    SELECT m.month, m.month + k, 'dep-' || d, 'production', 100, 1000, 100, 500, 700000000, 1, 700, 1, 0, 2, 200
    FROM quota_months m, generate_series(1, p_departments) d, generate_series(0, 29) k;
    INSERT INTO quota_month_budgets
    SELECT m.month, 'dep-' || d, 'production', NULL, 100000, 75, 90, 98, 0, 0, 0
    FROM quota_months m, generate_series(1, p_departments) d;
    INSERT INTO quota_monthly_totals (
        tenant_id, month, department_id, environment, completions, input_tokens, output_tokens, cost_nanos, stale_count,
        stale_cost_nanos, closed, closed_at)
    SELECT p.tenant_id, p.month, p.department_id, p.environment, sum(p.completions), sum(p.input_tokens),
           sum(p.output_tokens), sum(p.cost_nanos), sum(p.stale_count), sum(p.stale_cost_nanos), true, min(m.closed_at)
    FROM quota_month_parts p JOIN quota_months m USING (month)
    GROUP BY 1, 2, 3, 4;
    INSERT INTO quota_outcomes (month, department_id, metric, value, import_id)
    SELECT m.month, 'dep-' || d, 'orders', 10 * d, 1 FROM quota_months m, generate_series(1, p_departments) d;
END;
