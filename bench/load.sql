-- The fleet that is measured: every feature on, every limit far away.

-- p_tenants tenants (tenant-0 and on) in p_departments departments with budgets, p_days closed days of usage
-- before today, and p_reservations ended requests spread over those days (included in the usage). One more
-- tenant, tenant-<p_tenants>, may make one request a day. A month uses about one percent of its budget.
CREATE FUNCTION bench.load(p_tenants int, p_departments int, p_days int, p_reservations bigint) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_today date := quota_day(clock_timestamp());
BEGIN
    INSERT INTO departments (department_id, name, owner_emails)
    SELECT 'dep-' || d, 'Department ' || d, ARRAY['owner@dep-' || d || '.example']
    FROM generate_series(0, p_departments - 1) d;

    INSERT INTO department_budgets (department_id, environment, monthly_tokens, monthly_cost_cents, downgrade_model)
    SELECT 'dep-' || d, 'production', 210000000::bigint * p_tenants / p_departments, 45000::bigint * p_tenants / p_departments, 'small'
    FROM generate_series(0, p_departments - 1) d;

    INSERT INTO tenant_limits (
        tenant_id, department_id, daily_completions, daily_input_tokens, daily_output_tokens, daily_tokens,
        daily_cost_cents, monthly_completions, monthly_tokens, monthly_cost_cents, bucket_capacity, bucket_refill_per_sec)
    SELECT 'tenant-' || t, 'dep-' || t % p_departments, 1000000000, 1000000000000, 1000000000000, 2000000000000,
           1000000000, 30000000000, 60000000000000, 30000000000, 1000000000, 1000000
    FROM generate_series(0, p_tenants - 1) t;
    INSERT INTO tenant_limits (tenant_id, department_id, daily_completions, bucket_capacity, bucket_refill_per_sec)
    VALUES ('tenant-' || p_tenants, 'dep-0', 1, 1000000000, 1000000);

    -- In the order of their times, as in life.
    INSERT INTO quota_reservations (
        tenant_id, request_id, state, period, department_id, environment,
        estimated_in_tokens, estimated_out_tokens, estimated_cost_nanos,
        charged_in_tokens, charged_out_tokens, charged_cost_nanos, usage_in_tokens, usage_out_tokens, usage_cost_nanos,
        ttl_seconds, admitted_at, expires_at, ended_at, requested_model, answered_model, model, app, api_key, end_user)
    SELECT 'tenant-' || n % p_tenants, 'h-' || n, 'settled', at.period, 'dep-' || n % p_tenants % p_departments,
           'production', 500, 200, 1500000, 500, 200, 1500000, 500, 200, 1500000,
           600, at.admitted_at, at.admitted_at + interval '600 seconds', at.admitted_at + interval '5 seconds',
           'large', 'large', 'large', 'chat', 'key-7', 'user-7'
    FROM generate_series(0, p_reservations - 1) n,
         LATERAL (SELECT v_today - p_days + (n * p_days / p_reservations)::int AS period,
                         quota_day_start(v_today - p_days + (n * p_days / p_reservations)::int)
                         + n * p_days % p_reservations / (p_reservations + 1.0) * interval '23 hours' AS admitted_at) at;

    -- A hundred requests per tenant and day; those without a reservation are legacy charges.
    INSERT INTO quota_usage (
        tenant_id, period, completions, input_tokens, output_tokens, cost_cents,
        booked_completions, booked_input_tokens, booked_output_tokens, booked_cost_nanos,
        legacy_completions, legacy_input_tokens, legacy_output_tokens, legacy_cost_nanos)
    SELECT 'tenant-' || t, v_today - d, c.n, 500 * c.n, 200 * c.n, c.n * 1500000 / 10000000,
           c.n, 500 * c.n, 200 * c.n, c.n * 1500000 / 10000000 * 10000000,
           c.n - r.n, 500 * (c.n - r.n), 200 * (c.n - r.n), c.n * 1500000 / 10000000 * 10000000 - 1500000 * r.n
    FROM generate_series(p_days, 1, -1) d CROSS JOIN generate_series(0, p_tenants - 1) t
        LEFT JOIN (SELECT q.tenant_id, q.period, count(*) AS n FROM quota_reservations q GROUP BY 1, 2) q
          ON q.tenant_id = 'tenant-' || t AND q.period = v_today - d
        CROSS JOIN LATERAL (SELECT coalesce(q.n, 0) AS n) r
        CROSS JOIN LATERAL (SELECT ceil(greatest(r.n, 100) / 20.0)::bigint * 20 AS n) c;

    INSERT INTO quota_department_slots (department_id, environment, month, slot, tokens_used, cost_used_nanos)
    SELECT m.department_id, 'production', m.month, s, CASE s WHEN 0 THEN m.tokens ELSE 0 END, CASE s WHEN 0 THEN m.nanos ELSE 0 END
    FROM (SELECT l.department_id, quota_month(u.period) AS month, sum(u.input_tokens + u.output_tokens) AS tokens,
                 sum(u.cost_cents * 10000000) AS nanos
          FROM quota_usage u JOIN tenant_limits l USING (tenant_id) GROUP BY 1, 2) m
        CROSS JOIN generate_series(0, 15) s;

    INSERT INTO bench.buckets (tenant_id, tokens, capacity, refill_rate, daily_completions, daily_input_tokens,
                               daily_output_tokens, daily_cost_cents)
    SELECT l.tenant_id, l.bucket_capacity, l.bucket_capacity, l.bucket_refill_per_sec, l.daily_completions,
           1000000000000, 1000000000000, 1000000000
    FROM tenant_limits l;
    INSERT INTO bench.usage (tenant_id, period, completions, input_tokens, output_tokens, cost_cents)
    SELECT u.tenant_id, u.period, u.completions, u.input_tokens, u.output_tokens, u.cost_cents FROM quota_usage u;
    INSERT INTO bench.floor (tenant_id) SELECT l.tenant_id FROM tenant_limits l;
END $$;

-- The first request of the day of every tenant, on both sides: what is measured is the day's traffic.
CREATE PROCEDURE bench.warm()
LANGUAGE plpgsql
AS $$
DECLARE
    v_tenants text[] := ARRAY(SELECT l.tenant_id FROM tenant_limits l ORDER BY l.tenant_id);
BEGIN
    FOR i IN 1 .. cardinality(v_tenants) LOOP
        PERFORM quota_reserve(v_tenants[i], 'first-' || i, 500, 200, 1500000, 'large', 'chat', 'key-7', 'user-7');
        PERFORM quota_settle(v_tenants[i], 'first-' || i, 500, 200, 1500000);
        PERFORM bench.two_table(v_tenants[i], 500, 200, 1);
        -- each tenant's lock is kept to the end of the transaction
        IF i % 100 = 0 THEN
            COMMIT;
        END IF;
    END LOOP;
END $$;
