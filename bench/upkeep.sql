-- Reservations of a month that was closed long ago, and removing them without the worker.

-- p_old settled reservations of p_tenants tenants by turns, in the order of their times, three months ago.
CREATE FUNCTION load_old(p_tenants int, p_departments int, p_old bigint) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_month date := (quota_month(quota_day(clock_timestamp())) - interval '3 months')::date;
    v_begin timestamptz := quota_day_start(v_month);
BEGIN
    INSERT INTO quota_months (month, closed_at) VALUES (v_month, quota_month_end(v_month) + interval '3 days'),
        ((v_month + interval '1 month')::date, clock_timestamp() - interval '1 day');
    INSERT INTO quota_reservations (
        tenant_id, request_id, state, period, department_id, environment, estimated_in_tokens, estimated_out_tokens,
        estimated_cost_nanos, charged_in_tokens, charged_out_tokens, charged_cost_nanos, ttl_seconds, admitted_at, expires_at,
        ended_at, requested_model, answered_model, model, app, api_key, end_user, usage_id, usage_in_tokens, usage_out_tokens,
        usage_cost_nanos)
    SELECT 'tenant-' || k.t, 'old-' || n, 'settled', quota_day(k.at), 'dep-' || k.t % p_departments, 'production', 500, 200, 1500000,
           480, 150, 1300000, 600, k.at, k.at + interval '10 minutes', k.at + interval '3 seconds', 'large', 'large', 'large',
           'chat', 'key-7', 'user-7', 'usage-' || n, 480, 150, 1300000
    FROM generate_series(0, p_old - 1) n
        CROSS JOIN LATERAL (SELECT n * 7919 % p_tenants AS t, v_begin + interval '27 days' * (n::float8 / p_old) AS at) k;
END $$;
