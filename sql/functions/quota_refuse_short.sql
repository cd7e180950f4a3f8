-- The short path of a refusal, for storms: would this request surely be refused by a cap of the day, by the bucket or
-- by a block? Judged from an unlocked read, in the contract's order; it takes no lock and writes no row. reason is NULL
-- where the answer isn't plain (a month's cap, a department near a line, a replay): then the usual way decides.
-- quota_reserve asks here first if this session's last refusal was of the same tenant.
CREATE OR REPLACE FUNCTION quota_refuse_short(
    p_tenant text, p_request_id text, p_in_tokens bigint, p_out_tokens bigint, p_cost_nanos bigint, p_now timestamptz,
    OUT reason text, OUT tier text, OUT limit_name text, OUT limit_value bigint, OUT limit_used bigint,
    OUT resets_at timestamptz, OUT retry_after_seconds numeric
) RETURNS record
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_day   date := (p_now AT TIME ZONE quota_zone())::date;
    v_n     int;
    v_comp  bigint;
    v_in    bigint;
    v_out   bigint;
    v_cents bigint;
    v_cap_comp  bigint;
    v_cap_in    bigint;
    v_cap_out   bigint;
    v_cap_cents bigint;
    v_tier  smallint;
    v_cap   double precision;
    v_rate  double precision;
    v_level double precision;
    v_at    timestamptz;
