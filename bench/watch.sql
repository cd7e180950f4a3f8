-- The fleet for the watch: a million tenants, of whom one in fifty is active in the last hour. Of the active one in ten
-- makes half of the requests; each has a history of eight days, and none is told: the dearest quiet pass.
CREATE FUNCTION load_for_watch(p_tenants int, p_requests int) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO departments (department_id, name) SELECT 'dep-' || d, 'Department ' || d FROM generate_series(0, 199) d;
    INSERT INTO department_budgets (department_id, environment, monthly_tokens)
    SELECT 'dep-' || d, 'production', 1000000000000 FROM generate_series(0, 199) d;
    -- a cap that the pace of a busy one is three times too fast for, and that lasts longer than four hours
    INSERT INTO tenant_limits (tenant_id, department_id, daily_completions)
    SELECT 'tenant-' || t, 'dep-' || t % 200, CASE WHEN t % 500 = 0 THEN 900 ELSE 100000 END
      FROM generate_series(0, p_tenants - 1) t;
    INSERT INTO quota_usage (tenant_id, period, completions, input_tokens, output_tokens, cost_cents)
    SELECT 'tenant-' || t, quota_day(now()), 130, 7000, 7000, 7 FROM generate_series(0, p_tenants - 1) t;
    -- six hours in the order of their admission; a quarter of an hour is still to come, for loading takes minutes
    INSERT INTO quota_reservations (
        tenant_id, request_id, state, period, department_id, environment, estimated_in_tokens, estimated_out_tokens,
        estimated_cost_nanos, charged_in_tokens, charged_out_tokens, charged_cost_nanos, ttl_seconds, admitted_at,
        expires_at, ended_at, requested_model, answered_model, model, app, api_key, usage_in_tokens, usage_out_tokens,
        usage_cost_nanos)
    SELECT 'tenant-' || a.tenant, 'request-' || r.number, 'settled', quota_day(a.admitted_at), 'dep-' || a.tenant % 200,
           'production', 1000, 500, 1000000, 800 + r.number % 997, 200, 700000, 600, a.admitted_at,
           a.admitted_at + interval '600 s', a.admitted_at + interval '9 s', 'large', 'large', 'large',
           'app-' || a.tenant % 7, 'key-1', 800 + r.number % 997, 200, 700000
      FROM generate_series(0, p_requests * 6 - 1) AS r (number)
     CROSS JOIN LATERAL (
        SELECT CASE WHEN r.number % 2 = 0 THEN r.number / 2 % (p_tenants / 500) * 500
                    ELSE r.number / 2 % (p_tenants / 50) * 50 END AS tenant,
               now() - interval '345 minutes' + interval '6 hours' * r.number / (p_requests * 6) AS admitted_at) a
     ORDER BY r.number;
    INSERT INTO quota_paces (tenant_id, app, api_key, hour, requests, minutes, tokens, cost_nanos)
    SELECT 'tenant-' || t.tenant, 'app-' || t.tenant % 7, 'key-1',
           date_trunc('hour', now()) - interval '1 hour' * h.back, 60, 40, 90000, 42000000
      FROM generate_series(192, 8, -1) AS h (back)
     CROSS JOIN generate_series(0, p_tenants - 1, 50) AS t (tenant);
END;
