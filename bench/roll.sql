-- A month of daily rows: every tenant has a row for each of its days.

-- p_tenants tenants in p_departments departments with budgets; p_rows daily rows of the 30 days of September 2026, all
-- of charges without a request.
CREATE FUNCTION load_for_roll(p_tenants int, p_departments int, p_rows bigint) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO departments (department_id, name) SELECT 'dep-' || d, 'Department ' || d FROM generate_series(0, p_departments - 1) d;
    INSERT INTO department_budgets (department_id, environment, monthly_tokens, monthly_cost_cents)
    SELECT 'dep-' || d, 'production', 1000000000000, 100000000000 FROM generate_series(0, p_departments - 1) d;
    INSERT INTO tenant_limits (tenant_id, department_id) SELECT 'tenant-' || t, 'dep-' || t % p_departments FROM generate_series(0, p_tenants - 1) t;
    INSERT INTO quota_usage (
        tenant_id, period, completions, input_tokens, output_tokens, cost_cents, cost_subcent_nanos,
        booked_completions, booked_input_tokens, booked_output_tokens, booked_cost_nanos,
        legacy_completions, legacy_input_tokens, legacy_output_tokens, legacy_cost_nanos)
    SELECT 'tenant-' || n % p_tenants, '2026-09-01'::date + (n / p_tenants)::int, k.c, 500 * k.c, 200 * k.c, 15 * k.c / 100,
           15 * k.c % 100 * 100000, k.c, 500 * k.c, 200 * k.c, 1500000 * k.c, k.c, 500 * k.c, 200 * k.c, 1500000 * k.c
    FROM generate_series(0, p_rows - 1) n CROSS JOIN LATERAL (SELECT n * 7919 % 1000 AS c) k;
END;

-- p_requests ended requests of the month beside, spread over its days, of every 100th tenant by turns, each with a model
-- and two apps, and in the days' rows.
CREATE FUNCTION load_requests_for_roll(p_tenants int, p_departments int, p_requests bigint) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO quota_reservations (
        tenant_id, request_id, state, period, department_id, environment,
        estimated_in_tokens, estimated_out_tokens, estimated_cost_nanos,
        charged_in_tokens, charged_out_tokens, charged_cost_nanos, usage_in_tokens, usage_out_tokens, usage_cost_nanos,
        ttl_seconds, admitted_at, expires_at, ended_at, requested_model, answered_model, model, app)
    SELECT 'tenant-' || k.t, 'r-' || n, 'settled', k.day, 'dep-' || k.t % p_departments,
           'production', 500, 200, 1500000, 500, 200, 1500000, 500, 200, 1500000,
           600, k.at, k.at + interval '600 seconds', k.at, 'm-' || k.t % 5, 'm-' || k.t % 5, 'm-' || k.t % 5, 'app-' || n % 2
    FROM generate_series(0, p_requests - 1) n
        CROSS JOIN LATERAL (SELECT n * 7919 / 2 % (p_tenants / 100 + 1) * 100 % p_tenants AS t,
                                   '2026-09-01'::date + (n * 30 / p_requests)::int AS day,
                                   quota_day_start('2026-09-01') + interval '30 days' * (n::float8 / p_requests) AS at) k;
    UPDATE quota_usage u SET
        completions = u.completions + q.n, input_tokens = u.input_tokens + 500 * q.n, output_tokens = u.output_tokens + 200 * q.n,
        cost_cents = u.cost_cents + (u.cost_subcent_nanos + 1500000 * q.n) / 10000000,
        cost_subcent_nanos = (u.cost_subcent_nanos + 1500000 * q.n) % 10000000,
        booked_completions = u.booked_completions + q.n, booked_input_tokens = u.booked_input_tokens + 500 * q.n,
        booked_output_tokens = u.booked_output_tokens + 200 * q.n, booked_cost_nanos = u.booked_cost_nanos + 1500000 * q.n
    FROM (SELECT r.tenant_id, r.period, count(*) AS n FROM quota_reservations r GROUP BY 1, 2) q
    WHERE u.tenant_id = q.tenant_id AND u.period = q.period;
END $$;

-- The baseline's table: as the totals', with its keys.
CREATE TABLE bare_totals (LIKE quota_monthly_totals INCLUDING ALL);