BEGIN
    SELECT CASE
               WHEN u.completions >= l.daily_completions THEN 1
               WHEN u.input_tokens >= l.daily_input_tokens OR u.input_tokens + p_in_tokens > l.daily_input_tokens THEN 2
               WHEN u.output_tokens >= l.daily_output_tokens OR u.output_tokens + p_out_tokens > l.daily_output_tokens THEN 3
               WHEN u.input_tokens + u.output_tokens + p_in_tokens + p_out_tokens >= l.daily_tokens THEN NULL
               WHEN u.cost_cents >= l.daily_cost_cents THEN 4
               WHEN u.completions < u.ceiling_completions
                    AND u.input_tokens + u.output_tokens + p_in_tokens + p_out_tokens < u.ceiling_tokens
                    AND u.cost_cents + p_cost_nanos / 10000000 + 1 < u.ceiling_cost_cents
                    AND u.limits_ctid = l.ctid AND u.limits_xmin = l.xmin
                    AND u.bucket_tokens + l.bucket_refill_per_sec * greatest(date_part('epoch', p_now - u.bucket_at), 0) < 1 - 1e-9
                    THEN 5
           END AS n,
           u.completions, u.input_tokens, u.output_tokens, u.cost_cents,
           l.daily_completions, l.daily_input_tokens, l.daily_output_tokens, l.daily_cost_cents,
           l.bucket_capacity, l.bucket_refill_per_sec, u.bucket_tokens, u.bucket_at, s.band_tier
    INTO v_n, v_comp, v_in, v_out, v_cents, v_cap_comp, v_cap_in, v_cap_out, v_cap_cents, v_cap, v_rate, v_level, v_at, v_tier
    FROM tenant_limits l
        JOIN quota_usage u ON u.tenant_id = l.tenant_id AND u.period = v_day
        LEFT JOIN department_budgets b ON b.department_id = l.department_id AND b.environment = l.environment
        LEFT JOIN quota_department_slots s ON s.department_id = l.department_id AND s.environment = l.environment
            AND s.month = quota_month(v_day) AND s.slot = pg_backend_pid() & 15
    WHERE l.tenant_id = p_tenant AND l.enforce = 'on'
      AND u.completions >= 0 AND u.input_tokens BETWEEN u.held_input_tokens AND 1000000000000000000
      AND u.output_tokens BETWEEN u.held_output_tokens AND 1000000000000000000 AND u.cost_cents < 100000000000
      AND u.cost_cents >= u.held_cost_nanos / 10000000
      -- whoever blocks the tenant takes the ceilings away
      AND (u.limits_ctid IS NOT NULL OR NOT quota_tenant_blocked(p_tenant, p_now))
      AND (l.department_id IS NULL
           OR s.short AND s.band_from <= p_now AND p_now < s.band_until
              AND s.tokens_used + p_in_tokens + p_out_tokens <= s.tokens_ceiling
              AND s.cost_used_nanos + p_cost_nanos <= s.cost_ceiling_nanos
              AND s.budget_ctid IS NOT DISTINCT FROM b.ctid AND s.budget_xmin IS NOT DISTINCT FROM b.xmin)
      AND NOT EXISTS (SELECT FROM quota_reservations r WHERE r.tenant_id = p_tenant AND r.request_id = p_request_id);
    IF v_n IS NULL THEN
        -- a hint, too: the last refusal of this session was a block's
        IF current_setting('quota.blocked', true) IS DISTINCT FROM p_tenant THEN
            RETURN;
        END IF;
        SELECT f.reason, f.tier, f.limit_name, f.limit_value, f.limit_used, f.resets_at, f.retry_after_seconds
        INTO reason, tier, limit_name, limit_value, limit_used, resets_at, retry_after_seconds
        FROM tenant_limits l
            CROSS JOIN LATERAL quota_block_refusal(l.tenant_id, l.department_id, l.environment, l.locale, p_now) f
        WHERE l.tenant_id = p_tenant
          AND NOT EXISTS (SELECT FROM quota_reservations r WHERE r.tenant_id = p_tenant AND r.request_id = p_request_id);
        IF reason IS NOT NULL THEN
            PERFORM quota_refusal_count(p_tenant, v_day, 'blocked', p_now);
        ELSE
            PERFORM set_config('quota.blocked', '', false);
        END IF;
        RETURN;
    END IF;
    tier := CASE v_tier WHEN 1 THEN 'warning' ELSE 'normal' END;
    CASE v_n
        WHEN 1 THEN reason := 'daily_cap_reached'; limit_name := 'daily_completions'; limit_value := v_cap_comp; limit_used := v_comp;
        WHEN 2 THEN reason := 'daily_input_tokens_reached'; limit_name := 'daily_input_tokens'; limit_value := v_cap_in; limit_used := v_in;
        WHEN 3 THEN reason := 'daily_output_tokens_reached'; limit_name := 'daily_output_tokens'; limit_value := v_cap_out; limit_used := v_out;
        WHEN 4 THEN reason := 'daily_cost_reached'; limit_name := 'daily_cost_cents'; limit_value := v_cap_cents; limit_used := v_cents;
        ELSE
            SELECT * INTO reason, limit_name, limit_value, limit_used, resets_at, retry_after_seconds
            FROM quota_bucket_refusal(v_cap, v_rate, v_level, v_at, p_now);
    END CASE;
    IF v_n < 5 THEN
        resets_at := quota_day_start(v_day + 1);
        retry_after_seconds := extract(epoch FROM resets_at - p_now);
    END IF;
    PERFORM quota_refusal_count(p_tenant, v_day, reason, p_now);
END $$;

-- The words of a refusal by an empty bucket: the next token is there when retry_after_seconds have passed.
CREATE OR REPLACE FUNCTION quota_bucket_refusal(
    p_capacity double precision, p_refill_per_sec double precision, p_tokens double precision, p_at timestamptz,
    p_now timestamptz,
    OUT reason text, OUT limit_name text, OUT limit_value bigint, OUT limit_used bigint,
    OUT resets_at timestamptz, OUT retry_after_seconds numeric
) RETURNS record
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_at     timestamptz := greatest(p_at, p_now);
    v_tokens double precision := greatest(least(p_capacity, p_tokens + p_refill_per_sec
                                                * greatest(date_part('epoch', p_now - p_at), 0)), 0);
BEGIN
    reason := 'rate_limited';
    limit_name := 'bucket_capacity';
    limit_value := floor(least(p_capacity, 9e18));
    limit_used := ceil(least(p_capacity - v_tokens, 9e18));
    IF p_refill_per_sec > 0 AND p_capacity >= 1 THEN
        retry_after_seconds := (ceil(least((1 - v_tokens) / p_refill_per_sec, 1e9) * 1e6)::numeric / 1000000)::numeric(20, 6);
        resets_at := v_at + retry_after_seconds::double precision * interval '1 second';
    END IF;
END $$;
