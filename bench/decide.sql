-- The fleet for the warning decision: every tenant at 70 % of today's completions, and far from its other caps.
CREATE FUNCTION load_for_warning(p_tenants int) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO departments (department_id, name) SELECT 'dep-' || d, 'Department ' || d FROM generate_series(0, 199) d;
    INSERT INTO department_budgets (department_id, environment, monthly_tokens)
    SELECT 'dep-' || d, 'production', 1000000000000 FROM generate_series(0, 199) d;
    INSERT INTO tenant_limits (tenant_id, department_id, daily_completions)
    SELECT 'tenant-' || t, 'dep-' || t % 200, 1000 FROM generate_series(0, p_tenants - 1) t;
    INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens, cost_cents,
                             booked_completions, booked_input_tokens, booked_output_tokens, booked_cost_nanos,
                             legacy_completions, legacy_input_tokens, legacy_output_tokens, legacy_cost_nanos)
    SELECT 'tenant-' || t, quota_day(clock_timestamp()), 700, 7000, 7000, 7, 700, 7000, 7000, 70000000, 700, 7000, 7000, 70000000
      FROM generate_series(0, p_tenants - 1) t;
END;

-- One percent of the tenants make a request, every tenth of them 150: those cross their threshold.
CREATE FUNCTION move_for_warning(p_round int) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    UPDATE quota_usage u
       SET completions = u.completions + CASE WHEN n.number % 1000 = p_round THEN 150 ELSE 1 END,
           booked_completions = u.booked_completions + CASE WHEN n.number % 1000 = p_round THEN 150 ELSE 1 END,
           legacy_completions = u.legacy_completions + CASE WHEN n.number % 1000 = p_round THEN 150 ELSE 1 END
      FROM (SELECT l.tenant_id, substr(l.tenant_id, 8)::int AS number FROM tenant_limits l) n
     WHERE n.tenant_id = u.tenant_id AND n.number % 100 = p_round;
END;
