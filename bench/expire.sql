-- Reservations whose time ran out, with days and departments that agree with them.

-- p_tenants tenants in p_departments departments with budgets, every limit far away; of ten tenants eight go by the
-- policy 'estimate', one by 'partial', one by 'release'. Next to nothing of a budget is used.
CREATE FUNCTION load_for_expiry(p_tenants int, p_departments int) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO departments (department_id, name) SELECT 'dep-' || d, 'Department ' || d FROM generate_series(0, p_departments - 1) d;
    INSERT INTO department_budgets (department_id, environment, monthly_tokens, monthly_cost_cents)
    SELECT 'dep-' || d, 'production', 1000000000000, 100000000000 FROM generate_series(0, p_departments - 1) d;
    INSERT INTO tenant_limits (
        tenant_id, department_id, daily_completions, daily_input_tokens, daily_output_tokens, daily_tokens, daily_cost_cents,
        monthly_completions, monthly_tokens, monthly_cost_cents, bucket_capacity, bucket_refill_per_sec, stale_policy)
    SELECT 'tenant-' || t, 'dep-' || t % p_departments, 1000000000, 1000000000000, 1000000000000, 2000000000000, 1000000000,
           30000000000, 60000000000000, 30000000000, 1000000000, 1000000,
           CASE t % 10 WHEN 3 THEN 'partial' WHEN 7 THEN 'release' ELSE 'estimate' END
    FROM generate_series(0, p_tenants - 1) t;
END;

-- Each tenant's first request of the day, so that the day's row and the department's slots are as the functions make them.
CREATE PROCEDURE warm_for_expiry(p_tenants int)
LANGUAGE plpgsql
AS $$
BEGIN
    FOR t IN 0 .. p_tenants - 1 LOOP
        PERFORM quota_reserve('tenant-' || t, 'first', 500, 200, 1500000, 'large', 'chat', 'key-7', 'user-7');
        PERFORM quota_settle('tenant-' || t, 'first', 500, 200, 1500000);
        -- each tenant's lock is kept to the end of the transaction
        IF t % 100 = 0 THEN
            COMMIT;
        END IF;
        -- plans made while the tables were empty are made anew
        IF t IN (100, 1000) THEN
            ANALYZE quota_usage, quota_reservations, quota_department_slots;
        END IF;
    END LOOP;
END $$;

-- p_overdue open reservations, admitted and run out today in the order of their places, by turns of all tenants.
CREATE FUNCTION load_overdue(p_tenants int, p_departments int, p_overdue bigint) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_day   date := quota_day(clock_timestamp());
    v_begin timestamptz := quota_day_start(v_day);
    v_span  interval := (clock_timestamp() - v_begin) * 0.9;
BEGIN
    INSERT INTO quota_reservations (
        tenant_id, request_id, period, department_id, environment, estimated_in_tokens, estimated_out_tokens,
        estimated_cost_nanos, progress_out_tokens, ttl_seconds, admitted_at, expires_at,
        requested_model, answered_model, model, app, api_key, end_user)
    SELECT 'tenant-' || k.t, 'late-' || n, v_day, 'dep-' || k.t % p_departments, 'production', 500, 200, 1500000, 50,
           1, k.at, k.at + interval '1 second', 'large', 'large', 'large', 'chat', 'key-7', 'user-7'
    FROM generate_series(0, p_overdue - 1) n
        CROSS JOIN LATERAL (SELECT n * 7919 % p_tenants AS t, v_begin + v_span * (n::float8 / p_overdue) AS at) k;

    UPDATE quota_usage u SET
        completions          = u.completions + q.n,
        input_tokens         = u.input_tokens + q.i,
        output_tokens        = u.output_tokens + q.o,
        cost_cents           = u.cost_cents + (u.cost_subcent_nanos + q.c) / 10000000,
        cost_subcent_nanos   = (u.cost_subcent_nanos + q.c) % 10000000,
        held_input_tokens    = u.held_input_tokens + q.i,
        held_output_tokens   = u.held_output_tokens + q.o,
        held_cost_nanos      = u.held_cost_nanos + q.c,
        booked_completions   = u.booked_completions + q.n,
        booked_input_tokens  = u.booked_input_tokens + q.i,
        booked_output_tokens = u.booked_output_tokens + q.o,
        booked_cost_nanos    = u.booked_cost_nanos + q.c
    FROM (SELECT r.tenant_id, r.period, count(*) AS n, sum(r.estimated_in_tokens)::bigint AS i,
                 sum(r.estimated_out_tokens)::bigint AS o, sum(r.estimated_cost_nanos)::bigint AS c
          FROM quota_reservations r WHERE r.state = 'open' GROUP BY 1, 2) q
    WHERE u.tenant_id = q.tenant_id AND u.period = q.period;

    UPDATE quota_department_slots s SET
        tokens_used     = s.tokens_used + q.t,
        cost_used_nanos = s.cost_used_nanos + q.c,
        tokens_held     = s.tokens_held + q.t,
        cost_held_nanos = s.cost_held_nanos + q.c
    FROM (SELECT r.department_id, quota_month(r.period) AS month,
                 sum(r.estimated_in_tokens + r.estimated_out_tokens)::bigint AS t, sum(r.estimated_cost_nanos)::bigint AS c
          FROM quota_reservations r WHERE r.state = 'open' GROUP BY 1, 2) q
    WHERE s.department_id = q.department_id AND s.month = q.month
      AND s.slot = (SELECT min(x.slot) FROM quota_department_slots x WHERE x.department_id = q.department_id AND x.month = q.month);
END $$;
